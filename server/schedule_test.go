package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// schedule makes a schedule and returns its id.
func (s service) schedule(session, tool, args, when string) string {
	s.t.Helper()
	answer := s.agent(session, SpawnBackground, `{"tool":"`+tool+`","args":`+args+`,"schedule":`+when+`}`)
	id, _ := answer["schedule_id"].(string)
	require.Regexp(s.t, `^sc_[a-z2-7]{26}$`, id)
	return id
}

// A schedule starts runs by itself: no model has to.
func TestSchedule(t *testing.T) {
	bubble(t, func(t *testing.T) { // which begins at midnight, 2000-01-01
		s := open(t, Config{}, "echo")
		answer := s.agent(alice, SpawnBackground, `{"tool":" echo ","args":{"n":1},"schedule":{"cron_expression":" 30 6 * * * ","timezone":"Europe/Zurich"},"timeout_seconds":9}`)
		id, _ := answer["schedule_id"].(string)
		require.Regexp(t, `^sc_[a-z2-7]{26}$`, id)
		require.Equal(t, object{"status": "scheduled", "schedule_id": id, "next_trigger_at": "2000-01-01T05:30:00Z"}, answer)
		require.Equal(t, object{"active": 0.0, "finished": 0.0, "tasks": []any{}, "schedules": []any{
			map[string]any{"schedule_id": id, "title": "Echo", "next_trigger_at": "2000-01-01T05:30:00Z"},
		}}, s.agent(alice, CheckBackground, `{}`))
		require.NotContains(t, s.agent(bob, CheckBackground, `{}`), "schedules")

		time.Sleep(30 * time.Hour)
		synctest.Wait()
		list := s.agent(alice, CheckBackground, `{"include_finished":true}`)
		require.EqualValues(t, 2, list["finished"])
		run, err := s.runs.Get(t.Context(), alice, list["tasks"].([]any)[0].(map[string]any)["task_id"].(string))
		require.NoError(t, err)
		run = s.whole(run)
		require.Equal(t, engine.OriginScheduled, run.Origin)
		require.Equal(t, id, run.Schedule)
		require.Equal(t, 9*time.Second, run.Timeout)
		require.JSONEq(t, `{"n":1}`, string(run.Result))
		require.Equal(t, time.Date(2000, 1, 2, 5, 30, 0, 0, time.UTC), run.ScheduledFor.UTC())
		notices := s.notices(alice)
		require.Len(t, notices, 2, "the session is notified of each")
	})
}

func TestScheduleOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo")
		answer := s.agent(alice, SpawnBackground, `{"tool":"echo","args":{},"title":"Later","signal_on_completion":false,"schedule":{"scheduled_at":"2000-01-01T03:00:00+02:00"}}`)
		require.Equal(t, "2000-01-01T01:00:00Z", answer["next_trigger_at"])
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		list := s.agent(alice, CheckBackground, `{"include_finished":true}`)
		require.EqualValues(t, 1, list["finished"])
		require.Equal(t, "Later", list["tasks"].([]any)[0].(map[string]any)["title"])
		require.NotContains(t, list, "schedules", "it fires no more")
		require.Empty(t, s.notices(alice))
	})
}

// Stopping a schedule leaves the run it started alone; twice is the same.
func TestStopSchedule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		id := s.schedule(alice, "sleeper", `{}`, `{"cron_expression":"* * * * *"}`)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		stop := func(dryRun bool) string {
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: StopBackground, Args: []byte(`{"schedule_id":"` + id + `"}`), DryRun: dryRun})
			require.NoError(t, err)
			return string(r.Value) + r.Error
		}
		require.Equal(t, `{"schedule_id":"`+id+`","status":"enabled","stopped":false,"dry_run":true}`, stop(true))
		require.Equal(t, `{"schedule_id":"`+id+`","status":"disabled","stopped":true}`, stop(false))
		require.Equal(t, `{"schedule_id":"`+id+`","status":"disabled","stopped":false,"already_finished":true}`, stop(false))
		require.Equal(t, `{"schedule_id":"`+id+`","status":"disabled","stopped":false,"already_finished":true,"dry_run":true}`, stop(true))
		list := s.agent(alice, CheckBackground, `{"include_finished":true}`)
		require.EqualValues(t, 1, list["active"], "its run continues")
		require.NotContains(t, list, "schedules")
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 1, s.agent(alice, CheckBackground, `{}`)["active"], "no other follows")
	})
}

