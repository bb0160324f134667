package host

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/host/internal/contract"
)

// Checksum is what a file in the cache folder has in its name.
func Checksum(content []byte) string {
	sum, _ := codecache.Checksum(bytes.NewReader(content))
	return sum
}

// LoadsOutline reports whether the outline of a plugin is loaded, with its code next to
// it or without.
func (h *Host) LoadsOutline(t *testing.T, wasm []byte, stored bool) bool {
	require.True(t, h.code.Ready(t.Context()))
	_, err := h.code.Store(contract.Digest(wasm), func(dir string) error {
		err := compiler.Build(t.Context(), dir, wasm)
		if err == nil && !stored {
			var code string
			_, code, err = compiler.Built(dir)
			err = errors.Join(err, os.Rename(code, filepath.Join(filepath.Dir(code), "ab"))) // which nobody looks for
		}
		return err
	})
	if !stored {
		require.ErrorContains(t, err, "cannot be loaded")
		return false
	}
	require.NoError(t, err)
	return h.code.Find(contract.Digest(wasm)) != nil
}

// Overhead is what each instance of a module takes in addition to its memory, in
// bytes.
func (m *Module) Overhead() int64 { return int64(m.account.Overhead) }
