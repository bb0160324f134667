package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/testlog"
)

// TestMCPClient drives the commands mcp and serve with the client of the Go SDK, in both
// eras of the protocol: it lists the tools, calls one, and spawns, checks and stops runs.
func TestMCPClient(t *testing.T) {
	for name, connect := range map[string]func(t *testing.T) mcp.Transport{"stdio": commandTransport, "http": serverTransport} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(name+" "+version, func(t *testing.T) {
				client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
				s, err := client.Connect(t.Context(), connect(t), &mcp.ClientSessionOptions{ProtocolVersion: version})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })

				useTools(t, s)
			})
		}
	}
}

func useTools(t *testing.T, s *mcp.ClientSession) {
	list, err := s.ListTools(t.Context(), nil)
	require.NoError(t, err)
	names := []string{}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	require.ElementsMatch(t, []string{"echo", "spin", "spawn_background", "check_background", "stop_background"}, names)

	text := func(name, args string) string {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
		require.NoError(t, err)
		require.Len(t, r.Content, 1)
		require.False(t, r.IsError, "%+v", r.Content[0])
		return r.Content[0].(*mcp.TextContent).Text
	}
	answer := func(name, args string) (a struct {
		TaskID string `json:"task_id"`
		Status string
		Result json.RawMessage
	}) {
		require.NoError(t, json.Unmarshal([]byte(text(name, args)), &a))
		return a
	}
	require.JSONEq(t, `{"n":1}`, text("echo", `{"n":1}`))
	_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "none"})
	require.ErrorContains(t, err, "none")

	quick := answer("spawn_background", `{"tool":"echo","args":{"n":2}}`)
	ended := answer("check_background", `{"task_id":"`+quick.TaskID+`","wait_seconds":30}`)
	require.Equal(t, "succeeded", ended.Status)
	require.JSONEq(t, `{"n":2}`, string(ended.Result))

	slow := answer("spawn_background", `{"tool":"spin","args":{}}`)
	require.Equal(t, "canceled", answer("stop_background", `{"task_id":"`+slow.TaskID+`","force":true}`).Status)
}

// clientPlugins writes the plugins that clients call, and returns their folder.
func clientPlugins(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, invoke := range map[string]*plugintest.Program{"echo": plugintest.Do().Echo(), "spin": plugintest.Do().Spin()} {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints.SupportsBackground = true
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".wasm"), plugintest.Plugin{Manifest: m, Invoke: invoke}.Wasm(), 0o600))
	}
	return dir
}

// TestMCPApproval: the operator decides on the calls of agents on stdin and stdout, whichever
// process of the data folder serves them.
func TestMCPApproval(t *testing.T) {
	data := t.TempDir()
	t.Setenv("TOOLHOST_DATA", data)
	settings := filepath.Join(t.TempDir(), "toolhost.yaml")
	require.NoError(t, os.WriteFile(settings, []byte("approve: ask\napprovals: {tools: {echo: ask}}\n"), 0o600))
	t.Setenv("TOOLHOST_CONFIG", settings)
	operator := func(args ...string) string {
		code, out, errs := toolhost(t.Context(), append([]string{"approve"}, args...)...)
		require.Equal(t, exitOK, code, errs)
		return out
	}
	text := func(s *mcp.ClientSession, name string, args map[string]any) string {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		require.NoError(t, err)
		return r.Content[0].(*mcp.TextContent).Text
	}

	held := map[string]*mcp.ClientSession{}
	for range 2 {
		s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), startMCP(t), nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		id := regexp.MustCompile(`toolhost approve (bg_[a-z2-7]{26})`).FindStringSubmatch(text(s, "echo", map[string]any{"n": 1}))
		require.NotNil(t, id)
		held[id[1]] = s
	}
	require.FileExists(t, filepath.Join(data, "mcp-2", socketName))

	for id, s := range held {
		require.Contains(t, operator(), id)
		require.Contains(t, operator(id, "--show"), "echo")
		require.Contains(t, operator(id), "approved")
		require.Contains(t, text(s, "check_background", map[string]any{"task_ids": []string{id}, "wait_seconds": 30}), `"succeeded"`)
		code, _, errs := toolhost(t.Context(), "approve", id)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "no call with the id")
	}
	require.Contains(t, operator(), "Nothing waits")
}

// commandTransport is stdin and stdout of toolhost mcp, which ends with the test.
func commandTransport(t *testing.T) mcp.Transport {
	t.Setenv("TOOLHOST_DATA", t.TempDir())
	return startMCP(t)
}

// startMCP is commandTransport on the data folder in force.
func startMCP(t *testing.T) mcp.Transport {
	t.Setenv("TOOLHOST_WATCH", "false") // a system can have too few watches, which is logged
	serverIn, clientOut := io.Pipe()
	clientIn, serverOut := io.Pipe()
	errs, ended := new(testlog.Buffer), make(chan int, 1)
	plugins := clientPlugins(t)
	go func() {
		ended <- run(context.Background(), []string{"mcp", "--plugins", plugins}, serverIn, serverOut, errs)
		_ = serverOut.Close()
	}()
	t.Cleanup(func() { require.Equal(t, exitOK, <-ended, errs) })
	return &mcp.IOTransport{Reader: clientIn, Writer: clientOut}
}

// serverTransport is an HTTP connection to toolhost serve, which ends with the test.
func serverTransport(t *testing.T) mcp.Transport {
	said := startServer(t, "--listen", "127.0.0.1:0", "--plugins", clientPlugins(t))
	url := regexp.MustCompile(`listening on (http://127\.0\.0\.1:\d+)`).FindStringSubmatch(said.String())
	require.NotNil(t, url, said)
	return &mcp.StreamableClientTransport{Endpoint: url[1] + "/mcp"}
}
