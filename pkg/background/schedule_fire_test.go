package background

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func TestScheduleFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []engine.Run
		m := newManager(t, Config{OnNotice: func(n engine.Run) { told = append(told, n) }})
		start := time.Now().UTC()
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Version: "v1", Args: []byte(`{"n":1}`), Title: "quarterly", By: "operator", Timeout: time.Minute}, Cron: "*/15 * * * *"})
		time.Sleep(15*time.Minute - time.Nanosecond)
		synctest.Wait()
		require.Empty(t, firings(t, m, s))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, firings(t, m, s), 1, "to the moment")
		time.Sleep(time.Hour - time.Minute)
		synctest.Wait()

		runs := firings(t, m, s)
		require.Len(t, runs, 4)
		for i, run := range runs {
			due := start.Add(time.Duration(i+1) * 15 * time.Minute)
			require.Regexp(t, `^bg_[a-z2-7]{26}$`, run.ID)
			run = payload(t, m.engine, run.ID)
			require.Equal(t, engine.StatusSucceeded, run.Status)
			require.Equal(t, []any{engine.OriginScheduled, s.ID, due, "v1", `{"n":1}`, "quarterly", "operator", time.Minute, true},
				[]any{run.Origin, run.Schedule, run.ScheduledFor, run.Version, string(run.Args), run.Title, run.By, run.Timeout, run.SignalOnCompletion})
			require.Equal(t, due, run.StartedAt.UTC())
			require.Equal(t, run.ID, told[i].ID)
		}
		after := reread(t, m, s)
		require.Equal(t, 4, after.Fired)
		require.EqualValues(t, 1+4, after.Revision, "one write for each")
		require.Equal(t, runs[3].ID, after.LastRun)
		require.Equal(t, start.Add(time.Hour), after.LastAt)
		require.Equal(t, start.Add(75*time.Minute), after.NextAt)
	})
}

func TestScheduleFiresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		at := time.Now().Add(90 * time.Second).UTC()
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: at})
		time.Sleep(24 * time.Hour / 2)
		runs := firings(t, m, s)
		require.Len(t, runs, 1)
		require.Equal(t, at, runs[0].StartedAt.UTC())
		after := reread(t, m, s)
		require.False(t, after.Enabled)
		require.Equal(t, engine.DisabledFired, after.Disabled)
		require.Zero(t, after.NextAt)
		require.Equal(t, 1, after.Fired)
		require.Zero(t, planned(m))
	})
}

// The manager fires by the clock of the time zone, through both changes of its offset.
func TestScheduleFiresThroughDaylightSaving(t *testing.T) {
	for _, test := range []struct {
		name string
		from time.Time
		want []string // in UTC
	}{
		{"spring", time.Date(2027, 3, 27, 0, 0, 0, 0, time.UTC), []string{"27 01:30", "28 01:00", "29 00:30"}},
		{"autumn", time.Date(2027, 10, 30, 0, 0, 0, 0, time.UTC), []string{"30 00:30", "31 00:30", "01 01:30"}},
	} {
		bubble(t, test.name, func(t *testing.T) {
			by := time.Until(test.from)
			m := newManager(t, Config{Engine: ahead(memory.New(), by)})
			s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "30 2 * * *", Timezone: "Europe/Berlin"})
			time.Sleep(60 * time.Hour)
			var got []string
			for _, run := range firings(t, m, s) {
				require.Equal(t, run.ScheduledFor.Add(-by), run.StartedAt.UTC())
				got = append(got, run.ScheduledFor.Format("02 15:04"))
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestScheduleOverlap(t *testing.T) {
	// The tool runs for 24 minutes, and the schedule fires every 10.
	long := func(ctx context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
		select {
		case <-time.After(24 * time.Minute):
			return Outcome{}, nil
		case <-sink.Stopping():
			time.Sleep(2 * time.Second) // its way of ending takes a while
			return Outcome{}, ErrStopped
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		}
	}
	told := func(r engine.Run, start time.Time) string {
		due := r.ScheduledFor.Sub(start).Minutes()
		if r.StartedAt.IsZero() {
			return fmt.Sprintf("%v %s", due, r.Status)
		}
		return fmt.Sprintf("%v@%v", due, r.StartedAt.Sub(start))
	}
	for _, test := range []struct {
		overlap engine.Overlap
		want    []string // due @ started
		status  engine.Status
	}{
		{engine.OverlapSkip, []string{"10@10m0s", "40@40m0s"}, engine.StatusSucceeded},
		{engine.OverlapQueue, []string{"10@10m0s", "20@34m0s", "40@58m0s", "60 queued"}, engine.StatusSucceeded},
		{engine.OverlapCancel, []string{"10@10m0s", "20@20m2s", "30@30m2s", "40@40m2s", "50@50m2s", "60@1h0m2s"}, engine.StatusCanceled},
	} {
		bubble(t, string(test.overlap), func(t *testing.T) {
			var active, most atomic.Int32
			m := newManager(t, Config{Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
				most.Store(max(most.Load(), active.Add(1)))
				defer active.Add(-1)
				return long(ctx, run, sink)
			}})
			start := time.Now()
			s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "long", Timeout: time.Hour}, Cron: "*/10 * * * *", Overlap: test.overlap})
			time.Sleep(61 * time.Minute)
			var got []string
			runs := firings(t, m, s)
			for _, run := range runs {
				got = append(got, told(run, start))
			}
			require.Equal(t, test.want, got)
			require.Equal(t, test.status, runs[0].Status)
			require.EqualValues(t, 1, most.Load(), "one at a time")
			if test.status == engine.StatusCanceled {
				require.Equal(t, "schedule", runs[0].Cancel.By)
			}
			_, err := m.Unschedule(t.Context(), alice, s.ID)
			require.NoError(t, err)
			_, err = m.Stop(t.Context(), alice, runs[len(runs)-1].ID, StopRequest{})
			require.NoError(t, err)
		})
	}
}

