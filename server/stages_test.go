package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/runs"
)

// A wrong is something that is wrong with a call, and a part of the answer to it.
type wrong struct {
	name string
	tool string // a letter in the name of a tool that has it
	call func(req *Request)
	want string
}

// The letters of tools, see wrong.
const (
	ungranted = "u" // it needs what is not granted
	forbidden = "f" // the policy denies it
	broken    = "b" // its result does not fit its schema
)

// stageTool is the name of the tool that has all that is wrong with it.
func stageTool(of ...wrong) string {
	name := "tool_"
	for _, w := range of {
		name += w.tool
	}
	return name
}

// openStages opens a service with a tool for each combination of letters, and those plugins.
func openStages(t *testing.T, cfg Config, others map[string]plugintest.Plugin) service {
	files := fstest.MapFS{}
	if cfg.Grants == nil {
		cfg.Grants = map[string]plugins.Grant{}
	}
	for _, letters := range []string{"", "u", "f", "b", "uf", "ub", "fb", "ufb"} {
		m := plugintest.Manifest("tool_" + letters)
		cfg.Grants[m.Name] = plugins.Grant{KV: host.KV{Mode: abi.StoreWrite}} // so it is not readonly
		m.Tools[0].InputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
		m.Tools[0].OutputSchema = json.RawMessage(`{"type":"object"}`)
		m.Tools[0].Hints.SupportsBackground = true
		if strings.Contains(letters, ungranted) {
			m.Needs.Env = []string{"HOME"}
		}
		do := plugintest.Do().Echo()
		if strings.Contains(letters, broken) {
			do = plugintest.Do().Say(abi.StreamResult, `"text"`)
		}
		files[m.Name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: do}.Wasm()}
	}
	for name, p := range others {
		files[name+".wasm"] = &fstest.MapFile{Data: p.Wasm()}
	}
	cfg.Approvals = ApprovalPolicy{Tools: map[string]Decision{"tool_*f*": DecideDeny}}
	return openFolder(t, cfg, files)
}

// answerOf is the answer to a call in one line.
func answerOf(r abi.Result) string { return string(r.Kind) + ": " + r.Error + string(r.Value) }

// eachPair calls test with each of the wrongs alone, and with each two of them of which the
// first is found first.
func eachPair(t *testing.T, all []wrong, test func(t *testing.T, found wrong, of ...wrong)) {
	for i, first := range all {
		t.Run(first.name, func(t *testing.T) {
			test(t, first, first)
			for _, second := range all[i+1:] {
				t.Run("before "+second.name, func(t *testing.T) { test(t, first, first, second) })
			}
		})
	}
}

// TestOrderOfCalls is the order in which an agent's call is checked: of two things that are
// wrong, it is told the first. SECURITY.md promises it.
func TestOrderOfCalls(t *testing.T) {
	s := openStages(t, Config{}, nil)
	_, err := s.Call(t.Context(), Request{Session: alice, Tool: "tool_", Args: json.RawMessage(`{"n":1}`), Key: "used"})
	require.NoError(t, err)

	eachPair(t, []wrong{
		{name: "no object", call: func(r *Request) { r.Args = json.RawMessage(`[1]`) }, want: "expected an object, found an array"},
		{name: "bad locale", call: func(r *Request) { r.Locale = "no locale" }, want: "locale: "},
		{name: "long key", call: func(r *Request) { r.Key = strings.Repeat("k", MaxKey+1) }, want: "idempotency_key: longer than 128 characters"},
		{name: "closing", call: func(*Request) { s.closed.Store(true) }, want: "the server is shutting down"},
		{name: "no tool", call: func(r *Request) { r.Tool = "no" + r.Tool }, want: "no such tool"},
		{name: "bad arguments", call: func(r *Request) {
			if string(r.Args) == `{"n":2}` {
				r.Args = json.RawMessage(`{"n":"x"}`)
			}
		}, want: "/n: expected integer, found string"},
		{name: "not granted", tool: ungranted, want: "needs env HOME, which the operator has not granted"},
		{name: "dry run", call: func(r *Request) { r.DryRun = true }, want: `success: {"type":"dry_run"`},
		{name: "used key", call: func(r *Request) {
			if r.Key == "" {
				r.Key = "used"
			}
		}, want: "the idempotency key was used for another tool or other arguments"},
		{name: "forbidden", tool: forbidden, want: "the operator's policy refuses"},
		{name: "broken", tool: broken, want: "internal: "},
	}, func(t *testing.T, found wrong, of ...wrong) {
		defer s.closed.Store(false)
		req := Request{Session: alice, Tool: stageTool(of...), Args: json.RawMessage(`{"n":2}`)}
		for _, w := range of {
			if w.call != nil {
				w.call(&req)
			}
		}
		want := found.want
		if req.DryRun && strings.Contains(req.Tool, forbidden) && found.name == "dry run" {
			want = "the operator's policy refuses" // a dry run says what would be refused
		}
		r, _ := s.Call(t.Context(), req)
		require.Contains(t, answerOf(r), want)
	})
}

