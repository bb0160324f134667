package mcpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// send makes a request with exactly those headers.
func (e *endpoint) send(method, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(e.t.Context(), method, "http://localhost/mcp", strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

const meta2026 = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// The requirements that the streamable HTTP transport has for servers, in both eras.
func TestTransport(t *testing.T) {
	const (
		list   = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta2026 + `}}`
		call   = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"is":"there"},` + meta2026 + `}}`
		read   = `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"toolhost://runs/ü/x",` + meta2026 + `}}`
		legacy = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
		both   = "application/json, text/event-stream"
	)
	type headers = []string
	modern := func(method string, more ...string) headers {
		return append(headers{"Content-Type", "application/json", "Accept", both, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}, more...)
	}
	old := func(more ...string) headers {
		return append(headers{"Content-Type", "application/json", "Accept", both, "Mcp-Session-Id", "SESSION"}, more...)
	}
	for _, test := range []struct {
		name, method, body string
		headers            headers
		status             int
		says               string
	}{
		{"modern", "POST", list, modern("tools/list"), 200, `"tools":[`},
		{"header names in any case", "POST", list, headers{"content-type", "application/json", "ACCEPT", both, "mcp-protocol-version", "2026-07-28", "MCP-METHOD", "tools/list"}, 200, `"tools":[`},
		{"a charset", "POST", list, append(headers{"Content-Type", "Application/JSON; charset=utf-8"}, modern("tools/list")[2:]...), 200, `"tools":[`},
		{"another type", "POST", list, append(headers{"Content-Type", "text/plain"}, modern("tools/list")[2:]...), 415, ""},
		{"no type", "POST", list, modern("tools/list")[2:], 415, ""},
		{"accepts all", "POST", list, headers{"Content-Type", "application/json", "Accept", "*/*", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 200, `"tools":[`},
		{"accepts in two lines", "POST", list, headers{"Content-Type", "application/json", "Accept", "application/json;q=0.9", "Accept", "text/event-stream", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 200, `"tools":[`},
		{"accepts no stream", "POST", list, headers{"Content-Type", "application/json", "Accept", "application/json", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, "Accept"},
		{"accepts nothing", "POST", list, headers{"Content-Type", "application/json", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, "Accept"},
		{"a session and a place in a stream are ignored", "POST", list, modern("tools/list", "Mcp-Session-Id", "gone", "Last-Event-ID", "x_1"), 200, `"tools":[`},

		{"no revision in the header", "POST", list, append(headers{}, modern("tools/list")[:4]...), 400, `-32020`},
		{"another revision in the header", "POST", list, append(headers{"Mcp-Protocol-Version", "2025-11-25"}, append(modern("tools/list")[:4:4], "Mcp-Method", "tools/list")...), 400, `-32020`},
		{"no revision in the body", "POST", legacy, modern("tools/list"), 400, `-32602`},
		{"no capabilities", "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, modern("tools/list"), 400, `-32602`},
		{"an unknown older revision", "POST", strings.Replace(list, "2026-07-28", "1900-01-01", 1), append(headers{"Mcp-Protocol-Version", "1900-01-01"}, append(modern("tools/list")[:4:4], "Mcp-Method", "tools/list")...), 400, `-32022`},
		{"a later revision", "POST", strings.Replace(list, "2026-07-28", "2099-01-01", 1), append(headers{"Mcp-Protocol-Version", "2099-01-01"}, append(modern("tools/list")[:4:4], "Mcp-Method", "tools/list")...), 400, `-32022`},
		{"a header twice", "POST", list, modern("tools/list", "Mcp-Method", "tools/list"), 400, `-32020`},
		{"another method", "POST", list, modern("tools/call"), 400, `-32020`},
		{"another case of the method", "POST", list, modern("Tools/list"), 400, `-32020`},
		{"no method", "POST", list, modern("x")[:6], 400, `-32020`},
		{"a method that is not there", "POST", strings.Replace(list, "tools/list", "tasks/result", 1), modern("tasks/result"), 404, `-32601`},
		{"a name", "POST", call, modern("tools/call", "Mcp-Name", "echo"), 200, `there`},
		{"a name in base64", "POST", call, modern("tools/call", "Mcp-Name", "=?base64?ZWNobw==?="), 200, `there`},
		{"a name that must be in base64", "POST", read, modern("resources/read", "Mcp-Name", "=?base64?dG9vbGhvc3Q6Ly9ydW5zL8O8L3g=?="), 400, `-32602`},
		{"a name in bad base64", "POST", call, modern("tools/call", "Mcp-Name", "=?base64?ZWNobw=?="), 400, `-32020`},
		{"another name", "POST", call, modern("tools/call", "Mcp-Name", "fails"), 400, `-32020`},
		{"no name", "POST", call, modern("tools/call"), 400, `-32020`},
		{"two names", "POST", strings.Replace(call, `"name":"echo"`, `"name":"fails","name":"echo"`, 1), modern("tools/call", "Mcp-Name", "echo"), 400, `-32602`},
		{"a name and one in another case", "POST", strings.Replace(call, `"name":"echo"`, `"name":"echo","Name":"fails"`, 1), modern("tools/call", "Mcp-Name", "echo"), 200, `there`},
		{"a name in another case", "POST", strings.Replace(call, `"name":"echo"`, `"Name":"echo"`, 1), modern("tools/call", "Mcp-Name", "echo"), 400, `-32020`},
		{"two methods", "POST", strings.Replace(list, `"id":1`, `"id":1,"method":"tools/call"`, 1), modern("tools/list"), 400, `-32600`},
		{"an id that cannot be said back", "POST", strings.Replace(list, `"id":1`, `"id":9007199254740993`, 1), modern("tools/list"), 400, `-32600`},
		{"no UTF-8", "POST", strings.Replace(call, "there", "\xff", 1), modern("tools/call", "Mcp-Name", "echo"), 400, `-32700`},
		{"a notification", "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, modern("notifications/cancelled"), 202, ""},
		{"an array", "POST", "[" + list + "]", modern("tools/list"), 400, ""},
		{"GET", "GET", "", headers{"Accept", "text/event-stream", "Mcp-Protocol-Version", "2026-07-28"}, 405, ""},
		{"DELETE", "DELETE", "", headers{"Mcp-Session-Id", "SESSION", "Mcp-Protocol-Version", "2026-07-28"}, 405, ""},

		{"of a session", "POST", legacy, old("Mcp-Protocol-Version", "2025-11-25"), 200, `"tools":[`},
		{"of a session, without a revision", "POST", legacy, old(), 200, `"tools":[`},
		{"of a session, unknown revision", "POST", legacy, old("Mcp-Protocol-Version", "2020-01-01"), 400, "Unsupported protocol version"},
		{"of no session", "POST", legacy, old()[:4], 200, "invalid during session initialization"},
		{"of a session that is gone", "POST", legacy, append(old()[:4:4], "Mcp-Session-Id", "gone"), 404, ""},
		{"a notification of a session", "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, old(), 202, ""},
		{"an answer of a session", "POST", `{"jsonrpc":"2.0","id":1,"result":{}}`, old(), 202, ""},
		{"a notification that is not there", "POST", `{"jsonrpc":"2.0","method":"notifications/nothing"}`, old(), 400, ""},
		{"GET without a session", "GET", "", headers{"Accept", "text/event-stream"}, 400, ""},
		{"GET of what is no stream", "GET", "", headers{"Accept", "application/json", "Mcp-Session-Id", "SESSION"}, 400, ""},
		{"GET from a place in a stream", "GET", "", headers{"Accept", "text/event-stream", "Mcp-Session-Id", "SESSION", "Last-Event-ID", "x_1"}, 400, ""},
		{"PUT", "PUT", list, old(), 405, ""},
		{"HEAD", "HEAD", "", old(), 405, ""},
		{"OPTIONS", "OPTIONS", "", old(), 405, ""},
		{"DELETE without a session", "DELETE", "", nil, 400, ""},
		{"DELETE of a session", "DELETE", "", headers{"Mcp-Session-Id", "SESSION"}, 204, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := serveHTTP(t, server.Config{})
				session := e.begin("")
				for i, h := range test.headers {
					test.headers[i] = strings.ReplaceAll(h, "SESSION", session)
				}
				w := e.send(test.method, test.body, test.headers...)
				require.Equal(t, test.status, w.Code, w.Body)
				require.Contains(t, w.Body.String(), test.says)
				switch w.Code {
				case http.StatusAccepted:
					require.Empty(t, w.Body.String())
				case http.StatusMethodNotAllowed:
					require.Contains(t, w.Header().Get("Allow"), "POST")
				}
			})
		})
	}
}

// FuzzHeaders: every message that reaches the handlers has headers that match it,
// whatever its body contains.
func FuzzHeaders(f *testing.F) {
	f.Add("tasks/get", "a", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskid":"b","taskId":"a",`+meta2026+`}}`)
	f.Add("tools/call", "a", `{"jsonrpc":"2.0","id":1,"Method":"x","method":"tools/call","params":{"name":"a","n\u0061me":"b",`+meta2026+`}}`)
	f.Add("resources/read", "=?base64?w7w=?=", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"ü","\u0075ri\u0000":"x",`+meta2026+`}}`)
	f.Add("prompts/get", "a", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"a","arguments":{"name":"b"},`+meta2026+`},"params ":{}}`)
	s, err := server.Open(context.Background(), server.Config{})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Close(context.Background())) })
	var method, name string
	h, err := mcpapi.NewHandler(s, mcpapi.Config{Extend: mcpapi.Extend{Server: func(srv *mcp.Server) {
		srv.AddReceivingMiddleware(func(mcp.MethodHandler) mcp.MethodHandler {
			return func(_ context.Context, m string, req mcp.Request) (mcp.Result, error) {
				method, name = m, ""
				switch p := req.GetParams().(type) {
				case *mcp.CallToolParamsRaw:
					name = p.Name
				case *mcp.GetPromptParams:
					name = p.Name
				case *mcp.ReadResourceParams:
					name = p.URI
				default:
					name = mcpapi.TaskOf(p)
				}
				return nil, fmt.Errorf("seen")
			}
		})
	}}})
	require.NoError(f, err)
	f.Cleanup(h.Close)
	f.Fuzz(func(t *testing.T, methodHeader, nameHeader, body string) {
		method, name = "", ""
		e := &endpoint{Handler: h, t: t, service: s}
		e.send(http.MethodPost, body, "Content-Type", "application/json", "Accept", "*/*", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", methodHeader, "Mcp-Name", nameHeader)
		if method == "" {
			return
		}
		require.Equal(t, methodHeader, method)
		decoded, ok := mcpapi.DecodeHeader(strings.TrimSpace(nameHeader))
		if name != "" {
			require.True(t, ok)
			require.Equal(t, decoded, name)
		}
	})
}