// Without a permit the run of a firing waits, and further firings are skipped in the
// meantime; with OverlapCancel, the run of the newest firing replaces the one that
// waits.
func TestScheduleWithoutPermit(t *testing.T) {
	for _, test := range []struct {
		overlap engine.Overlap
		due     float64
	}{{engine.OverlapSkip, 10}, {engine.OverlapQueue, 10}, {engine.OverlapCancel, 30}} {
		bubble(t, string(test.overlap), func(t *testing.T) {
			m := newManager(t, Config{PerSession: 1})
			start := time.Now()
			s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "*/10 * * * *", Overlap: test.overlap})
			busy, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "sleep", Timeout: time.Hour})
			require.NoError(t, err)
			time.Sleep(35 * time.Minute)
			waiting := must(m.engine.List(t.Context(), engine.Query{Schedule: s.ID, Active: true}))
			require.Len(t, waiting, 1, "never more than one")
			require.Equal(t, engine.StatusQueued, waiting[0].Status)
			require.Equal(t, test.due, waiting[0].ScheduledFor.Sub(start).Minutes())
			_, err = m.Stop(t.Context(), alice, busy.ID, StopRequest{})
			require.NoError(t, err)
			synctest.Wait()
			run := must(m.Get(t.Context(), alice, waiting[0].ID))
			require.Equal(t, engine.StatusSucceeded, run.Status)
			require.Equal(t, start.Add(35*time.Minute), run.StartedAt)
		})
	}
}

// crashing is an engine whose host goes down after the run of a firing was stored, and
// before the firing was recorded in its schedule.
type crashing struct {
	engine.Engine
	down atomic.Bool
}

var errDown = errors.New("the host is down")

func (e *crashing) PutSchedule(ctx context.Context, s engine.Schedule, max int) (engine.Schedule, error) {
	if e.down.Load() {
		return engine.Schedule{}, errDown
	}
	return e.Engine.PutSchedule(ctx, s, max)
}

// meanwhile is an engine that calls do once, before it stores that a schedule has
// fired.
type meanwhile struct {
	engine.Engine
	do func(engine.Schedule)
}

func (e *meanwhile) PutSchedule(ctx context.Context, s engine.Schedule, max int) (engine.Schedule, error) {
	if do := e.do; do != nil && s.Fired > 0 {
		e.do = nil
		do(s)
	}
	return e.Engine.PutSchedule(ctx, s, max)
}

