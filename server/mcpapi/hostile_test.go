package mcpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

const legacyVersion = "2025-03-26" // the revision that allowed arrays

// begin begins a session with initialize and returns its id.
func (e *endpoint) begin(user string) string {
	e.t.Helper()
	w, _ := e.post(strings.TrimSpace(initialize), "User", user)
	require.Equal(e.t, http.StatusOK, w.Code, w.Body)
	return w.Header().Get("Mcp-Session-Id")
}

// within sends a message in a session.
func (e *endpoint) within(user, session, body string) (*httptest.ResponseRecorder, response) {
	e.t.Helper()
	return e.post(body, "User", user, "Mcp-Session-Id", session, "Mcp-Protocol-Version", legacyVersion)
}

// works tests that a client is served: in a session that it has or begins, and
// without one.
func (e *endpoint) works(user, session string) {
	e.t.Helper()
	if session == "" {
		session = e.begin(user)
	}
	_, m := e.within(user, session, `{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"echo","arguments":{"of":"session"}}}`)
	require.Contains(e.t, fmt.Sprint(m.Result), "session", "%v", m.Error)
	_, m = e.ask(user, `{}`, "tools/call", `,"name":"echo","arguments":{"of":"request"}`)
	require.Contains(e.t, fmt.Sprint(m.Result), "request", "%v", m.Error)
}

// A request that lacks something its method needs is refused, and ends nothing else.
func TestRequestsWithoutParams(t *testing.T) {
	methods := []string{
		"initialize", "ping", "tools/list", "tools/call", "resources/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
		"resources/templates/list", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "subscriptions/listen",
		"server/discover", "tasks/get", "tasks/update", "tasks/cancel", "tasks/result", "nothing",
		"notifications/cancelled", "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
	}
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		c := connect(t, e.service)
		c.sendEach([]byte(initialize))
		ended := make(chan error, 1)
		go func() {
			_, err := c.wait() // reads what is said until then
			ended <- err
		}()
		session := e.begin("mallory")
		for _, method := range methods {
			for _, params := range []string{"", `,"params":null`, `,"params":[]`, `,"params":{}`, `,"params":{"_meta":null}`, `,"params":{"_meta":{"progressToken":{}}}`} {
				for _, id := range []string{"", `,"id":1`, `,"id":""`} {
					body := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q%s%s}`, method, params, id)
					e.patience = time.Second // that of one that listens ends
					e.within("mallory", session, body)
					e.post(body, "User", "mallory", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method)
					c.send([]byte(body + "\n"))
					e.patience = 0
				}
			}
		}
		_, m := e.within("mallory", session, `{"jsonrpc":"2.0","id":"last","method":"tasks/get"}`)
		require.Equal(t, -32602, m.Error.Code)
		e.works("ana", "")
		require.NoError(t, c.in.Close())
		require.NoError(t, <-ended)
	})
}

// A panic while a request is answered affects only that request.
func TestPanicsAreContained(t *testing.T) {
	needsOneHost(t, "log")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		var log bytes.Buffer
		h, err := mcpapi.NewHandler(e.service, mcpapi.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Extend: mcpapi.Extend{Server: func(s *mcp.Server) {
				s.AddTool(&mcp.Tool{Name: "panics", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					panic("the key is hunter2")
				})
			}},
		})
		require.NoError(t, err)
		e.Handler.Close()
		e.Handler = h
		t.Cleanup(h.Close)
		w, m := e.ask("mallory", `{}`, "tools/call", `,"name":"panics","arguments":{}`)
		require.NotNil(t, m.Error)
		require.NotContains(t, w.Body.String(), "hunter2")
		require.Contains(t, log.String(), "hunter2")
		e.works("ana", "")
	})
}

// An array of messages is refused, and ends nothing.
func TestArrays(t *testing.T) {
	const array = `[{"jsonrpc":"2.0","id":10,"method":"ping"},{"jsonrpc":"2.0","id":11,"method":"ping"}]`
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		session := e.begin("mallory")
		w, m := e.within("mallory", session, " "+array)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, m.Error.Message, "arrays of messages are not supported")
		e.works("mallory", session)

		c := connect(t, e.service)
		c.sendEach([]byte(strings.Replace(initialize, "2025-11-25", legacyVersion, 1)))
		c.send([]byte(array + "\n"))
		require.Contains(t, c.next().Error.Message, "arrays of messages are not supported")
		c.send([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"))
		require.Equal(t, "1", string(c.next().ID))
	})
}

// A client that keeps beginning sessions loses its own, and nobody else's. A session in
// use stays, whoever has it.
func TestSessionsOfAGreedyClient(t *testing.T) {
	needsOneHost(t, "limits")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		ana := e.begin("ana")
		watched := e.begin("mallory")
		stop := e.watch("mallory", watched)
		time.Sleep(time.Minute)
		first := e.begin("mallory")
		for range mcpapi.MaxSessions {
			time.Sleep(time.Millisecond)
			w, _ := e.post(strings.TrimSpace(initialize), "User", "mallory")
			require.Equal(t, http.StatusOK, w.Code)
		}
		require.Equal(t, mcpapi.MaxSessionsOfClient+1, e.Sessions())
		w, _ := e.within("mallory", first, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		require.Equal(t, http.StatusOK, w.Code, "it gave way, and continues")
		require.Equal(t, mcpapi.MaxSessionsOfClient+1, e.Sessions())
		w, _ = e.within("mallory", watched, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		require.Equal(t, http.StatusOK, w.Code)
		e.works("ana", ana)
		e.works("bo", "")
		stop()
	})
}

// Names cost nothing either. The sessions that have been unused for the longest time give
// way, and none of them blocks the others.
func TestSessionsUnderManyNames(t *testing.T) {
	needsOneHost(t, "limits")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		ana := e.begin("ana")
		for i := range mcpapi.MaxSessions + 200 {
			time.Sleep(time.Millisecond)
			e.begin(fmt.Sprint("mallory", i))
			if i%100 == 0 {
				e.works("ana", ana)
			}
		}
		require.Equal(t, mcpapi.MaxSessions, e.Sessions())
		e.works("ana", ana)
		e.works("bo", "")
	})
}

// When a client has all of its sessions in use it gets no more, and others do.
func TestSessionsInUse(t *testing.T) {
	needsOneHost(t, "limits")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		for range mcpapi.MaxSessionsOfClient {
			defer e.watch("mallory", e.begin("mallory"))()
		}
		w, m := e.post(strings.TrimSpace(initialize), "User", "mallory")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, m.Error.Message, "in use")
		e.works("ana", "")
	})
}

// watch opens the stream of a session, until stop.
func (e *endpoint) watch(user, session string) (stop func()) {
	ctx, cancel := context.WithCancel(e.t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/mcp", nil)
	for name, value := range map[string]string{"User": user, "Mcp-Session-Id": session, "Accept": "text/event-stream"} {
		r.Header.Set(name, value)
	}
	ended := make(chan struct{})
	go func() {
		e.ServeHTTP(httptest.NewRecorder(), r)
		close(ended)
	}()
	synctest.Wait()
	return func() { cancel(); <-ended }
}

// The initialize request of a client is kept as long as its session, and must be small.
func TestLargeInitialize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		large := strings.Replace(initialize, `"name":"test"`, `"name":"`+strings.Repeat("x", mcpapi.MaxInitialize)+`"`, 1)
		w, m := e.post(large)
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
		require.NotNil(t, m.Error)
		require.Zero(t, e.Sessions())
	})
}

// Before 2026-07-28 a client that disconnects has not canceled its calls. They
// still count against the limits, and pings and other clients get through.
func TestCallsOfClientsThatLeave(t *testing.T) {
	needsOneHost(t, "limits")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		session := e.begin("mallory")
		e.patience = time.Millisecond
		for i := range mcpapi.MaxCallsOfClient {
			e.within("mallory", session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"forever","arguments":{}}}`, i+1))
		}
		e.patience = 0
		_, m := e.within("mallory", session, `{"jsonrpc":"2.0","id":"more","method":"tools/call","params":{"name":"echo","arguments":{}}}`)
		require.NotNil(t, m.Error)
		require.Equal(t, 429, m.Error.Code)
		_, m = e.within("mallory", session, `{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
		require.Nil(t, m.Error)
		_, m = e.ask("ana", `{}`, "tools/list", "")
		require.NotEmpty(t, m.Result["tools"])
	})
}

// A progress token comes back with each notification, and is short.
func TestLongProgressToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		session := e.begin("mallory")
		for token, fits := range map[string]bool{`1`: true, `"` + strings.Repeat("x", 256) + `"`: true, `"` + strings.Repeat("x", 257) + `"`: false, `[[]]`: false, `{"a":1}`: false, `true`: false} {
			_, m := e.within("mallory", session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"progressToken":`+token+`}}}`)
			require.Equal(t, fits, m.Error == nil, token)
		}
	})
}

