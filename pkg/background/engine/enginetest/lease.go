package enginetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func claim(t *testing.T, e *store) {
	queue(t, e, "bg_a", "s")
	_, err := e.worker.Start(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrFenced, "nobody has claimed it")
	time.Sleep(time.Second)
	require.Equal(t, "bg_a", claimUpTo(t, e.worker, 10, everything))
	require.Empty(t, claimUpTo(t, e.worker, 10, everything), "it is claimed")
	require.Equal(t, engine.StatusQueued, get(t, e, "bg_a").Status)
	require.Zero(t, get(t, e, "bg_a").Attempt)

	lease := started(t, e, "bg_a")
	run := lease.Run()
	require.Equal(t, engine.StatusRunning, run.Status)
	require.Equal(t, 1, run.Attempt)
	require.True(t, run.StartedAt.Equal(time.Now()))
	require.True(t, run.HeartbeatAt.Equal(time.Now()))
	same(t, run, whole(t, e, "bg_a"))

	_, err = e.worker.Start(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrFenced, "while the lease lasts")
	require.Empty(t, claimUpTo(t, e.worker, 10, everything))
	complete(t, lease, engine.StatusFailed)
	_, err = e.worker.Start(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrFenced, "of a terminal run")
}

func claimOrder(t *testing.T, e *store) {
	for i := range 6 {
		queue(t, e, fmt.Sprintf("bg_%d", i), "s")
	}
	require.Equal(t, "bg_0 bg_1", claimUpTo(t, e.worker, 2, everything))
	complete(t, started(t, e, "bg_1"), engine.StatusSucceeded)
	require.Equal(t, "bg_2", claimUpTo(t, e.worker, 1, everything))
	require.NoError(t, e.Requeue(t.Context(), "bg_0", 0))
	_, err := e.Cancel(t.Context(), "bg_4", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)
	require.Equal(t, "bg_0 bg_3 bg_5", claimUpTo(t, e.worker, 10, everything), "the oldest first, also one that came back")
}

func claimAfter(t *testing.T, e *store) {
	for _, c := range []struct{ id, after string }{{"bg_1", ""}, {"bg_2", "bg_1"}, {"bg_3", "bg_2"}, {"bg_4", "bg_gone"}} {
		run := newRun(c.id, "s")
		run.After = c.after
		require.NoError(t, e.worker.Submit(t.Context(), run, nil))
	}
	require.Equal(t, "bg_1 bg_4", claimUpTo(t, e.worker, 10, everything), "one that is not there has ended")
	first := started(t, e, "bg_1")
	require.Empty(t, claimUpTo(t, e.worker, 10, everything), "it is still running")
	complete(t, first, engine.StatusFailed)
	require.Equal(t, "bg_2", claimUpTo(t, e.worker, 10, everything))
	_, err := e.Cancel(t.Context(), "bg_2", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)
	require.Equal(t, "bg_3", claimUpTo(t, e.worker, 10, everything))
}

func claimStale(t *testing.T, e *store) {
	e.mortal(t)
	queue(t, e, "bg_a", "s")
	old := started(t, e, "bg_a")
	dead := e.dies(t)
	require.Equal(t, "bg_a", orphans(t, e.worker))
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	next := started(t, e, "bg_a")
	require.Equal(t, 2, next.Run().Attempt)

	before := get(t, e, "bg_a")
	require.ErrorIs(t, old.Report(t.Context(), engine.Beat{Detail: "zombie"}), engine.ErrFenced)
	require.ErrorIs(t, old.Append(t.Context(), 0, []byte("zombie")), engine.ErrFenced)
	_, err := old.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Summary: "zombie"})
	require.ErrorIs(t, err, engine.ErrFenced)
	_, err = dead.Abandon(t.Context(), "bg_a", 2, engine.StatusFailed, engine.Beat{}, engine.End{Summary: "zombie"})
	require.ErrorIs(t, err, engine.ErrFenced)
	same(t, before, get(t, e, "bg_a"))
	require.Empty(t, read(t, e, "bg_a"))
	complete(t, next, engine.StatusSucceeded)
}

func extend(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	lease := started(t, e, "bg_a")
	time.Sleep(time.Second)
	started := get(t, e, "bg_a").HeartbeatAt
	beat := engine.Beat{Detail: "half", Narration: "Walking", Progress: &engine.Progress{Done: 1, Total: 2, Unit: "miles"}, OutputBytes: 7}
	require.NoError(t, lease.Report(t.Context(), beat))
	run := get(t, e, "bg_a")
	require.True(t, run.HeartbeatAt.Equal(started), "a report is no heartbeat")
	news, err := e.worker.Renew(t.Context(), map[string]engine.Beat{"bg_a": run.Beat})
	require.NoError(t, err)
	require.Equal(t, engine.Renewal{}, news)
	run = get(t, e, "bg_a")
	require.Equal(t, "half", run.Detail)
	require.Equal(t, "Walking", run.Narration)
	require.Equal(t, &engine.Progress{Done: 1, Total: 2, Unit: "miles"}, run.Progress)
	require.EqualValues(t, 7, run.OutputBytes)
	require.True(t, run.HeartbeatAt.Equal(time.Now()))
	require.Equal(t, engine.StatusRunning, run.Status)
}

