package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// inChild is a host that compiles in child processes: the binary of this test.
func inChild(t testing.TB, cfg host.Config) *host.Host {
	t.Helper()
	cfg.Compiler = host.ThisProgram()
	return hostWith(t, cfg)
}

// TestCompileInChild: what a child makes is called as what this process makes,
// with a folder for code and without one.
func TestCompileInChild(t *testing.T) {
	dir := t.TempDir()
	for name, cfg := range map[string]host.Config{"kept": {CacheDir: dir}, "not kept": {}} {
		t.Run(name, func(t *testing.T) {
			h := inChild(t, cfg)
			callEcho(t, h)
			require.EqualValues(t, 1, h.Stats().Compiled.Anew)
			require.Equal(t, cfg.CacheDir != "", h.KeepsCode())
		})
	}
	require.True(t, found(t, inChild(t, host.Config{CacheDir: dir}), echo.wasm()), "it was kept")
	require.True(t, found(t, cachedHost(t, dir, 0), echo.wasm()), "it is found in process too")
	_ = context.Background
}
