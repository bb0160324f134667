package mcpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// open begins a session as clients did before 2026-07-28, and returns a function that
// makes its requests.
func (e *endpoint) open(user string) func(method, body string) (answer *http.Response, text string) {
	e.t.Helper()
	headers := []string{"User", user, "Mcp-Protocol-Version", "2025-11-25", "Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
	w := e.send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, headers...)
	require.Equal(e.t, http.StatusOK, w.Code, w.Body)
	headers = append(headers, "Mcp-Session-Id", w.Header().Get("Mcp-Session-Id"))
	e.send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers...)

	return func(method, body string) (*http.Response, string) {
		w := e.send(method, body, headers...)
		return w.Result(), w.Body.String()
	}
}

// An answer without other messages is plain JSON. A slow one becomes a stream of
// events, and is kept alive.
func TestAnswerIsJSON(t *testing.T) {
	for _, c := range []struct{ name, call, contentType, begin string }{
		{"a result", `"name":"echo","arguments":{}`, "application/json", `{"jsonrpc":"2.0","id":2,"result":`},
		{"an error", `"name":"nothing","arguments":{}`, "application/json", `{"jsonrpc":"2.0","id":2,"error":`},
		{"progress", `"name":"sleeper","arguments":{},"_meta":{"progressToken":1}`, "text/event-stream", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\""},
		{"ten seconds of silence", `"name":"sleeper","arguments":{}`, "application/json", `{"jsonrpc":"2.0","id":2,"result":`},
		{"45 seconds of silence", `"name":"forever","arguments":{}`, "text/event-stream", ": alive\n\n: alive\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				request := serveHTTP(t, server.Config{}).open("ana")
				w, text := request(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{`+c.call+`}}`)
				require.Equal(t, c.contentType, w.Header.Get("Content-Type"), text)
				text = ids.ReplaceAllString(text, "") // see TestResumedStream
				require.True(t, strings.HasPrefix(text, c.begin), text)
			})
		})
	}
}

// ids matches the ids of events, and events that consist of an id alone.
var ids = regexp.MustCompile(`(?m)^id: \w+\n(data: \n\n)?`)

// Notifications are answered before they are handled: with -race a real server shows that
// nothing touches their answers.
func TestNotificationsAreAnswered(t *testing.T) {
	e := serveHTTP(t, server.Config{})
	session := e.begin("ana")
	web := httptest.NewServer(e)
	defer web.Close()
	for range 20 {
		r, err := http.NewRequest(http.MethodPost, web.URL, strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`))
		require.NoError(t, err)
		for name, value := range map[string]string{"User": "ana", "Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25", "Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
			r.Header.Set(name, value)
		}
		answer, err := web.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusAccepted, answer.StatusCode)
	}
}

// Inside strings a result cannot pass for another message, nor another message for
// a result.
func TestAnswerIsJSONWhateverItSays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		request := serveHTTP(t, server.Config{}).open("ana")
		for _, said := range []string{`,\"method\":`, `\",\"method\":\"x`, `,\"result\":`, `\n\ndata: `} {
			w, text := request(http.MethodPost, `{"jsonrpc":"2.0","id":"`+said+`","method":"tools/call","params":{"name":"echo","arguments":{"text":"`+said+`"}}}`)
			require.Equal(t, "application/json", w.Header.Get("Content-Type"), text)
		}
	})
}

// The end of a session ends its calls, and waits for none of them.
func TestEndOfSessionEndsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		request := e.open("ana")
		answered := make(chan string, 1)
		go func() {
			_, text := request(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"forever","arguments":{}}}`)
			answered <- text
		}()
		time.Sleep(time.Second)

		began := time.Now()
		w, _ := request(http.MethodDelete, "")
		require.Equal(t, http.StatusNoContent, w.StatusCode)
		require.Contains(t, <-answered, `"id":2`)
		if *hosts == 1 {
			require.Zero(t, time.Since(began))
		}
		require.LessOrEqual(t, time.Since(began), time.Second)

		time.Sleep(time.Hour)
		require.Zero(t, e.service.Stats().Runs.Spawned, "no call became a run that nobody knows")
	})
}

// If a model misspells a tool in spawn_background, the error suggests the right name.
func TestSpawnOfAMisspeltTool(t *testing.T) {
	e := serveHTTP(t, server.Config{})
	_, m := e.ask("ana", `{}`, "tools/call", `,"name":"spawn_background","arguments":{"tool":"sleepr","args":{}}`)
	require.Equal(t, true, m.Result["isError"], "%v", m)
	require.Equal(t, `no such tool: "sleepr", did you mean "sleeper"?`, m.Result["content"].([]any)[0].(map[string]any)["text"])
}

// Clients without progress give up after a minute: a check answers before that, even if
// it was asked to wait longer.
func TestCheckAnswersInTime(t *testing.T) {
	for args, wait := range map[string]time.Duration{
		``:                    45 * time.Second,
		`,"wait_seconds":300`: 45 * time.Second,
		`,"wait_seconds":2`:   2 * time.Second,
	} {
		bubble(t, func(t *testing.T) {
			e := serveHTTP(t, server.Config{})
			_, m := e.ask("ana", `{}`, "tools/call", `,"name":"spawn_background","arguments":{"tool":"forever","args":{}}`)
			text := m.Result["content"].([]any)[0].(map[string]any)["text"].(string)
			var spawned struct {
				ID string `json:"task_id"`
			}
			require.NoError(t, json.Unmarshal([]byte(text), &spawned))

			began := time.Now()
			_, m = e.ask("ana", `{}`, "tools/call", fmt.Sprintf(`,"name":"check_background","arguments":{"task_id":%q%s}`, spawned.ID, args))
			require.Equal(t, wait, time.Since(began))
			text = m.Result["content"].([]any)[0].(map[string]any)["text"].(string)
			require.Contains(t, text, `"status":"running"`)
			require.Equal(t, wait == 45*time.Second, strings.Contains(text, "still running after 45 seconds, the longest wait here: check again to wait longer"), text)
		})
	}
}
