package mcpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// spawn starts a background run and returns its id.
func (e *endpoint) spawn(user, tool string) string {
	e.t.Helper()
	_, m := e.ask(user, "{}", "tools/call", fmt.Sprintf(`,"name":"spawn_background","arguments":{"tool":%q,"args":{}}`, tool))
	texts := textsOf(m)
	require.Len(e.t, texts, 1, "%v", m)
	return anyTask.FindString(texts[0])
}

// notices calls a tool and returns the notices in its result.
func (e *endpoint) notices(user, capabilities string) string {
	e.t.Helper()
	_, m := e.ask(user, capabilities, "tools/call", `,"name":"echo","arguments":{}`)
	texts := textsOf(m)
	require.Equal(e.t, "{}", texts[0], "the result of the tool comes first, and is unchanged")
	return strings.Join(texts[1:], "\n")
}

// pending is how many notices of a user's session are not acknowledged.
func (e *endpoint) pending(user string) int {
	e.t.Helper()
	found, err := e.service.Session("of "+user).Notices(e.t.Context(), 100)
	require.NoError(e.t, err)
	return len(found.Notices)
}

func textsOf(m response) (texts []string) {
	content, _ := m.Result["content"].([]any)
	for _, block := range content {
		texts = append(texts, block.(map[string]any)["text"].(string))
	}
	return texts
}

// The end of a run comes with the next result of its session, once, as a block of its
// own with the result of the run.
func TestNoticesComeWithResults(t *testing.T) {
	needsOneHost(t, "results")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.spawn("ana", "sleeper")
		require.Empty(t, e.notices("ana", "{}"), "it runs")
		time.Sleep(11 * time.Second)
		require.Empty(t, e.notices("ben", "{}"), "another session")
		require.Equal(t, "<background-results>\n["+id+`] succeeded "Background sleeper" (sleeper, 10.0s) result: {}`+"\n</background-results>", e.notices("ana", "{}"))
		require.Equal(t, 1, e.pending("ana"), "nobody knows yet whether it was read")
		require.Empty(t, e.notices("ana", "{}"))
		require.Zero(t, e.pending("ana"), "its client has made another request")

		checked := e.spawn("ana", "fails")
		time.Sleep(11 * time.Second)
		_, m := e.ask("ana", "{}", "tools/call", fmt.Sprintf(`,"name":"check_background","arguments":{"task_ids":[%q]}`, checked))
		require.Len(t, textsOf(m), 1, "the check has shown the end")
		require.Empty(t, e.notices("ana", "{}"))
	})
}

// A result contains only as many notices as a model can read; the others follow.
func TestManyNotices(t *testing.T) {
	needsOneHost(t, "results")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{Runs: server.RunsConfig{PerSession: 20}})
		for range 13 {
			e.spawn("ana", "sleeper")
		}
		time.Sleep(11 * time.Second)
		first := e.notices("ana", "{}")
		require.Equal(t, 10, strings.Count(first, "succeeded"))
		require.Contains(t, first, "+3 more: check_background")
		require.Equal(t, 3, strings.Count(e.notices("ana", "{}"), "succeeded"))
	})
}

// Calls that end at the same time show a notice once.
func TestNoticesOfCallsAtTheSameTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		e.spawn("ana", "sleeper")
		time.Sleep(11 * time.Second)
		var mu sync.Mutex
		var calls sync.WaitGroup
		all := ""
		for i := range 8 {
			calls.Go(func() {
				one := *e
				one.id = 100 + i
				found := one.notices("ana", "{}")
				mu.Lock()
				defer mu.Unlock()
				all += found
			})
		}
		calls.Wait()
		count := strings.Count(all, "succeeded")
		require.Positive(t, count)
		require.LessOrEqual(t, count, *hosts, "each host may show it")
	})
}

// deaf is a client whose connection breaks while it is answered.
type deaf struct{ *httptest.ResponseRecorder }

