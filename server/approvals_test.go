package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/wire"
)

// openAsking opens a service that asks about destructive tools: drop is one, look is
// readonly, and vault has a secret argument. Version is that of drop.
func openAsking(t testing.TB, cfg Config, version string) service {
	t.Helper()
	files := fstest.MapFS{}
	for name, adapt := range map[string]func(*abi.Tool){
		"drop": func(tool *abi.Tool) {},
		"look": func(tool *abi.Tool) { tool.Hints.Readonly = true },
		"mild": func(tool *abi.Tool) { tool.Hints.Destructive = new(false) },
		"vault": func(tool *abi.Tool) {
			tool.InputSchema = json.RawMessage(`{"type":"object","properties":{"key":{"type":"string","writeOnly":true}}}`)
		},
	} {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints.SupportsBackground = name != "vault"
		if adapt(&m.Tools[0]); name == "drop" {
			m.Version = version
		}
		files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()}
	}
	if cfg.Grants == nil {
		cfg.Grants = map[string]plugins.Grant{"drop": {Clock: true}}
	}
	cfg.Approvals.Ask = true
	return openFolder(t, cfg, files)
}

// waits calls a tool that waits for approval, and returns the id of its run.
func waits(t *testing.T, s service, session, tool string) string {
	t.Helper()
	r, err := s.Service.Call(t.Context(), Request{Session: session, Tool: tool, Args: json.RawMessage(`{"n":1}`)})
	require.NoError(t, err)
	var parked struct {
		Type, Message, Status string
		ID                    string `json:"task_id"`
	}
	require.NoError(t, json.Unmarshal(r.Value, &parked), "%s", r.Value)
	require.Equal(t, "background", parked.Type)
	require.Equal(t, "queued", parked.Status)
	require.Contains(t, parked.Message, "It waits until a person approves it")
	return parked.ID
}

func TestApprovals(t *testing.T) {
	dir := t.TempDir()
	s := openAsking(t, Config{DataDir: dir}, "1.0.0")
	require.JSONEq(t, `{"n":1}`, string(s.call(alice, "look", `{"n":1}`).Value), "a readonly tool passes")
	require.JSONEq(t, `{"n":1}`, string(s.call(alice, "mild", `{"n":1}`).Value))

	first := waits(t, s, alice, "drop")
	second := waits(t, s, alice, "drop")
	spawned, err := s.Session(bob).Spawn(t.Context(), SpawnRequest{Tool: "drop", Args: json.RawMessage(`{"n":2}`)})
	require.NoError(t, err)
	require.Equal(t, wire.StatusQueued, spawned.Status)
	require.NoError(t, s.Close(done()))

	s = openAsking(t, Config{DataDir: dir}, "1.0.0") // an answer may come after a restart
	p := s.Approvals()
	list, err := p.List(t.Context(), "", 0)
	require.NoError(t, err)
	require.Len(t, list.Approvals, 3)
	shown := list.Approvals[0]
	require.Equal(t, wire.WaitingCall{
		TaskID: first, Session: alice, Tool: "drop", Description: shown.Description, Plugin: "drop", PluginVersion: "1.0.0", ToolVersion: shown.ToolVersion,
		Args: `{"n":1}`, ArgsBytes: 7, ArgsDigest: "2bfd14f43d17fc7cea24e0917a8879b4b2f880b8baeec1b9d90fbaad655e71bd", Grants: []string{"clock"}, Fingerprint: shown.Fingerprint, AskedAt: shown.AskedAt, ExpiresAt: shown.AskedAt.Add(DefaultApprovalWait),
	}, shown)
	require.Len(t, shown.ToolVersion, 64)

	_, err = p.Decide(t.Context(), first, "operator", wire.Decide{Approve: true, Fingerprint: "another"})
	require.ErrorIs(t, err, ErrApprovalChanged)
	run, err := p.Decide(WithDryRun(t.Context()), first, "operator", wire.Decide{Approve: true})
	require.NoError(t, err)
	require.Equal(t, wire.StatusQueued, run.Status)
	_, err = p.Decide(t.Context(), first, "operator", wire.Decide{Approve: true, Fingerprint: shown.Fingerprint})
	require.NoError(t, err)
	ended := s.settled(alice, first)
	require.Equal(t, engine.StatusSucceeded, ended.Status)
	_, err = p.Decide(t.Context(), first, "operator", wire.Decide{})
	require.Equal(t, wire.CodeConflict, ReasonOf(err).Code, "it has been decided")

	_, err = p.Decide(t.Context(), second, "operator", wire.Decide{Reason: "not today"})
	require.NoError(t, err)
	ended = s.settled(alice, second)
	require.Equal(t, engine.StatusCanceled, ended.Status)
	require.Equal(t, "not approved: not today", ended.Cancel.Reason)
	_, err = p.Decide(t.Context(), "bg_none", "operator", wire.Decide{})
	require.ErrorIs(t, err, engine.ErrNotFound)

	_, err = p.Decide(t.Context(), spawned.TaskID, "operator", wire.Decide{Approve: true, Keep: wire.KeepSession})
	require.NoError(t, err)
	require.Equal(t, engine.StatusSucceeded, s.settled(bob, spawned.TaskID).Status)
	require.JSONEq(t, `{"n":3}`, string(s.call(bob, "drop", `{"n":3}`).Value), "it is kept for the session")
	waits(t, s, alice, "drop")
	require.NoError(t, s.Session(bob).End(t.Context()))
	waits(t, s, bob, "drop")
}

