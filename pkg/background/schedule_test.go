package background

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

func newSchedule(t *testing.T, m *Manager, session string, req ScheduleRequest) engine.Schedule {
	t.Helper()
	s, err := m.Schedule(t.Context(), session, req)
	require.NoError(t, err)
	return s
}

// firings lists the runs of a schedule, oldest first.
func firings(t *testing.T, m *Manager, s engine.Schedule) []engine.Run {
	t.Helper()
	runs, err := m.engine.List(t.Context(), engine.Query{Schedule: s.ID})
	require.NoError(t, err)
	slices.Reverse(runs)
	return runs
}

func reread(t *testing.T, m *Manager, s engine.Schedule) engine.Schedule {
	t.Helper()
	s, err := m.GetSchedule(t.Context(), s.Session, s.ID)
	require.NoError(t, err)
	return s
}

// planned returns how many schedules will fire.
func planned(m *Manager) (count int) {
	for _, s := range must(m.Schedules(context.Background(), "")) {
		if s.Enabled && !s.NextAt.IsZero() {
			count++
		}
	}
	return count
}

func TestScheduleRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{MinInterval: 10 * time.Minute})
		hour := time.Now().Add(time.Hour)
		for _, test := range []struct {
			name, session string
			req           ScheduleRequest
			want          string
		}{
			{"no session", "", ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"}, "session: required"},
			{"no tool", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: " "}, Cron: "0 * * * *"}, "tool: required"},
			{"bad args", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Args: json.RawMessage("{")}, Cron: "0 * * * *"}, "args: not valid JSON"},
			{"long title", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Title: strings.Repeat("x", 121)}, Cron: "0 * * * *"}, "title: longer than 120 characters"},
			{"long timeout", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Timeout: 2 * time.Hour}, Cron: "0 * * * *"}, "timeout_seconds: must be between 1 and 3600"},
			{"neither", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "  "}, "schedule: must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"},
			{"both", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *", At: hour}, "schedule: must not include both cron_expression and scheduled_at; provide exactly one"},
			{"now", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: time.Now()}, "scheduled_at: 2000-01-01T00:00:00Z is in the past; it is 2000-01-01T00:00:00Z now"},
			{"the past", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: hour.AddDate(-1, 0, 0)}, "is in the past"},
			{"far away", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: hour.AddDate(10, 0, 0)}, "scheduled_at: 2010-01-01T01:00:00Z is more than 10 years from now"},
			{"bad zone", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *", Timezone: "Mars/Olympus"}, `timezone: unknown time zone "Mars/Olympus"`},
			{"bad zone of a one-shot", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: hour, Timezone: "../UTC"}, "invalid time zone"},
			{"the host's zone", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *", Timezone: "Local"}, "invalid time zone"},
			{"bad cron", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "61 * * * *"}, "cron_expression: minute: 61 is above the maximum 59"},
			{"long cron", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: strings.Repeat("* ", 1<<20)}, "cron_expression: longer than 512 bytes"},
			{"never", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 30 2 *"}, `cron_expression: "0 0 30 2 *" does not fire within 10 years`},
			{"too often", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0,59 * * * *"}, `cron_expression: "0,59 * * * *" fires again after 1m0s at times; the minimum is 10m0s`},
			{"unknown overlap", alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *", Overlap: "rollback"}, "overlap: must be skip, queue or cancel_previous"},
		} {
			_, err := m.Schedule(t.Context(), test.session, test.req)
			require.ErrorIs(t, err, ErrInvalid, test.name)
			require.ErrorContains(t, err, test.want, test.name)
			var field *FieldError
			require.ErrorAs(t, err, &field, test.name)
			_, planned := m.Plan(test.session, test.req)
			require.Equal(t, err, planned, test.name)
		}
		require.Empty(t, must(m.engine.Schedules(t.Context(), "", false)), "nothing is stored")
	})
}

func TestScheduleIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		now := time.Now().UTC()
		req := ScheduleRequest{SpawnRequest: SpawnRequest{Tool: " echo ", Version: "v1", Args: json.RawMessage(`{"n":1}`), By: "operator"}, Cron: " */15  9-17 * * MON-fri ", Timezone: " America/New_York "}
		plan, err := m.Plan(alice, req)
		require.NoError(t, err)
		require.Empty(t, must(m.Schedules(t.Context(), alice)), "a plan is not stored")
		s := newSchedule(t, m, alice, req)
		require.Regexp(t, `^sc_[a-z2-7]{26}$`, s.ID)
		require.Equal(t, engine.Schedule{
			ID: s.ID, Session: alice, Tool: "echo", Version: "v1", Args: json.RawMessage(`{"n":1}`), Title: "Background echo", By: "operator",
			SignalOnCompletion: true, Timeout: DefaultTimeout, CreatedAt: now,
			Cron: "*/15 9-17 * * MON-fri", Timezone: "America/New_York", Overlap: engine.OverlapSkip,
			Enabled: true, NextAt: time.Date(2000, 1, 3, 14, 0, 0, 0, time.UTC), Revision: 1,
		}, s)
		plan.ID, plan.Revision = s.ID, 1
		require.Equal(t, plan, s)

		at := now.In(time.FixedZone("", 3600)).Add(90 * time.Minute)
		once := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Title: "once", Silent: true, Timeout: time.Minute}, At: at, Overlap: engine.OverlapQueue})
		require.Equal(t, engine.Schedule{
			ID: once.ID, Session: alice, Tool: "echo", Args: json.RawMessage(`{}`), Title: "once", Timeout: time.Minute, CreatedAt: now,
			At: now.Add(90 * time.Minute), Timezone: "UTC", Overlap: engine.OverlapQueue, Enabled: true, NextAt: now.Add(90 * time.Minute), Revision: 1,
		}, once)
		listed := []engine.Schedule{once, s}
		listed[0].Args, listed[1].Args = nil, nil
		require.Equal(t, listed, must(m.Schedules(t.Context(), alice)))
		require.Empty(t, must(m.Schedules(t.Context(), bob)))
		require.Equal(t, listed, must(m.Schedules(t.Context(), "")), "for operators")
	})
}

func TestScheduleLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		var made atomic.Int32
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				_, err := m.Schedule(t.Context(), alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 * * *"})
				if err == nil {
					made.Add(1)
					return
				}
				var limit *engine.LimitError
				if !errors.Is(err, engine.ErrScheduleLimit) || !errors.As(err, &limit) || limit.Max != 5 || len(limit.Active) != 5 {
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 5, made.Load(), "counting and creating are one step")
		kept := must(m.Schedules(t.Context(), alice))
		require.Len(t, kept, 5, "what is refused leaves nothing")
		_, err := m.Schedule(t.Context(), alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 * * *"})
		require.ErrorContains(t, err, "session limit of schedules reached: at most 5 (")
		require.ErrorContains(t, err, kept[0].ID)

		newSchedule(t, m, bob, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 * * *"})
		_, err = m.Unschedule(t.Context(), alice, kept[0].ID)
		require.NoError(t, err)
		newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 * * *"})
	})
}

// A host whose limit was lowered still fires existing schedules.
func TestScheduleLimitIsForNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New()
		before := newManager(t, Config{Engine: engine})
		s := newSchedule(t, before, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		newSchedule(t, before, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		require.NoError(t, before.Close(t.Context()))
		m := newManager(t, Config{Engine: engine, Schedules: 1})
		time.Sleep(2*time.Hour + time.Minute)
		require.Len(t, firings(t, m, s), 2)
		require.Equal(t, 2, reread(t, m, s).Fired)
	})
}

// Creating a schedule needs no permit, and holds none.
func TestScheduleNeedsNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerHost: 1, PerSession: 1})
		busy := spawned(t, m, alice, "sleep")
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 * * *"})
		require.True(t, s.Enabled)
		_, err := m.Stop(t.Context(), alice, busy, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusRunning, must(m.Get(t.Context(), alice, spawned(t, m, alice, "sleep"))).Status)
	})
}

// An unknown schedule and one of another session get the same answer.
func TestScheduleOfAnotherSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := newSchedule(t, m, bob, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 * * *"})
		unknown := "sc_" + strings.Repeat("a", 26)
		for name, ask := range map[string]func(session, id string) (engine.Schedule, error){
			"get":  func(session, id string) (engine.Schedule, error) { return m.GetSchedule(t.Context(), session, id) },
			"stop": func(session, id string) (engine.Schedule, error) { return m.Unschedule(t.Context(), session, id) },
		} {
			foreign, err := ask(alice, s.ID)
			require.ErrorIs(t, err, ErrNoSchedule, name)
			require.Zero(t, foreign)
			other, err2 := ask(alice, unknown)
			require.ErrorIs(t, err2, ErrNoSchedule, name)
			require.Zero(t, other)
			require.Equal(t, strings.ReplaceAll(err.Error(), s.ID, unknown), err2.Error(), name)
			_, err = ask("", s.ID)
			require.ErrorIs(t, err, ErrInvalid, name)
		}
		require.True(t, reread(t, m, s).Enabled)
	})
}

func TestUnschedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "sleep", Timeout: time.Hour}, Cron: "0 * * * *"})
		time.Sleep(time.Hour + time.Minute)
		stopped, err := m.Unschedule(t.Context(), alice, s.ID)
		require.NoError(t, err)
		require.False(t, stopped.Enabled)
		require.Equal(t, engine.DisabledStopped, stopped.Disabled)
		require.Zero(t, stopped.NextAt)
		again, err := m.Unschedule(t.Context(), alice, s.ID)
		require.NoError(t, err)
		require.Equal(t, stopped, again, "twice is as once")
		runs := firings(t, m, s)
		require.Len(t, runs, 1)
		require.Equal(t, engine.StatusRunning, runs[0].Status, "the run it started continues")
		time.Sleep(5 * time.Hour)
		require.Len(t, firings(t, m, s), 1, "it fires no more")
		require.Zero(t, planned(m))
	})
}

// When a schedule is changed several times at once, no change is lost.
func TestScheduleChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Engine: slowEngine(time.Millisecond, "getschedule")})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 * * *"})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, err := m.scheduler.change(t.Context(), s.ID, func(s *engine.Schedule) error { s.Fired++; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, 50, reread(t, m, s).Fired)
		_, err := m.scheduler.change(t.Context(), "sc_unknown", func(*engine.Schedule) error { return nil })
		require.ErrorIs(t, err, engine.ErrNotFound)
	})
}

func TestScheduleAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		require.NoError(t, m.Close(t.Context()))
		_, err := m.Schedule(t.Context(), alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		require.ErrorIs(t, err, ErrClosed)
		time.Sleep(3 * time.Hour)
		require.Empty(t, firings(t, m, s))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = newManager(t, Config{}).Schedule(ctx, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A schedule that cannot be stored is refused, and leaves nothing that fires.
func TestScheduleThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &crashing{Engine: memory.New()}
		m := newManager(t, Config{Engine: store})
		store.down.Store(true)
		_, err := m.Schedule(t.Context(), alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		require.ErrorIs(t, err, errDown)
		store.down.Store(false)
		require.Empty(t, must(m.Schedules(t.Context(), alice)))
		require.Zero(t, planned(m))
		time.Sleep(2 * time.Hour)
		require.Empty(t, must(m.engine.List(t.Context(), engine.Query{})))
	})
}
