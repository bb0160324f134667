package background

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// two returns two managers that share one engine. While cut is true, the heartbeats of
// the first one do not reach the engine.
func two(t *testing.T, cfg Config) (a, b *Manager, cut *atomic.Bool) {
	t.Helper()
	cut = new(atomic.Bool)
	shared := memory.New()
	cfg.Logger = logTo(new(testlog.Buffer))
	first, second := cfg, cfg
	first.Engine = &hookEngine{Engine: shared, before: func(method string) error {
		if method == "renew" && cut.Load() {
			return context.DeadlineExceeded
		}
		return nil
	}}
	second.Engine = shared
	return newManager(t, first), newManager(t, second), cut
}

// Each queued run is claimed by one worker, and the limits of a session apply across
// both workers.
func TestWorkersShareTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ran := map[string]int{}
		running, most := 0, 0
		a, b, _ := two(t, Config{PerSession: 3, PerHost: 2, PerOwner: 10, Executor: func(_ context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
			mu.Lock()
			ran[run.ID]++
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return Outcome{}, nil
		}})
		for i := range 40 {
			fired(t, []*Manager{a, b}[i%2], alice, "tool", "")
		}
		time.Sleep(time.Minute)

		mu.Lock()
		defer mu.Unlock()
		require.Len(t, ran, 40)
		for id, times := range ran {
			require.Equal(t, 1, times, id)
		}
		require.Equal(t, 3, most, "of one session")
	})
}

// A worker whose lease has ended stops its work and changes nothing more, and another
// worker takes over its runs.
func TestLeaseThatEndsIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts sync.Map
		a, b, cut := two(t, Config{Readmit: yes, Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			if run.Attempt > 1 {
				return Outcome{Result: json.RawMessage(`"right"`)}, nil
			}
			<-ctx.Done()
			attempts.Store(run.Attempt, context.Cause(ctx))
			_, _ = sink.Stdout().Write([]byte("zombie"))
			return Outcome{Result: json.RawMessage(`"zombie"`)}, nil
		}})
		id := spawned(t, a, alice, "tool")
		cut.Store(true)
		began := time.Now()
		run := wait(t, a, alice, id)
		require.LessOrEqual(t, time.Since(began), engine.DefaultTTL+2*HeartbeatEvery)
		cause, _ := attempts.Load(1)
		require.ErrorIs(t, cause.(error), engine.ErrFenced)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.Equal(t, 2, run.Attempt)
		require.JSONEq(t, `"right"`, string(run.Result), "the old attempt changes nothing")
		require.Empty(t, must(b.Tail(t.Context(), alice, id, 0, 100)).Data)

		cut.Store(false)
		time.Sleep(2 * HeartbeatEvery)
		require.Equal(t, engine.StatusSucceeded, wait(t, a, alice, spawn(t, a, alice, "tool2").ID).Status, "it has joined again")
	})
}

// A run of a dead worker is not run again by another one if its tool does not allow
// that.
func TestOrphanOfAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, cut := two(t, Config{Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
			<-ctx.Done()
			return Outcome{}, ctx.Err()
		}})
		id := spawned(t, a, alice, "tool")
		cut.Store(true)
		run := wait(t, b, alice, id)
		require.Equal(t, engine.KindOrphaned, run.Error.Kind)
		require.Equal(t, 1, run.Attempt)
	})
}

