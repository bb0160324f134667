package plugins

import (
	"fmt"
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
