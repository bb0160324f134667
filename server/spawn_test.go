package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

func TestSpawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "sleeper")
		answer := s.agent(alice, SpawnBackground, `{"tool":" echo\n","args":{"n":1}}`)
		id := answer["task_id"]
		require.Regexp(t, `^bg_[a-z2-7]{26}$`, id)
		require.Contains(t, []any{"queued", "running"}, answer["status"])
		require.Len(t, answer, 2, "an agent knows what it asked for")
		require.Equal(t, object{
			"task_id": id, "tool": "echo", "title": "Echo", "status": "succeeded", "done": true, "elapsed_seconds": 0.0,
			"result": map[string]any{"n": 1.0},
		}, s.check(alice, id.(string), ""))

		answer = s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"title":"  A nap ","signal_on_completion":false,"timeout_seconds":7.0}`)
		run, err := s.Session(alice).Run(t.Context(), answer["task_id"].(string))
		require.NoError(t, err)
		require.Equal(t, "A nap", run.Title)
		require.EqualValues(t, 7, run.DeadlineSeconds)
		require.False(t, run.SignalOnCompletion)
	})
}

// A title is the agent's, else the tool's, else made of its name.
func TestSpawnTitle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "huge")
		for _, test := range []struct{ tool, title, want string }{
			{"echo", ``, "Echo"},
			{"echo", `,"title":" mine "`, "mine"},
			{"echo", `,"title":"   "`, "Echo"},
			{"huge", ``, "Background huge"},
		} {
			answer := s.agent(alice, SpawnBackground, `{"tool":"`+test.tool+`","args":{}`+test.title+`}`)
			run, err := s.Session(alice).Run(t.Context(), answer["task_id"].(string))
			require.NoError(t, err)
			require.Equal(t, test.want, run.Title)
			synctest.Wait()
		}
	})
}

// What an agent named is looked at before what it asked for: of two errors it
// sees the one it has to mend first.
func TestSpawnErrors(t *testing.T) {
	asked := 0
	s := open(t, Config{Approve: func(context.Context, Approval) error { asked++; return errors.New("Ada said no") }},
		"echo", "plain", "needy", "dangerous")
	for _, test := range []struct{ name, args, want string }{
		{"schema, unknown tool", `{"tool":"nothing"}`, "the arguments of spawn_background do not fit its schema: missing: args"},
		{"blank tool, bad timeout", `{"tool":" \t","args":{},"timeout_seconds":99999}`, "tool: required"},
		{"itself, bad timeout", `{"tool":"spawn_background","args":{},"timeout_seconds":99999}`, "spawn_background cannot be spawned: call it directly"},
		{"its siblings", `{"tool":"check_background","args":{}}`, "check_background cannot be spawned: call it directly"},
		{"its siblings, with space around", `{"tool":" stop_background ","args":{"task_id":"x"}}`, "stop_background cannot be spawned: call it directly"},
		{"unknown, bad timeout", `{"tool":"ecko","args":{},"timeout_seconds":99999}`, `no such tool: "ecko", did you mean "echo"?`},
		{"no background, bad timeout", `{"tool":"plain","args":{},"timeout_seconds":99999}`, "plain does not support background runs: call it directly"},
		{"bad timeout, bad target args", `{"tool":"echo","args":{"n":"x"},"timeout_seconds":3601}`, "timeout_seconds: must be between 1 and 3600"},
		{"a timeout nobody lives to see", `{"tool":"echo","args":{},"timeout_seconds":1e300}`, "timeout_seconds: must be between 1 and 3600"},
		{"a timeout no number type holds", `{"tool":"echo","args":{},"timeout_seconds":1e350}`, "timeout_seconds: the number is out of range"},
		{"bad target args, not granted", `{"tool":"needy","args":{"n":"x"}}`, "the arguments of needy do not fit its schema: /n: expected integer, found string"},
		{"not granted, not approved", `{"tool":"needy","args":{}}`, "denied: the plugin needy needs env HOME, which the operator has not granted"},
		{"not approved", `{"tool":"dangerous","args":{}}`, "denied: the tool needs a person's approval: Ada said no"},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, s.refused(alice, SpawnBackground, test.args)) })
	}
	require.Equal(t, 1, asked)
	list := s.agent(alice, CheckBackground, `{}`)
	require.EqualValues(t, 0, list["active"].(float64)+list["finished"].(float64), "a refused spawn leaves no record")

	_, err := s.Call(t.Context(), Request{Session: alice, Tool: SpawnBackground, Args: []byte(`{"tool":"dangerous","args":{}}`)})
	require.ErrorIs(t, err, ErrApproval)
	_, err = s.Call(t.Context(), Request{Session: alice, Tool: SpawnBackground, Args: []byte(`{"tool":"nothing","args":{}}`)})
	require.NoError(t, err, "the called tool exists: the agent can name another to spawn")
}

// A value of the wrong type is refused by name, never read as a default.
func TestAgentToolSchemas(t *testing.T) {
	s := open(t, Config{}, "echo")
	ids := `"` + strings.Repeat(`x","`, 20) + `x"`
	for _, test := range []struct{ tool, args, want string }{
		{SpawnBackground, `{}`, "missing: tool, args"},
		{SpawnBackground, `{"tool":7,"args":{}}`, "/tool: expected string, found number"},
		{SpawnBackground, `{"tool":"echo","args":"{"}`, "/args: expected object, found string"},
		{SpawnBackground, `{"tool":"echo","args":"{\"n\":1,\"n\":2}"}`, "/args: expected object, found string"},
		{SpawnBackground, `{"tool":"echo","args":"[1]"}`, "/args: expected object, found string"},
		{SpawnBackground, `{"tool":"echo","args":null}`, "/args: expected object, found null"},
		{SpawnBackground, `{"tool":"echo","args":{},"title":1}`, "/title: expected string, found number"},
		{SpawnBackground, `{"tool":"echo","args":{},"title":"` + strings.Repeat("x", 121) + `"}`, "/title: maxLength: got 121, want 120"},
		{SpawnBackground, `{"tool":"echo","args":{},"signal_on_completion":"no"}`, "/signal_on_completion: expected boolean, found string"},
		{SpawnBackground, `{"tool":"echo","args":{},"timeout_seconds":0}`, "/timeout_seconds: expected at least 1, found 0"},
		{SpawnBackground, `{"tool":"echo","args":{},"timeout_seconds":1.5}`, "/timeout_seconds: expected integer, found number"},
		{SpawnBackground, `{"tool":"echo","args":{},"idempotency_key":"` + strings.Repeat("x", 129) + `"}`, "/idempotency_key: maxLength: got 129, want 128"},
		{SpawnBackground, `{"tool":"echo","args":{},"tiemout":1}`, "unknown field: tiemout"},
		{CheckBackground, `{"task_id":7}`, "/task_id: expected string, found number"},
		{CheckBackground, `{"task_ids":7}`, "/task_ids: expected array, found number"},
		{CheckBackground, `{"task_ids":[` + ids + `]}`, "/task_ids: maxItems: got 21, want 20"},
		{CheckBackground, `{"list":"yes"}`, "/list: expected boolean, found string"},
		{CheckBackground, `{"wait_seconds":"a minute"}`, "/wait_seconds: expected integer, found string"},
		{CheckBackground, `{"until":"both"}`, "/until: value must be one of 'any', 'all'"},
		{CheckBackground, `{"cursor":1}`, "/cursor: expected string, found number"},
		{CheckBackground, `{"max_chars":true}`, "/max_chars: expected integer, found boolean"},
		{CheckBackground, `{"wait":60}`, "unknown field: wait"},
		{SpawnBackground, `{"tool":"echo","args":{},"schedule":"daily"}`, "/schedule: expected object, found string"},
		{SpawnBackground, `{"tool":"echo","args":{},"schedule":{"cron":"* * * * *"}}`, "/schedule: unknown field: cron"},
		{SpawnBackground, `{"tool":"echo","args":{},"schedule":{"cron_expression":5}}`, "/schedule/cron_expression: expected string, found number"},
		{StopBackground, `{"task_id":7}`, "/task_id: expected string, found number"},
		{StopBackground, `{"schedule_id":7}`, "/schedule_id: expected string, found number"},
		{StopBackground, `{"task_id":"x","force":1}`, "/force: expected boolean, found number"},
		{StopBackground, `{"task_id":"x","reason":"` + strings.Repeat("x", 201) + `"}`, "/reason: maxLength: got 201, want 200"},
		{StopBackground, `{"task_id":"x","kill":true}`, "unknown field: kill"},
	} {
		t.Run(test.tool+" "+test.want, func(t *testing.T) {
			require.Equal(t, "the arguments of "+test.tool+" do not fit its schema: "+test.want, s.refused(alice, test.tool, test.args))
		})
	}
}

func TestAgentToolsNeedASession(t *testing.T) {
	s := open(t, Config{}, "echo")
	for _, tool := range []string{`spawn_background {"tool":"echo","args":{}}`, `check_background {}`, `stop_background {"task_id":"x"}`} {
		name, args, _ := strings.Cut(tool, " ")
		require.Equal(t, name+" needs a session, and this call has none", s.refused("", name, args))
	}
}

// No run is ended to make room, and the answer says which hold the places. A
// refused spawn leaves no record.
func TestSessionLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		ids := map[string]bool{}
		for range background.DefaultPerSession {
			ids[s.spawn(alice, "sleeper", "{}")] = true
		}
		synctest.Wait()
		text := s.refused(alice, SpawnBackground, `{"tool":"sleeper","args":{}}`)
		for id := range ids {
			require.Contains(t, text, id)
			text = strings.Replace(text, id, "bg", 1)
		}
		require.Equal(t, "this session already has the maximum of 5 active background runs (bg, bg, bg, bg, bg); wait for one to end or stop one", text)
		list := s.agent(alice, CheckBackground, `{}`)
		require.Len(t, list["tasks"], 5)
		require.EqualValues(t, 5, list["active"])

		s.spawn(bob, "sleeper", "{}") // another session has places of its own
		for id := range ids {
			s.agent(alice, StopBackground, `{"task_id":"`+id+`"}`)
			break
		}
		s.spawn(alice, "sleeper", "{}") // who saw the end can spawn again
	})
}

func TestHostLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		for i := range background.DefaultPerHost {
			s.spawn(fmt.Sprint("session ", i/background.DefaultPerSession), "sleeper", "{}")
		}
		synctest.Wait()
		require.Equal(t, "this host already runs the maximum of 64 background runs; try again when one has ended",
			s.refused(alice, SpawnBackground, `{"tool":"sleeper","args":{}}`))
		require.Empty(t, s.agent(alice, CheckBackground, `{}`)["tasks"])
	})
}

// A user has no more of the host's runs by naming more sessions, where several
// are expected.
func TestRunsOfOneUser(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Host: host.Config{Shared: true}}, "sleeper")
		for i := range 48 {
			s.spawn(fmt.Sprint("ana/", i/background.DefaultPerSession), "sleeper", "{}")
		}
		synctest.Wait()
		require.Equal(t, "your sessions together already have the maximum of 48 background runs; wait for one to end or stop one",
			s.refused("ana/new", SpawnBackground, `{"tool":"sleeper","args":{}}`))
		s.spawn("bo/new", "sleeper", "{}")
		s.spawn(alice, "sleeper", "{}")
	})
}

// Nor more of the room for records.
func TestRecordsOfOneUser(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Host: host.Config{Shared: true}, Runs: RunsConfig{RecordQuota: 8 * (engine.RecordOverhead + 100)}}, "sleeper")
		for i := range 6 {
			s.spawn(fmt.Sprint("ana/", i), "sleeper", "{}")
		}
		require.Contains(t, s.refused("ana/new", SpawnBackground, `{"tool":"sleeper","args":{}}`),
			fmt.Sprintf("the record quota of %d bytes is full, so no background run or schedule can be added; check the runs that have ended", 6*(engine.RecordOverhead+100)))
		s.spawn("bo/new", "sleeper", "{}")
		s.spawn(alice, "sleeper", "{}")
	})
}

func TestConfiguredLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Runs: RunsConfig{PerSession: 1, PerHost: 2}}, "sleeper")
		s.spawn(alice, "sleeper", "{}")
		require.Contains(t, s.refused(alice, SpawnBackground, `{"tool":"sleeper","args":{}}`), "the maximum of 1 active")
		s.spawn(bob, "sleeper", "{}")
		require.Contains(t, s.refused("carol", SpawnBackground, `{"tool":"sleeper","args":{}}`), "the maximum of 2 background")
	})
}

func TestIdempotencyKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo")
		spawn := func(session, args string) object {
			return s.agent(session, SpawnBackground, `{"tool":"echo","args":`+args+`,"idempotency_key":"k"}`)
		}
		first := spawn(alice, `{"n":1}`)
		require.NotContains(t, first, "reused")
		synctest.Wait()
		again := spawn(alice, ` { "n" : 1 } `)
		require.Equal(t, first["task_id"], again["task_id"])
		require.Equal(t, true, again["reused"])
		require.Equal(t, "succeeded", again["status"])
		require.Equal(t, "the idempotency key was used for another tool or other arguments: use a new one",
			s.refused(alice, SpawnBackground, `{"tool":"echo","args":{"n":2},"idempotency_key":"k"}`))
		require.NotEqual(t, first["task_id"], spawn(bob, `{"n":1}`)["task_id"], "a key is its session's")
	})
}

// A dry run checks all that a spawn checks but asks nobody and starts nothing.
func TestSpawnDryRun(t *testing.T) {
	s := open(t, Config{Approve: func(context.Context, Approval) error { panic("asked") }}, "echo", "dangerous")
	for _, test := range []struct{ args, want string }{
		{`{"tool":"dangerous","args":{},"timeout_seconds":9}`, `{"dry_run":true,"tool":"dangerous","title":"Background dangerous","deadline_seconds":9}`},
		{`{"tool":"echo","args":{},"signal_on_completion":false}`, `{"dry_run":true,"tool":"echo","title":"Echo","deadline_seconds":300}`},
	} {
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: SpawnBackground, Args: []byte(test.args), DryRun: true})
		require.NoError(t, err)
		require.Equal(t, test.want, string(r.Value))
	}
	r, err := s.Call(t.Context(), Request{Session: alice, Tool: SpawnBackground, Args: []byte(`{"tool":"echo","args":{"n":"x"}}`), DryRun: true})
	require.NoError(t, err)
	require.Equal(t, abi.ToolError, r.Kind)
	require.Empty(t, s.agent(alice, CheckBackground, `{}`)["tasks"])
}

// A person who agrees agrees to the run, once.
func TestSpawnApproved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked []Approval
		s := open(t, Config{Approve: func(_ context.Context, a Approval) error { asked = append(asked, a); return nil }}, "dangerous")
		id := s.spawn(alice, "dangerous", `{"n":1}`)
		require.Equal(t, "succeeded", s.check(alice, id, "")["status"])
		require.Equal(t, []Approval{{Session: alice, Tool: "dangerous", Args: []byte(`{"n":1}`)}}, asked)
	})
}

// Secrets in arguments reach the tool, and no log.
func TestSecretsAreNotLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "traps", "liar")
		const args = `{"password":"hunter2","nested":[{"api_token":"hunter2","Authorization":"hunter2"}],"n":1}`
		s.call(alice, "echo", args)
		for _, tool := range []string{"echo", "traps", "liar"} {
			id := s.spawn(alice, tool, args)
			s.check(alice, id, "")
		}
		_, _ = s.Call(t.Context(), Request{Session: alice, Tool: "traps", Args: []byte(args)})
		logs := s.logs.String()
		require.NotContains(t, logs, "hunter2")
		require.Contains(t, logs, "redacted")
		require.Contains(t, logs, "background run spawned")
	})
}