// TestApprovalOfAnotherPlugin: who approved a plugin has not approved its successor.
func TestApprovalOfAnotherPlugin(t *testing.T) {
	dir := t.TempDir()
	s := openAsking(t, Config{DataDir: dir}, "1.0.0")
	_, err := s.Approvals().Decide(t.Context(), waits(t, s, alice, "drop"), "operator", wire.Decide{Approve: true, Keep: wire.KeepAlways})
	require.NoError(t, err)
	s.call(bob, "drop", `{"n":1}`)
	require.NoError(t, s.Close(done()))

	kept := func(s service) wire.KeptApproval {
		all, err := s.Approvals().Kept(t.Context())
		require.NoError(t, err)
		require.Len(t, all.Kept, 1)
		return all.Kept[0]
	}
	s = openAsking(t, Config{DataDir: dir, Grants: map[string]plugins.Grant{"drop": {Clock: true, Random: true}}}, "1.0.0")
	require.False(t, kept(s).InForce)
	asked := waits(t, s, bob, "drop")
	require.NoError(t, s.Close(done()))

	s = openAsking(t, Config{DataDir: dir}, "2.0.0")
	require.False(t, kept(s).InForce)
	list, err := s.Approvals().List(t.Context(), "", 0)
	require.NoError(t, err)
	require.True(t, list.Approvals[0].Changed)
	_, err = s.Approvals().Decide(t.Context(), asked, "operator", wire.Decide{Approve: true})
	require.ErrorContains(t, err, "was replaced in the meantime")
	require.NoError(t, s.Close(done()))

	s = openAsking(t, Config{DataDir: dir}, "1.0.0")
	require.True(t, kept(s).InForce, "the same code with the same grants")
	list, err = s.Approvals().List(t.Context(), "", 0)
	require.NoError(t, err)
	require.True(t, list.Approvals[0].Changed)
	_, err = s.Approvals().Decide(t.Context(), asked, "operator", wire.Decide{Approve: true})
	require.ErrorContains(t, err, "or what it may use, has changed", "it was asked about with other grants")
	found, err := s.Approvals().Revoke(WithDryRun(t.Context()), "", "drop")
	require.NoError(t, err)
	require.True(t, found)
	s.call(bob, "drop", `{"n":1}`)
	found, err = s.Approvals().Revoke(t.Context(), "", "drop")
	require.NoError(t, err)
	require.True(t, found)
	waits(t, s, bob, "drop")
}

