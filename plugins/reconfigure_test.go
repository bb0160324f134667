package plugins

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// Folders may be added, removed and moved. A plugin whose folder stays is the same one, and
// keeps its compiled code.
func TestReconfigureFolders(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, a+"/a.wasm", saying("a", "A.", 1))
	write(t, b+"/b.wasm", saying("b", "B.", 2))
	memory := fstest.MapFS{"m.wasm": wasmFile(saying("m", "M.", 3))}
	inMemory := Folder{Path: "memory", FS: memory}
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(a), inMemory}})
	require.Equal(t, "1", answer(t, r, "a"))
	plugin := func(name string) *Plugin {
		tool, err := r.Lookup(name)
		require.NoError(t, err)
		return tool.Plugin
	}
	first, kept := plugin("a"), plugin("m")

	for _, step := range []struct {
		name    string
		folders []Folder
		want    Changes
		tools   []string
	}{
		{"one is added before", []Folder{Dir(b), Dir(a), inMemory}, Changes{Added: []string{"b"}, ToolsAdded: []string{"b"}}, []string{"a", "b", "m"}},
		{"they are moved", []Folder{inMemory, Dir(a), Dir(b)}, Changes{}, []string{"a", "b", "m"}},
		{"one is removed", []Folder{inMemory, Dir(a)}, Changes{Removed: []string{"b"}, ToolsRemoved: []string{"b"}}, []string{"a", "m"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			c, err := r.Reconfigure(t.Context(), func(c *Config) { c.Folders = step.folders })
			require.NoError(t, err)
			require.Equal(t, step.want, c)
			require.Equal(t, step.tools, toolNames(r))
			require.Same(t, first, plugin("a"))
			require.Same(t, kept, plugin("m"))
			require.Empty(t, reload(t, r))
		})
	}

	t.Run("another one has its path", func(t *testing.T) {
		other := Folder{Path: "memory", FS: fstest.MapFS{"m.wasm": wasmFile(saying("m", "M.", 4))}}
		c, err := r.Reconfigure(t.Context(), func(c *Config) { c.Folders = []Folder{other, Dir(a)} })
		require.NoError(t, err)
		require.Equal(t, []string{"m"}, c.Changed)
		require.Equal(t, "4", answer(t, r, "m"))
	})

	t.Run("one is there twice", func(t *testing.T) {
		c, err := r.Reconfigure(t.Context(), func(c *Config) { c.Folders = []Folder{Dir(a), Dir(a)} })
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"a", "m"}, c.Removed)
		require.Len(t, c.Problems, 2, "both claim the name")
	})
}

// A folder that comes with a reload is watched, and one that went is not any more.
func TestWatchFollowsTheConfiguration(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	w := openWatched(t)
	_, err := w.Reconfigure(t.Context(), func(c *Config) { c.Folders = []Folder{Dir(a)} })
	require.NoError(t, err)
	write(t, a+"/a.wasm", sealed(named("a")))
	w.until("a")

	_, err = w.Reconfigure(t.Context(), func(c *Config) { c.Folders = []Folder{Dir(b)} })
	require.NoError(t, err)
	require.NoError(t, os.Remove(a+"/a.wasm"))
	write(t, b+"/b.wasm", sealed(named("b")))
	w.until("b")
}

// Interpreting a plugin, or compiling it again, takes a reload.
func TestReconfigureInterpret(t *testing.T) {
	r := openMap(t, fstest.MapFS{"p.wasm": wasmFile(saying("p", "P.", 1)), "q.wasm": wasmFile(saying("q", "Q.", 2))})
	for _, interpret := range [][]string{{"p"}, nil} {
		c, err := r.Reconfigure(t.Context(), func(c *Config) { c.Interpret = interpret })
		require.NoError(t, err)
		require.Equal(t, []string{"p"}, c.Changed)
		require.Empty(t, c.ToolsChanged)
		require.Equal(t, "1", answer(t, r, "p"))
	}
}

// The attached value changes in the same moment as the tools: whoever looks sees both as
// they were, or both as they are.
func TestReconfigureAttached(t *testing.T) {
	m := plugintest.Manifest("p")
	m.Needs = abi.Needs{Clock: true}
	r := openMap(t, fstest.MapFS{"p.wasm": wasmFile(plugintest.Plugin{Manifest: m, Invoke: plugintest.Do()}.Wasm())})
	granted := func(clock bool) func(*Config) {
		return func(c *Config) { c.Grants, c.Attached = map[string]Grant{"p": {Clock: clock}}, clock }
	}
	_, err := r.Reconfigure(t.Context(), granted(false))
	require.NoError(t, err)

	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			if _, err := r.Reconfigure(t.Context(), granted(i%2 == 0)); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		v := r.View()
		tool, err := v.Lookup("p")
		require.NoError(t, err)
		require.Equal(t, v.Attached(), tool.Plugin.Grant.Clock)
		select {
		case <-done:
			return
		default:
		}
	}
}

// What is not to change stays.
func TestReconfigureKeepsTheRest(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/list_tools.wasm", sealed(named("reserved")))
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}, Reserved: []string{"reserved"}})
	require.Empty(t, toolNames(r))
	c, err := r.Reconfigure(t.Context(), func(c *Config) { c.Reserved = nil })
	require.NoError(t, err)
	require.Empty(t, c)
	require.Empty(t, toolNames(r))
}

// A configuration that is found elsewhere has another lock. One that cannot be used changes
// nothing.
func TestReconfigureLock(t *testing.T) {
	s := accepting(t, map[string][]byte{"box.wasm": genuine(nil)}, nil)
	r := s.open()
	other := Lock{File: filepath.Join(t.TempDir(), lock.Name)}
	to := func(k Lock) error {
		_, err := r.Reconfigure(t.Context(), func(cfg *Config) { cfg.Lock = k })
		return err
	}

	require.NoError(t, os.WriteFile(other.File, []byte("version: 9\n"), 0o600))
	require.ErrorIs(t, to(other), lock.ErrVersion)
	require.Len(t, r.Tools(), 1)
	require.NoError(t, os.WriteFile(other.File, []byte("version: 1\nplugins: []\n"), 0o600))
	require.NoError(t, to(other))
	require.Empty(t, r.Tools())
	require.Equal(t, []string{"plugins/box.wasm: the plugin box is not in toolhost.lock: toolhost lock box accepts it"}, problems(r))
	require.NoError(t, to(s.cfg.Lock))
	require.Equal(t, "1", answer(t, r, "box"))
	require.Empty(t, problems(r))
}