// A firing is recorded in its schedule even if the schedule is disabled at that moment.
func TestScheduleDisabledAsItFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager
		m = newManager(t, Config{Engine: &meanwhile{memory.New(), func(s engine.Schedule) {
			_, err := m.Unschedule(t.Context(), alice, s.ID)
			require.NoError(t, err)
		}}})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		runs := firings(t, m, s)
		require.Len(t, runs, 1)
		after := reread(t, m, s)
		require.Equal(t, []any{1, runs[0].ID, engine.DisabledStopped}, []any{after.Fired, after.LastRun, after.Disabled})
		require.Zero(t, after.NextAt)
	})
}

func TestScheduleFiresOnceThroughACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &crashing{Engine: memory.New()}
		before := newManager(t, Config{Engine: store})
		s := newSchedule(t, before, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		once := newSchedule(t, before, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: time.Now().Add(time.Hour)})
		long := newSchedule(t, before, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "sleep"}, At: time.Now().Add(time.Hour), Overlap: engine.OverlapCancel})
		store.down.Store(true)
		time.Sleep(time.Hour + time.Minute)
		stopped, err := before.Stop(t.Context(), alice, firings(t, before, long)[0].ID, StopRequest{By: "test"})
		require.NoError(t, err)
		require.Equal(t, "test", must(before.Get(t.Context(), alice, stopped.ID)).Cancel.By, "the firing was not in its own way")
		require.Len(t, firings(t, before, s), 1, "it tries again every few seconds, and finds it done")
		require.NoError(t, before.Close(t.Context()))
		require.Zero(t, reread(t, before, s).Fired, "the schedule does not know of it")
		store.down.Store(false)

		m := newManager(t, Config{Engine: store})
		synctest.Wait()
		require.Len(t, firings(t, m, s), 1)
		require.Len(t, firings(t, m, once), 1)
		require.Equal(t, 1, reread(t, m, s).Fired)
		require.Equal(t, engine.DisabledFired, reread(t, m, once).Disabled)
		time.Sleep(time.Hour)
		require.Len(t, firings(t, m, s), 2)
	})
}

// However many hosts fire a schedule, there is one run for each due time.
func TestScheduleFiresOnceOnManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		seed := newManager(t, Config{Engine: store})
		s := newSchedule(t, seed, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "* * * * *"})
		require.NoError(t, seed.Close(t.Context()))
		var executed atomic.Int32
		count := func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			executed.Add(1)
			return Outcome{}, nil
		}
		var hosts []*Manager
		for range 3 {
			hosts = append(hosts, newManager(t, Config{Engine: store, Executor: count}))
		}
		time.Sleep(20*time.Minute + time.Second)
		require.Len(t, firings(t, hosts[0], s), 20)
		require.EqualValues(t, 20, executed.Load())
		require.Equal(t, 20, reread(t, hosts[0], s).Fired)
		for _, host := range hosts {
			require.Equal(t, 1, planned(host), "none has given up")
		}
	})
}

