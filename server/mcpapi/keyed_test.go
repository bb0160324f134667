package mcpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
)

// sender is a tool that counts its letters, and takes ten seconds for each.
func sender(letters *atomic.Int32) server.Config {
	type in struct {
		To string `json:"to,omitempty"`
	}
	return server.Config{Tools: []gotool.Tool{{Name: "send", Description: "For tests.", Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ in) (gotool.None, error) {
		n := letters.Add(1)
		c.Progress(1, 2, "half way")
		select {
		case <-time.After(10 * time.Second):
			return gotool.None{}, c.Content(abi.Block{Type: "text", Text: fmt.Sprintf("letter %d", n)})
		case <-ctx.Done():
			return gotool.None{}, ctx.Err()
		}
	})}}}
}

const sendCall = `{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"send","arguments":{"to":"bo"},"_meta":{"progressToken":ID}}}`

func sendWith(id string) string { return strings.ReplaceAll(sendCall, "ID", id) }

// Without a key, equal calls are separate calls: at the same time, after a stream that
// broke, and after one that was closed.
func TestEqualCallsAreCallsOfTheirOwn(t *testing.T) {
	needsOneHost(t, "calls in flight")
	for name, away := range map[string]time.Duration{"running": time.Second, "ended": time.Minute} {
		t.Run("2025-11-25, "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var letters atomic.Int32
				l := connectLink(t, serveHTTP(t, sender(&letters)), "ana", "2025-11-25")
				_, first := l.during(5*time.Second, http.MethodPost, sendWith("2"))
				time.Sleep(away)
				_, text := l.during(time.Hour, http.MethodPost, sendWith("3"))
				require.Contains(t, text, "letter 2")
				_, text = l.resume(time.Hour, lastID(t, first))
				require.Contains(t, text, "letter 1", "the stream is kept")
				require.EqualValues(t, 2, letters.Load())
			})
		})
	}
	t.Run("2026-07-28", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var letters atomic.Int32
			e := serveHTTP(t, sender(&letters))
			e.patience = time.Second
			e.ask("ana", "{}", "tools/call", `,"name":"send","arguments":{}`)
			e.patience = 0
			_, m := e.ask("ana", "{}", "tools/call", `,"name":"send","arguments":{}`)
			require.Equal(t, []string{"letter 2"}, textsOf(m))
		})
	})
}

// On a pipe it is the same, also if the client closes its input at once.
func TestEqualCallsOnAPipe(t *testing.T) {
	for era, meta := range map[string]string{
		"2025-11-25": `"progressToken":"p"`, "2026-07-28": `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`,
	} {
		t.Run(era, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var letters atomic.Int32
				p := pipeTo(t, sender(&letters))
				p.say(strings.TrimSpace(initialize))
				for id := range 100 {
					p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{%s},"name":"send","arguments":{}}}`, 1+id, meta))
					if id >= 50 && id < 99 {
						time.Sleep(11 * time.Second) // one after the other
					}
				}
				said := p.end()
				require.EqualValues(t, 100, letters.Load())
				for n := range 100 {
					require.Equal(t, 1, strings.Count(said, fmt.Sprintf(`"letter %d"`, 1+n)), said)
				}
			})
		})
	}
}

// keyed is a call with a key, as a modern client makes it.
func (e *endpoint) keyed(user, key, call string, headers ...string) response {
	e.t.Helper()
	e.id++
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"toolhost/idempotencyKey":%s}%s}}`, e.id, key, call)
	name := strings.Split(call, `"`)[3]
	_, m := e.post(body, append([]string{"User", user, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", name}, headers...)...)
	return m
}

// A call with a key continues when its stream is closed, and acts once.
func TestCallWithAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var letters atomic.Int32
		e := serveHTTP(t, sender(&letters))
		const call = `,"name":"send","arguments":{"to":"bo"}`
		e.patience = time.Second
		e.keyed("ana", `"k"`, call)
		e.patience = 0
		for range 3 {
			m := e.keyed("ana", `"k"`, call)
			require.Equal(t, []string{"letter 1"}, textsOf(m), "%v", m)
			time.Sleep(time.Minute)
		}

		for key, want := range map[string]string{
			`"k"`:                                "_meta: toolhost/idempotencyKey: the idempotency key was used for another tool or other arguments: use a new one",
			`""`:                                 "_meta: toolhost/idempotencyKey: expected a string of 1 to 128 characters",
			`1`:                                  "_meta: toolhost/idempotencyKey: expected a string of 1 to 128 characters",
			`"` + strings.Repeat("x", 129) + `"`: "_meta: toolhost/idempotencyKey: expected a string of 1 to 128 characters",
		} {
			m := e.keyed("ana", key, strings.Replace(call, "bo", "al", 1))
			require.NotNil(t, m.Error, key)
			require.Equal(t, -32602, m.Error.Code)
			require.Equal(t, want, m.Error.Message)
		}
		require.Equal(t, []string{"letter 2"}, textsOf(e.keyed("ben", `"k"`, call)), "another session")
		e.unnamed = true
		m := e.keyed("ana", `"k"`, call)
		require.NotNil(t, m.Error)
		require.Equal(t, "_meta: toolhost/idempotencyKey: only with the header Toolhost-Session: without it, a repeat may come in another session", m.Error.Message)
	})
}

// A call that is answered with questions has not been made: its key is free for the call
// with the answers.
func TestCallWithAKeyThatAsks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveAskers(t)
		m := e.keyed("ana", `"k"`, colors)
		require.Equal(t, "input_required", m.Result["resultType"], "%v", m)
		m = e.keyed("ana", `"k"`, colors+with("step1", `{"name":"Ana"}`, m.Result["requestState"].(string)))
		require.Contains(t, m.Result["inputRequests"], "step2", "%v", m)
		m = e.keyed("ana", `"k"`, colors+with("step2", `{"color":"red"}`, m.Result["requestState"].(string)))
		require.Equal(t, []string{"Ana likes red"}, textsOf(m), "%v", m)
		m = e.keyed("ana", `"k"`, colors)
		require.Equal(t, []string{"Ana likes red"}, textsOf(m), "%v", m)
	})
}

// On a pipe a client cancels a call with a key as any other.
func TestCallWithAKeyIsCanceledOnAPipe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var letters atomic.Int32
		p := pipeTo(t, sender(&letters))
		call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"toolhost/idempotencyKey":"k"},"name":"send","arguments":{}}}`
		p.say(fmt.Sprintf(call, 1))
		time.Sleep(time.Second)
		p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"requestId":1}}`)
		time.Sleep(time.Second)
		p.say(fmt.Sprintf(call, 2))
		time.Sleep(time.Minute)
		said := p.end()
		require.NotContains(t, said, `"id":1,`)
		require.Contains(t, said, "the caller canceled the call")
		require.EqualValues(t, 1, letters.Load())
	})
}

// A task of 2025-11-25 with a key is made once.
func TestTask2025WithAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		l := connectLink(t, e, "ana", "2025-11-25")
		create := func(id, args string) string {
			_, text := l.during(time.Minute, http.MethodPost, fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"sleeper","arguments":%s,"task":{},"_meta":{"toolhost/idempotencyKey":"k"}}}`, id, args))
			return text
		}
		first := anyTask.FindString(create("2", `{}`))
		require.NotEmpty(t, first)
		require.Equal(t, first, anyTask.FindString(create("3", `{}`)))
		require.Contains(t, create("4", `{"n":1}`), "the idempotency key was used for another tool or other arguments")
	})
}
