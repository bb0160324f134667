package mcpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// zoo is a folder of plugins that each behave in one known way.
func zoo() map[string]plugintest.Plugin {
	do := plugintest.Do
	return map[string]plugintest.Plugin{
		"echo":    {Invoke: do().Echo()},
		"sleeper": {Invoke: do().Progress("half way").Sleep(10).Echo()},
		"large":   {Invoke: do().Progress("half way").Sleep(10).EchoLarge()},
		"fails":   {Invoke: do().Sleep(10).Say(abi.StreamError, "the file is not there").Return(abi.InvokeToolError)},
		"traps":   {Invoke: do().Sleep(10).Trap()},
		"forever": {Invoke: do().Sleep(3000).Return(abi.InvokeToolError)},
	}
}

// endpoint is a handler over a service with the zoo, called in memory.
type endpoint struct {
	*mcpapi.Handler
	others  []*mcpapi.Handler // handlers of the other hosts, which take turns with it
	turn    *atomic.Int64
	t       *testing.T
	service *server.Service
	id      int

	patience time.Duration // how long the client waits; 0 means forever
	until    time.Time     // when its token expires; zero: never
	unnamed  bool          // its client names no session
}

func serveHTTP(t *testing.T, cfg server.Config) *endpoint {
	t.Helper()
	return serveHosts(t, zooConfig(cfg), mcpapi.Config{Version: "test"})
}

// zooConfig adds the zoo to a configuration.
func zooConfig(cfg server.Config) server.Config {
	files := fstest.MapFS{}
	cfg.Grants = map[string]plugins.Grant{}
	for name, p := range zoo() {
		m := plugintest.Manifest(name)
		m.Needs.Clock = true
		m.Tools[0].Hints = abi.Hints{Readonly: true, SupportsBackground: name != "echo"}
		p.Manifest = m
		files[name+".wasm"] = &fstest.MapFile{Data: p.Wasm()}
		cfg.Grants[name] = plugins.Grant{Clock: true}
	}
	cfg.Folders, cfg.CacheDir = []plugins.Folder{{Path: "zoo", FS: files}}, plugintest.CacheDir()
	return cfg
}

// ServeHTTP takes a header for the user, as the API around a handler takes a token.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := r.Header.Get("User")
	e.next().ServeHTTP(w, r.WithContext(identity.NewContext(r.Context(), identity.Caller{User: user, Session: "of " + user, Until: e.until, Unnamed: e.unnamed})))
}

// response is what an endpoint answers.
type response struct {
	Result map[string]any
	Error  *struct {
		Code    int
		Message string
		Data    map[string]any
	}
}