// Mistakes of clients do not fill the operator's log.
func TestClientsDoNotWriteTheLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		c := connectWith(t, openService(t), mcpapi.Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))})
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, // before initialize
			`{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			`{"jsonrpc":"2.0","id":3,"method":"` + strings.Repeat("x", 1<<20) + `"}`,
			`no JSON`,
		} {
			c.send([]byte(line + "\n"))
			require.NotNil(t, c.next().Error, "%.100s", line)
		}
		require.NoError(t, c.in.Close())
		_, err := c.wait()
		require.NoError(t, err)
		require.Empty(t, log.String())
	})
}

// A client on a pipe that makes calls without end has to wait, and is then told why.
// Messages that may end the running calls get through.
func TestCallsWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{Host: host.Config{TotalCalls: 2 * mcpapi.MaxCalls}})
		c := connect(t, e.service)
		c.sendEach([]byte(initialize))
		call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"forever","arguments":{}}}` + "\n"
		began := time.Now()
		for i := range mcpapi.MaxCalls {
			c.send(fmt.Appendf(nil, call, i+1))
		}
		c.send(fmt.Appendf(nil, call, 1001))
		m := c.next()
		require.Equal(t, "1001", string(m.ID))
		require.Contains(t, m.Error.Message, "256 requests are waiting for an answer")
		require.Equal(t, 10*time.Second, time.Since(began), "it waited for room")
		c.send(fmt.Appendf(nil, call, 1002))
		require.Equal(t, "1002", string(c.next().ID))
		require.Equal(t, 10*time.Second, time.Since(began), "one wait is enough")

		c.send([]byte(`{"jsonrpc":"2.0","id":"here","method":"ping"}` + "\n"))
		require.Equal(t, `"here"`, string(c.next().ID))
		e.works("ana", "") // of the same service
		c.send([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n"))
		time.Sleep(time.Second)
		c.send([]byte(`{"jsonrpc":"2.0","id":1003,"method":"tools/list"}` + "\n"))
		require.NotEmpty(t, c.next().Result.Tools)
		require.NoError(t, c.in.Close())
		_, err := c.wait()
		require.NoError(t, err)
	})
}
