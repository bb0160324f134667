//go:build !race

package host_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest/bombs"
)

// TestCompileLimit: a module that takes more than it may is refused. It is not
// tried again, by this host or the next, until it may take more. With the race
// detector a process cannot have so little memory.
func TestCompileLimit(t *testing.T) {
	dir := t.TempDir()
	little := host.Config{CacheDir: dir, CompileMemory: 300 << 20}
	wasm := manyFunctions(700_000)
	h := inChild(t, little)
	_, err := h.Compile(t.Context(), wasm)
	require.ErrorIs(t, err, host.ErrCompileLimit)
	require.ErrorIs(t, err, host.ErrABI)
	require.ErrorContains(t, err, "more than the 300 MiB of memory allowed")
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
	require.NoError(t, more.Refused(digest), "it would be tried again")
}

// manyFunctions is a module that takes a kilobyte of memory to compile for each of
// its functions.
func manyFunctions(n int) []byte {
	all := bombs.All()
	i := slices.IndexFunc(all, func(b bombs.Bomb) bool { return b.Name == "functions" })
	return all[i].Make(n)
}