// deciding is the user of a client who always decides so. It notes what they were asked.
func deciding(asked *[]HeldCall, action, decision string) DecideFunc {
	return func(_ context.Context, call HeldCall) (abi.Answer, error) {
		*asked = append(*asked, call)
		a := abi.Answer{Action: action}
		if action == abi.AnswerAccept {
			a.Content = json.RawMessage(fmt.Sprintf(`{"decision":%q}`, decision))
		}
		return a, nil
	}
}

// TestAskedUser: a client that can ask its user does so, and what it answers decides the
// held run. Any other answer leaves it held.
func TestAskedUser(t *testing.T) {
	s := openAsking(t, Config{}, "1.0.0")
	var asked []HeldCall
	drop := func(action, decision string) Request {
		return Request{Session: alice, Tool: "drop", Args: json.RawMessage(`{"n":1}`), Decide: deciding(&asked, action, decision)}
	}
	for _, c := range [][2]string{{abi.AnswerDecline, ""}, {abi.AnswerAccept, "no"}} {
		r, err := s.Service.Call(t.Context(), drop(c[0], c[1]))
		require.ErrorIs(t, err, ErrApproval)
		require.Contains(t, r.Error, "the user did not allow it")
	}
	require.Regexp(t, `^Allow drop \(plugin drop 1\.0\.0, SHA-256 [0-9a-f]{12}…\)\? It may use: clock\. Its arguments: \{"n":1\}$`, asked[0].Question.Message)
	require.NotEqual(t, asked[0].Run, asked[1].Run)

	r, err := s.Service.Call(t.Context(), drop(abi.AnswerCancel, ""))
	require.NoError(t, err)
	require.Contains(t, string(r.Value), "It waits until a person approves it")
	cannot := drop("", "")
	cannot.Decide = func(context.Context, HeldCall) (abi.Answer, error) {
		return abi.Answer{}, errors.New("method not found")
	}
	r, err = s.Service.Call(t.Context(), cannot)
	require.NoError(t, err)
	require.Contains(t, string(r.Value), "It waits until a person approves it")

	r, err = s.Service.Call(t.Context(), drop(abi.AnswerAccept, "once"))
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(r.Value), "the result is that of the run")
	asked = nil
	_, err = s.Service.Call(t.Context(), drop(abi.AnswerAccept, "session"))
	require.NoError(t, err)
	require.Len(t, asked, 1, "once is once")
	_, err = s.Service.Call(t.Context(), drop(abi.AnswerDecline, ""))
	require.NoError(t, err, "nobody is asked any more")
	require.Len(t, asked, 1)
}

// An operator who keeps decisions for operators is not passed over by the user of a client.
func TestOperatorsDecide(t *testing.T) {
	s := openAsking(t, Config{Approvals: ApprovalPolicy{By: ByOperator}}, "1.0.0")
	var asked []HeldCall
	r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "drop", Decide: deciding(&asked, abi.AnswerAccept, "once")})
	require.NoError(t, err)
	require.Contains(t, string(r.Value), "It waits until a person approves it")
	require.Empty(t, asked)
}

