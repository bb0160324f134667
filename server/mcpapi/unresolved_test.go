package mcpapi_test

import (
	"log/slog"
	"net/http"
	"regexp"
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

var undelivered = regexp.MustCompile(`msg="the answer of a call was not delivered, and nobody has fetched it" tool=sleeper session="of ana" request=2\n`)

// The answer of a call that nobody has fetched is in the log, once, when its stream is
// dropped: never before, and never what it says.
func TestUndeliveredAnswers(t *testing.T) {
	needsOneHost(t, "log")
	call := strings.Replace(slowCall, "TEXT", "hunter2", 1)
	end := func(t *testing.T, l link) {
		code, _ := l.during(time.Minute, http.MethodDelete, "")
		require.Equal(t, http.StatusNoContent, code)
	}
	for name, test := range map[string]struct {
		do   func(t *testing.T, l link)
		want int // lines
	}{
		"the client stays": {func(t *testing.T, l link) {
			_, text := l.during(time.Minute, http.MethodPost, call)
			require.Contains(t, text, "hunter2")
			end(t, l)
		}, 0},
		"resumed": {func(t *testing.T, l link) {
			_, text := l.during(5*time.Second, http.MethodPost, call)
			time.Sleep(time.Minute)
			_, text = l.resume(time.Minute, lastID(t, text))
			require.Contains(t, text, "hunter2")
			end(t, l)
		}, 0},
		"kept, and never resumed": {func(t *testing.T, l link) {
			l.during(5*time.Second, http.MethodPost, call)
			time.Sleep(time.Minute)
			end(t, l)
		}, 1},
		"left before the first event": {func(t *testing.T, l link) {
			l.during(5*time.Second, http.MethodPost, strings.Replace(call, `,"_meta":{"progressToken":1}`, "", 1))
			time.Sleep(time.Minute)
		}, 1},
		"idle": {func(t *testing.T, l link) {
			l.during(5*time.Second, http.MethodPost, call)
			time.Sleep(31 * time.Minute)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := serveHTTP(t, server.Config{})
				log := withLog(t, e)
				test.do(t, connectLink(t, e, "ana", "2025-11-25"))
				require.Len(t, undelivered.FindAllString(log.String(), -1), test.want, log.String())
				require.NotContains(t, log.String(), "hunter2")
			})
		})
	}
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
		e := serveHTTP(t, server.Config{})
		log := withLog(t, e)
		l := connectLink(t, e, "ana", "2025-11-25")
		large := strings.NewReplacer("TEXT", strings.Repeat("x", 1100<<10), "sleeper", "large").Replace(slowCall)
		l.during(time.Hour, http.MethodPost, large)
		require.Regexp(t, `level=WARN msg="an answer was one event of more than 1 MiB.*" method=tools/call name=large session="of ana" request=2 bytes=11\d{5}\n`, log.String())
		require.Less(t, len(log.String()), 1000)
	})
}

// What the server does not declare it does not answer.
func TestUndeclaredMethods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		session := e.begin("ana")
		for method, params := range map[string]string{
			"prompts/list": `{}`, "prompts/get": `{"name":"a"}`,
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
