package mcpapi_test

import (
	"bytes"
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
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.spawn("ana", "sleeper")
		require.Empty(t, e.notices("ana", "{}"), "it runs")
		time.Sleep(11 * time.Second)
		require.Empty(t, e.notices("ben", "{}"), "another session")
		require.Equal(t, "<background-results>\n["+id+`] succeeded "Background sleeper" (sleeper, 10.0s) result: {}`+"\n</background-results>", e.notices("ana", "{}"))
		require.Empty(t, e.notices("ana", "{}"), "it is acknowledged")

		checked := e.spawn("ana", "fails")
		time.Sleep(11 * time.Second)
		_, m := e.ask("ana", "{}", "tools/call", fmt.Sprintf(`,"name":"check_background","arguments":{"task_ids":[%q]}`, checked))
		require.Len(t, textsOf(m), 1, "the check has shown the end")
		require.Empty(t, e.notices("ana", "{}"))
	})
}

// There are as many notices in a result as one can read, and the others follow.
func TestManyNotices(t *testing.T) {
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
		require.LessOrEqual(t, count, *hosts, "two hosts may tell of it at the same time")
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
		require.Empty(t, e.notices("ana", "{}"))
	})
}

// A client that takes tasks learns of their ends from them alone, and of what its model
// has spawned from results.
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
		require.Empty(t, e.notices("ana", "{}"), "it was shown")
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
		if content := c.next().Result.Content; len(content) > 1 {
			require.Equal(t, 1, strings.Count(content[1].Text, `Found 25 primes up to 100; the largest is 97. result: {"limit":100,"count":25,"largest":97}`), content[1].Text)
			break
		}
	}
	c.sendf(`{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"wordcount","arguments":{"text":"a b"}}}`)
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