// An approval for a session ends: with the connection, or after a day. It is for one caller,
// and may be for the same arguments alone.
func TestKeptApprovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openAsking(t, Config{}, "1.0.0")
		defer func() { require.NoError(t, s.Close(done())) }()
		var asked []HeldCall
		call := func(session, args, decision string, connected bool) int {
			before := len(asked)
			_, err := s.Service.Call(t.Context(), Request{Session: session, Tool: "drop", Args: json.RawMessage(args), Decide: deciding(&asked, abi.AnswerAccept, decision), Connected: connected})
			require.NoError(t, err)
			return len(asked) - before
		}
		require.Equal(t, 1, call(alice, `{"n":1}`, "arguments", false))
		require.Equal(t, 0, call(alice, `{"n":1}`, "once", false))
		require.Equal(t, 1, call(alice, `{"n":2}`, "session", false), "other arguments")
		require.Equal(t, 0, call(alice, `{"n":3}`, "once", false))
		require.Equal(t, 1, call(bob, `{"n":3}`, "session", true))
		require.Equal(t, 0, call(bob, `{"n":4}`, "once", true))
		require.Contains(t, string(asked[0].Question.Schema), "Allow in this session, for a day")
		require.Contains(t, string(asked[2].Question.Schema), "Allow until this connection ends")
		_, err := s.Service.Call(t.Context(), Request{Session: "~/request", Tool: "drop", Args: json.RawMessage(`{"n":9}`), Decide: deciding(&asked, abi.AnswerAccept, "once"), OneRequest: true})
		require.NoError(t, err)
		require.NotContains(t, string(asked[3].Question.Schema), "session", "nothing comes later in it")
		tool, err := s.catalog.Lookup("drop")
		require.NoError(t, err)
		verdict, _ := s.checker.Judge(t.Context(), tool, approval.Call{Session: alice, Tool: "drop", Caller: "research"})
		require.Equal(t, approval.Held, verdict, "another caller")

		s.checker.Process = "the next one" // to which a client of stdio connects
		require.Equal(t, 1, call(bob, `{"n":4}`, "once", true))
		require.Equal(t, 0, call(alice, `{"n":3}`, "once", false))
		time.Sleep(25 * time.Hour)
		require.Equal(t, 1, call(alice, `{"n":3}`, "once", false))
	})
}

// A caller who leaves withdraws the call that is held for it, unless it has a key.
func TestHeldCallIsLeft(t *testing.T) {
	for key, want := range map[string]int{"": 0, "k": 1} {
		s := openAsking(t, Config{}, "1.0.0")
		ctx, leave := context.WithCancel(t.Context())
		_, err := s.Service.Call(ctx, Request{Session: alice, Tool: "drop", Key: key, Decide: func(ctx context.Context, _ HeldCall) (abi.Answer, error) {
			leave()
			<-ctx.Done()
			return abi.Answer{}, ctx.Err()
		}})
		require.ErrorIs(t, err, context.Canceled)
		list, err := s.Approvals().List(t.Context(), "", 0)
		require.NoError(t, err)
		require.Len(t, list.Approvals, want)
	}
}

// TestApprovalPolicy: a name wins over patterns and hints.
func TestApprovalPolicy(t *testing.T) {
	s := openAsking(t, Config{Approvals: ApprovalPolicy{Tools: map[string]Decision{"dr*": DecideDeny, "dro*": DecideAllow, "look": DecideDeny, "mild": DecideAsk}}}, "1.0.0")
	s.call(alice, "drop", `{"n":1}`)
	_, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "look"})
	require.ErrorContains(t, err, "the operator's policy refuses look")
	require.ErrorIs(t, err, host.ErrDenied)
	waits(t, s, alice, "mild")

	for _, p := range []ApprovalPolicy{{Tools: map[string]Decision{"a": "maybe"}}, {Tools: map[string]Decision{"[": DecideAsk}}, {Wait: -1}} {
		_, err := Open(t.Context(), Config{Approvals: p})
		require.Error(t, err)
	}
}

