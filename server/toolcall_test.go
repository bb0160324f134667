package server

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/gotool"
)

// calling is a program that calls a tool, and answers with what came of it.
func calling(tool, args string) *plugintest.Program {
	return plugintest.Do().Use("tool.call", toolRequest(tool, args))
}

func toolRequest(tool, args string) string { return fmt.Sprintf(`{"tool":%q,"args":%s}`, tool, args) }

// aCaller is a plugin that may call other tools.
type aCaller struct {
	program *plugintest.Program
	may     []string
	hints   abi.Hints
	limits  abi.Limits
}

// openCallers opens a Service on plugins that call tools, and on plugins of the zoo.
func openCallers(t testing.TB, cfg Config, callers map[string]aCaller, names ...string) service {
	t.Helper()
	files := fstest.MapFS{}
	if cfg.Grants == nil {
		cfg.Grants = map[string]plugins.Grant{}
	}
	for name, c := range callers {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints, m.Tools[0].Limits = c.hints, c.limits
		files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: c.program}.Wasm()}
		g := cfg.Grants[name]
		g.Tools = c.may
		cfg.Grants[name] = g
	}

	all := zoo()
	for _, name := range names {
		files[name+".wasm"] = &fstest.MapFile{Data: all[name].Wasm()}
		if needs := all[name].Manifest.Needs; needs.Clock || needs.Ask {
			cfg.Grants[name] = plugins.Grant{Clock: needs.Clock, Ask: needs.Ask}
		}
	}
	return openFolder(t, cfg, files)
}

// postLetter is a tool of the program that changes the world.
var postLetter = gotool.Tool{Name: "post_letter", Description: "Made for a test.", Handler: gotool.Handle(
	func(context.Context, *gotool.Call, struct{}) (string, error) { return "posted", nil })}

