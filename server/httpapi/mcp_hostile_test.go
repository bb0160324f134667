package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// serveMCP serves the API with MCP, as the command does.
func serveMCP(t testing.TB, cfg httpapi.Config, names ...string) (*fixture, *mcpapi.Handler) {
	t.Helper()
	var handler *mcpapi.Handler
	cfg.MCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) })
	f := serve(t, cfg, names...)
	var err error
	handler, err = mcpapi.NewHandler(f.service, mcpapi.Config{})
	require.NoError(t, err)
	t.Cleanup(handler.Close)
	return f, handler
}

// The messages of a client of MCP, of both eras.
const (
	initializeMCP = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	legacyCall    = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{},"_meta":{"progressToken":1}}}`
	modernCall    = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{},"_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
)

func headMCP(method, session, tool string, length int) string {
	head := method + " /mcp HTTP/1.1\nHost: localhost\nToolhost-Session: mallory\nAccept: application/json, text/event-stream\n"
	if method == http.MethodPost {
		head += fmt.Sprintf("Content-Type: application/json\nContent-Length: %d\n", length)
	}
	if session != "" {
		head += "Mcp-Session-Id: " + session + "\nMcp-Protocol-Version: 2025-06-18\n"
	} else if tool != "" {
		head += "Mcp-Protocol-Version: 2026-07-28\nMcp-Method: tools/call\nMcp-Name: " + tool + "\n"
	}
	return head + "\n"
}

// beginMCP begins a session with initialize.
func (f *fixture) beginMCP() (session string) {
	f.t.Helper()
	resp, text := f.do("POST", "/mcp", initializeMCP, "Accept", "application/json, text/event-stream", "Toolhost-Session", "mallory")
	require.Equal(f.t, http.StatusOK, resp.StatusCode, text)
	return resp.Header.Get("Mcp-Session-Id")
}

// served tests that another client is served by every door.
func (f *fixture) served(session string) {
	f.t.Helper()
	ana := []string{"Toolhost-Session", "ana"}
	require.Equal(f.t, "success", f.ask("POST", "/v1/calls", `{"tool":"echo"}`, ana...)["kind"])
	id := f.spawn("sleeper", ana...)
	f.ask("POST", "/v1/runs/"+id+"/stop", `{"force":true}`, ana...) // stopping, if this machine is very slow
	require.Equal(f.t, "canceled", f.ask("GET", "/v1/runs/"+id+"?wait=9m", "", ana...)["status"])
	_, text := f.do("GET", "/v1/runs/"+id+"/output", "", append(ana, "Accept", "text/event-stream")...)
	require.Contains(f.t, text, "event: end")
	headers := append(ana, "Accept", "application/json, text/event-stream")
	_, text = f.do("POST", "/mcp", fmt.Sprintf(modernCall, 1, "echo"), append(headers, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo")...)
	require.Contains(f.t, text, `"resultType":"complete"`)
	if session != "" {
		_, text = f.do("POST", "/mcp", fmt.Sprintf(legacyCall, 99, "echo"), append(headers, "Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-06-18")...)
		require.Contains(f.t, text, `"result"`)
	}
}

// Clients of MCP that are slow, stall or leave lose what they held, and nobody
// else is kept waiting, nor is the end of the server.
func TestHostileClientsOfMCP(t *testing.T) {
	for name, test := range map[string]struct {
		method, tool, body string // a body that is all of it if it ends in }
		legacy, leaves     bool
	}{
		"no body":                 {method: "POST", legacy: true},
		"half a body":             {method: "POST", tool: "sleeper", body: `{"jsonrpc":"2.0",`},
		"half a body, legacy":     {method: "POST", body: `{"jsonrpc":"2.0",`, legacy: true},
		"reads no answer":         {method: "POST", tool: "sleeper", body: fmt.Sprintf(modernCall, 1, "sleeper")},
		"reads no answer, legacy": {method: "POST", body: fmt.Sprintf(legacyCall, 1, "sleeper"), legacy: true},
		"leaves":                  {method: "POST", tool: "sleeper", body: fmt.Sprintf(modernCall, 1, "sleeper"), leaves: true},
		"leaves, legacy":          {method: "POST", body: fmt.Sprintf(legacyCall, 1, "sleeper"), legacy: true, leaves: true},
		"leaves the stream":       {method: "GET", legacy: true, leaves: true},
		"reads no stream":         {method: "GET", legacy: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, handler := serveMCP(t, httpapi.Config{}, "sleeper", "echo")
				session := ""
				if test.legacy {
					session = f.beginMCP()
				}
				whole, length := strings.HasSuffix(test.body, "}"), len(test.body)
				if !whole {
					length += 9
				}
				open := func() net.Conn {
					conn := f.begin(headMCP(test.method, session, test.tool, length)).(net.Conn)
					_, err := io.WriteString(conn, test.body)
					require.NoError(t, err)
					return conn
				}
				conn := open()
				synctest.Wait()
				require.EqualValues(t, 1, f.ask("GET", "/v1/stats", "")["open_answers"])
				f.served(session)
				if test.leaves {
					require.NoError(t, conn.Close())
					synctest.Wait()
				} else {
					time.Sleep(2 * time.Minute)
				}
				require.EqualValues(t, 0, f.ask("GET", "/v1/stats", "")["open_answers"])
				f.served(session)

				if whole {
					return // its progress is not read: the SDK waits for a mutex, so that the clock of the bubble stands still: see TestHostileSockets
				}
				for range 3 { // and the end does not wait for more of them
					if session != "" && test.method == "GET" {
						session = f.beginMCP() // a session has one stream
					}
					open()
				}
				time.Sleep(time.Second)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_ = f.Shutdown(ctx)
				handler.Close()
				require.LessOrEqual(t, time.Since(began), 2*time.Second)
			})
		})
	}
}

// What only the kernel can show: a client that takes nothing, so that the
// buffers are full, one that has closed its half, and one that breaks off.
func TestHostileSockets(t *testing.T) {
	f, handler := serveMCP(t, httpapi.Config{}, "sleeper", "echo", "huge")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	dial := func() *net.TCPConn {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn.(*net.TCPConn)
	}
	write := func(conn net.Conn, text string) {
		_, err := io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n"))
		require.NoError(t, err)
	}
	call := `{"tool":"sleeper","limits":{"timeout_seconds":3000}}`
	post := fmt.Sprintf("POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: %d\n\n", len(call))

	half := dial() // has said all it has to say: that is how a client leaves
	write(half, post)
	write(half, call)
	for f.ask("GET", "/v1/stats", "")["open_answers"] != 1.0 {
	}
	require.NoError(t, half.CloseWrite())
	for f.ask("GET", "/v1/stats", "")["open_answers"] != 0.0 {
	}

	// After the counts above: an answer that nobody takes is open for the write timeout.
	id := f.spawn("huge", "Toolhost-Session", "mallory")
	f.ask("GET", "/v1/runs/"+id+"?wait=9m", "", "Toolhost-Session", "mallory")
	for _, request := range []string{
		"GET /v1/runs/" + id + "/output HTTP/1.1\nHost: localhost\nToolhost-Session: mallory\n\n",
		"HEAD /healthz HTTP/1.1\nHost: localhost\n\n",
		"what\n\n",
	} {
		unread := dial()
		require.NoError(t, unread.SetReadBuffer(1<<10))
		go func() {
			for range 100000 {
				if _, err := io.WriteString(unread, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
					return
				}
			}
		}()
	}
	f.served("")

	broken := dial()
	write(broken, post+call[:9])
	require.NoError(t, broken.SetLinger(0))
	require.NoError(t, broken.Close())
	f.served(f.beginMCP())

	session := f.beginMCP()
	for i := range 10 { // calls whose progress nobody reads
		body := fmt.Sprintf(legacyCall, i+1, "sleeper")
		write(dial(), headMCP("POST", session, "", len(body))+body)
	}

	// A stream and a session of another user, over the same listener.
	stream := dial()
	write(stream, events+"ana\n\n")
	resp, err := http.ReadResponse(bufio.NewReader(stream), nil)
	require.NoError(t, err)
	lines := bufio.NewScanner(resp.Body)
	f.served("")
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
	}
	var event struct{ Kind string }
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &event))
	require.Equal(t, "queued", event.Kind)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()            // there is no grace for what does not end
	_ = f.Shutdown(ctx) // closes it
	handler.Close()
	require.NoError(t, <-served)
}

// A client that has sent more than its request is not seen to leave until it is
// written to. So something is, on each stream, and what it held is free.
func TestLeavingUnseen(t *testing.T) {
	listen := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{` + clientMeta + `,"notifications":{"toolsListChanged":true}}}`
	for name, request := range map[string]string{
		"events":           "GET /v1/events HTTP/1.1\nHost: localhost\n\n",
		"a session of MCP": headMCP("GET", "SESSION", "", 0),
		"a subscription": fmt.Sprintf("POST /mcp HTTP/1.1\nHost: localhost\nAccept: application/json, text/event-stream\nContent-Type: application/json\n"+
			"Mcp-Protocol-Version: 2026-07-28\nMcp-Method: subscriptions/listen\nContent-Length: %d\n\n%s", len(listen), listen),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, _ := serveMCP(t, httpapi.Config{}, "echo")
				conn := f.begin(strings.ReplaceAll(request, "SESSION", f.beginMCP()))
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
				go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
				_, err = io.WriteString(conn, "X")
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, 1, f.OpenAnswers())
				require.NoError(t, conn.Close())
				time.Sleep(time.Minute)
				require.Zero(t, f.OpenAnswers())
			})
		})
	}
}