// TestApprovalBypass: no way around the question.
func TestApprovalBypass(t *testing.T) {
	s := openAsking(t, Config{DataDir: t.TempDir()}, "1.0.0")
	_, err := s.Service.Call(t.Context(), Request{Tool: "drop"})
	require.ErrorIs(t, err, ErrApproval, "a call without a session cannot wait")
	r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "drop", DryRun: true})
	require.NoError(t, err)
	require.Contains(t, string(r.Value), "dry_run")

	id := waits(t, s, alice, "drop")
	for _, tool := range []struct{ name, args string }{
		{SpawnBackground, `{"tool":"drop","args":{"n":1}}`},
		{CheckBackground, `{"task_ids":["` + id + `"],"wait_seconds":0}`},
	} {
		require.True(t, s.call(alice, tool.name, tool.args).IsSuccess())
	}
	run, err := s.Session(alice).Run(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, wire.StatusQueued, run.Status)
	require.Equal(t, "approval", run.Held)
	_, err = s.Session(alice).Rerun(t.Context(), id, "")
	require.NoError(t, err, "it waits too")

	// The same call with the same key is the same run.
	keyed := Request{Session: alice, Tool: "drop", Args: json.RawMessage(`{"n":1}`), Key: "k", ParkAfter: time.Millisecond}
	one, err := s.Service.Call(t.Context(), keyed)
	require.NoError(t, err)
	two, err := s.Service.Call(t.Context(), keyed)
	require.NoError(t, err)
	require.JSONEq(t, string(one.Value), string(two.Value))

	list, err := s.Approvals().List(t.Context(), "", 0)
	require.NoError(t, err)
	require.Len(t, list.Approvals, 4)
	for range approval.MaxWaiting {
		r, err = s.Service.Call(t.Context(), Request{Session: alice, Tool: "drop"})
		require.NoError(t, err)
	}
	require.Contains(t, r.Error, "100 calls of this session wait for approval already")
	waits(t, s, bob, "drop")
}

// TestApprovalsExpire: a call that nobody decides on is refused.
func TestApprovalsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openAsking(t, Config{Approvals: ApprovalPolicy{Wait: time.Hour}}, "1.0.0")
		id := waits(t, s, alice, "drop")
		time.Sleep(59 * time.Minute)
		run, err := s.Session(alice).Run(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, wire.StatusQueued, run.Status)
		time.Sleep(3 * time.Minute)
		run, err = s.Session(alice).Run(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, wire.StatusCanceled, run.Status)
		require.NoError(t, s.Close(done()))
	})
}

// TestScheduleWaits: each firing of a schedule waits for its own approval.
func TestScheduleWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openAsking(t, Config{}, "1.0.0")
		_, err := s.Session(alice).Schedules().New(t.Context(), ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "drop"}, At: time.Now().Add(time.Minute)})
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		list, err := s.Approvals().List(t.Context(), "", 0)
		require.NoError(t, err)
		require.Len(t, list.Approvals, 1)
		_, err = s.Approvals().Decide(t.Context(), list.Approvals[0].TaskID, "operator", wire.Decide{Approve: true})
		require.NoError(t, err)
		time.Sleep(time.Second)
		run, err := s.Session(alice).Run(t.Context(), list.Approvals[0].TaskID)
		require.NoError(t, err)
		require.Equal(t, wire.StatusSucceeded, run.Status)
		require.NoError(t, s.Close(done()))
	})
}

// A dry run says whether a person would be asked, and by which rule.
func TestDryRunOfApprovals(t *testing.T) {
	s := openAsking(t, Config{Approvals: ApprovalPolicy{Tools: map[string]Decision{"mi*": DecideDeny, "look": DecideAsk}}}, "1.0.0")
	text := func(tool string) string {
		r, _ := s.Service.Call(t.Context(), Request{Session: alice, Tool: tool, Args: json.RawMessage(`{"n":1}`), DryRun: true})
		return string(r.Value) + r.Error
	}
	require.Contains(t, text("drop"), "A person would be asked to approve it first: it may delete or overwrite.")
	require.Equal(t, "denied: the tool needs a person's approval: the operator's policy refuses mild (approvals.tools.mi*)", text("mild"))
	planned, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "drop", DryRun: true})
	require.NoError(t, err)
	require.Equal(t, "approval", planned.Held)
	_, err = s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "mild", DryRun: true})
	require.ErrorIs(t, err, ErrApproval)
	list, err := s.Approvals().List(t.Context(), "", 0)
	require.NoError(t, err)
	require.Empty(t, list.Approvals)
}
