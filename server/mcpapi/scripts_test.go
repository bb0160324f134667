package mcpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// scripts is a configuration with the tool exec, and a tool of the program that notes what
// it is called with.
func scripts(t *testing.T, noted func(text string)) server.Config {
	t.Helper()
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(t, err)
	type note struct {
		Text string `json:"text"`
	}
	return server.Config{
		CacheDir: plugintest.CacheDir(),
		Folders:  []plugins.Folder{{Path: "exec", FS: fstest.MapFS{"exec.wasm": {Data: wasm}}}},
		Grants:   map[string]plugins.Grant{"exec": {Clock: true, Ask: true, Tools: []string{abi.EveryTool}}},
		Tools: []gotool.Tool{{Name: "note", Description: "Notes a text.", Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in note) (string, error) {
			noted(in.Text)
			return "noted " + in.Text, nil
		})}},
	}
}

func scriptOf(code string) map[string]any { return map[string]any{"code": code} }

// TestScriptsOfClients: clients of both eras, on both transports, run a script, in the
// middle of which their user is asked.
func TestScriptsOfClients(t *testing.T) {
	for transport, dial := range map[string]func(*testing.T, *server.Service) mcp.Transport{"stdio": stdioTransport, "http": httpTransport} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(transport+" "+version, func(t *testing.T) {
				var mu sync.Mutex
				var noted []string
				s := open(t, scripts(t, func(text string) { mu.Lock(); defer mu.Unlock(); noted = append(noted, text) }))
				client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
					ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						if r.Params.Message != "Which color?" {
							return nil, fmt.Errorf("asked %q", r.Params.Message)
						}
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "blue"}}, nil
					},
				})
				c, err := client.Connect(t.Context(), dial(t, s), &mcp.ClientSessionOptions{ProtocolVersion: version})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })

				call := &mcp.CallToolParams{Name: "exec", Arguments: scriptOf(`
					const before = await tools.note({text: "before"});
					const color = await ask("Which color?");
					return [before, color, await tools.note({text: color})]`)}
				r, err := c.CallTool(t.Context(), call)
				require.NoError(t, err)
				require.False(t, r.IsError, "%+v", r.Content)
				require.JSONEq(t, `{"result":["noted before","blue","noted blue"]}`, r.Content[0].(*mcp.TextContent).Text)
				require.Equal(t, "blue", noted[len(noted)-1])
				if version == "2025-11-25" { // in the other one the call is repeated with the answer
					require.Equal(t, []string{"before", "blue"}, noted)
				}

				r, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "exec", Arguments: scriptOf("return 1 +")})
				require.NoError(t, err)
				require.True(t, r.IsError)
				require.Contains(t, r.Content[0].(*mcp.TextContent).Text, "SyntaxError")
			})
		}
	}
}

func serveScripts(t *testing.T, noted func(string)) *endpoint {
	t.Helper()
	s := open(t, scripts(t, noted))
	h, err := mcpapi.NewHandler(s, mcpapi.Config{Version: "test"})
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return &endpoint{Handler: h, t: t, service: s}
}

