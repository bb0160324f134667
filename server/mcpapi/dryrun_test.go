package mcpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// A connection in a dry run stays in it, however it was begun: by a header that the
// program around the handler reads, by the address, or by the flag of the command.
func TestDryRunConnections(t *testing.T) {
	type result struct {
		N int `json:"n"`
	}
	s := open(t, server.Config{Tools: []gotool.Tool{
		{Name: "writes", Description: "For tests.", Hints: abi.Hints{SupportsBackground: true},
			Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (gotool.None, error) { panic("called") })},
		{Name: "shaped", Description: "For tests.",
			Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (result, error) { panic("called") })},
		{Name: "reads", Description: "For tests.", Hints: abi.Hints{Readonly: true},
			Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (string, error) { return "read", nil })},
	}})
	h, err := mcpapi.NewHandler(s, mcpapi.Config{Version: "test"})
	require.NoError(t, err)
	defer h.Close()

	id := 0
	post := func(path string, dry bool, connection, method, params string) (string, http.Header) {
		id++
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if connection != "" {
			r.Header.Set("Mcp-Session-Id", connection)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(identity.NewContext(r.Context(), identity.Caller{Session: "dry", DryRun: dry})))
		return w.Body.String(), w.Header()
	}

	for name, door := range map[string]struct {
		path         string
		first, later bool // whether the header is there
	}{
		"header":                      {"/mcp", true, true},
		"header of the first request": {"/mcp", true, false},
		"address":                     {"/mcp?dry_run=true", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, head := post(door.path, door.first, "", "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
			connection := head.Get("Mcp-Session-Id")
			require.NotEmpty(t, connection)
			call := func(tool, args string) string {
				answer, _ := post(door.path, door.later, connection, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
				return answer
			}
			require.Contains(t, call("reads", `{}`), "read")
			require.Contains(t, call("writes", `{}`), "writes was not called")
			require.Contains(t, call("shaped", `{}`), `"isError":true`, "what is described does not fit its output schema")
			require.Contains(t, call("spawn_background", `{"tool":"writes","args":{}}`), `dry_run`)
		})
	}

	runs, err := s.AllSessions().Runs(t.Context(), server.RunQuery{})
	require.NoError(t, err)
	require.Empty(t, runs)
}
