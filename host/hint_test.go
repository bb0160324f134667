package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestHints: an error of a library that does not know the sandbox says what the plugin
// does not have, whether a reactor or a command fails with it.
func TestHints(t *testing.T) {
	const network, folders, platform = " (plugins have no network but the operation http: in Go, import guest/web)", " (a plugin reaches only the folders that it was granted)", " (plugins have no network, no threads and no other programs)"
	h := newHost(t, nil)
	for said, hint := range map[string]string{
		"dial tcp 127.0.0.1:80: address 127.0.0.1:80: connect: Connection refused":                         network,
		"lookup example.com on [::1]:53: write udp 127.0.0.1:8->[::1]:53: write: Connection reset by peer": network,
		"dial tcp: Connection refused" + network:                                                           "",
		"operation not supported on this platform":                                                         platform,
		"fopen: Capabilities insufficient":                                                                 folders,
		"open /data/none: No such file or directory":                                                       "",
		"there is nobody to greet":                                                                         "",
	} {
		say := func(stream abi.Stream) *plugintest.Program { return plugintest.Do().Say(stream, said) }
		o := do(context.Background(), h, compile(t, h, plugintest.Plugin{Invoke: say(abi.StreamError).Return(1)}.Wasm()), host.Call{})
		require.NoError(t, o.err)
		require.Equal(t, abi.ToolError, o.Kind)
		require.Equal(t, said+hint, o.Error)

		o = do(context.Background(), h, compile(t, h, plugintest.Plugin{Command: true, Invoke: say(abi.StreamStderr).Exit(1)}.Wasm()), host.Call{})
		require.NoError(t, o.err)
		require.Equal(t, "exited with code 1"+hint+": "+said, o.Error)
	}

	o := do(context.Background(), h, compile(t, h, plugintest.Plugin{Invoke: plugintest.Do().Say(abi.StreamResult, `"Connection refused"`).Return(0)}.Wasm()), host.Call{})
	require.NoError(t, o.err)
	require.JSONEq(t, `"Connection refused"`, string(o.Value), "a result is the plugin's own")
}

// TestNoSuchFolder: a path in no granted folder does not exist, and the host says why.
func TestNoSuchFolder(t *testing.T) {
	const text = "No such file or directory"
	for folder, want := range map[int64]string{-1: text + " (a plugin reaches only the folders that it was granted)", 3: text} {
		g := wasiGuest("sched_yield", "", drop(openNew(folder, canRead, 0)), drop(write(abi.StreamError, dataAt, int64(len(text)))), op(wasmbin.OpReturn, i32(1)))
		g.data = text
		o := run(t, g, host.Call{Policy: folderOf(t.TempDir())})
		require.NoError(t, o.err)
		require.Equal(t, want, o.Error)
	}
}

// TestNoConnections: the host sees that a plugin uses WASI's functions for connections,
// in whatever words the plugin fails then.
func TestNoConnections(t *testing.T) {
	for name, want := range map[string]string{
		"sock_shutdown": "Bad file descriptor (plugins have no network but the operation http: in Go, import guest/web)",
		"fd_fdstat_get": "Bad file descriptor",
	} {
		g := guest{data: "Bad file descriptor", invoke: seq(drop(wasi(fnYield, 9, 2)), drop(write(abi.StreamError, dataAt, 19)), i32(1))}
		g.change = func(m *wasmbin.Module) {
			m.Imports[fnYield] = wasmbin.Import{Module: abi.ImportWASI, Name: name, Type: uint32(len(m.Types))}
			m.Types = append(m.Types, sig("ii", true))
		}
		o := run(t, g, host.Call{})
		require.NoError(t, o.err)
		require.Equal(t, abi.ToolError, o.Kind)
		require.Equal(t, want, o.Error)
	}
}