// A run can be checked, awaited, read and stopped through another worker than the one
// that works on it.
func TestRunOfAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := two(t, Config{Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			_, _ = sink.Stdout().Write([]byte("working\n"))
			sink.Status("busy")
			return script(ctx, run, sink)
		}})
		slept := spawn(t, a, alice, "second").ID
		began := time.Now()
		report := check(t, b, alice, CheckRequest{IDs: []string{slept}, Wait: time.Minute})
		require.Equal(t, time.Second, time.Since(began), "it is waited for")
		require.True(t, report.Final())
		require.JSONEq(t, `"slept"`, string(report.Result))

		id := spawned(t, a, alice, "deaf")
		time.Sleep(100 * time.Millisecond)
		report = check(t, b, alice, CheckRequest{IDs: []string{id}})
		require.Equal(t, []string{"running", "busy", "working\n"}, []string{string(report.Status), report.Detail, report.Output.Text})
		require.Equal(t, "working\n", string(must(b.Tail(t.Context(), alice, id, 0, 100)).Data))

		began = time.Now()
		stopped, err := b.Stop(t.Context(), alice, id, StopRequest{Reason: "enough"})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status, "its work has ended")
		require.Equal(t, DefaultGrace, time.Since(began))
		require.Equal(t, "enough", must(a.Get(t.Context(), alice, id)).Cancel.Reason)

		polite := spawned(t, a, alice, "sleep")
		began = time.Now()
		require.Equal(t, engine.StatusCanceled, must(b.Stop(t.Context(), alice, polite, StopRequest{})).Status)
		require.LessOrEqual(t, time.Since(began), time.Second)

		forced := spawned(t, a, alice, "deaf")
		began = time.Now()
		require.Equal(t, engine.StatusCanceled, must(b.Stop(t.Context(), alice, forced, StopRequest{Force: true})).Status)
		require.Less(t, time.Since(began), time.Second, "it has no grace period there either")

		forced = spawned(t, a, alice, "deaf")
		asked := make(chan engine.Run)
		go func() { asked <- must(b.Stop(t.Context(), alice, forced, StopRequest{})) }()
		synctest.Wait()
		began = time.Now()
		require.Equal(t, engine.StatusCanceled, must(b.Stop(t.Context(), alice, forced, StopRequest{Force: true})).Status)
		require.Less(t, time.Since(began), time.Second, "a later request can force the end")
		require.Equal(t, engine.StatusCanceled, (<-asked).Status)
	})
}

// One of several workers hands out a notice. If it dies before the notice is
// acknowledged, another one hands it out.
func TestNoticesOfSeveralWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var box mailbox
		a, b, cut := two(t, Config{OnNotice: box.put})
		ids := []string{spawned(t, a, alice, "echo"), spawned(t, b, alice, "echo"), spawned(t, a, alice, "echo")}
		time.Sleep(time.Minute)
		require.ElementsMatch(t, ids, box.ids(), "each once")

		require.NoError(t, b.Acknowledge(t.Context(), alice, ids))
		cut.Store(true)
		time.Sleep(2 * engine.DefaultTTL)
		require.Len(t, box.ids(), 3)
	})
}

// Several workers together fire a schedule once for each due time.
func TestScheduleOfSeveralWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := two(t, Config{})
		s := newSchedule(t, a, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "*/10 * * * *"})
		time.Sleep(61 * time.Minute)
		require.Len(t, firings(t, b, s), 6)
		require.Equal(t, 6, reread(t, b, s).Fired)
	})
}

// If the answer to a start is lost, the run is queued again, not left behind.
func TestStartWhoseAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Bool
		e := hooked(nil)
		e.after = func(method string) error {
			if method == "start" && lost.CompareAndSwap(false, true) {
				return errors.New("connection reset")
			}
			return nil
		}
		m := newManager(t, Config{Engine: e, Readmit: yes, Logger: logTo(new(testlog.Buffer))})
		run := wait(t, m, alice, spawn(t, m, alice, "echo").ID)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.Equal(t, 2, run.Attempt, "the first did nothing")
	})
}

// Two spawns with the same idempotency key, at two workers, result in one run.
func TestIdempotencyKeyAtTwoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := two(t, Config{})
		req := SpawnRequest{Tool: "second", IdempotencyKey: "k"}
		first := must(a.Spawn(t.Context(), alice, req))
		second := must(b.Spawn(t.Context(), alice, req))
		require.True(t, second.Reused)
		require.Equal(t, first.ID, second.ID)
		require.Equal(t, engine.StatusSucceeded, wait(t, b, alice, first.ID).Status)
	})
}