// TestToolCall: a call to another tool ends for the caller as it would for an agent.
func TestToolCall(t *testing.T) {
	for name, c := range map[string]struct {
		tool, args string
		want       string
	}{
		"a result":                      {"echo", `{"n":1}`, `{"kind":"success","value":{"n":1}}`},
		"content":                       {"picture", `{}`, `{"kind":"success","value":{"a":"<b>"},"content":[{"type":"text","text":"hello"}]}`},
		"a tool error":                  {"fails", `{}`, `{"kind":"tool_error","error":"the file is not there"}`},
		"a required connection":         {"connect", `{}`, `{"kind":"connection_required","error":"connect acme first","connection":{"provider":"acme"}}`},
		"a crash":                       {"traps", `{}`, `{"kind":"internal","error":"An internal error occurred while executing the tool"}`},
		"what it panicked about":        {"panics", `{}`, `{"kind":"internal","error":"An internal error occurred while executing the tool"}`},
		"a result that does not fit":    {"liar", `{}`, `{"kind":"internal","error":"An internal error occurred while executing the tool"}`},
		"arguments that do not fit":     {"echo", `{"n":"one"}`, `{"kind":"tool_error","error":"the arguments of echo do not fit its schema: /n: expected integer, found string"}`},
		"arguments that are no object":  {"echo", `[1]`, `{"kind":"tool_error","error":"the arguments of echo do not fit its schema: expected an object, found an array"}`},
		"too much output":               {"flood", `{}`, `{"kind":"limit","limit":"output","error":"output limit reached: the plugin wrote more than the 8388608 bytes allowed"}`},
		"questions that nobody answers": {"asker", `{}`, `{"kind":"success","value":{"code":"denied","message":"nobody can be asked here"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := openCallers(t, Config{}, map[string]aCaller{"caller": {program: calling(c.tool, c.args), may: []string{c.tool}}}, c.tool)
			r := s.call(alice, "caller", `{}`)
			require.Equal(t, abi.Success, r.Kind, r.Error)
			require.JSONEq(t, c.want, string(r.Value))
		})
	}
}

// TestHostileToolCalls: what a plugin, or an agent through it, must not get.
func TestHostileToolCalls(t *testing.T) {
	readonly, offline := abi.Hints{Readonly: true}, abi.Hints{OpenWorld: new(false)}
	for name, c := range map[string]struct {
		caller  aCaller
		with    []string
		request Request
		want    string
	}{
		"a tool that is not granted": {aCaller{program: calling("echo", `{}`)}, []string{"echo"}, Request{},
			`{"code":"denied","message":"the tool \"echo\" is not granted to this plugin: have the operator add it to grants.caller.tools, and name it in the plugin's needs"}`},
		"another tool than the granted one": {aCaller{program: calling("echo", `{}`), may: []string{"plain"}}, []string{"echo", "plain"}, Request{},
			`{"code":"denied","message":"the tool \"echo\" is not granted to this plugin: have the operator add it to grants.caller.tools, and name it in the plugin's needs"}`},
		"a tool that does not exist": {aCaller{program: calling("echos", `{}`), may: []string{"echos"}}, []string{"echo"}, Request{},
			`{"kind":"tool_error","error":"no such tool: \"echos\", did you mean \"echo\"?"}`},
		"a tool of the agent": {aCaller{program: calling(SpawnBackground, `{"tool":"echo"}`), may: []string{SpawnBackground}}, []string{"echo"}, Request{},
			`{"code":"denied","message":"spawn_background is a tool of the agent, which no other tool can call"}`},
		"a tool that needs approval": {aCaller{program: calling("dangerous", `{}`), may: []string{"dangerous"}}, []string{"dangerous"}, Request{},
			`{"code":"denied","message":"the tool needs a person's approval, and nobody can be asked here"}`},
		"a tool whose plugin lacks grants": {aCaller{program: calling("needy", `{}`), may: []string{"needy"}}, []string{"needy"}, Request{},
			`{"code":"denied","message":"the plugin needy needs env HOME, which the operator has not granted"}`},
		"writing through a readonly tool": {aCaller{program: calling("post_letter", `{}`), may: []string{"post_letter"}, hints: readonly}, nil, Request{},
			`{"code":"denied","message":"caller is readonly, so it can call readonly tools only, and post_letter is not"}`},
		"writing through two readonly tools": {aCaller{program: calling("middle", `{}`), may: []string{"middle"}, hints: readonly}, nil, Request{},
			`{"code":"denied","message":"caller is readonly, so it can call readonly tools only, and middle is not"}`},
		"the network through a tool without it": {aCaller{program: calling("post_letter", `{}`), may: []string{"post_letter"}, hints: offline}, nil, Request{},
			`{"code":"denied","message":"caller says open_world: false, so it cannot call post_letter, which reaches the network"}`},
		"changes in a dry run": {aCaller{program: calling("plain", `{}`), may: []string{"plain"}, hints: readonly}, []string{"plain"}, Request{DryRun: true},
			`{"code":"denied","message":"this is a dry run: plain was not called, because it is not readonly"}`},
		"a request without a tool": {aCaller{program: plugintest.Do().Use("tool.call", `{"args":{}}`), may: []string{"echo"}}, nil, Request{},
			`{"code":"invalid","message":"expected {\"tool\": name, \"args\": object, \"timeout_ms\": milliseconds}, where the last two are optional"}`},
		"a request for another session": {aCaller{program: plugintest.Do().Use("tool.call", `{"tool":"echo","session":"bob"}`), may: []string{"echo"}}, []string{"echo"}, Request{},
			`{"code":"invalid","message":"expected {\"tool\": name, \"args\": object, \"timeout_ms\": milliseconds}, where the last two are optional"}`},
		"a request that is not UTF-8": {aCaller{program: plugintest.Do().Use("tool.call", "{\"tool\":\"echo\",\"args\":{\"\xff\":1}}"), may: []string{"echo"}}, []string{"echo"}, Request{},
			`{"code":"invalid","message":"expected {\"tool\": name, \"args\": object, \"timeout_ms\": milliseconds}, where the last two are optional"}`},
		"a negative time": {aCaller{program: plugintest.Do().Use("tool.call", `{"tool":"echo","timeout_ms":-1}`), may: []string{"echo"}}, []string{"echo"}, Request{},
			`{"code":"invalid","message":"expected {\"tool\": name, \"args\": object, \"timeout_ms\": milliseconds}, where the last two are optional"}`},
		"a repeated name in the arguments": {aCaller{program: calling("plain", `{"a":1,"a":2}`), may: []string{"plain"}}, []string{"plain"}, Request{},
			`{"kind":"tool_error","error":"the arguments of plain do not fit its schema: /a: given more than once"}`},
	} {
		t.Run(name, func(t *testing.T) {
			middle := aCaller{program: calling("post_letter", `{}`), may: []string{"post_letter"}}
			s := openCallers(t, Config{Tools: []gotool.Tool{postLetter}}, map[string]aCaller{"caller": c.caller, "middle": middle}, c.with...)
			c.request.Tool, c.request.Session = "caller", alice
			r, err := s.Call(t.Context(), c.request)
			require.NoError(t, err)
			require.Equal(t, abi.Success, r.Kind, r.Error)
			require.JSONEq(t, c.want, string(r.Value))
		})
	}
}

// TestToolCallRefusalIsLogged: the operator reads which grant is missing.
func TestToolCallRefusalIsLogged(t *testing.T) {
	s := openCallers(t, Config{}, map[string]aCaller{"caller": {program: calling("echo", `{}`)}}, "echo")
	s.call(alice, "caller", `{}`)
	require.Contains(t, s.logs.String(), `"a plugin called a tool that it was not granted","plugin":"caller"`)
	require.Contains(t, s.logs.String(), `"wants":"echo","times":1,"grant":"grants.caller.tools"`)
}

// TestToolCallStaysInside: output and progress of inner calls do not reach the caller of
// the outer one, and the sessions are the same.
func TestToolCallStaysInside(t *testing.T) {
	s := openCallers(t, Config{}, map[string]aCaller{
		"caller": {program: plugintest.Do().Request("tool.call", toolRequest("teller", `{}`)).Use("tool.call", toolRequest("context", `{}`)), may: []string{"teller", "context"}},
	}, "context")
	var out strings.Builder
	r, err := s.Call(t.Context(), Request{Session: alice, Tool: "caller", Locale: "de", Stdout: &out, Stderr: &out, Progress: func(p Progress) { fmt.Fprint(&out, p) }})
	require.NoError(t, err)
	require.Empty(t, out.String())

	var answer struct{ Value abi.Context }
	require.NoError(t, json.Unmarshal(r.Value, &answer))
	require.Equal(t, alice, answer.Value.Session)
	require.Equal(t, "de", answer.Value.Locale)

	calls := s.Figures().Calls(CallQuery{})
	require.Len(t, calls, 3)
	require.Equal(t, answer.Value.CallID, calls[1].CallID)
	require.Equal(t, calls[0].CallID, calls[1].OuterID)
	require.NotEmpty(t, calls[1].OuterID)
	require.Equal(t, "caller", calls[1].OuterTool)
	require.Empty(t, calls[0].OuterID)
	require.Equal(t, "caller", calls[0].Tool)
}

// TestToolCallOfRun: a run is what its inner calls are listed with, and its cost has
// theirs. They are neither attached to each other nor parked.
func TestToolCallOfRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openCallers(t, Config{ParkAfter: time.Second, Park: ParkAll}, map[string]aCaller{
			"caller": {program: plugintest.Do().Request("tool.call", toolRequest("chatty", `{}`)).Use("tool.call", toolRequest("chatty", `{}`)), may: []string{"chatty"},
				hints: abi.Hints{SupportsBackground: true}},
		}, "chatty")
		id := s.spawn(alice, "caller", `{}`)
		time.Sleep(time.Minute)
		synctest.Wait()
		o := s.check(alice, id, "")
		require.Equal(t, "succeeded", o["status"], "%v", o)
		require.NotContains(t, fmt.Sprint(o["result"]), "background")
		calls := s.Figures().Calls(CallQuery{Tool: "chatty"})
		require.Len(t, calls, 2)
		require.Equal(t, id, calls[0].OuterID)

		parked := s.call(alice, "caller", `{}`)
		require.Contains(t, string(parked.Value), `"type":"background"`)
		time.Sleep(time.Minute)
	})
}

// TestToolCallAnnotations: what agents read of a tool follows the tools it may call.
func TestToolCallAnnotations(t *testing.T) {
	s := openCallers(t, Config{Tools: []gotool.Tool{postLetter}}, map[string]aCaller{
		"harmless": {program: calling("harmless", `{}`), may: []string{"harmless", "plain", "missing"}},
		"writer":   {program: calling("post_letter", `{}`), may: []string{"writer", "post_letter"}},
		"far":      {program: calling("writer", `{}`), may: []string{"writer"}},
		"readonly": {program: calling("writer", `{}`), may: []string{"writer"}, hints: abi.Hints{Readonly: true, OpenWorld: new(false)}},
	}, "plain")
	got := map[string]Annotations{}
	for _, d := range s.Definitions(alice) {
		got[d.Name] = d.Annotations
	}
	require.Equal(t, Annotations{ReadOnly: true}, got["harmless"])
	require.Equal(t, Annotations{Destructive: true, OpenWorld: true}, got["writer"])
	require.Equal(t, Annotations{Destructive: true, OpenWorld: true}, got["far"])
	require.Equal(t, Annotations{ReadOnly: true, Idempotent: true}, got["readonly"])
}

// TestToolCallApproval: a person is asked about the tool that is called, and learns which
// tool calls it.
func TestToolCallApproval(t *testing.T) {
	var asked []Approval
	s := openCallers(t, Config{Approve: func(_ context.Context, a Approval) error {
		asked = append(asked, a)
		return nil
	}}, map[string]aCaller{"caller": {program: calling("dangerous", `{"n":1}`), may: []string{"dangerous"}}}, "dangerous")
	require.JSONEq(t, `{"kind":"success","value":{"n":1}}`, string(s.call(alice, "caller", `{}`).Value))
	require.Equal(t, []Approval{{Session: alice, Tool: "dangerous", Args: json.RawMessage(`{"n":1}`), Caller: "caller"}}, asked)
}

// TestToolCallAsks: a tool that is called asks the user of the outer call, who learns which
// tool asks.
func TestToolCallAsks(t *testing.T) {
	s := openCallers(t, Config{}, map[string]aCaller{"caller": {program: calling("asker", `{}`), may: []string{"asker"}}}, "asker")
	var asked []string
	ask := func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		asked = append(asked, CalledTool(ctx))
		return answering(accepted(`{"name":"Ana"}`))(ctx, q)
	}
	_, err := s.Call(t.Context(), Request{Session: alice, Tool: "asker", Ask: ask})
	require.NoError(t, err)
	r, err := s.Call(t.Context(), Request{Session: alice, Tool: "caller", Ask: ask})
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"success","value":{"answers":{"name":{"action":"accept","content":{"name":"Ana"}}}}}`, string(r.Value))
	require.Equal(t, []string{"", "asker"}, asked)
}

// TestToolCallSecret: secret arguments of inner calls are neither logged nor kept.
func TestToolCallSecret(t *testing.T) {
	s := openCallers(t, Config{}, map[string]aCaller{
		"caller": {program: plugintest.Do().Request("tool.call", toolRequest("confidant", `{"key":"hunter2"}`)).Echo(), may: []string{"confidant"}, hints: abi.Hints{SupportsBackground: true}},
	}, "confidant")
	id := s.spawn(alice, "caller", `{}`)
	require.Equal(t, "succeeded", s.check(alice, id, longest)["status"])
	run, err := s.Session(alice).WholeRun(t.Context(), id)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%+v %+v %s", run, s.Figures().Calls(CallQuery{}), s.logs.String()), "hunter2")
	require.Len(t, s.Figures().Calls(CallQuery{Tool: "confidant"}), 1)
}

// TestToolCallAudit: the log says which call has made a call, and which were refused.
func TestToolCallAudit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	program := plugintest.Do().Request("tool.call", toolRequest("plain", `{"key":"hunter2"}`)).Request("tool.call", toolRequest("echo", `{}`)).
		Request("tool.call", toolRequest("dangerous", `{}`)).Request("tool.call", toolRequest(StopBackground, `{}`)).Echo()
	s := openCallers(t, Config{AuditDir: dir}, map[string]aCaller{"caller": {program: program, may: []string{"plain", "dangerous", StopBackground}}}, "plain", "echo", "dangerous")
	s.call(alice, "caller", `{}`)
	require.NoError(t, s.Close(done()))

	found, err := audit.Read(dir, audit.Query{Kinds: []audit.Kind{audit.Call}})
	require.NoError(t, err)
	slices.Reverse(found)
	require.Len(t, found, 5)
	outer := found[4]
	for i, want := range []audit.Event{
		{Tool: "plain", Outcome: "success"},
		{Tool: "dangerous", Outcome: "tool_error", Code: "denied"},
		{Tool: "echo", Outcome: "tool_error", Code: "denied", Reason: "refused to the tool caller", Count: 1},
		{Tool: StopBackground, Outcome: "tool_error", Code: "denied", Reason: "refused to the tool caller", Count: 1},
	} {
		require.Equal(t, outer.ID, found[i].Parent)
		require.Equal(t, want, audit.Event{Tool: found[i].Tool, Outcome: found[i].Outcome, Code: found[i].Code, Reason: found[i].Reason, Count: found[i].Count})
	}
	require.NotContains(t, fmt.Sprint(found), "hunter2")
}

