package mcpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// wiping is a configuration with the tool exec, whose scripts need no approval, and with the
// destructive tools wipe and nuke, which record the arguments of their calls.
func wiping(t *testing.T, noted *[]string) server.Config {
	t.Helper()
	var mu sync.Mutex
	type target struct {
		Text string `json:"text"`
	}
	cfg := scripts(t, func(string) {})
	cfg.Approvals = server.ApprovalPolicy{Ask: true, Tools: map[string]server.Decision{"exec": server.DecideAllow}}
	for _, name := range []string{"wipe", "nuke"} {
		cfg.Tools = append(cfg.Tools, gotool.Tool{Name: name, Description: "Deletes.", Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in target) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			*noted = append(*noted, name+" "+in.Text)
			return "deleted " + in.Text, nil
		})})
	}
	return cfg
}

// user answers the questions of a client: a message that contains a key of decisions is
// answered with its value, and any other is declined.
type user struct {
	decisions map[string]string

	mu    sync.Mutex
	asked []string
}

func (u *user) client() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.asked = append(u.asked, r.Params.Message)
			for part, decision := range u.decisions {
				if strings.Contains(r.Params.Message, part) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": decision, "answer": decision}}, nil
				}
			}
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
}

// eachClient runs a test with clients of both eras on both transports.
func eachClient(t *testing.T, test func(t *testing.T, dial func(*testing.T, *server.Service, *user) *mcp.ClientSession)) {
	for transport, dial := range map[string]func(*testing.T, *server.Service) mcp.Transport{"stdio": stdioTransport, "http": httpTransport} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(transport+" "+version, func(t *testing.T) {
				test(t, func(t *testing.T, s *server.Service, u *user) *mcp.ClientSession {
					c, err := u.client().Connect(t.Context(), dial(t, s), &mcp.ClientSessionOptions{ProtocolVersion: version})
					require.NoError(t, err)
					t.Cleanup(func() { _ = c.Close() })
					return c
				})
			})
		}
	}
}

func textOf(t *testing.T, c *mcp.ClientSession, tool string, args any) string {
	t.Helper()
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	text, err := json.Marshal(r.Content)
	require.NoError(t, err)
	return string(text)
}

// One answer of a user approves one call: two tools under one script, and the same tool with
// other arguments, need an answer each, and what is refused does not run.
func TestApprovalsOfClients(t *testing.T) {
	eachClient(t, func(t *testing.T, dial func(*testing.T, *server.Service, *user) *mcp.ClientSession) {
		var noted []string
		s := open(t, wiping(t, &noted))
		u := &user{decisions: map[string]string{`{"text":"a"}`: "once", "Allow nuke": "no", `{"text":"b"}`: "once"}}
		c := dial(t, s, u)
		text := textOf(t, c, "exec", scriptOf(`
			const ends = [await tools.wipe({text: "a"})];
			try { await tools.nuke({text: "production"}) } catch (e) { ends.push(e.message) }
			return [...ends, await tools.wipe({text: "b"})]`))
		require.Contains(t, text, "deleted a")
		require.Contains(t, text, "the user did not allow it")
		require.Contains(t, text, "deleted b")
		require.Equal(t, []string{"wipe a", "wipe b"}, noted)
		require.Len(t, u.asked, 3)
		require.Contains(t, u.asked[1], `Allow nuke, called by exec? Its arguments: {"text":"production"}`)

		require.Contains(t, textOf(t, c, "wipe", map[string]any{"text": "a"}), "deleted a", "a call of the agent")
		require.Contains(t, textOf(t, c, "nuke", map[string]any{"text": "all"}), "the user did not allow it")
		require.Equal(t, []string{"wipe a", "wipe b", "wipe a"}, noted)
	})
}