// TestOrderOfInnerCalls is the same for the call that a plugin's tool makes and waits for.
func TestOrderOfInnerCalls(t *testing.T) {
	testInnerCalls(t, func(t *testing.T, s service, want string) {
		require.Contains(t, string(s.call(alice, "caller", `{}`).Value), want)
		require.Contains(t, string(s.call(alice, "starter", `{}`).Value), want)
	})
}

// TestOrderOfDetachedCalls is the same for the call that a run makes, and that could become
// a child run. None does that is refused.
func TestOrderOfDetachedCalls(t *testing.T) {
	testInnerCalls(t, func(t *testing.T, s service, want string) {
		require.Contains(t, string(s.settled(alice, s.spawn(alice, "starter", `{}`)).Result), want)
	})
}

// testInnerCalls calls test with a service whose tool caller makes a call with something
// wrong, and returns the response. Its tool starter starts that call, and waits for it.
func testInnerCalls(t *testing.T, test func(t *testing.T, s service, want string)) {
	type inner struct {
		tool, args string
		readonly   bool
	}
	change := map[string]func(*inner){
		"no tool":       func(c *inner) { c.tool = "no" + c.tool },
		"bad arguments": func(c *inner) { c.args = `{"n":"x"}` },
		"hints":         func(c *inner) { c.readonly = true },
	}
	eachPair(t, []wrong{
		{name: "no tool", want: "no such tool"},
		{name: "bad arguments", want: "/n: expected integer, found string"},
		{name: "not granted", tool: ungranted, want: "needs env HOME, which the operator has not granted"},
		{name: "hints", want: "is readonly, so it can call readonly tools only"},
		{name: "forbidden", tool: forbidden, want: "the operator's policy refuses"},
		{name: "broken", tool: broken, want: `"kind":"internal"`},
	}, func(t *testing.T, found wrong, of ...wrong) {
		call := inner{tool: stageTool(of...), args: `{"n":2}`}
		for _, w := range of {
			if f := change[w.name]; f != nil {
				f(&call)
			}
		}
		grants, callers := map[string]plugins.Grant{}, map[string]plugintest.Plugin{}
		for name, program := range map[string]*plugintest.Program{
			"caller":  calling(call.tool, call.args),
			"starter": plugintest.Do().Start("tool.call", toolRequest(call.tool, call.args)).Return(int32(abi.InvokeWaiting)),
		} {
			m := plugintest.Manifest(name)
			m.Tools[0].Hints.Readonly, m.Tools[0].Hints.SupportsBackground = call.readonly, true
			grants[name] = plugins.Grant{Tools: []string{call.tool}}
			callers[name] = plugintest.Plugin{Manifest: m, Invoke: program, Resume: plugintest.Do().Read(abi.FieldResponse)}
		}
		s := openStages(t, Config{Grants: grants}, callers)
		test(t, s, found.want)
	})
}

// TestOrderOfRuns is the same for a run that starts. Its arguments were parsed when it was
// spawned, and a person was asked then.
func TestOrderOfRuns(t *testing.T) {
	s := openStages(t, Config{}, nil)
	change := map[string]func(*engine.Run){
		"no tool":   func(r *engine.Run) { r.Tool = "no" + r.Tool },
		"no object": func(r *engine.Run) { r.Args = json.RawMessage(`[1]`) },
		"bad arguments": func(r *engine.Run) {
			if string(r.Args) == `{"n":2}` {
				r.Args = json.RawMessage(`{"n":"x"}`)
			}
		},
		"another version": func(r *engine.Run) { r.Version = "another" },
		"not approved": func(r *engine.Run) {
			r.Terms = runs.Terms{Binding: approval.Binding{Fingerprint: "another"}}.Traced(t.Context())
		},
	}
	eachPair(t, []wrong{
		{name: "no object", want: "expected an object, found an array"},
		{name: "no tool", want: "no such tool"},
		{name: "bad arguments", want: "/n: expected integer, found string"},
		{name: "not granted", tool: ungranted, want: "needs env HOME, which the operator has not granted"},
		{name: "another version", want: "was replaced in the meantime"},
		{name: "not approved", want: "has changed since somebody was asked to approve it"},
		{name: "broken", tool: broken, want: "internal: "},
	}, func(t *testing.T, found wrong, of ...wrong) {
		run := engine.Run{ID: "task_1", Session: alice, Tool: stageTool(of...), Args: json.RawMessage(`{"n":2}`), Attempt: 1}
		tool, err := s.Lookup(run.Tool)
		require.NoError(t, err)
		run.Version, err = tool.Version()
		require.NoError(t, err)
		for _, w := range of {
			if f := change[w.name]; f != nil {
				f(&run)
			}
		}

		ended := make(chan error, 1)
		_, err = s.runs.Run(t.Context(), alice, background.RunRequest{
			SpawnRequest: background.SpawnRequest{Tool: run.Tool, Args: run.Args, Version: run.Version},
			Work: func(ctx context.Context, sink *output.Sink) (background.Outcome, error) {
				out, err := s.executor.Execute(ctx, run, sink)
				ended <- err
				return out, err
			},
		})
		require.Error(t, err)
		failed := <-ended
		var why *background.Error
		require.ErrorAs(t, failed, &why)
		require.Contains(t, string(why.Kind)+": "+why.Message, found.want)
		require.Equal(t, found.name != "broken", why.Kind == engine.KindRejected)
		require.NotErrorIs(t, failed, host.ErrTrap)
	})
}