// Schedules of other sessions and those that never were are answered alike.
func TestUnknownSchedules(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo")
		foreign := s.schedule(bob, "echo", `{}`, `{"cron_expression":"0 0 * * *"}`)
		answers := func(tail string) {
			t.Helper()
			for _, id := range []string{foreign, "sc_aaaaaaaaaaaaaaaaaaaaaaaaaa", "no id at all"} {
				require.Equal(t, "no such schedule in this session: "+id+tail, s.refused(alice, StopBackground, `{"schedule_id":"`+id+`"}`))
			}
		}
		answers("; none is active")
		own := s.schedule(alice, "echo", `{}`, `{"cron_expression":"0 0 * * *"}`)
		answers("; active: " + own)
		require.Contains(t, s.agent(bob, CheckBackground, `{}`), "schedules", "its owner has it")
	})
}

// The shape of a schedule is looked at before the tool, the rest after it, and
// nobody is asked about what is refused anyway.
func TestScheduleErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Approve: func(context.Context, Approval) error { panic("asked") }}, "echo", "plain", "dangerous", "vault")
		for _, test := range []struct{ tool, more, want string }{
			{" ", `"schedule":{}`, "tool: required"},
			{"nothing", `"schedule":{}`, "schedule: must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"},
			{"echo", `"schedule":{"cron_expression":"  "}`, "schedule: must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"},
			{"echo", `"schedule":{"cron_expression":"* * * * *","scheduled_at":"2030-01-01T00:00:00Z"}`, "schedule: must not include both cron_expression and scheduled_at; provide exactly one"},
			{"nothing", `"schedule":{"scheduled_at":"tomorrow at noon"}`, `scheduled_at: must be RFC 3339, such as 2026-01-02T15:04:05Z, and is "tomorrow at noon"`},
			{"nothing", `"schedule":{"cron_expression":"* * * * *"}`, `no such tool: "nothing"`},
			{"plain", `"schedule":{"cron_expression":"* * * * *"}`, "plain does not support background runs: call it directly"},
			{SpawnBackground, `"schedule":{"cron_expression":"* * * * *"}`, "spawn_background cannot be spawned: call it directly"},
			{"echo", `"schedule":{"cron_expression":"* * * * *"},"timeout_seconds":99999`, "timeout_seconds: must be between 1 and 3600"},
			{"echo", `"schedule":{"cron_expression":"* * * * *"},"idempotency_key":"k"`, "idempotency_key: not allowed for a schedule"},
			{"dangerous", `"schedule":{"scheduled_at":"1999-12-31T23:59:59Z"}`, "scheduled_at: 1999-12-31T23:59:59Z is in the past; it is 2000-01-01T00:00:00Z now"},
			{"dangerous", `"schedule":{"cron_expression":"* * * * *","timezone":"Mars/Base"}`, "timezone: "},
			{"dangerous", `"schedule":{"cron_expression":"61 * * * *"}`, "cron_expression: "},
			{"dangerous", `"schedule":{"cron_expression":"@every 1s"}`, "cron_expression: "},
		} {
			got := s.refused(alice, SpawnBackground, `{"tool":"`+test.tool+`","args":{},`+test.more+`}`)
			require.Contains(t, got, test.want, test.more)
			require.NotContains(t, got, "schedule: schedule:")
		}
		require.Equal(t, "vault cannot be scheduled with these arguments: they contain a secret, and secrets are not stored",
			s.refused(alice, SpawnBackground, `{"tool":"vault","args":{"deep":{"code":"hunter2"}},"schedule":{"cron_expression":"* * * * *"}}`))
		require.NotContains(t, s.agent(alice, CheckBackground, `{}`), "schedules")
		s.schedule(alice, "vault", `{"n":1}`, `{"cron_expression":"0 0 * * *"}`)
	})
}

func TestScheduleLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Runs: RunsConfig{Schedules: 2, MinInterval: time.Hour}}, "echo")
		const daily = `{"cron_expression":"0 0 * * *"}`
		first := s.schedule(alice, "echo", `{}`, daily)
		s.schedule(alice, "echo", `{}`, daily)
		text := s.refused(alice, SpawnBackground, `{"tool":"echo","args":{},"schedule":`+daily+`}`)
		require.Contains(t, text, "this session already has the maximum of 2 active schedules (sc_")
		require.Contains(t, text, first)
		s.schedule(bob, "echo", `{}`, daily)
		s.agent(alice, StopBackground, `{"schedule_id":"`+first+`"}`)
		require.Contains(t, s.refused(alice, SpawnBackground, `{"tool":"echo","args":{},"schedule":{"cron_expression":"*/5 * * * *"}}`), "cron_expression: ")
		s.schedule(alice, "echo", `{}`, daily)
	})
}

// A dry run says when it would be, and stores nothing.
func TestScheduleDryRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Approve: func(context.Context, Approval) error { panic("asked") }}, "dangerous")
		dry := func(when string) abi.Result {
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: SpawnBackground, Args: []byte(`{"tool":"dangerous","args":{},"schedule":` + when + `}`), DryRun: true})
			require.NoError(t, err)
			return r
		}
		require.Equal(t, `{"status":"scheduled","next_trigger_at":"2000-01-01T09:00:00Z","dry_run":true,"tool":"dangerous","title":"Background dangerous","deadline_seconds":300}`,
			string(dry(`{"cron_expression":"0 9 * * *"}`).Value))
		require.Contains(t, dry(`{"cron_expression":"0 9"}`).Error, "cron_expression: ")
		time.Sleep(24 * time.Hour)
		require.Equal(t, `{"active":0,"finished":0,"tasks":[]}`, string(s.call(alice, CheckBackground, `{}`).Value))
	})
}

// A person agrees to a schedule when it is made and to each of its runs. What
// is refused three times in a row fires no more, and the session hears of it.
func TestScheduleApproval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []Approval
		var refused error
		s := open(t, Config{Approve: func(_ context.Context, a Approval) error {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, a)
			return refused
		}}, "dangerous")
		s.schedule(alice, "dangerous", `{"n":1}`, `{"cron_expression":"0 * * * *"}`)
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		require.EqualValues(t, 1, s.Stats().Runs.Succeeded)
		mu.Lock()
		require.Len(t, asked, 2)
		require.Equal(t, "0 * * * *", asked[0].Schedule.Cron, "who is asked hears that it is again and again")
		asked[0].Schedule = nil
		require.Equal(t, Approval{Session: alice, Tool: "dangerous", Args: []byte(`{"n":1}`)}, asked[0])
		require.Equal(t, asked[0], asked[1])
		refused = errors.New("Ada said no")
		mu.Unlock()
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, asked, 5, "after the third refusal it is disabled")
		list := s.agent(alice, CheckBackground, `{"include_finished":true}`)
		require.NotContains(t, list, "schedules")
		require.EqualValues(t, 4, list["finished"])
		id := list["tasks"].([]any)[0].(map[string]any)["task_id"].(string)
		notices := s.notices(alice)
		require.Len(t, notices, 4)
		failure := s.check(alice, id, "")["error"].(map[string]any)
		require.Equal(t, "rejected", failure["kind"])
		require.Contains(t, failure["message"], "denied: the tool needs a person's approval: Ada said no")
		require.Contains(t, failure["message"], "is disabled, as its runs were refused three times in a row")
		require.Contains(t, notices[3].Text, "is disabled")
	})
}

