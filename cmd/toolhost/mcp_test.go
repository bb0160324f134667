package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/testlog"
)

// mcp speaks the protocol on stdin and stdout, and ends when stdin does.
func TestMCP(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "echo.wasm"), plugintest.Plugin{Manifest: plugintest.Manifest("echo")}.Wasm(), 0o600))
	t.Setenv("TOOLHOST_PLUGINS", dir)
	data := t.TempDir()
	t.Setenv("TOOLHOST_DATA", data)
	t.Setenv("TOOLHOST_WATCH", "false") // a system can have too few watches, which is logged
	in, typed := io.Pipe()
	out, errs, ended := new(testlog.Buffer), new(testlog.Buffer), make(chan int)
	go func() { ended <- run(t.Context(), []string{"mcp"}, in, out, errs) }()
	say := func(line string) {
		_, err := fmt.Fprintln(typed, line)
		require.NoError(t, err)
	}
	hear := func(part string) {
		require.Eventually(t, func() bool { return strings.Contains(out.String(), part) }, 2*time.Minute, 5*time.Millisecond)
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"script","version":"1"}}}`)
	hear(`"serverInfo":{"name":"toolhost"`)
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	say(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`)
	hear(`"name":"echo"`)
	require.FileExists(t, filepath.Join(data, "mcp", socketName))
	require.NoError(t, typed.Close())
	require.Equal(t, exitOK, <-ended, errs)
	require.Empty(t, errs.String())
	require.NoFileExists(t, filepath.Join(data, "mcp", socketName))
}