// TestToolCallFlood: a plugin that calls tools that it may not call fills neither the log
// nor the audit log.
func TestToolCallFlood(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	program := plugintest.Do()
	for range 60 {
		program.Request("tool.call", toolRequest("echo", `{}`)).Request("tool.call", toolRequest(StopBackground, `{}`))
	}
	for i := range 40 {
		program.Request("tool.call", toolRequest(fmt.Sprint("echo", i), `{}`))
	}
	s := openCallers(t, Config{AuditDir: dir}, map[string]aCaller{"caller": {program: program.Echo(), may: []string{StopBackground}}}, "echo")
	s.call(alice, "caller", `{}`)
	require.NoError(t, s.Close(done()))

	found, err := audit.Read(dir, audit.Query{Kinds: []audit.Kind{audit.Call}})
	require.NoError(t, err)
	times := map[string]int64{}
	for _, e := range found[1:] { // the first is the call itself
		times[e.Tool] = e.Count
	}
	require.Len(t, found[1:], 18)
	require.Equal(t, int64(60), times["echo"])
	require.Equal(t, int64(60), times[StopBackground])
	require.Equal(t, int64(1), times["echo14"])
	require.Equal(t, int64(25), times["(others)"])
	require.Equal(t, 17, strings.Count(s.logs.String(), "a plugin called a tool that it was not granted"))
	require.Contains(t, s.logs.String(), `"wants":"echo","times":60,"grant":"grants.caller.tools"`)
}