func completeFinal(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	lease := started(t, e, "bg_a")
	end := engine.End{Summary: "no", Error: &engine.RunError{Kind: "trap", Message: "unreachable"}, FinishedAt: time.Now()}
	stored, err := lease.Complete(t.Context(), engine.StatusFailed, engine.Beat{OutputBytes: 5}, end)
	require.NoError(t, err)
	require.Equal(t, engine.StatusFailed, stored.Status)
	require.EqualValues(t, "trap", stored.Error.Kind)
	require.EqualValues(t, 5, stored.OutputBytes)
	same(t, stored, get(t, e, "bg_a"))

	_, err = lease.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{})
	require.ErrorIs(t, err, engine.ErrFenced)
	require.ErrorIs(t, lease.Report(t.Context(), engine.Beat{Detail: "late"}), engine.ErrFenced)
	require.ErrorIs(t, lease.Append(t.Context(), 0, []byte("late")), engine.ErrFenced)
	after, err := e.Cancel(t.Context(), "bg_a", engine.Cancellation{By: "late"})
	require.NoError(t, err)
	same(t, stored, after)
	same(t, stored, get(t, e, "bg_a"))
}

func completeRace(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	lease := started(t, e, "bg_a")
	var mu sync.Mutex // a lease is used by one goroutine at a time
	won := race(16, func(int) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := lease.Complete(context.Background(), engine.StatusSucceeded, engine.Beat{}, engine.End{})
		return err
	})
	require.Equal(t, 1, won)
}

func claimRace(t *testing.T, e *store) {
	e.mortal(t)
	claims := func(int) error {
		runs, err := e.worker.Claim(t.Context(), 1, everything)
		if err == nil && len(runs) == 0 {
			return engine.ErrFenced
		}
		return err
	}
	queue(t, e, "bg_a", "s")
	require.Equal(t, 1, race(16, claims))
	require.Equal(t, 1, race(16, func(int) error { _, err := e.worker.Start(t.Context(), "bg_a"); return err }))
	require.Equal(t, 1, get(t, e, "bg_a").Attempt)

	e.dies(t)
	taken := func(int) error {
		runs, err := e.worker.Orphans(t.Context(), 1)
		if err == nil && len(runs) == 0 {
			return engine.ErrFenced
		}
		return err
	}
	require.Equal(t, 1, race(16, taken), "of a stale one")
	require.Equal(t, 1, race(16, func(int) error { return e.Requeue(t.Context(), "bg_a", 1) }))
	require.Equal(t, 1, race(16, claims))
	require.Equal(t, 2, started(t, e, "bg_a").Run().Attempt)
}

func checkpoint(t *testing.T, e *store) {
	e.mortal(t)
	submit(t, e, "bg_a", "s")
	first := started(t, e, "bg_a")
	require.Nil(t, first.Checkpoint())
	data := []byte("page 1")
	require.NoError(t, first.Save(t.Context(), data))
	data[0] = 'X'
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	require.ErrorIs(t, first.Save(t.Context(), []byte("zombie")), engine.ErrFenced)

	second := started(t, e, "bg_a")
	require.Equal(t, "page 1", string(second.Checkpoint()))
	second.Checkpoint()[0] = 'X'
	require.Equal(t, "page 1", string(second.Checkpoint()))
	require.NoError(t, second.Save(t.Context(), []byte("page 2")))
	require.NoError(t, second.Save(t.Context(), []byte("page 3")))

	e.dies(t)
	require.Equal(t, "bg_a", orphans(t, e.worker))
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 2))
	third := started(t, e, "bg_a")
	require.Equal(t, "page 3", string(third.Checkpoint()))
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 3))
	require.Equal(t, "page 3", string(started(t, e, "bg_a").Checkpoint()), "it stays until there is another")
}

// fencing tries every write of a lease after every way to lose it.
func fencing(t *testing.T, e *store) {
	for name, lose := range map[string]func(id string, l engine.Lease) error{
		"left": func(id string, _ engine.Lease) error {
			e.join(t, engine.WorkerInfo{TTL: forever})
			return nil
		},
		"taken over": func(id string, _ engine.Lease) error {
			e.join(t, engine.WorkerInfo{TTL: forever})
			_, err := e.worker.Orphans(t.Context(), 1000)
			return err
		},
		"requeued": func(id string, _ engine.Lease) error { return e.Requeue(t.Context(), id, 1) },
		"abandoned": func(id string, _ engine.Lease) error {
			_, err := e.Abandon(t.Context(), id, 1, engine.StatusFailed, engine.Beat{}, engine.End{FinishedAt: time.Now()})
			return err
		},
		"completed": func(_ string, l engine.Lease) error {
			_, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{FinishedAt: time.Now()})
			return err
		},
	} {
		id := "bg_" + strings.ReplaceAll(name, " ", "_")
		submit(t, e, id, "s")
		l := started(t, e, id)
		require.NoError(t, l.Append(t.Context(), 0, []byte("mine")), name)
		require.NoError(t, lose(id, l), name)
		before, log := get(t, e, id), read(t, e, id)
		require.ErrorIs(t, l.Report(t.Context(), engine.Beat{Detail: "zombie"}), engine.ErrFenced, name)
		require.ErrorIs(t, l.Append(t.Context(), 4, []byte("zombie")), engine.ErrFenced, name)
		require.ErrorIs(t, l.Save(t.Context(), []byte("zombie")), engine.ErrFenced, name)
		_, err := l.Complete(t.Context(), engine.StatusCanceled, engine.Beat{}, engine.End{Summary: "zombie"})
		require.ErrorIs(t, err, engine.ErrFenced, name)
		same(t, before, get(t, e, id))
		require.Equal(t, log, read(t, e, id))
		require.Equal(t, 1, l.Run().Attempt, "a lease knows what it was")
	}
}
