package registry_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/registry"
)

// shelf is a store in a folder, and a registry whose answers fill it.
type shelf struct {
	dir    string
	store  *registry.Store
	fake   fake
	client *registry.Client
}

func newShelf(t *testing.T) *shelf {
	s := &shelf{dir: filepath.Join(t.TempDir(), "store"), fake: fake{}}
	s.store = registry.NewStore(s.dir)
	s.client = &registry.Client{Store: s.store, Transport: network{"https://r.test": s.fake}}
	return s
}

// pull pulls a module under a name with the tag 1.
func (s *shelf) pull(t *testing.T, name, text string) registry.Artifact {
	t.Helper()
	s.fake.plugin(t, s.fake.add(wasmLayer, wasm(text)))
	s.fake["/v2/"+name+"/manifests/1"] = s.fake["1"]
	a, err := s.client.Pull(t.Context(), ref(t, "oci://r.test/"+name+":1"))
	require.NoError(t, err)
	return a
}

func (s *shelf) blob(d digest.Digest) string {
	return filepath.Join(s.dir, "blobs", "sha256", d.Encoded())
}

// What somebody changed in the store is refused wherever it is read, until it is pulled again.
func TestDamagedStore(t *testing.T) {
	entry := func(s *shelf) string {
		return filepath.Join(s.store.Refs(), digest.FromString("oci://r.test/web:1").Encoded()+".json")
	}
	for name, c := range map[string]struct {
		damage func(t *testing.T, s *shelf, a registry.Artifact)
		is     error
		want   string
	}{
		"a changed module": {func(t *testing.T, s *shelf, a registry.Artifact) {
			require.NoError(t, os.WriteFile(s.blob(a.Module), wasm("evil"), 0o600))
		}, registry.ErrDamaged, "has the content of sha256:"},
		"a module cut short": {func(t *testing.T, s *shelf, a registry.Artifact) {
			require.NoError(t, os.Truncate(s.blob(a.Module), 3))
		}, registry.ErrDamaged, "has the content of sha256:"},
		"a missing module": {func(t *testing.T, s *shelf, a registry.Artifact) {
			require.NoError(t, os.Remove(s.blob(a.Module)))
		}, registry.ErrDamaged, "is missing: run toolhost pull"},
		"a module that is a link": {func(t *testing.T, s *shelf, a registry.Artifact) {
			require.NoError(t, os.Rename(s.blob(a.Module), s.blob(a.Module)+".real"))
			require.NoError(t, os.Symlink(s.blob(a.Module)+".real", s.blob(a.Module)))
		}, owned.ErrUnsafe, "is not a regular file"},
		"the entry of another reference": {func(t *testing.T, s *shelf, a registry.Artifact) {
			s.pull(t, "other", "other")
			other := filepath.Join(s.store.Refs(), digest.FromString("oci://r.test/other:1").Encoded()+".json")
			require.NoError(t, os.Rename(other, entry(s)))
		}, registry.ErrDamaged, `the entry is about "oci://r.test/other:1"`},
		"an entry that is not JSON": {func(t *testing.T, s *shelf, a registry.Artifact) {
			require.NoError(t, os.WriteFile(entry(s), []byte("{"), 0o600))
		}, registry.ErrDamaged, "is not an entry that this version can read"},
		"an entry with another path": {func(t *testing.T, s *shelf, a registry.Artifact) {
			require.NoError(t, os.WriteFile(entry(s), []byte(`{"source":"oci://r.test/web:1","digest":"sha256:../../x","module":"sha256:../../x","size":1}`), 0o600))
		}, registry.ErrDamaged, "is not an entry that this version can read"},
		"an entry with more": {func(t *testing.T, s *shelf, a registry.Artifact) {
			require.NoError(t, os.WriteFile(entry(s), []byte(`{"source":"oci://r.test/web:1","digest":"`+string(a.Digest)+`","module":"`+string(a.Module)+`","size":9,"trusted":true}`), 0o600))
		}, registry.ErrDamaged, "is not an entry that this version can read"},
		"a folder for others": {func(t *testing.T, s *shelf, a registry.Artifact) {
			require.NoError(t, os.Chmod(s.dir, 0o777))
			t.Cleanup(func() { require.NoError(t, os.Chmod(s.dir, 0o700)) })
		}, owned.ErrUnsafe, "can be written by others"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			a := s.pull(t, "web", "x")
			c.damage(t, s, a)

			_, err := fs.ReadFile(s.store.FS(ref(t, "oci://r.test/web:1")), "web.wasm")
			if err == nil || c.want == "is missing: run toolhost pull" {
				_, err = fs.ReadDir(s.store.FS(ref(t, "oci://r.test/web:1")), ".")
			}
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, c.is)

			if c.is == registry.ErrDamaged {
				require.Equal(t, a, s.pull(t, "web", "x"))
				_, err = s.store.Module(a)
				require.NoError(t, err)
			}
		})
	}
}