const tasksCapability = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// ask makes a modern request of a client with those capabilities.
func (e *endpoint) ask(user, capabilities, method, params string, headers ...string) (*httptest.ResponseRecorder, response) {
	e.t.Helper()
	e.id++
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s}%s}}`,
		e.id, method, capabilities, params)
	var named struct {
		Params struct{ Name, TaskID, URI string }
	}
	require.NoError(e.t, json.Unmarshal([]byte(body), &named), body)
	name := named.Params.Name + named.Params.TaskID + named.Params.URI
	return e.post(body, append([]string{"User", user, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name}, headers...)...)
}

// post sends a body and returns the last message of the answer.
func (e *endpoint) post(body string, headers ...string) (*httptest.ResponseRecorder, response) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	if e.patience > 0 {
		ctx, cancel = context.WithTimeout(ctx, e.patience)
	}
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	var m response
	for line := range bytes.Lines(w.Body.Bytes()) {
		line = bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data: "))
		if bytes.HasPrefix(line, []byte("{")) {
			require.NoError(e.t, json.Unmarshal(line, &m), "%s", line)
		}
	}
	return w, m
}

// start calls a tool that becomes a task and returns its id.
func (e *endpoint) start(user, tool string) string {
	e.t.Helper()
	_, m := e.ask(user, tasksCapability, "tools/call", fmt.Sprintf(`,"name":%q,"arguments":{}`, tool))
	require.Equal(e.t, "task", m.Result["resultType"], "%v", m)
	require.Equal(e.t, "working", m.Result["status"])
	require.NotContains(e.t, m.Result, "result")
	return m.Result["taskId"].(string)
}

func (e *endpoint) get(user, id string) response {
	e.t.Helper()
	_, m := e.ask(user, tasksCapability, "tasks/get", fmt.Sprintf(`,"taskId":%q`, id))
	return m
}

func bubble(t *testing.T, test func(t *testing.T)) { t.Helper(); synctest.Test(t, test) }

// The outcome of a task is reported as the extension requires: a failure of the tool is a
// result too, and failed means that there is none.
func TestTaskEnds(t *testing.T) {
	for tool, test := range map[string]struct {
		status  string
		isError any
		text    string
		code    int
	}{
		"sleeper": {status: "completed", text: "{}"},
		"fails":   {status: "completed", isError: true, text: "the file is not there"},
		"traps":   {status: "failed", code: -32603},
	} {
		t.Run(tool, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := serveHTTP(t, server.Config{})
				id := e.start("ana", tool)
				m := e.get("ana", id)
				require.Equal(t, "working", m.Result["status"])
				require.EqualValues(t, 1000, m.Result["pollIntervalMs"])
				require.EqualValues(t, 24*time.Hour/time.Millisecond, m.Result["ttlMs"])
				if tool == "sleeper" {
					if *hosts > 1 { // others see it with the next heartbeat
						time.Sleep(3 * time.Second)
						m = e.get("ana", id)
					}
					require.Contains(t, m.Result["statusMessage"], "half way")
				}
				time.Sleep(11 * time.Second)
				m = e.get("ana", id)
				require.Equal(t, "complete", m.Result["resultType"])
				require.Equal(t, test.status, m.Result["status"])
				if test.code != 0 {
					require.EqualValues(t, test.code, m.Result["error"].(map[string]any)["code"])
					require.NotContains(t, m.Result, "result")
					return
				}
				result := m.Result["result"].(map[string]any)
				require.Equal(t, test.isError, result["isError"])
				require.Equal(t, test.text, result["content"].([]any)[0].(map[string]any)["text"])
				pending, err := e.service.Session("of ana").Notices(t.Context(), 0)
				require.NoError(t, err)
				require.Empty(t, pending.Notices, "who was shown the end need not be told of it")
			})
		})
	}
}

func TestTaskIsCanceled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.start("ana", "forever")
		for range 2 { // also when there is nothing to cancel any more
			_, m := e.ask("ana", tasksCapability, "tasks/cancel", fmt.Sprintf(`,"taskId":%q`, id))
			require.Equal(t, "complete", m.Result["resultType"], "%v", m)
			require.NotContains(t, m.Result, "status")
		}
		time.Sleep(10 * time.Second)
		require.Equal(t, "cancelled", e.get("ana", id).Result["status"])
	})
}

// A task is visible only to its owner; for others it looks like an unknown task. A
// client without the tasks extension is refused before its id is looked up.
func TestTasksOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.start("ana", "forever")
		never := "bg_" + strings.Repeat("a", 26)
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			for _, other := range []string{id, never, "", "x"} {
				_, m := e.ask("bo", tasksCapability, method, fmt.Sprintf(`,"taskId":%q,"inputResponses":{}`, other))
				require.NotNil(t, m.Error, method)
				require.Equal(t, -32602, m.Error.Code)
				require.Equal(t, fmt.Sprintf("there is no task %q", other), m.Error.Message)

				w, m := e.ask("ana", `{}`, method, fmt.Sprintf(`,"taskId":%q,"inputResponses":{}`, other))
				require.Equal(t, http.StatusBadRequest, w.Code)
				require.Equal(t, -32021, m.Error.Code)
				require.Equal(t, map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}}, m.Error.Data["requiredCapabilities"])
			}
		}
		require.Equal(t, "working", e.get("ana", id).Result["status"])
	})
}

// A client without tasks waits, and still gets the run's id.
func TestCallWithoutTasks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		began := time.Now()
		_, m := e.ask("ana", `{}`, "tools/call", `,"name":"sleeper","arguments":{}`)
		require.Equal(t, "complete", m.Result["resultType"], "%v", m)
		require.Equal(t, 10*time.Second, time.Since(began))

		began = time.Now()
		_, m = e.ask("ana", `{}`, "tools/call", `,"name":"forever","arguments":{}`)
		require.Equal(t, 45*time.Second, time.Since(began))
		require.Contains(t, m.Result["content"].([]any)[0].(map[string]any)["text"], `"task_id":"bg_`)
	})
}

