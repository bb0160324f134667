package host

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host/internal/compiler"
)

// Checksum is what a file in the cache folder has in its name.
func Checksum(content []byte) string {
	sum, _ := checksum(bytes.NewReader(content))
	return sum
}

// LoadsOutline reports whether the outline of a plugin can be loaded, before or
// after its code was stored.
func (h *Host) LoadsOutline(t *testing.T, wasm []byte, stored bool) bool {
	c := h.openCode(t.Context())
	require.NotNil(t, c)
	if stored {
		_, err := c.store(digestOf(wasm), func(dir string) (compiler.Output, error) { return compiler.Build(t.Context(), dir, wasm) })
		require.NoError(t, err)
		return c.find(digestOf(wasm)) != nil
	}
	program, err := compiler.Rewrite(wasm)
	require.NoError(t, err)
	short, err := compiler.Outline(program.Wasm)
	require.NoError(t, err)
	return c.load(short, nil) != nil
}

// Overhead is what each instance of a module takes in addition to its memory, in
// bytes.
func (m *Module) Overhead() int64 { return m.account.Overhead() }

// ListEntry is what is found of an entry of a cache, of one file.
func ListEntry(dir, key, file string) (found []string) {
	f := &cacheFolder{dir: dir, entries: filepath.Join(dir, entriesFolder)}
	for _, s := range f.list(key) {
		if s.path == file {
			found = append(found, s.path)
		}
	}
	return found
}