// A plugin of the store is a folder with one file.
func TestStoreFS(t *testing.T) {
	s := newShelf(t)
	web := ref(t, "oci://r.test/acme/web:1")
	files := s.store.FS(web)
	_, err := fs.ReadDir(files, ".")
	require.ErrorIs(t, err, registry.ErrNotStored)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, "not in the store: run toolhost pull")

	require.Equal(t, files, registry.NewStore(s.dir).FS(web))
	require.NotEqual(t, files, s.store.FS(ref(t, "oci://r.test/acme/web:2")))

	first := s.pull(t, "acme/web", "one")
	read := func(files fs.FS) string {
		data, err := fs.ReadFile(files, "web.wasm")
		require.NoError(t, err)
		return string(data[8:])
	}
	require.Equal(t, "one", read(files))
	entries, err := fs.ReadDir(files, ".")
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "web.wasm", entries[0].Name())
	for _, name := range []string{"other.wasm", "web.toolhost.yaml", "../web.wasm"} {
		_, err = fs.Stat(files, name)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}

	// It changes when the tag is pulled anew, and one with a digest does not.
	pinned := s.store.FS(registry.Reference{Registry: "r.test", Repository: "acme/web", Tag: "1", Digest: first.Digest})
	s.pull(t, "acme/web", "two")
	require.Equal(t, "two", read(files))
	require.Equal(t, "one", read(pinned))
	require.NoError(t, fstest.TestFS(files, "web.wasm"))
}

// Clean removes what is not kept, and what nothing refers to.
func TestClean(t *testing.T) {
	s := newShelf(t)
	_, err := s.store.Clean(func(registry.Artifact) bool { return false }) // of no store
	require.NoError(t, err)
	one := s.pull(t, "web", "one")
	two := s.pull(t, "web", "two")
	other := s.pull(t, "other", "two") // the same module

	cleaned, err := s.store.Clean(func(a registry.Artifact) bool { return true })
	require.NoError(t, err)
	require.Empty(t, cleaned)

	cleaned, err = s.store.Clean(func(a registry.Artifact) bool { return a.Source == other.Source })
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"oci://r.test/web:1", "oci://r.test/web@" + string(one.Digest), "oci://r.test/web@" + string(two.Digest), "oci://r.test/other@" + string(other.Digest),
	}, cleaned.Sources)
	require.Positive(t, cleaned.Bytes)
	_, err = s.store.Module(other)
	require.NoError(t, err)
	_, err = s.store.Read(one.Module)
	require.ErrorIs(t, err, registry.ErrNotStored)
	all, err := s.store.Artifacts()
	require.NoError(t, err)
	require.Equal(t, []registry.Artifact{other}, all)
}

// While others pull, a clean removes nothing that they refer to.
func TestCleanWhilePulling(t *testing.T) {
	s := newShelf(t)
	s.fake.plugin(t, s.fake.add(wasmLayer, wasm("x")))
	web := ref(t, "oci://r.test/web:1")

	done := make(chan struct{})
	var cleaning sync.WaitGroup
	cleaning.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_, _ = s.store.Clean(func(a registry.Artifact) bool { return a.Source == web.String() })
			}
		}
	})
	var pulling sync.WaitGroup
	for range 4 {
		pulling.Go(func() {
			store := registry.NewStore(s.dir) // as another process
			client := &registry.Client{Store: store, Transport: s.client.Transport}
			for range 50 {
				if _, err := client.Pull(t.Context(), web); err != nil && !errors.Is(err, registry.ErrNotStored) { // it says to try again
					t.Error(err)
				}
			}
		})
	}
	pulling.Wait()
	close(done)
	cleaning.Wait()

	all, err := s.store.Artifacts()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, a := range all {
		_, err = s.store.Module(a)
		require.NoError(t, err)
	}
}
