package mcpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// link is the connection of a client that breaks.
type link struct {
	*endpoint
	user, session, version string
}

// during makes a request whose connection breaks after a time, and returns what has
// arrived by then.
func (l link) during(d time.Duration, method, body string, headers ...string) (code int, text string) {
	ctx, cancel := context.WithTimeout(l.t.Context(), d)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost/mcp", strings.NewReader(body))
	headers = append(headers, "User", l.user, "Mcp-Session-Id", l.session, "Mcp-Protocol-Version", l.version, "Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Header.Set("Accept", map[string]string{http.MethodGet: "text/event-stream", http.MethodPost: "application/json, text/event-stream"}[method])
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (l link) resume(d time.Duration, last string) (code int, text string) {
	return l.during(d, http.MethodGet, "", "Last-Event-ID", last)
}

func connectLink(t *testing.T, e *endpoint, user, version string) link {
	_, m := e.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, "User", user)
	require.NotNil(t, m.Result)
	w, _ := e.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, "User", user)
	l := link{e, user, w.Header().Get("Mcp-Session-Id"), version}
	l.during(time.Minute, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return l
}

const slowCall = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleeper","arguments":{"text":"TEXT"},"_meta":{"progressToken":1}}}`

var eventIDs = regexp.MustCompile(`(?m)^id: (\w+)$`)

// lastID returns the id of the last event that has arrived.
func lastID(t *testing.T, text string) string {
	t.Helper()
	ids := eventIDs.FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, ids, text)
	return ids[len(ids)-1][1]
}

// A client whose connection breaks in the middle of a call gets the rest, once, in every
// revision with sessions, even if the call has ended by then.
func TestResumedStream(t *testing.T) {
	needsOneHost(t, "streams")
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		for name, away := range map[string]time.Duration{"before the end": time.Second, "after the end": time.Minute} {
			t.Run(version+" "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					l := connectLink(t, serveHTTP(t, server.Config{}), "ana", version)
					_, text := l.during(5*time.Second, http.MethodPost, strings.Replace(slowCall, "TEXT", "hello", 1))
					require.Contains(t, text, "half way")
					require.NotContains(t, text, "hello")
					require.Equal(t, version >= "2025-11-25", strings.HasPrefix(text, "id: "), "the first event only has an id: %s", text)

					time.Sleep(away)
					last := lastID(t, text)
					code, text := l.resume(time.Minute, last)
					require.Equal(t, http.StatusOK, code)
					require.Equal(t, 1, strings.Count(text, "hello"), text)
					require.NotContains(t, text, `"progress":1,`, "it has that already")
					require.Contains(t, text, `"id":2,"result"`)
					require.True(t, strings.HasPrefix(text, ": alive\n\n"), "the answer begins at once")

					code, again := l.resume(time.Minute, last)
					require.Equal(t, http.StatusOK, code, "that answer may be lost too")
					require.Equal(t, 1, strings.Count(again, "hello"), again)
				})
			})
		}
	}
}

// A connection may break unnoticed: then the new one takes over.
func TestResumedStreamTakesOver(t *testing.T) {
	needsOneHost(t, "streams")
	bubble(t, func(t *testing.T) {
		l := connectLink(t, serveHTTP(t, server.Config{}), "ana", "2025-11-25")
		_, first := l.during(time.Second, http.MethodPost, slowCall)
		half := make(chan string)
		go func() {
			_, text := l.resume(time.Hour, lastID(t, first))
			half <- text
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case text := <-half:
			t.Fatal(text)
		default:
		}
		_, text := l.resume(time.Hour, lastID(t, first))
		require.NotContains(t, <-half, `"result"`)
		require.Contains(t, text, `"id":2,"result"`)
	})
}

// A stream belongs to its session. A stream that ended long ago, or needed no events, is
// not kept.
func TestResumedStreamOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		l, same, bo := connectLink(t, e, "ana", "2025-11-25"), connectLink(t, e, "ana", "2025-11-25"), connectLink(t, e, "bo", "2025-11-25")
		_, text := l.during(5*time.Second, http.MethodPost, slowCall)
		last := lastID(t, text)
		for _, id := range []string{last, "x_1", "x", "_x", "", "x_-1"} {
			for _, other := range []link{same, bo} {
				if id == "" {
					continue
				}
				code, text := other.resume(time.Minute, id)
				require.Equal(t, http.StatusBadRequest, code, id)
				require.NotContains(t, text, `"jsonrpc"`)
			}
		}
		bo.session = l.session
		code, _ := bo.resume(time.Minute, last)
		require.Equal(t, http.StatusNotFound, code)

		time.Sleep(10 * time.Minute)
		code, text = l.resume(time.Minute, last)
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, text, "cannot be resumed")
	})
}

// A result that is too large to be kept is not lost silently. A client that stays
// connected gets it.
func TestResumedStreamWithLargeResult(t *testing.T) {
	needsOneHost(t, "streams")
	bubble(t, func(t *testing.T) {
		l := connectLink(t, serveHTTP(t, server.Config{Answer: 8 << 20}), "ana", "2025-11-25")
		large := strings.NewReplacer("TEXT", strings.Repeat("x", 1100<<10), "sleeper", "large").Replace(slowCall)
		_, text := l.during(time.Hour, http.MethodPost, large)
		require.Greater(t, len(text), 1100<<10, text)

		_, text = l.during(5*time.Second, http.MethodPost, large)
		time.Sleep(time.Minute)
		_, text = l.resume(time.Minute, lastID(t, text))
		require.Less(t, len(text), 2000)
		require.Contains(t, text, `"id":2,"error":{"code":410`)
		require.Contains(t, text, "spawn_background")
	})
}