// The user of a client decides on a call with a secret argument too, in both eras, and does
// not see it.
func TestApprovalOfSecretCall(t *testing.T) {
	eachClient(t, func(t *testing.T, dial func(*testing.T, *server.Service, *user) *mcp.ClientSession) {
		var noted []string
		cfg := wiping(t, &noted)
		cfg.Tools = append(cfg.Tools, gotool.Tool{Name: "unlock", Description: "Unlocks.", Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in struct {
			Door string `json:"door"`
			Code string `json:"code" secret:"true"`
		}) (string, error) {
			return fmt.Sprintf("%s is open to %d letters", in.Door, len(in.Code)), nil
		})})
		u := &user{decisions: map[string]string{`{"door":"front"}`: "once"}}
		c := dial(t, open(t, cfg), u)
		require.Contains(t, textOf(t, c, "unlock", map[string]any{"door": "front", "code": "hunter2"}), "front is open to 7 letters")
		require.Contains(t, textOf(t, c, "unlock", map[string]any{"door": "back", "code": "hunter2"}), "the user did not allow it")
		require.Len(t, u.asked, 2)
		require.NotContains(t, fmt.Sprint(u.asked), "hunter2")
	})
}

// Calls that a script makes at the same time are asked about one by one.
func TestApprovalsAtOnce(t *testing.T) {
	eachClient(t, func(t *testing.T, dial func(*testing.T, *server.Service, *user) *mcp.ClientSession) {
		var noted []string
		s := open(t, wiping(t, &noted))
		u := &user{decisions: map[string]string{`"1"`: "once", `"2"`: "no", `"3"`: "once"}}
		text := textOf(t, dial(t, s, u), "exec", scriptOf(`
			const all = await Promise.allSettled(["1", "2", "3"].map(text => tools.wipe({text})));
			return all.map(one => one.status)`))
		require.Contains(t, text, `[\"fulfilled\",\"rejected\",\"fulfilled\"]`)
		require.Len(t, u.asked, 3)
		require.ElementsMatch(t, []string{"wipe 1", "wipe 3"}, noted)
	})
}

// An answer to a tool's question holds for the message of that question: another message is
// asked, even under the same key.
func TestAnswersOfClients(t *testing.T) {
	eachClient(t, func(t *testing.T, dial func(*testing.T, *server.Service, *user) *mcp.ClientSession) {
		var noted []string
		s := open(t, wiping(t, &noted))
		u := &user{decisions: map[string]string{"draft.txt": "yes", "PRODUCTION": "no"}}
		text := textOf(t, dial(t, s, u), "exec", scriptOf(`
			const asks = (text) => ask(text, {type: "string"});
			return [await asks("Really delete draft.txt?"), await asks("Really delete ALL OF PRODUCTION?"), await asks("Really delete draft.txt?")]`))
		require.Contains(t, text, `[\"yes\",\"no\",\"yes\"]`)
		last := u.asked[max(0, len(u.asked)-3):]
		require.Equal(t, []string{"Really delete draft.txt?", "Really delete ALL OF PRODUCTION?", "Really delete draft.txt?"}, last)
		require.Len(t, u.asked, 3, "each answer is carried, and used once")
	})
}

// An approval for the session ends with the connection over stdio.
func TestApprovalEndsWithConnection(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		var noted []string
		cfg := wiping(t, &noted)
		cfg.DataDir = dir
		s, err := server.Open(t.Context(), cfg)
		require.NoError(t, err)
		u := &user{decisions: map[string]string{"Allow wipe": "session"}}
		c, err := u.client().Connect(t.Context(), stdioTransport(t, s), nil)
		require.NoError(t, err)
		textOf(t, c, "wipe", map[string]any{"text": "a"})
		textOf(t, c, "wipe", map[string]any{"text": "b"})
		require.Equal(t, []string{"wipe a", "wipe b"}, noted)
		require.Len(t, u.asked, 1, "in this connection")
		require.NoError(t, c.Close())
		closeNow(t, s)
	}
}