// TestOrderOfSpawns is the same for a run, or a schedule, that a session requests.
func TestOrderOfSpawns(t *testing.T) {
	s := openStages(t, Config{}, map[string]plugintest.Plugin{"direct": {Manifest: plugintest.Manifest("direct"), Invoke: plugintest.Do().Echo()}})
	_, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "tool_", IdempotencyKey: "used"})
	require.NoError(t, err)

	change := map[string]func(*SpawnRequest){
		"no tool":   func(r *SpawnRequest) { r.Tool = "no" + r.Tool },
		"direct":    func(r *SpawnRequest) { r.Tool = strings.Replace(r.Tool, "tool_", "direct", 1) },
		"long":      func(r *SpawnRequest) { r.Timeout = 1000 * time.Hour },
		"no object": func(r *SpawnRequest) { r.Args = json.RawMessage(`[1]`) },
		"bad arguments": func(r *SpawnRequest) {
			if string(r.Args) == `{"n":2}` {
				r.Args = json.RawMessage(`{"n":"x"}`)
			}
		},
		"bad wake":   func(r *SpawnRequest) { r.Wake = "never" },
		"bad locale": func(r *SpawnRequest) { r.Locale = "no locale" },
		"bad parent": func(r *SpawnRequest) { r.Parent = "bg_gone" },
		"used key":   func(r *SpawnRequest) { r.IdempotencyKey = "used" },
	}
	all := []wrong{
		{name: "no tool", want: "no such tool"},
		{name: "long", want: "timeout_seconds: must be between 1 and"},
		{name: "no object", want: "expected an object, found an array"},
		{name: "bad arguments", want: "/n: expected integer, found string"},
		{name: "not granted", tool: ungranted, want: "needs env HOME, which the operator has not granted"},
		{name: "bad wake", want: "wake: expected end, failure or none"},
		{name: "bad locale", want: "locale: "},
		{name: "forbidden", tool: forbidden, want: "the operator's policy refuses"},
	}
	for _, w := range all[1:4] {
		t.Run("no background before "+w.name, func(t *testing.T) {
			req := SpawnRequest{Tool: "direct", Args: json.RawMessage(`{"n":2}`)}
			change[w.name](&req)
			_, err := s.Session(alice).Spawn(t.Context(), req)
			require.ErrorContains(t, err, "direct does not support background runs")
		})
	}
	request := func(of []wrong) SpawnRequest {
		req := SpawnRequest{Tool: stageTool(of...), Args: json.RawMessage(`{"n":2}`)}
		for _, w := range of {
			if f := change[w.name]; f != nil {
				f(&req)
			}
		}
		return req
	}

	t.Run("run", func(t *testing.T) {
		eachPair(t, append(slices.Clone(all), wrong{name: "used key", want: "idempotency key already used"}, wrong{name: "bad parent", want: "no such background task in this session: bg_gone"}), func(t *testing.T, found wrong, of ...wrong) {
			_, err := s.Session(alice).Spawn(t.Context(), request(of))
			require.ErrorContains(t, err, found.want)
		})
	})
	t.Run("dry run", func(t *testing.T) {
		eachPair(t, append(slices.Clone(all), wrong{name: "bad parent", want: "no such background task in this session: bg_gone"}), func(t *testing.T, found wrong, of ...wrong) {
			req := request(of)
			req.DryRun = true
			_, err := s.Session(alice).Spawn(t.Context(), req)
			require.ErrorContains(t, err, found.want)
		})
	})
	t.Run("schedule", func(t *testing.T) {
		last := len(all) - 1
		of := append(slices.Clone(all[:last]),
			wrong{name: "used key", want: "idempotency_key: not allowed for a schedule"}, wrong{name: "bad parent", want: "parent: not allowed for a schedule"},
			wrong{name: "bad cron", want: "cron_expression: "}, all[last])
		eachPair(t, of, func(t *testing.T, found wrong, of ...wrong) {
			req := ScheduleRequest{SpawnRequest: request(of), Cron: "0 8 * * *"}
			if slices.ContainsFunc(of, func(w wrong) bool { return w.name == "bad cron" }) {
				req.Cron = "never"
			}
			_, err := s.Session(alice).Schedules().New(t.Context(), req)
			require.ErrorContains(t, err, found.want)
		})
	})
}
