package background

import (
	"context"
	"fmt"
	"strings"
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

func TestRunsThatEndedWithoutTheirEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBroken(memory.New())
		m := newManager(t, Config{Engine: store, PerSession: 1, Logger: logTo(new(testlog.Buffer))})
		store.broken.Store(true)
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, errDisk)
		require.Zero(t, m.admission.active(), "no record, no permit")
		store.broken.Store(false)

		id := spawned(t, m, alice, "second")
		store.broken.Store(true)
		run := wait(t, m, alice, id)
		require.Equal(t, engine.StatusSucceeded, run.Status, "a waiter learns the truth")
		require.Equal(t, engine.StatusRunning, must(store.Get(t.Context(), id)).Status)
		require.Equal(t, 1, len(ended(t, m, alice)))
		require.True(t, already(must(m.Stop(t.Context(), alice, id, StopRequest{}))))
		time.Sleep(time.Minute)
		store.broken.Store(false)
		time.Sleep(HeartbeatEvery)
		synctest.Wait()
		stored := payload(t, store, id)
		require.Equal(t, engine.StatusSucceeded, stored.Status, "it is stored as soon as that works")
		require.JSONEq(t, `"slept"`, string(stored.Result))
		require.True(t, stored.FinishedAt.Equal(run.FinishedAt))
		require.Equal(t, 1, stored.Attempt)
		require.Empty(t, m.runs.all())
	})
}

func TestOutputThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBroken(memory.New())
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer))})
		store.brokenLog.Store(true)
		run := wait(t, m, alice, spawn(t, m, alice, "echo").ID)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.Equal(t, "Part of the output could not be stored", run.ArtifactError)
	})
}

func TestClaimThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		store := newBroken(memory.New())
		m := newManager(t, Config{Engine: store, Logger: logTo(&log)})
		store.brokenStart.Store(true)
		id := spawned(t, m, alice, "echo")
		time.Sleep(time.Hour)
		require.Equal(t, engine.StatusQueued, status(t, m, alice, id), "it was acknowledged: it is not given up")
		require.Equal(t, 1, strings.Count(log.String(), "background run not started"), "it is said once")
		store.brokenStart.Store(false)
		time.Sleep(startAgain)
		synctest.Wait()
		run := must(store.Get(t.Context(), id))
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.Equal(t, 1, run.Attempt)
		require.Zero(t, m.admission.active())
	})
}

func TestStopOfARunThatCannotBeClaimed(t *testing.T) {
	for name, broken := range map[string]bool{"and its stop cannot be stored": true, "and its stop can be": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newBroken(memory.New())
				m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer))})
				store.brokenStart.Store(true)
				id := spawned(t, m, alice, "echo")
				time.Sleep(time.Minute)
				store.broken.Store(broken)
				stopped := must(m.Stop(t.Context(), alice, id, StopRequest{}))
				require.Equal(t, engine.StatusCanceled, stopped.Status)
				require.Equal(t, broken, stopped.Unsaved)
				store.broken.Store(false)
				time.Sleep(HeartbeatEvery)
				synctest.Wait()
				run := must(store.Get(t.Context(), id))
				require.Equal(t, engine.StatusCanceled, run.Status)
				require.Zero(t, run.Attempt, "it never started")
				require.Zero(t, m.admission.active())
			})
		})
	}
}

func TestCloseLeavesARunThatCannotBeClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBroken(memory.New())
		m, err := New(t.Context(), Config{Engine: store, Executor: script, Logger: logTo(new(testlog.Buffer))})
		require.NoError(t, err)
		store.brokenStart.Store(true)
		id := spawned(t, m, alice, "echo")
		time.Sleep(time.Minute)
		began := time.Now()
		require.NoError(t, m.Close(t.Context()))
		require.LessOrEqual(t, time.Since(began), startAgain)
		require.Equal(t, engine.StatusQueued, must(store.Get(t.Context(), id)).Status, "for the next start")
	})
}

