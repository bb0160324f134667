//go:build !race

package host_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// TestCompileLimit: a module that takes more than it may is refused. It is not
// tried again, by this host or the next, until it may take more. With the race
// detector a process cannot have so little memory.
func TestCompileLimit(t *testing.T) {
	dir := t.TempDir()
	little := host.Config{CacheDir: dir, CompileMemory: 40 << 20}
	wasm := heavy()
	h := inChild(t, little)
	_, err := h.Compile(t.Context(), wasm)
	require.ErrorIs(t, err, host.ErrCompileLimit)
	require.ErrorIs(t, err, host.ErrABI)
	require.ErrorContains(t, err, "more than the 40 MiB of memory allowed")
	var module *host.ModuleError
	require.ErrorAs(t, err, &module)

	digest := digestOf(wasm)
	require.Equal(t, err.Error(), h.Refused(digest).Error())
	for name, again := range map[string]*host.Host{"same host": h, "next host": inChild(t, little)} {
		_, err := again.Compile(t.Context(), wasm)
		require.ErrorIs(t, err, host.ErrCompileLimit, name)
		require.Zero(t, again.Stats().Compiled.Cached, name)
	}

	more := inChild(t, host.Config{CacheDir: dir})
	callEcho(t, more)
	require.NoError(t, more.Refused(digest))
	m, err := more.Compile(t.Context(), wasm)
	require.NoError(t, err)
	require.NoError(t, m.Close(t.Context()))
}
