package plugins

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var errMissing = errors.New("not pulled yet")

// shelfFS is a file system that may have its plugin.
type shelfFS struct {
	fstest.MapFS
	pulled atomic.Bool
}

func (s *shelfFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if !s.pulled.Load() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errMissing}
	}
	return s.MapFS.ReadDir(name)
}

// A folder of one plugin is named in messages as it is, and is read again when another
// folder changes.
func TestSingle(t *testing.T) {
	shelf := &shelfFS{MapFS: fstest.MapFS{"web.wasm": {Data: sealed(named("web")), Mode: 0o644}}}
	dir := t.TempDir()
	const name = "oci://r.test/web:1"
	w := watchWith(t, Config{Folders: []Folder{Single(name, shelf, dir)}})
	require.Equal(t, []string{name + ": not pulled yet"}, problems(w.Registry))

	shelf.pulled.Store(true)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ref"), nil, 0o600))

	w.until("web")
	require.Empty(t, problems(w.Registry))
	require.Equal(t, name, w.Plugins()[0].File)
}
