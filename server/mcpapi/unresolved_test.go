package mcpapi_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// withLog has an endpoint log to a buffer.
func withLog(t *testing.T, e *endpoint) *testlog.Buffer {
	t.Helper()
	log := new(testlog.Buffer)
	h, err := mcpapi.NewHandler(e.service, mcpapi.Config{Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	e.Handler.Close()
	e.Handler = h
	t.Cleanup(h.Close)
	return log
}

// A question that a client never answered is in the log, without what was asked.
func TestUnansweredQuestionsAreLogged(t *testing.T) {
	needsOneHost(t, "log")
	bubble(t, func(t *testing.T) {
		e := serveAskers(t)
		log := withLog(t, e)
		w, _ := e.post(strings.Replace(handshake, `"hello"`, "1", 1), "User", "ana")
		l := link{e, "ana", w.Header().Get("Mcp-Session-Id"), "2025-11-25"}
		l.during(time.Minute, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		_, text := l.during(5*time.Second, http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"test_input_required_result_multi_round","arguments":{}}}`)
		require.Contains(t, text, "elicitation/create")
		l.during(time.Minute, http.MethodDelete, "")
		require.Regexp(t, `msg="a question to the client was not answered" tool=test_input_required_result_multi_round session="?of ana"? request=2 cause=`, log.String())
		require.NotContains(t, log.String(), "Step 1")
	})
}

// An answer that is an event some clients lose is in the log, with its size alone.
func TestLargeEventsAreLogged(t *testing.T) {
	needsOneHost(t, "log")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{Answer: 8 << 20})
		log := withLog(t, e)
		l := connectLink(t, e, "ana", "2025-11-25")
		large := strings.NewReplacer("TEXT", strings.Repeat("x", 1100<<10), "sleeper", "large").Replace(slowCall)
		l.during(time.Hour, http.MethodPost, large)
		require.Regexp(t, `level=WARN msg="an answer was one event of more than 1 MiB.*" method=tools/call name=large session="of ana" request=2 bytes=11\d{5}\n`, log.String())
		require.Less(t, len(log.String()), 1000)
	})
}

// The server does not answer methods that it does not declare.
func TestUndeclaredMethods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		session := e.begin("ana")
		for method, params := range map[string]string{
			"prompts/list": `{}`, "prompts/get": `{"name":"a"}`, "logging/setLevel": `{"level":"info"}`,
			"completion/complete": `{"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"b","value":""}}`, "resources/subscribe": `{"uri":"toolhost://runs"}`,
		} {
			_, m := e.within("ana", session, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
			require.NotNil(t, m.Error, method)
			require.Equal(t, -32601, m.Error.Code, method)
		}
		w, m := e.ask("ana", "{}", "prompts/list", "")
		require.Equal(t, -32601, m.Error.Code)
		require.Equal(t, http.StatusNotFound, w.Code)
	})
}

// A client that begins again with the name of a session that is gone gets a new one.
func TestInitializeWithAnOldSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		session := e.begin("ana")
		for _, old := range []string{"gone", session} {
			w, m := e.post(strings.Replace(handshake, `"hello"`, "1", 1), "User", "ana", "Mcp-Session-Id", old)
			require.Nil(t, m.Error)
			require.Equal(t, http.StatusOK, w.Code)
			require.NotEmpty(t, w.Header().Get("Mcp-Session-Id"))
			require.NotEqual(t, old, w.Header().Get("Mcp-Session-Id"))
		}
	})
}
