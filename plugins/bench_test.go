package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// BenchmarkOpen measures reading a folder of two hundred plugins with sealed
// manifests, of which it compiles none.
func BenchmarkOpen(b *testing.B) {
	files := fstest.MapFS{}
	for i := range 200 {
		name := fmt.Sprintf("plugin%d", i)
		files[name+".wasm"] = &fstest.MapFile{Data: sealed(named(name)), Mode: 0o644}
	}
	h := newHost(b)
	for b.Loop() {
		r, err := Open(b.Context(), h, Config{Folders: []Folder{{Path: "plugins", FS: files}}})
		require.NoError(b, err)
		require.Len(b, r.Tools(), 200)
	}
}

// BenchmarkPoll measures one look at a folder of two hundred plugins, see Watch.
func BenchmarkPoll(b *testing.B) {
	dir := b.TempDir()
	for i := range 200 {
		require.NoError(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("plugin%d.wasm", i)), nil, 0o600))
	}
	for b.Loop() {
		look([]string{dir}, "")
	}
}