// Every answer about an end that is not stored says so, until the end is stored.
func TestUnsavedEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBroken(memory.New())
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer))})
		id := spawned(t, m, alice, "second")
		store.broken.Store(true)

		began := time.Now()
		report := check(t, m, alice, CheckRequest{IDs: []string{id}, Wait: time.Minute})
		require.Equal(t, time.Second, time.Since(began), "the end is told when it comes")
		require.Equal(t, engine.StatusSucceeded, report.Status)
		require.JSONEq(t, `"slept"`, string(report.Result))
		require.True(t, report.Unsaved)
		require.False(t, report.Final())
		run := wait(t, m, alice, id)
		require.True(t, run.Unsaved)
		require.False(t, run.Final())
		stopped := must(m.Stop(t.Context(), alice, id, StopRequest{}))
		require.True(t, already(stopped) && stopped.Unsaved)
		require.True(t, must(m.List(t.Context(), engine.Query{Session: alice}))[0].Unsaved)
		require.True(t, must(m.List(t.Context(), engine.Query{Session: alice}))[0].Unsaved)

		time.AfterFunc(10*time.Second, func() { store.broken.Store(false) })
		began = time.Now()
		report = check(t, m, alice, CheckRequest{IDs: []string{id}, Wait: time.Minute})
		require.InDelta(t, 10*time.Second, time.Since(began), float64(HeartbeatEvery), "a second check waits for news")
		require.True(t, report.Final())
		require.False(t, report.Unsaved)
		require.False(t, must(m.Stop(t.Context(), alice, id, StopRequest{})).Unsaved)
		require.False(t, must(m.List(t.Context(), engine.Query{Session: alice}))[0].Unsaved)
		require.True(t, must(m.Get(t.Context(), alice, id)).Final())
	})
}

// A stop that could not be stored in time keeps the work from starting.
func TestStopBeforeTheStartWithoutItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBroken(memory.New())
		open := make(chan struct{})
		refuse := store.before
		store.before = func(method string) error {
			if method == "start" {
				<-open
			}
			return refuse(method)
		}
		var ran atomic.Bool
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)), Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			ran.Store(true)
			return Outcome{}, nil
		}})
		id := spawned(t, m, alice, "tool")
		store.broken.Store(true)
		time.AfterFunc(time.Second, func() {
			store.broken.Store(false)
			close(open)
		})
		stopped, err := m.Stop(t.Context(), alice, id, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status)
		require.False(t, ran.Load())
	})
}

func TestCallerLeavesDuringASpawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := newManager(t, Config{Engine: hooked(onFirst("submit", cancel))})
		s, err := m.Spawn(ctx, alice, SpawnRequest{Tool: "echo"})
		require.NoError(t, err, "what is begun is brought to its end")
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, s.ID).Status)
	})
}

func TestEarlierNoticesReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		earlier := p.queued(engine.Run{Tool: "echo"})
		_, err := p.engine.Cancel(t.Context(), earlier, engine.Cancellation{At: time.Now()}, canceled(time.Now()))
		require.NoError(t, err)
		time.Sleep(time.Second)
		var box mailbox
		var failed atomic.Bool
		engine := &hookEngine{Engine: p.crashed(), before: func(method string) error {
			if method == "notices" && failed.CompareAndSwap(false, true) {
				return errDisk
			}
			return nil
		}}
		m := newManager(t, Config{Engine: engine, OnNotice: box.put, Logger: logTo(new(testlog.Buffer))})
		now := spawned(t, m, alice, "echo")
		time.Sleep(HeartbeatEvery)
		synctest.Wait()
		require.Equal(t, []string{earlier, now}, box.ids(), "each once, in order")
	})
}

// If the start of a run that continues after a wait is stored but not confirmed, the run
// continues in another attempt.
func TestUnconfirmedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{Engine: memory.New()}
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)), Executor: steps(
			func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
				return Outcome{Suspend: &Suspension{State: []byte{1}, Wake: time.Now().Add(time.Hour)}}, nil
			},
			func(_ context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
				return value(fmt.Sprint(run.Attempt))
			},
		)})
		id := spawned(t, m, alice, "waits")
		synctest.Wait()
		require.Equal(t, engine.StatusWaiting, must(store.Get(t.Context(), id)).Status)

		store.start.Store(1)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		run := payload(t, store, id)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.JSONEq(t, "2", string(run.Result))
	})
}
