package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// fired queues a run of a tool, as the firing of a schedule does.
func fired(t *testing.T, m *Manager, session, tool, after string) string {
	t.Helper()
	run, err := m.newRun(session, SpawnRequest{Tool: tool})
	require.NoError(t, err)
	run.Origin = engine.OriginScheduled
	run.After = after
	require.NoError(t, m.admission.enqueue(t.Context(), run))
	synctest.Wait()
	return run.ID
}

func status(t *testing.T, m *Manager, session, id string) engine.Status {
	t.Helper()
	run, err := m.Get(t.Context(), session, id)
	require.NoError(t, err)
	return run.Status
}

func TestQueuedRunsStartInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		m := newManager(t, Config{PerSession: 1, PerHost: 2, Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			mu.Lock()
			order = append(order, run.Tool)
			mu.Unlock()
			return script(ctx, engine.Run{Tool: "second"}, sink)
		}})
		for _, c := range []struct{ session, tool string }{
			{alice, "a1"}, {alice, "a2"}, {alice, "a3"}, {bob, "b1"}, {"carol", "c1"}, {bob, "b2"},
		} {
			fired(t, m, c.session, c.tool, "")
		}
		require.Equal(t, []string{"a1", "b1"}, order, "the host has two places, each session one")
		require.Equal(t, Stats{Active: 2, PerHost: 2, Queued: 4, Spawned: 6, Failed: map[engine.ErrorKind]int64{}}, counts(m))
		_, err := m.Spawn(t.Context(), "dave", SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, ErrHostLimit, "a spawn overtakes nobody")
		began := time.Now()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, 3*time.Second, time.Since(began))
		slices.Sort(order[2:4]) // those of one moment
		slices.Sort(order[4:6])
		require.Equal(t, []string{"a1", "b1", "a2", "c1", "a3", "b2"}, order)
	})
}

func TestThousandsOfQueuedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most, ran := 0, 0, 0
		m := newManager(t, Config{PerSession: 3, PerHost: 10, Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			running--
			ran++
			mu.Unlock()
			return Outcome{}, nil
		}})
		for i := range 10_000 {
			run, err := m.newRun(fmt.Sprint(i%20), SpawnRequest{Tool: "tool"})
			require.NoError(t, err)
			require.NoError(t, m.admission.enqueue(t.Context(), run))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 10_000, ran)
		require.Equal(t, 10, most)
		require.Zero(t, m.Stats().Active+m.Stats().Queued)
	})
}

func TestStopOfAQueuedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 1})
		first, second, third := fired(t, m, alice, "sleep", ""), fired(t, m, alice, "sleep", ""), fired(t, m, alice, "sleep", "")
		require.Equal(t, engine.StatusQueued, status(t, m, alice, second))
		waited := make(chan engine.Run)
		go func() { waited <- wait(t, m, alice, second) }()
		synctest.Wait()
		began := time.Now()
		stopped, err := m.Stop(t.Context(), alice, second, StopRequest{Reason: "not needed"})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status)
		run := <-waited
		require.Equal(t, engine.StatusCanceled, run.Status)
		require.Equal(t, "not needed", run.Cancel.Reason)
		require.Zero(t, run.Attempt, "it never started")
		_, err = m.Stop(t.Context(), alice, first, StopRequest{})
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.Equal(t, engine.StatusRunning, status(t, m, alice, third), "the next one takes the place")
	})
}

func TestStopOfAQueuedRunWithoutItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBroken(memory.New())
		m := newManager(t, Config{Engine: store, PerSession: 1, Logger: logTo(new(testlog.Buffer))})
		first, second := fired(t, m, alice, "sleep", ""), fired(t, m, alice, "sleep", "")
		store.broken.Store(true)
		_, err := m.Stop(t.Context(), alice, second, StopRequest{})
		require.ErrorIs(t, err, errDisk, "another worker may start it")
		_, err = m.Stop(t.Context(), alice, first, StopRequest{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, engine.StatusQueued, must(store.Get(t.Context(), second)).Status)
		store.broken.Store(false)
		stopped, err := m.Stop(t.Context(), alice, second, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status)
		require.Equal(t, engine.StatusCanceled, must(store.Get(t.Context(), second)).Status)
		time.Sleep(HeartbeatEvery)
		synctest.Wait()
		require.Equal(t, engine.StatusCanceled, must(store.Get(t.Context(), first)).Status)
		require.Len(t, pendingOf(t, m, alice, 0), 1, "what the agent saw of the first was not stored")
	})
}

func TestAFiringWaitsForTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		first := fired(t, m, alice, "second", "")
		second := fired(t, m, alice, "second", first)
		third := fired(t, m, alice, "sleep", second)
		other := fired(t, m, alice, "echo", "bg_gone")
		require.Equal(t, engine.StatusQueued, status(t, m, alice, second), "there are permits, but it waits")
		require.Equal(t, engine.StatusSucceeded, status(t, m, alice, other), "a run that waits for nobody starts")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, engine.StatusRunning, status(t, m, alice, second))
		stopped, err := m.Stop(t.Context(), alice, third, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status, "also while it waits for another run")
		time.Sleep(time.Second)
		synctest.Wait()
	})
}

func TestARunIsFiredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		run, err := m.newRun(alice, SpawnRequest{Tool: "echo"})
		require.NoError(t, err)
		require.NoError(t, m.admission.enqueue(t.Context(), run))
		require.ErrorIs(t, m.admission.enqueue(t.Context(), run), engine.ErrExists)
		synctest.Wait()
		require.ErrorIs(t, m.admission.enqueue(t.Context(), run), engine.ErrExists)
		require.Equal(t, 1, len(ended(t, m, alice)))
	})
}

func TestReadmitAtTheStart(t *testing.T) {
	secret := errors.New("plugin at /srv/secret is gone")
	for name, c := range map[string]struct {
		readmit func(context.Context, engine.Run) error
		want    engine.RunError
	}{
		"admitted":     {func(context.Context, engine.Run) error { return nil }, engine.RunError{}},
		"asked nobody": {nil, engine.RunError{}},
		"typed error": {func(context.Context, engine.Run) error {
			return &Error{Kind: engine.KindRejected, Message: "no such tool"}
		}, engine.RunError{Kind: engine.KindRejected, Message: "no such tool"}},
		"other error": {func(context.Context, engine.Run) error { return secret }, engine.RunError{Kind: engine.KindRejected, Message: errRejected.Message}},
		"panic":       {func(context.Context, engine.Run) error { panic(secret) }, engine.RunError{Kind: engine.KindRejected, Message: errRejected.Message}},
	} {
		bubble(t, name, func(t *testing.T) {
			var log testlog.Buffer
			m := newManager(t, Config{Readmit: c.readmit, Logger: logTo(&log)})
			run := wait(t, m, alice, fired(t, m, alice, "echo", ""))
			if c.want.Kind == "" {
				require.Equal(t, engine.StatusSucceeded, run.Status)
				return
			}
			require.Equal(t, c.want, *run.Error)
			require.Zero(t, run.Attempt, "it was never started")
			require.NotContains(t, run.Error.Message, "secret")
			require.Contains(t, log.String(), "not admitted")
			require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, spawn(t, m, alice, "echo").ID).Status, "a spawn was checked at its door")
		})
	}
}