// TestScriptsAsTasks: a script that waits is a task that works, says until when it waits,
// asks in the middle, and is stopped with what it has called.
func TestScriptsAsTasks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var noted []string
		e := serveScripts(t, func(text string) { noted = append(noted, text) })
		exec := func(code string) response {
			args, err := json.Marshal(scriptOf(code))
			require.NoError(t, err)
			_, m := e.ask("ana", canAskTask, "tools/call", fmt.Sprintf(`,"name":"exec","arguments":%s`, args))
			require.Equal(t, "task", m.Result["resultType"], "%v", m)
			return m
		}

		id := exec(`await sleep(60e3); const [color] = await Promise.all([ask("Which color?"), ask("Which one really?")]); await sleep(60e3); return await tools.note({text: color})`).Result["taskId"].(string)
		time.Sleep(10 * time.Second)
		m := e.get("ana", id)
		require.Equal(t, "working", m.Result["status"])
		require.Equal(t, "waiting until 2000-01-01T00:01:00Z", m.Result["statusMessage"])
		time.Sleep(time.Minute)
		answer := func(text string) {
			m := e.get("ana", id)
			require.Equal(t, "input_required", m.Result["status"], "%v", m)
			requests := m.Result["inputRequests"].(map[string]any)
			require.Len(t, requests, 1, "one question after the other")
			for key := range requests {
				_, m = e.ask("ana", tasksCapability, "tasks/update", fmt.Sprintf(`,"taskId":%q,"inputResponses":{%q:{"action":"accept","content":{"answer":%q}}}`, id, key, text))
				require.Equal(t, "complete", m.Result["resultType"], "%v", m)
			}
		}
		answer("red")
		time.Sleep(time.Second)
		answer("red")
		time.Sleep(10 * time.Second)
		require.Equal(t, "working", e.get("ana", id).Result["status"])
		time.Sleep(2 * time.Minute)
		m = e.get("ana", id)
		require.Equal(t, "completed", m.Result["status"], "%v", m)
		require.Contains(t, fmt.Sprint(m.Result["result"]), "noted red")
		require.Equal(t, []string{"red"}, noted)

		id = exec(`await tools.note({text: "first"}); await sleep(3600e3); await tools.note({text: "never"})`).Result["taskId"].(string)
		time.Sleep(time.Minute)
		require.Equal(t, "working", e.get("ana", id).Result["status"])
		_, m = e.ask("ana", tasksCapability, "tasks/cancel", fmt.Sprintf(`,"taskId":%q`, id))
		require.Equal(t, "complete", m.Result["resultType"], "%v", m)
		require.Equal(t, "cancelled", e.get("ana", id).Result["status"])
		time.Sleep(2 * time.Hour)
		require.Equal(t, []string{"red", "first"}, noted)
	})
}

// TestScriptsAsTasks2025: so is one of a client of 2025-11-25.
func TestScriptsAsTasks2025(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveScripts(t, func(string) {})
		ask := e.old("ana")
		args, err := json.Marshal(scriptOf(`await sleep(600e3); return "awake"`))
		require.NoError(t, err)
		id := ask("tools/call", fmt.Sprintf(`{"name":"exec","arguments":%s,"task":{}}`, args)).Result["task"].(map[string]any)["taskId"].(string)
		time.Sleep(time.Minute)
		m := ask("tasks/get", fmt.Sprintf(`{"taskId":%q}`, id))
		require.Equal(t, "working", m.Result["status"])
		require.Equal(t, "waiting until 2000-01-01T00:10:00Z", m.Result["statusMessage"])
		time.Sleep(10 * time.Minute)
		m = ask("tasks/result", fmt.Sprintf(`{"taskId":%q}`, id))
		require.Contains(t, fmt.Sprint(m.Result["content"]), "awake")
	})
}

// TestScriptsThatPark: a client follows the progress of a script. One that is waited for too long continues as a run, which a
// model checks and stops. It is not given the calls of the script.
func TestScriptsThatPark(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := scripts(t, func(string) {})
		cfg.ParkAfter = 10 * time.Second
		c := connect(t, open(t, cfg))
		c.sendEach([]byte(initialize))
		args, err := json.Marshal(scriptOf(`await tools.note({text: "a"}); progress(1, 4, "one of four"); await sleep(3600e3); return 1`))
		require.NoError(t, err)
		c.call(1, "exec", string(args))
		m := c.next()
		require.Equal(t, []any{1., 4., "one of four"}, []any{m.Params.Progress, m.Params.Total, m.Params.Message})
		for m = c.next(); m.Params.Progress > 0; m = c.next() { // signs of life
		}
		require.NotEmpty(t, m.Result.Content, "%+v", m)
		require.Contains(t, m.Result.Content[0].Text, `"task_id":"TASK-1"`)
		time.Sleep(time.Minute)
		c.send([]byte(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"check_background","arguments":{"task_id":"TASK-1","wait_seconds":0}}}` + "\n"))
		text := c.next().Result.Content[0].Text
		require.Contains(t, text, `"status":"waiting"`)
		require.NotContains(t, text, "note")
		c.send([]byte(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"stop_background","arguments":{"task_id":"TASK-1"}}}` + "\n"))
		require.True(t, strings.Contains(c.next().Result.Content[0].Text, `"canceled"`))
	})
}