// A client that closes the stream has canceled its call, unless it was given a
// task for it.
func TestClosedStreamCancels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		for _, tool := range []string{"forever", "sleeper"} {
			e.patience = time.Second
			_, m := e.ask("ana", tasksCapability, "tools/call", fmt.Sprintf(`,"name":%q,"arguments":{}`, tool))
			require.NotEqual(t, "task", m.Result["resultType"], "an answer may still be sent, but no task is made")
			time.Sleep(time.Minute) // by this time it would have become a run
			require.Zero(t, e.service.Stats().Runs.Spawned)
		}
		e.patience = 3 * time.Second
		id := e.start("ana", "sleeper")
		time.Sleep(20 * time.Second)
		e.patience = 0
		require.Equal(t, "completed", e.get("ana", id).Result["status"])
	})
}

// The header that names a task to intermediaries must be present and correct.
func TestTaskHeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.start("ana", "forever")
		params := fmt.Sprintf(`,"taskId":%q`, id)
		for _, name := range []string{"", "bg_other", "=?base64?!?="} {
			w, m := e.ask("ana", tasksCapability, "tasks/get", params, "Mcp-Name", name)
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Equal(t, -32020, m.Error.Code)
		}
		w, m := e.ask("ana", tasksCapability, "tasks/get", params, "Mcp-Name", "  "+id+" ")
		require.Equal(t, http.StatusOK, w.Code, "%v", m)
		require.Equal(t, "no", w.Header().Get("X-Accel-Buffering"))
		w, m = e.ask("ana", tasksCapability, "tasks/list", "")
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Equal(t, -32601, m.Error.Code)
	})
}

// One URL speaks all revisions: a session that begins with initialize, and
// requests that stand for themselves.
func TestBothEras(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		w, m := e.post(strings.TrimSpace(strings.SplitAfter(initialize, "\n")[0]))
		require.Equal(t, http.StatusOK, w.Code)
		require.NotEmpty(t, m.Result["protocolVersion"])
		id := w.Header().Get("Mcp-Session-Id")
		require.NotEmpty(t, id)
		version := m.Result["protocolVersion"].(string)
		_, m = e.post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, "Mcp-Session-Id", id, "Mcp-Protocol-Version", version)
		require.NotEmpty(t, m.Result["tools"])
		w, m = e.ask("ana", `{}`, "tools/list", "")
		require.Empty(t, w.Header().Get("Mcp-Session-Id"))
		require.NotEmpty(t, m.Result["tools"])
	})
}

