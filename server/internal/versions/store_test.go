package versions

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
)

// A plugin is its digest.
type plugin string

func (p plugin) Digest() (string, error) { return string(p), nil }

func (p plugin) Keep(dir string) error {
	return errors.Join(owned.WriteFile(filepath.Join(dir, string(p)+".wasm"), []byte(p)), owned.WriteFile(filepath.Join(dir, string(p)+".toolhost.yaml"), nil))
}

func image(digest string) host.Image {
	return host.Image{Digest: digest, Encode: func() []byte { return []byte("image " + digest) }}
}

// A machine is a host with a store, and the runs and plugins that the store sees.
type machine struct {
	*Store
	listing   sync.Mutex // guards the next two
	waiting   []engine.Run
	lists     error    // what listing runs fails with
	forgotten []string // versions that were unloaded
	logs      testlog.Buffer
}

func newMachine(t *testing.T, shared engine.Values) *machine {
	t.Helper()
	m := &machine{}
	m.Store = New(Config{DataDir: t.TempDir(), Runs: m, SharedValues: shared, Registry: m, Logger: slog.New(slog.NewTextHandler(&m.logs, nil))})
	return m
}

func (m *machine) List(_ context.Context, q engine.Query) ([]engine.Run, error) {
	if !q.Active {
		return nil, errors.New("all runs are too many")
	}
	m.listing.Lock()
	defer m.listing.Unlock()
	return m.waiting, m.lists
}

func (m *machine) Version(_ context.Context, dir, name, digest string) (*plugins.Plugin, error) {
	if _, err := os.Stat(filepath.Join(dir, digest+".wasm")); err != nil {
		return nil, err
	}
	p := &plugins.Plugin{Manifest: &abi.Manifest{Name: name}}
	p.Tools = []*plugins.Tool{{Name: name + "_tool", Plugin: p}}
	return p, nil
}

func (m *machine) Forget(_ context.Context, digest string) { m.forgotten = append(m.forgotten, digest) }

// files are the files that are kept, below the folder of the store.
func (m *machine) files(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(os.DirFS(m.dir), "*/*")
	require.NoError(t, err)
	return names
}

func run(version string) engine.Run {
	return engine.Run{ID: "bg_1", Provider: engine.Provider{Plugin: "p"}, Tool: "p_tool", Version: version, Waiting: engine.Waiting{StateSize: 1}}
}

// TestKeep: a plugin and the memory it starts with are kept once.
func TestKeep(t *testing.T) {
	m := newMachine(t, nil)
	for _, i := range []string{"one", "two", "one"} {
		require.NoError(t, m.Keep(t.Context(), plugin("d"), image(i)))
	}
	require.Equal(t, []string{"d/d.toolhost.yaml", "d/d.wasm", "d/one.image", "d/two.image"}, m.files(t))

	data, err := m.Image(t.Context(), "d", "two")
	require.NoError(t, err)
	require.Equal(t, "image two", string(data))
	_, err = m.Image(t.Context(), "d", "three")
	require.ErrorIs(t, err, fs.ErrNotExist)

	tool, err := m.Tool(t.Context(), run("d"))
	require.NoError(t, err)
	require.Equal(t, "p_tool", tool.Name)
}

// TestLacking: what was not kept does not exist, wherever a version says that it is.
func TestLacking(t *testing.T) {
	m := newMachine(t, newArchive(t).values)
	require.NoError(t, m.Keep(t.Context(), plugin("d"), image("one")))
	for _, version := range []string{"", "other", "../versions/d"} {
		_, err := m.Tool(t.Context(), run(version))
		require.ErrorIs(t, err, fs.ErrNotExist, version)
	}
	other := run("d")
	other.Tool = "other"
	_, err := m.Tool(t.Context(), other)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Empty(t, m.logs.String())
}