// TestToolCallFindings: the operator learns of grants that cannot work.
func TestToolCallFindings(t *testing.T) {
	s := openCallers(t, Config{}, map[string]aCaller{"caller": {program: calling("plain", `{}`), may: []string{"plain", "plane", SpawnBackground}}}, "plain")
	var found []string
	for _, f := range s.Findings() {
		found = append(found, f.Error)
	}
	require.Equal(t, []string{
		`granted a tool that cannot be called: no such tool: "plane"`,
		`granted a tool that cannot be called: no such tool: "spawn_background"`,
	}, found)
}

// TestToolCallThroughProgram: a tool of the program that a plugin calls, and that calls a
// plugin's tool itself, is within the bounds of the plugin's call.
func TestToolCallThroughProgram(t *testing.T) {
	var s service
	relay := gotool.Tool{Name: "relay", Description: "Made for a test.", Hints: abi.Hints{Readonly: true, OpenWorld: new(false)}, Handler: gotool.Handle(
		func(ctx context.Context, c *gotool.Call, in struct {
			Tool string `json:"tool"`
		}) (any, error) {
			r, err := s.Call(ctx, Request{Session: c.Session(), Tool: in.Tool})
			if err != nil {
				return nil, err
			}
			return r.Value, nil
		})}
	s = openCallers(t, Config{Tools: []gotool.Tool{relay}, Host: host.Config{TotalCalls: 1, Calls: 1}}, map[string]aCaller{
		"counter": {program: plugintest.Do().Count(1_000_000)},
		"caller":  {program: calling("relay", `{"tool":"counter"}`), may: []string{"relay"}},
		"loop":    {program: calling("relay", `{"tool":"loop"}`), may: []string{"relay"}},
	})
	counter, caller := s.call(alice, "counter", `{}`), s.call(alice, "caller", `{}`)
	require.Equal(t, `{"kind":"success","value":null}`, string(caller.Value))
	require.Greater(t, caller.Usage.Fuel, counter.Usage.Fuel)
	require.Contains(t, string(s.call(alice, "loop", `{}`).Value), "at most 8 tools can call each other in turn")
}

