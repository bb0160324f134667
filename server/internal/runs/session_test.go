package runs

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/wire"
)

// session returns a session of the bench.
func (b *bench) session(name string) Session {
	return Session{Name: name, Sessions: &Sessions{
		Manager: b.runs, Catalog: b.Catalog, Checker: b.Checker, Follower: b.Follower, Audit: &record.Auditor{},
		Version: func(tool *catalog.Tool) (string, error) { return tool.Version() }, Pass: b.pass,
	}}
}

// pass passes a run without arguments, or a schedule, through the stages.
func (b *bench) pass(ctx context.Context, s *Spawn) error {
	dryRun := s.DryRun || dryrun.In(ctx)
	tool, err := s.Find(ctx, s.Tool)
	if err == nil {
		err = s.Prepare(ctx, tool, json.RawMessage(`{}`), time.Minute)
	}
	if err == nil {
		err = s.Plan(ctx, tool, dryRun)
	}
	if err != nil || dryRun {
		return err
	}
	if err := b.Checker.Check(ctx, tool, approval.Call{Session: s.Name}); err != nil {
		require.ErrorIs(b.t, err, approval.ErrHold)
		return s.Hold(ctx)
	}
	return s.Submit(ctx)
}

func TestSpawn(t *testing.T) {
	within(t, time.Second, func(t *testing.T, b *bench) {
		v := b.session(alice)
		run, err := v.Spawn(t.Context(), SpawnRequest{Tool: "work", Title: "Some work", Locale: "de"}, approval.User{})
		require.NoError(t, err)
		require.Equal(t, "Some work", run.Title)

		checked, err := v.Check(t.Context(), background.CheckRequest{IDs: []string{run.TaskID}, Wait: time.Minute}, 0)
		require.NoError(t, err)
		require.JSONEq(t, `"done"`, string(checked.Runs[0].Result))

		again, err := v.Rerun(t.Context(), run.TaskID, "operator")
		require.NoError(t, err)
		require.NotEqual(t, run.TaskID, again.TaskID)
		require.Equal(t, "Some work", again.Title)
	})
}

// A tool is checked before what is asked of it.
func TestSpawnErrors(t *testing.T) {
	b := open(t, map[string]abi.Hints{"work": runnable, "direct": {}})
	for name, test := range map[string]struct {
		req SpawnRequest
		why string
	}{
		"no tool":    {SpawnRequest{Wake: "never"}, "tool: required"},
		"agent's":    {SpawnRequest{Tool: agent.CheckBackground}, "cannot be spawned: call it directly"},
		"unknown":    {SpawnRequest{Tool: "gone", Wake: "never"}, plugins.ErrNoTool.Error()},
		"direct":     {SpawnRequest{Tool: "direct", Wake: "never"}, "does not support background runs"},
		"wake":       {SpawnRequest{Tool: "work", Wake: "never"}, "wake: expected end, failure or none"},
		"wakes, not": {SpawnRequest{Tool: "work", Wake: wire.WakeEnd, Silent: true}, "wake: contradicts"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.session(alice).Spawn(t.Context(), test.req, approval.User{})
			require.ErrorContains(t, err, test.why)
		})
	}
}

func TestSpawnWhatNeedsApproval(t *testing.T) {
	b := open(t, map[string]abi.Hints{"work": {SupportsBackground: true, Destructive: new(true)}})
	b.policy.Ask = true
	v := b.session(alice)

	planned, err := v.Spawn(t.Context(), SpawnRequest{Tool: "work", DryRun: true}, approval.User{})
	require.NoError(t, err)
	require.Equal(t, approval.HeldFor, planned.Held)
	require.Empty(t, planned.TaskID)

	asked := 0
	user := approval.User{Ask: func(_ context.Context, q approval.Question) (abi.Answer, error) {
		asked++
		return abi.Answer{}, reason.ErrApproval
	}}
	run, err := v.Spawn(t.Context(), SpawnRequest{Tool: "work"}, user)
	require.NoError(t, err)
	require.Equal(t, approval.HeldFor, run.Held)
	require.Equal(t, 1, asked)

	a := AgentSession{Session: v, Resumes: run.TaskID, User: user}
	resumed, err := a.Spawn(t.Context(), background.SpawnRequest{Tool: "work"})
	require.NoError(t, err)
	require.Equal(t, run.TaskID, resumed.TaskID, "its user is asked again")
	require.Equal(t, 2, asked)
}

func TestSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, map[string]abi.Hints{"work": runnable})
		v := Schedules(b.session(alice))
		due := background.ScheduleRequest{Cron: "0 8 * * *"}
		for _, req := range []SpawnRequest{{Tool: "work", IdempotencyKey: "k"}, {Tool: "work", Parent: "bg_1"}} {
			_, err := v.New(t.Context(), req, due)
			require.ErrorContains(t, err, "not allowed for a schedule")
		}

		plan, err := v.New(dryrun.With(t.Context()), SpawnRequest{Tool: "work"}, due)
		require.NoError(t, err)
		require.True(t, plan.DryRun)
		made, err := v.New(t.Context(), SpawnRequest{Tool: "work"}, due)
		require.NoError(t, err)
		all, err := v.List(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)

		operator := Schedules{Sessions: v.Sessions, All: true}
		disabled, err := operator.Disable(t.Context(), made.ScheduleID)
		require.NoError(t, err)
		require.Equal(t, alice, disabled.Session)
		_, err = Schedules(b.session("bob")).Get(t.Context(), made.ScheduleID)
		require.ErrorIs(t, err, background.ErrNoSchedule)
	})
}

// A session sees its own runs only, operators see all, and nobody sees none.
func TestSessionsAreApart(t *testing.T) {
	within(t, time.Hour, func(t *testing.T, b *bench) {
		run := b.spawn("work")
		mine := b.session(alice)
		everybody := Session{Sessions: mine.Sessions, All: true}
		for name, test := range map[string]struct {
			v    Session
			sees bool
		}{"alice": {mine, true}, "bob": {b.session("bob"), false}, "operator": {everybody, true}, "nobody": {b.session(""), false}} {
			all, err := test.v.List(t.Context(), engine.Query{})
			require.NoError(t, err, name)
			require.Equal(t, test.sees, len(all) == 1, name)
			_, err = test.v.Run(t.Context(), run.ID)
			require.Equal(t, test.sees, err == nil, name)
		}

		require.ErrorIs(t, mine.Remove(dryrun.With(t.Context()), run.ID), engine.ErrActive)
		_, err := mine.Send(t.Context(), run.ID, "", json.RawMessage(`1`))
		require.ErrorContains(t, err, "work does not read messages")
		stopped, err := mine.Stop(t.Context(), run.ID, "", wire.Stop{Force: true})
		require.NoError(t, err)
		require.Equal(t, wire.StatusCanceled, stopped.Status)
		_, err = mine.Send(t.Context(), run.ID, "", json.RawMessage(`1`))
		require.ErrorIs(t, err, background.ErrEnded)
		require.NoError(t, mine.Remove(t.Context(), run.ID))
	})
}