// A client since 2026-07-28 carries the question: the answer holds for the code, the grants
// and the call that were shown, and can be used once.
func TestForgedApprovals(t *testing.T) {
	manifest := plugintest.Manifest("drop")
	files := fstest.MapFS{}
	build := func(version string) {
		manifest.Version = version
		files["drop.wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: manifest, Invoke: plugintest.Do().Echo()}.Wasm()}
	}
	const call, yes = `,"name":"drop","arguments":{"n":1}`, `{"decision":"once"}`
	ran := func(m response) bool { return strings.Contains(fmt.Sprint(m.Result["content"]), `{"n":1}`) }

	for name, test := range map[string]struct {
		between func(t *testing.T, s *server.Service) // question and answer
		answer  func(e *endpoint, state string) response
		runs    bool
	}{
		"the answer": {runs: true},
		"without a question": {answer: func(e *endpoint, _ string) response {
			_, m := e.ask("ana", canAsk, "tools/call", call+`,"inputResponses":{"toolhost/approval":{"action":"accept","content":{"decision":"session"}}}`)
			return m
		}},
		"to another question": {answer: func(e *endpoint, state string) response {
			_, m := e.ask("ana", canAsk, "tools/call", call+with("toolhost/approval.1", yes, state))
			return m
		}},
		"for other arguments": {answer: func(e *endpoint, state string) response {
			_, m := e.ask("ana", canAsk, "tools/call", strings.Replace(call, "1", "2", 1)+with("toolhost/approval", yes, state))
			require.NotNil(t, m.Error)
			return m
		}},
		"by somebody else": {answer: func(e *endpoint, state string) response {
			_, m := e.ask("bo", canAsk, "tools/call", call+with("toolhost/approval", yes, state))
			require.NotNil(t, m.Error)
			return m
		}},
		"after the plugin was replaced": {between: func(t *testing.T, s *server.Service) {
			build("2.0.0")
			_, err := s.ReloadPlugins(t.Context())
			require.NoError(t, err)
		}},
		"after its grants were widened": {between: func(t *testing.T, s *server.Service) {
			_, err := s.Reconfigure(t.Context(), func(c *server.Config) { c.Grants = map[string]plugins.Grant{"drop": {Clock: true}} })
			require.NoError(t, err)
		}},
		"after the policy denied it": {between: func(t *testing.T, s *server.Service) {
			_, err := s.Reconfigure(t.Context(), func(c *server.Config) {
				c.Approvals = server.ApprovalPolicy{Ask: true, Tools: map[string]server.Decision{"drop": server.DecideDeny}}
			})
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				build("1.0.0")
				s := open(t, server.Config{CacheDir: plugintest.CacheDir(), Folders: []plugins.Folder{{Path: "drop", FS: files}}, Approvals: server.ApprovalPolicy{Ask: true}})
				h, err := mcpapi.NewHandler(s, mcpapi.Config{})
				require.NoError(t, err)
				t.Cleanup(h.Close)
				e := &endpoint{Handler: h, t: t, service: s}
				_, m := e.ask("ana", canAsk, "tools/call", call)
				require.Contains(t, m.Result["inputRequests"], "toolhost/approval", "%v", m)
				state := m.Result["requestState"].(string)
				if test.between != nil {
					test.between(t, s)
				}

				answer := test.answer
				if answer == nil {
					answer = func(e *endpoint, state string) response {
						_, m := e.ask("ana", canAsk, "tools/call", call+with("toolhost/approval", yes, state))
						return m
					}
				}
				m = answer(e, state)
				require.Equal(t, test.runs, ran(m), "%v", m)
				if !test.runs {
					return
				}

				_, m = e.ask("ana", canAsk, "tools/call", call+with("toolhost/approval", yes, state))
				require.True(t, ran(m), "the result of the same run")
				runs, err := s.AllSessions().Runs(t.Context(), server.RunQuery{})
				require.NoError(t, err)
				require.Len(t, runs, 1, "an answer counts once")
			})
		})
	}
}

// A client that cannot put the question to its user, or whose user dismisses it, leaves the
// call held, and the answer says what to do.
func TestUndecided(t *testing.T) {
	for name, handler := range map[string]func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error){
		"an error": func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return nil, fmt.Errorf("not implemented")
		},
		"dismissed": func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: abi.AnswerCancel}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var noted []string
			s := open(t, wiping(t, &noted))
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: handler})
			c, err := client.Connect(t.Context(), httpTransport(t, s), &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })

			require.Contains(t, textOf(t, c, "wipe", map[string]any{"text": "a"}), "It waits until a person approves it (for an operator: toolhost approve bg_")
			require.Empty(t, noted)
			list, err := s.Approvals().List(t.Context(), "", 0)
			require.NoError(t, err)
			require.Len(t, list.Approvals, 1)
		})
	}
}