// TestProgramCallsTool: a handler calls tools as a plugin does, and its cost has theirs.
func TestProgramCallsTool(t *testing.T) {
	handler := gotool.Handle(func(ctx context.Context, c *gotool.Call, in struct {
		Tool string `json:"tool"`
	}) (any, error) {
		r, err := c.CallTool(ctx, in.Tool, struct{}{})
		if err != nil {
			return nil, err
		}
		r.Usage = abi.Usage{}
		return r, nil
	})
	relay := gotool.Tool{Name: "relay", Description: "Made for a test.", Handler: handler}
	serial := gotool.Tool{Name: "serial", Description: "Made for a test.", Hints: abi.Hints{Concurrency: abi.Serial}, Handler: handler}
	careful := gotool.Tool{Name: "careful", Description: "Made for a test.", Hints: abi.Hints{Readonly: true}, Handler: handler}
	s := openCallers(t, Config{Tools: []gotool.Tool{relay, serial, careful, postLetter}, Host: host.Config{TotalCalls: 1, Calls: 1}}, map[string]aCaller{
		"counter": {program: plugintest.Do().Count(1_000_000)},
		"back":    {program: calling("serial", `{"tool":"back"}`), may: []string{"serial"}},
	}, "fails", "dangerous")
	counter, relayed := s.call(alice, "counter", `{}`), s.call(alice, "relay", `{"tool":"counter"}`)
	require.Equal(t, counter.Usage.Fuel, relayed.Usage.Fuel)
	require.Contains(t, string(s.call(alice, "relay", `{"tool":"fails"}`).Value), `"error":"the file is not there"`)
	require.Equal(t, "denied: the tool needs a person's approval, and nobody can be asked here", s.call(alice, "relay", `{"tool":"dangerous"}`).Error)
	require.Equal(t, "denied: spawn_background is a tool of the agent, which no other tool can call", s.call(alice, "relay", `{"tool":"spawn_background"}`).Error)
	require.Equal(t, "denied: careful is readonly, so it can call readonly tools only, and post_letter is not", s.call(alice, "careful", `{"tool":"post_letter"}`).Error)
	require.Contains(t, string(s.call(alice, "serial", `{"tool":"back"}`).Value), "the tool runs one call of a session at a time, and another one is running")
}