// A request's token goes no further than this server: nothing behind it sees it.
func TestTokenIsNotPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		seen := 0
		s := open(t, server.Config{})
		h, err := mcpapi.NewHandler(s, mcpapi.Config{Extend: mcpapi.Extend{Server: func(srv *mcp.Server) {
			srv.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					seen++
					require.NotContains(t, fmt.Sprint(req.GetExtra()), "s3cret")
					require.Contains(t, req.GetExtra().Header, "User")
					return next(ctx, method, req)
				}
			})
		}}})
		require.NoError(t, err)
		t.Cleanup(h.Close)
		e := &endpoint{Handler: h, t: t, service: s}
		e.ask("ana", `{}`, "tools/list", "", "Authorization", "Bearer s3cret")
		e.post(strings.TrimSpace(strings.SplitAfter(initialize, "\n")[0]), "User", "ana", "Authorization", "Bearer s3cret")
		require.Equal(t, 2, seen)
	})
}

// The sender of a request is not remembered from an earlier one in the same session: each
// request is checked, and a session belongs only to the caller who began it.
func TestSessionsOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		for _, user := range []string{"ana", ""} { // without a name too
			w, m := e.post(strings.TrimSpace(strings.SplitAfter(initialize, "\n")[0]), "User", user)
			version := m.Result["protocolVersion"].(string)
			headers := []string{"Mcp-Session-Id", w.Header().Get("Mcp-Session-Id"), "Mcp-Protocol-Version", version}
			const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
			w, _ = e.post(list, append(headers, "User", "bo")...)
			require.Equal(t, http.StatusNotFound, w.Code)
			require.Equal(t, "session not found\n", w.Body.String())
			_, m = e.post(list, append(headers, "User", user)...)
			require.NotEmpty(t, m.Result["tools"])
		}
	})
}

func TestBodyTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		w, _ := e.post(strings.Repeat(" ", 17<<20))
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	})
}

// What the SDK makes a tree of is not large, in a message of an array neither.
func TestMetaTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		const version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
		for size, status := range map[int]int{1 << 10: http.StatusOK, mcpapi.MaxMeta: http.StatusBadRequest} {
			list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + version + `,"io.modelcontextprotocol/clientCapabilities":{},"x":"` + strings.Repeat("x", size) + `"}%s}}`
			for body, want := range map[string]int{
				fmt.Sprintf(list, ""):                               status,
				fmt.Sprintf(list, `,"_META":{`+version+`}`):         max(status, http.StatusOK),
				`[` + fmt.Sprintf(list, "") + `,{"jsonrpc":"2.0"}]`: max(status, http.StatusBadRequest),
			} {
				w, _ := e.post(body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
				require.Equal(t, want, w.Code, "%d: %.200s", size, w.Body)
			}
		}
	})
}

// The files of a run are read in pieces, by those whom the run belongs to.
func TestRunFiles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.start("ana", "sleeper")
		time.Sleep(11 * time.Second)
		read := func(user, uri string) response {
			_, m := e.ask(user, `{}`, "resources/read", fmt.Sprintf(`,"uri":%q`, uri))
			return m
		}
		uri := "toolhost://runs/" + id + "/result.json"
		m := read("ana", uri)
		require.Nil(t, m.Error)
		require.Equal(t, "private", m.Result["cacheScope"])
		require.Contains(t, m.Result["contents"].([]any)[0].(map[string]any)["text"], `"task_id":"`+id)
		whole := m.Result["contents"].([]any)[0].(map[string]any)["text"].(string)
		rest := read("ana", uri+"?offset=10").Result["contents"].([]any)[0].(map[string]any)["text"]
		require.Equal(t, whole[10:], rest)
		require.NotNil(t, read("bo", uri).Error)
		for _, bad := range []string{"/secret", "/../result.json", "/result.json?offset=-1", ""} {
			m := read("ana", "toolhost://runs/"+id+bad)
			require.NotNil(t, m.Error, bad)
			require.Equal(t, -32602, m.Error.Code, bad)
		}
	})
}

// A body that is not JSON is answered as the protocol requires, and not in plain text.
func TestWhatIsNotJSON(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		for _, body := range []string{"", "{", `{"id":1}}`, "\xff"} {
			w, r := e.post(body)
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Equal(t, -32700, r.Error.Code, "%q", body)
		}
	})
}