// TestWithoutFolder: a store without a folder keeps nothing, and reads no files.
func TestWithoutFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, owned.WriteFile(filepath.Join("d", "one.image"), nil))
	s := New(Config{SharedValues: newArchive(t).values})
	require.NoError(t, s.Keep(t.Context(), plugin("d"), image("two")))
	_, err := s.Image(t.Context(), "d", "one")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = s.Tool(t.Context(), run("d"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoFileExists(t, filepath.Join("d", "two.image"))
	s.Maintain(t.Context())
}

// TestPrune: only the versions go that no run waits with.
func TestPrune(t *testing.T) {
	m := newMachine(t, nil)
	require.NoError(t, m.Prune(t.Context()), "there is no folder yet")
	m.waiting = []engine.Run{run("waits"), {Version: "works"}}
	for _, digest := range []string{"waits", "works", "ended"} {
		require.NoError(t, m.Keep(t.Context(), plugin(digest), image("one")))
	}

	m.lists = errors.New("the database is away")
	require.ErrorIs(t, m.Prune(t.Context()), m.lists)
	require.Len(t, m.files(t), 9)

	m.lists = nil
	require.NoError(t, m.Prune(t.Context()))
	require.Equal(t, []string{"ended", "works"}, m.forgotten)
	require.Len(t, m.files(t), 3)

	require.NoError(t, m.Keep(t.Context(), plugin("ended"), image("one")))
	require.Len(t, m.files(t), 6, "it is kept again")
}

// TestPruneInUse: a version that a run begins to wait with while the runs are read stays.
func TestPruneInUse(t *testing.T) {
	m := newMachine(t, nil)
	require.NoError(t, m.Keep(t.Context(), plugin("d"), image("one")))
	m.cfg.Runs = runs(func() []engine.Run {
		require.NoError(t, m.Keep(t.Context(), plugin("d"), image("two")))
		return nil
	})
	require.NoError(t, m.Prune(t.Context()))
	require.Len(t, m.files(t), 4)
	require.Empty(t, m.forgotten)
}

type runs func() []engine.Run

func (f runs) List(context.Context, engine.Query) ([]engine.Run, error) { return f(), nil }

// TestMaintain prunes every ten minutes, and says what does not succeed.
func TestMaintain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, nil)
		require.NoError(t, m.Keep(t.Context(), plugin("d"), image("one")))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		m.lists = errors.New("the database is away")
		go func() { defer close(ended); m.Maintain(ctx) }()

		time.Sleep(pruneEvery)
		synctest.Wait()
		require.Contains(t, m.logs.String(), "the database is away")
		require.Len(t, m.files(t), 3)

		m.listing.Lock()
		m.lists = nil
		m.listing.Unlock()
		time.Sleep(pruneEvery)
		synctest.Wait()
		require.Empty(t, m.files(t))
		cancel()
		<-ended
	})
}

// TestOtherHost: a host gets what another one kept, and only whole versions.
func TestOtherHost(t *testing.T) {
	a := newArchive(t)
	first, second := newMachine(t, a.values), newMachine(t, a.values)
	require.NoError(t, first.Keep(t.Context(), plugin("d"), image("one")))
	_, err := second.Tool(t.Context(), run("d"))
	require.NoError(t, err)
	require.Equal(t, first.files(t), second.files(t))

	require.NoError(t, first.Keep(t.Context(), plugin("d"), image("two")), "it is shared at once")
	data, err := second.Image(t.Context(), "d", "two")
	require.NoError(t, err)
	require.Equal(t, "image two", string(data))
	require.Equal(t, first.files(t), second.files(t))

	require.NoError(t, a.put(t.Context(), "half", "one.image", contentOf(nil)))
	_, err = second.Tool(t.Context(), run("half"))
	require.ErrorIs(t, err, fs.ErrNotExist, "its host has not stored the plugin yet")
	require.NoDirExists(t, second.folder("half"))
}

// TestSharedAgain: a host that uses a version keeps it for the others.
func TestSharedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		m, other := newMachine(t, a.values), newMachine(t, a.values)
		for range 5 {
			require.NoError(t, m.Keep(t.Context(), plugin("d"), image("one")))
			require.NoError(t, other.Prune(t.Context()))
			time.Sleep(freshFor)
		}
		require.NotEmpty(t, a.all(t, "d"))
		time.Sleep(spareAfter)
		require.NoError(t, other.Prune(t.Context()))
		require.Empty(t, a.all(t, "d"))
	})
}