func (deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A notice in an answer that could not be written comes again.
func TestNoticeIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		e.spawn("ana", "sleeper")
		time.Sleep(11 * time.Second)
		for range 3 {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"name":"echo","arguments":{}}}`))
			for name, value := range map[string]string{
				"User": "ana", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
				"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo",
			} {
				r.Header.Set(name, value)
			}
			e.ServeHTTP(deaf{httptest.NewRecorder()}, r)
		}
		require.Contains(t, e.notices("ana", "{}"), "succeeded")
		require.Equal(t, 1, e.pending("ana"))
	})
}

// A client that is gone when its call ends has not read the notice.
func TestNoticeOfABrokenStream(t *testing.T) {
	needsOneHost(t, "streams")
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		l := connectLink(t, e, "ana", "2025-11-25")
		e.spawn("ana", "sleeper")
		time.Sleep(5 * time.Second)
		_, text := l.during(time.Second, http.MethodPost, slowCall)
		time.Sleep(time.Minute)
		_, text = l.resume(time.Minute, lastID(t, text))
		require.Contains(t, text, `"id":2,"result"`)
		require.Equal(t, 1, e.pending("ana"))
		require.Contains(t, e.notices("ana", "{}"), "succeeded")
	})
}

// Clients show a model only the structuredContent of a result that has some: the notice
// waits for another result, such as an error or an answer of the agent's own tools.
func TestNoticesWaitForResultsThatShowThem(t *testing.T) {
	needsOneHost(t, "results")
	type sum struct {
		Sum int `json:"sum"`
	}
	adds := gotool.Tool{Name: "add", Description: "For tests.", Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in sum) (sum, error) {
		if in.Sum < 0 {
			return sum{}, errors.New("too small")
		}
		return in, nil
	})}
	for name, call := range map[string]string{
		"an error": `,"name":"add","arguments":{"sum":-1}`, "bad arguments": `,"name":"add","arguments":{"sum":"x"}`,
		"a list": `,"name":"check_background","arguments":{}`, "a spawn": `,"name":"spawn_background","arguments":{"tool":"sleeper","args":{}}`,
		"a stop": `,"name":"stop_background","arguments":{"task_id":"bg_aaaaaaaaaaaaaaaaaaaaaaaaaa"}`, "no output schema": `,"name":"echo","arguments":{}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := serveHTTP(t, server.Config{Tools: []gotool.Tool{adds}})
				id := e.spawn("ana", "sleeper")
				time.Sleep(11 * time.Second)
				for range 3 {
					_, m := e.ask("ana", "{}", "tools/call", `,"name":"add","arguments":{"sum":1}`)
					require.Equal(t, map[string]any{"sum": 1.0}, m.Result["structuredContent"])
					require.Len(t, textsOf(m), 1)
					require.Equal(t, 1, e.pending("ana"))
				}
				_, m := e.ask("ana", "{}", "tools/call", call)
				require.NotContains(t, m.Result, "structuredContent")
				require.Len(t, textsOf(m), 2, "%v", m)
				require.Contains(t, textsOf(m)[1], "["+id+"] succeeded")
				require.Equal(t, 1, e.pending("ana"))
				e.ask("ana", "{}", "tools/call", `,"name":"add","arguments":{"sum":1}`)
				require.Zero(t, e.pending("ana"))
			})
		})
	}
}

// A client that supports tasks learns from the tasks themselves that they have ended, and
// from results that runs spawned by its model have ended.
func TestNoticesOfTasks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.start("ana", "sleeper")
		spawned := e.spawn("ana", "sleeper")
		time.Sleep(11 * time.Second)
		found := e.notices("ana", tasksCapability)
		require.Contains(t, found, spawned)
		require.NotContains(t, found, id)
		require.Equal(t, "completed", e.get("ana", id).Result["status"])
		require.NotContains(t, e.notices("ana", "{}"), id, "it was shown")
	})
}

// Before 2026-07-28 and on a pipe it is the same.
func TestNoticesOnAPipe(t *testing.T) {
	c := connect(t, openService(t, "primes", "wordcount"))
	c.sendEach([]byte(initialize))
	c.sendf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"spawn_background","arguments":{"tool":"primes","args":{"limit":100}}}}`)
	require.Len(t, c.next().Result.Content, 1)
	for id := 2; ; id++ { // until the run has ended
		c.sendf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wordcount","arguments":{"text":"a b"}}}`, id)
		content := c.next().Result.Content
		c.sendf(`{"jsonrpc":"2.0","id":"list %d","method":"tools/call","params":{"name":"check_background","arguments":{}}}`, id)
		require.Len(t, content, 1, "it has structuredContent")
		if content = c.next().Result.Content; len(content) > 1 {
			require.Equal(t, 1, strings.Count(content[1].Text, `Found 25 primes up to 100; the largest is 97. result: {"limit":100,"count":25,"largest":97}`), content[1].Text)
			break
		}
	}
	c.sendf(`{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"check_background","arguments":{}}}`)
	require.Len(t, c.next().Result.Content, 1)
}

// A call that its client has canceled asks for no notices in vain: the operator is not
// warned of it.
func TestNoNoticesForCanceledCalls(t *testing.T) {
	var log bytes.Buffer
	cfg := serviceConfig("spin", "wordcount")
	cfg.DataDir = t.TempDir()
	c := connectWith(t, open(t, cfg), mcpapi.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c.sendEach([]byte(initialize))
	c.call(1, "spin", "{}")
	require.Equal(t, "1", string(c.next().Params.ProgressToken), "it runs")
	c.send([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n"))
	c.call(2, "wordcount", `{"text":"a b"}`)
	for string(c.next().ID) != "2" { // other progress
	}
	require.NoError(t, c.in.Close())
	_, err := c.wait()
	require.NoError(t, err)
	require.NotContains(t, log.String(), "cannot read the notices")
}