func TestScheduleMissed(t *testing.T) {
	for _, test := range []struct {
		name, cron string
		at, down   time.Duration // of a one-shot; how long the host is down
		misfire    time.Duration
		want       []time.Duration // after the start of the first host: what is fired for, once it is up
		disabled   string
	}{
		{"none", "0 * * * *", 0, 59 * time.Minute, 0, nil, ""},
		{"one", "0 * * * *", 0, 90 * time.Minute, 0, []time.Duration{time.Hour}, ""},
		{"many, caught up once", "*/5 * * * *", 0, 3*time.Hour + time.Minute, 0, []time.Duration{3 * time.Hour}, ""},
		{"many, within the grace", "*/5 * * * *", 0, 31 * time.Minute, 0, []time.Duration{30 * time.Minute}, ""},
		{"too long ago", "0 */4 * * *", 0, 6 * time.Hour, 0, nil, ""},
		{"at the end of the grace", "0 */4 * * *", 0, 5 * time.Hour, 0, []time.Duration{4 * time.Hour}, ""},
		{"longer grace", "0 */4 * * *", 0, 6 * time.Hour, 3 * time.Hour, []time.Duration{4 * time.Hour}, ""},
		{"two days", "*/5 * * * *", 0, 48*time.Hour + time.Minute, 0, []time.Duration{48 * time.Hour}, ""},
		{"one-shot", "", time.Hour, 90 * time.Minute, 0, []time.Duration{time.Hour}, engine.DisabledFired},
		{"one-shot, too long ago", "", time.Hour, 3 * time.Hour, 0, []time.Duration{time.Hour}, engine.DisabledMissed},
	} {
		bubble(t, test.name, func(t *testing.T) {
			store := memory.New()
			start := time.Now().UTC()
			before := newManager(t, Config{Engine: store})
			req := ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: test.cron}
			if test.at > 0 {
				req.At = start.Add(test.at)
			}
			s := newSchedule(t, before, alice, req)
			require.NoError(t, before.Close(t.Context()))
			time.Sleep(test.down)

			m := newManager(t, Config{Engine: store, Misfire: test.misfire})
			synctest.Wait()
			var got []time.Duration
			for _, run := range firings(t, m, s) {
				got = append(got, run.ScheduledFor.Sub(start))
				if test.disabled == engine.DisabledMissed {
					require.Equal(t, engine.KindInterrupted, run.Error.Kind)
					require.Equal(t, "It was due at 2000-01-01T01:00:00Z, when the host was down or the record quota was full, and is not made up for after more than 1h0m0s", run.Error.Message)
					require.Equal(t, engine.NoticePending, run.Notice, "the session is told")
				} else {
					require.Equal(t, engine.StatusSucceeded, run.Status)
				}
			}
			require.Equal(t, test.want, got)
			after := reread(t, m, s)
			require.Equal(t, test.disabled, after.Disabled)
			if test.disabled == "" {
				require.True(t, after.NextAt.After(time.Now()))
				time.Sleep(time.Until(after.NextAt))
				synctest.Wait()
				require.Len(t, firings(t, m, s), len(test.want)+1, "and continues at its own pace")
			}
		})
	}
}

func TestScheduleRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []engine.Run
		var asked []engine.Run
		var refuse error
		var mu sync.Mutex
		say := func(err error) { mu.Lock(); refuse = err; mu.Unlock() }
		m := newManager(t, Config{
			OnNotice: func(n engine.Run) { told = append(told, n) },
			Readmit: func(_ context.Context, run engine.Run) error {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, run)
				return refuse
			},
		})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Args: []byte(`{"n":1}`)}, Cron: "0 * * * *"})
		step := func(err error) engine.Run {
			say(err)
			time.Sleep(time.Hour)
			synctest.Wait()
			runs := firings(t, m, s)
			return runs[len(runs)-1]
		}
		gone := &Error{Kind: engine.KindRejected, Message: "no tool echo"}
		require.Equal(t, engine.StatusSucceeded, step(nil).Status)
		require.Equal(t, []any{s.ID, 0, `{"n":1}`}, []any{asked[0].Schedule, asked[0].Attempt, string(asked[0].Args)}, "asked at each firing, with all there is to judge")
		for range 2 {
			run := step(gone)
			require.Equal(t, engine.StatusFailed, run.Status)
			require.Equal(t, &engine.RunError{Kind: engine.KindRejected, Message: "no tool echo"}, run.Error)
			require.Zero(t, run.StartedAt)
		}
		require.Equal(t, 2, reread(t, m, s).Rejected)
		require.Equal(t, engine.StatusSucceeded, step(nil).Status)
		require.Zero(t, reread(t, m, s).Rejected, "it is in a row that counts")

		require.Equal(t, errRejected.Message, step(errors.New("secret of the host")).Error.Message)
		require.Equal(t, engine.KindRejected, step(errors.New("secret of the host")).Error.Kind)
		require.True(t, reread(t, m, s).Enabled)
		last := step(gone)
		want := "no tool echo; schedule " + s.ID + " is disabled, as its runs were refused three times in a row"
		require.Equal(t, want, last.Error.Message)
		after := reread(t, m, s)
		require.False(t, after.Enabled)
		require.Equal(t, engine.DisabledRejected, after.Disabled)
		require.Equal(t, 7, after.Fired)
		require.Contains(t, NoticeText(told[len(told)-1]), want, "the session is told")
		count := len(asked)
		time.Sleep(5 * time.Hour)
		require.Len(t, asked, count, "it fires no more")
	})
}

// A schedule outlives the end of its session.
func TestScheduleOutlivesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{EndSession: EndAll})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		require.NoError(t, m.EndSession(t.Context(), alice))
		time.Sleep(time.Hour + time.Minute)
		require.Len(t, firings(t, m, s), 1)
	})
}
