package host

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
)

// Checksum is what a file in the cache folder has in its name.
func Checksum(content []byte) string {
	sum, _ := codecache.Checksum(bytes.NewReader(content))
	return sum
}

// LoadsOutline reports whether the outline of a plugin can be loaded, before or
// after its code was stored.
func (h *Host) LoadsOutline(t *testing.T, wasm []byte, stored bool) bool {
	require.True(t, h.code.Ready(t.Context()))
	if stored {
		_, err := h.code.Store(digestOf(wasm), func(dir string) error { return compiler.Build(t.Context(), dir, wasm) })
		require.NoError(t, err)
		return h.code.Find(digestOf(wasm)) != nil
	}
	program, m, err := compiler.Rewrite(wasm)
	require.NoError(t, err)
	return h.code.LoadsOutline(compiler.Outline(m, program.Wasm))
}

// Overhead is what each instance of a module takes in addition to its memory, in
// bytes.
func (m *Module) Overhead() int64 { return int64(m.account.Overhead) }
