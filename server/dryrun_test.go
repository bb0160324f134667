package server

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// With the context of a dry run nothing changes, whatever is asked for.
func TestDryRunContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s service
		cfg := Config{Tools: []gotool.Tool{handler("nested", func(ctx context.Context, c *gotool.Call) error {
			r, err := s.Call(ctx, Request{Session: c.Session(), Tool: "plain"})
			require.True(t, IsDryRun(r), "it cannot leave the dry run")
			return err
		})}}
		cfg.Tools[0].Hints.Readonly = true
		s = open(t, cfg, "echo", "plain", "sleeper", "confidant", "asker")
		id := s.spawn(alice, "sleeper", `{}`)
		ended := s.spawn(alice, "echo", `{}`)
		schedule := s.agent(alice, SpawnBackground, `{"tool":"echo","args":{},"schedule":{"cron_expression":"0 3 * * *"}}`)["schedule_id"].(string)
		time.Sleep(time.Second)
		before := s.everything(alice)

		ctx := WithDryRun(t.Context())
		v := s.Session(alice)
		call := func(tool, args string) abi.Result {
			r, err := s.Call(ctx, Request{Session: alice, Tool: tool, Args: json.RawMessage(args), ParkAfter: time.Second})
			require.NoError(t, err)
			return r
		}
		require.JSONEq(t, `{"n":1}`, string(call("echo", `{"n":1}`).Value), "it is readonly")
		require.Equal(t, abi.Success, call("nested", `{}`).Kind)
		require.True(t, IsDryRun(call("plain", `{}`)))
		require.NotContains(t, string(call("confidant", `{"key":"hunter2"}`).Value), "hunter2")
		require.Equal(t, abi.ToolError, call("echo", `{"n":"x"}`).Kind, "its checks are made")
		require.Contains(t, string(call(SpawnBackground, `{"tool":"sleeper","args":{}}`).Value), `"dry_run":true`)
		require.Contains(t, string(call(SpawnBackground, `{"tool":"echo","args":{},"schedule":{"cron_expression":"0 3 * * *"}}`).Value), `"dry_run":true`)
		require.Contains(t, string(call(StopBackground, `{"task_id":"`+id+`"}`).Value), `"dry_run":true`)
		require.Contains(t, string(call(StopBackground, `{"schedule_id":"`+schedule+`"}`).Value), `"dry_run":true`)
		require.Contains(t, string(call(CheckBackground, `{"task_id":"`+ended+`"}`).Value), `"succeeded"`)

		for name, change := range map[string]func() (dry bool, err error){
			"spawn": func() (bool, error) {
				r, err := v.Spawn(ctx, SpawnRequest{Tool: "sleeper"})
				return r.DryRun && r.TaskID == "", err
			},
			"schedule": func() (bool, error) {
				r, err := v.Schedules().New(ctx, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 3 * * *"})
				return r.DryRun && r.ScheduleID == "", err
			},
			"rerun":  func() (bool, error) { r, err := v.Rerun(ctx, ended, ""); return r.DryRun, err },
			"fire":   func() (bool, error) { r, err := v.Schedules().Fire(ctx, schedule, ""); return r.DryRun, err },
			"enable": func() (bool, error) { r, err := v.Schedules().Enable(ctx, schedule); return r.DryRun, err },
			"remove": func() (bool, error) { return true, v.Remove(ctx, ended) },
			"remove schedule": func() (bool, error) {
				r, err := v.Schedules().Remove(ctx, schedule)
				return r.DryRun && r.ScheduleID == schedule, err
			},
			"unschedule": func() (bool, error) { r, err := v.Schedules().Disable(ctx, schedule); return r.DryRun, err },
			"stop":       func() (bool, error) { r, err := v.Stop(ctx, id, "", wire.Stop{}); return r.DryRun && !r.Stopped, err },
			"ack":        func() (bool, error) { return true, v.Acknowledge(ctx, []string{ended}) },
			"set":        func() (bool, error) { _, err := v.Values().Set(ctx, "k", json.RawMessage(`1`), 0); return true, err },
			"delete":     func() (bool, error) { found, err := v.Values().Delete(ctx, "k", 0); return !found, err },
			"answer":     func() (bool, error) { return true, v.Answer(ctx, id, nil) },
			"end":        func() (bool, error) { return true, v.End(ctx) },
		} {
			dry, err := change()
			require.NoError(t, err, name)
			require.True(t, dry, name)
		}
		require.ErrorIs(t, v.Remove(ctx, id), engine.ErrActive, "its checks are made")
		_, err := s.Session(bob).Schedules().Remove(ctx, schedule)
		require.ErrorIs(t, err, background.ErrNoSchedule)
		require.Equal(t, before, s.everything(alice))
	})
}

// everything is what a session has, as JSON, without what passes with time.
func (s service) everything(session string) string {
	s.t.Helper()
	v := s.Session(session)
	runs, err := v.Runs(s.t.Context(), RunQuery{})
	require.NoError(s.t, err)
	for i := range runs {
		runs[i].ElapsedSeconds = 0
	}
	schedules, err := v.Schedules().List(s.t.Context())
	require.NoError(s.t, err)
	values, err := v.Values().List(s.t.Context())
	require.NoError(s.t, err)
	notices, err := v.Notices(s.t.Context(), 0)
	require.NoError(s.t, err)
	all, err := json.Marshal([]any{runs, schedules, values, notices})
	require.NoError(s.t, err)
	return string(all)
}

// A readonly tool is not parked in a dry run, because that would be stored.
func TestDryRunIsNotParked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tool := handler("slow", func(ctx context.Context, _ *gotool.Call) error { <-ctx.Done(); return ctx.Err() })
		tool.Hints.Readonly = true
		s := openFolder(t, Config{Tools: []gotool.Tool{tool}}, nil)
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: "slow", DryRun: true, ParkAfter: time.Second})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, abi.LimitTime, r.Limit)
	})
}
