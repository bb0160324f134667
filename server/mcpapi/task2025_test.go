package mcpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// old makes requests as a client of 2025-11-25 and returns their answers.
func (e *endpoint) old(user string) func(method, params string) response {
	request, id := e.open(user), 1
	return func(method, params string) (m response) {
		e.t.Helper()
		id++
		_, text := request(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
		require.NoError(e.t, json.Unmarshal([]byte(text), &m), text)
		return m
	}
}

// Tasks of 2025-11-25: the client asks for a task with the call, has it at once, and
// waits for its result.
func TestTask2025(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		ask := e.old("ana")

		m := ask("tools/call", `{"name":"sleeper","arguments":{"of":"ana"},"task":{"ttl":1000}}`)
		created := m.Result["task"].(map[string]any)
		id := created["taskId"].(string)
		require.Equal(t, "working", created["status"])
		for _, field := range []string{"createdAt", "lastUpdatedAt", "ttl", "pollInterval"} {
			require.Contains(t, created, field)
		}

		began := time.Now()
		m = ask("tasks/result", fmt.Sprintf(`{"taskId":%q}`, id))
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, map[string]any{"io.modelcontextprotocol/related-task": map[string]any{"taskId": id}}, m.Result["_meta"])
		require.JSONEq(t, `{"of":"ana"}`, m.Result["content"].([]any)[0].(map[string]any)["text"].(string))

		m = ask("tasks/get", fmt.Sprintf(`{"taskId":%q}`, id))
		require.Equal(t, "completed", m.Result["status"])
		require.Equal(t, id, m.Result["taskId"])
		require.NotContains(t, m.Result, "resultType")

		m = ask("tasks/cancel", fmt.Sprintf(`{"taskId":%q}`, id))
		require.Equal(t, -32602, m.Error.Code, "a task that has ended")
		m = ask("tasks/list", `{}`)
		require.Len(t, m.Result["tasks"], 1)
	})
}

func TestTask2025Canceled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ask := serveHTTP(t, server.Config{}).old("ana")
		id := ask("tools/call", `{"name":"forever","arguments":{},"task":{}}`).Result["task"].(map[string]any)["taskId"].(string)
		m := ask("tasks/cancel", fmt.Sprintf(`{"taskId":%q}`, id))
		require.Equal(t, "cancelled", m.Result["status"])
		m = ask("tasks/result", fmt.Sprintf(`{"taskId":%q}`, id))
		require.Equal(t, true, m.Result["isError"])
	})
}

// A tool that cannot run in the background is no task, a task of another user does
// not exist, and other revisions have no such tasks.
func TestTask2025Refused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		ana, bo := e.old("ana"), e.old("bo")

		m := ana("tools/call", `{"name":"echo","arguments":{},"task":{}}`)
		require.Equal(t, -32601, m.Error.Code)

		id := ana("tools/call", `{"name":"forever","arguments":{},"task":{}}`).Result["task"].(map[string]any)["taskId"].(string)
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/result"} {
			m = bo(method, fmt.Sprintf(`{"taskId":%q}`, id))
			require.Equal(t, -32602, m.Error.Code, method)
			require.Contains(t, m.Error.Message, "there is no task")
		}
		require.Empty(t, bo("tasks/list", `{}`).Result["tasks"])

		for _, method := range []string{"tasks/result", "tasks/list"} {
			_, m = e.ask("ana", tasksCapability, method, fmt.Sprintf(`,"taskId":%q`, id))
			require.Equal(t, -32601, m.Error.Code, method)
		}
		require.Equal(t, "working", ana("tasks/get", fmt.Sprintf(`{"taskId":%q}`, id)).Result["status"])
	})
}

// Which tools can be tasks is in the list for the revision that has such tasks.
func TestTask2025Offered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		support := map[string]any{}
		for _, tool := range e.old("ana")("tools/list", `{}`).Result["tools"].([]any) {
			tool := tool.(map[string]any)
			support[tool["name"].(string)] = tool["execution"]
		}
		require.Equal(t, map[string]any{"taskSupport": "optional"}, support["sleeper"])
		require.Nil(t, support["echo"])

		_, m := e.ask("ana", `{}`, "tools/list", "")
		for _, tool := range m.Result["tools"].([]any) {
			require.NotContains(t, tool, "execution")
		}
	})
}
