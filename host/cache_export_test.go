package host

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Checksum is what a file in the cache folder has in its name.
func Checksum(content []byte) string {
	sum, _ := checksum(bytes.NewReader(content))
	return sum
}

// LoadsOutline reports whether the outline of a plugin can be loaded, before or
// after its code was stored.
func (h *Host) LoadsOutline(t *testing.T, wasm []byte, stored bool) bool {
	program, err := rewrite(wasm)
	require.NoError(t, err)
	require.True(t, h.code.open(t.Context()))
	if stored {
		require.NoError(t, h.code.store(t.Context(), digestOf(wasm), program))
		return h.code.find(digestOf(wasm)) != nil
	}
	short, err := outline(program.Wasm)
	require.NoError(t, err)
	return h.code.load(short, nil) != nil
}