// All that stands before a call stands before a run that nobody waits for, when
// it comes to start.
func TestReadmit(t *testing.T) {
	refused := errors.New("Ada said no")
	s := open(t, Config{Approve: func(context.Context, Approval) error { return refused }}, "echo", "plain", "fails", "keeper", "needy", "dangerous", "vault")
	version := func(tool string) string {
		found, err := s.Lookup(tool)
		require.NoError(t, err)
		digest, err := found.Plugin.Digest()
		require.NoError(t, err)
		require.Len(t, digest, 64)
		return digest
	}
	const again = "The host went down, and the run is not run again: "
	for _, test := range []struct {
		name string
		run  engine.Run
		kind engine.ErrorKind
		want string
	}{
		{"queued", engine.Run{Tool: "fails"}, "", ""},
		{"queued, changed since", engine.Run{Tool: "fails", Version: "x"}, "", ""},
		{"queued, gone", engine.Run{Tool: "gone"}, engine.KindRejected, `no such tool: "gone"`},
		{"queued, for the agent alone", engine.Run{Tool: SpawnBackground}, engine.KindRejected, `no such tool: "spawn_background"`},
		{"queued, other arguments in the meantime", engine.Run{Tool: "echo", Args: []byte(`{"n":"x"}`)}, engine.KindRejected, "the arguments of echo do not fit its schema: /n: expected integer, found string"},
		{"queued, not granted", engine.Run{Tool: "needy"}, engine.KindRejected, "denied: the plugin needy needs env HOME, which the operator has not granted"},
		{"queued, not for the background in the meantime", engine.Run{Tool: "plain"}, engine.KindRejected, "plain does not support background runs"},
		{"queued, with a secret", engine.Run{Tool: "vault", Secret: true}, engine.KindRejected, "its arguments contained a secret, which was not stored"},
		{"queued, approved when it was spawned", engine.Run{Tool: "dangerous"}, "", ""},
		{"fired", engine.Run{Tool: "fails", Schedule: "sc"}, "", ""},
		{"fired, not approved", engine.Run{Tool: "dangerous", Schedule: "sc"}, engine.KindRejected, "denied: the tool needs a person's approval: Ada said no"},
		{"again, idempotent", engine.Run{Tool: "keeper", Attempt: 1, Version: version("keeper")}, "", ""},
		{"again, readonly", engine.Run{Tool: "echo", Attempt: 2, Version: version("echo")}, "", ""},
		{"again, of a schedule", engine.Run{Tool: "echo", Attempt: 1, Schedule: "sc", Version: version("echo")}, "", ""},
		{"again, neither", engine.Run{Tool: "fails", Attempt: 1, Version: version("fails")}, engine.KindOrphaned, again + "fails is neither idempotent nor readonly"},
		{"again, changed since", engine.Run{Tool: "keeper", Attempt: 1, Version: version("echo")}, engine.KindOrphaned, again + "the plugin of keeper was replaced in the meantime"},
		{"again, gone", engine.Run{Tool: "gone", Attempt: 1}, engine.KindOrphaned, again + `no such tool: "gone"`},
		{"again, and no tool is named", engine.Run{Attempt: 1}, engine.KindOrphaned, again + `no such tool: ""`},
		{"again, other arguments in the meantime", engine.Run{Tool: "echo", Attempt: 1, Version: version("echo"), Args: []byte(`[]`)}, engine.KindOrphaned, again + "the arguments of echo do not fit its schema: expected an object, found an array"},
		{"again, with a secret", engine.Run{Tool: "vault", Attempt: 1, Version: version("vault"), Secret: true}, engine.KindOrphaned, again + "its arguments contained a secret, which was not stored"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run.Session = alice
			if test.run.Args == nil {
				test.run.Args = []byte(`{}`)
			}
			err := s.executor.Readmit(t.Context(), test.run)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			var failure *background.Error
			require.ErrorAs(t, err, &failure)
			require.Equal(t, test.kind, failure.Kind)
			require.Equal(t, test.want, failure.Message)
		})
	}
}