// One host is updated while others are not: each run is executed by a host that has its
// version, and a run whose version no host has any more is rejected after a while.
func TestWorkersHaveVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New()
		var versions [2]atomic.Pointer[string]
		host := func(i int, version string) *Manager {
			versions[i].Store(&version)
			return newManager(t, Config{
				Engine: shared, PerHost: 1, Patience: 5 * time.Minute,
				Offer: func() engine.Offer {
					return engine.Offer{Tools: map[string]string{"tool": *versions[i].Load()}}
				},
				Readmit: func(_ context.Context, run engine.Run) error {
					if run.Version != *versions[i].Load() {
						return &Error{Kind: engine.KindRejected, Message: "the plugin was replaced"}
					}
					return nil
				},
				Executor: func(_ context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
					time.Sleep(time.Second)
					return Outcome{Summary: run.Version + " at " + *versions[i].Load()}, nil
				},
			})
		}
		old, updated := host(0, "v1"), host(1, "v2")
		queued := func(m *Manager, version string) string {
			run, err := m.newRun(alice, SpawnRequest{Tool: "tool", Version: version})
			require.NoError(t, err)
			require.NoError(t, m.admission.enqueue(t.Context(), run))
			return run.ID
		}
		ended := func(id string) string {
			run := wait(t, old, alice, id)
			if run.Error != nil {
				return run.Error.Message
			}
			return run.Summary
		}

		var ids []string
		for i := range 6 {
			ids = append(ids, queued([]*Manager{old, updated}[i%2], []string{"v2", "v1"}[i%2]))
		}
		for i, id := range ids {
			require.Equal(t, []string{"v2 at v2", "v1 at v1"}[i%2], ended(id))
		}

		version := "v2"
		last := queued(updated, "v3")
		busy, late := queued(old, "v1"), queued(old, "v1")
		synctest.Wait()
		versions[0].Store(&version)
		require.NoError(t, old.Reoffer(t.Context()))
		require.Equal(t, "v1 at v2", ended(busy), "it had begun")
		began := time.Now()
		require.Equal(t, "the plugin was replaced", ended(late))
		require.WithinDuration(t, began.Add(5*time.Minute), time.Now(), 2*HeartbeatEvery)
		require.Equal(t, "the plugin was replaced", ended(last))

		version3 := "v3"
		next := queued(updated, "v3")
		synctest.Wait()
		require.Equal(t, engine.StatusQueued, status(t, old, alice, next))
		versions[0].Store(&version3)
		began = time.Now()
		require.NoError(t, old.Reoffer(t.Context()))
		require.Equal(t, "v3 at v3", ended(next))
		require.WithinDuration(t, began.Add(time.Second), time.Now(), 0, "at once")
	})
}

// A run that is spawned at a full host is executed by a host that has a free slot.
func TestSpawnAtAFullHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var where sync.Map
		shared := memory.New()
		host := func(name string, tools ...string) *Manager {
			offer := engine.Offer{Tools: map[string]string{}, Places: 1}
			for _, tool := range tools {
				offer.Tools[tool] = "v1"
			}
			return newManager(t, Config{
				Engine: shared, PerHost: 1, PerOwner: 10, PerSession: 2, Readmit: yes, Patience: time.Minute,
				Offer: func() engine.Offer { return offer },
				Executor: func(_ context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
					where.Store(run.ID, name)
					time.Sleep(time.Second)
					return Outcome{}, nil
				},
			})
		}
		a, b := host("a", "tool", "own"), host("b", "tool")
		spawn := func(session, tool string) (string, error) {
			result, err := a.Spawn(t.Context(), session, SpawnRequest{Tool: tool, Version: "v1"})
			synctest.Wait()
			return result.ID, err
		}
		at := func(id string, err error) any {
			require.NoError(t, err)
			require.Equal(t, engine.StatusSucceeded, wait(t, b, alice, id).Status)
			name, _ := where.Load(id)
			return name
		}

		first, err := spawn(alice, "tool")
		require.NoError(t, err)
		_, err = spawn(alice, "own")
		require.ErrorIs(t, err, ErrHostLimit, "the other host does not have it")
		second, err := spawn(alice, "tool")
		require.NoError(t, err)
		_, err = spawn(bob, "tool")
		require.ErrorIs(t, err, ErrHostLimit, "both are full")
		require.Equal(t, "a", at(first, nil))
		require.Equal(t, "b", at(second, nil))

		_, err = spawn(alice, "tool")
		require.NoError(t, err)
		_, err = a.Spawn(t.Context(), bob, SpawnRequest{Tool: "tool", Version: "v1", Args: json.RawMessage(`{"key":"secret"}`), Stored: json.RawMessage(`{}`)})
		require.ErrorIs(t, err, ErrHostLimit, "its arguments are known here only")
		_, err = spawn(alice, "tool")
		require.NoError(t, err)
		_, err = spawn(alice, "tool")
		require.ErrorIs(t, err, ErrHostLimit)
		time.Sleep(time.Minute)
	})
}
