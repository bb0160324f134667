package enginetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func takeover(t *testing.T, e *store) {
	e.mortal(t)
	queue(t, e, "bg_first", "s")
	lease := started(t, e, "bg_first")
	adopted := newRun("bg_second", "s")
	adopted.Origin = engine.OriginParked
	_, err := e.Adopt(t.Context(), adopted)
	require.NoError(t, err)
	require.NoError(t, lease.Append(t.Context(), 0, []byte("so far")))
	require.Empty(t, orphans(t, e.worker), "their worker lives")

	dead := e.dies(t)
	news, err := e.worker.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, news.Orphans)
	runs, err := e.worker.Orphans(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "bg_first", ids(runs), "up to max, the oldest first")
	require.Equal(t, 1, runs[0].Attempt)
	require.Equal(t, "bg_second", orphans(t, e.worker))
	require.Empty(t, orphans(t, e.worker), "they are taken")
	news, err = e.worker.Renew(t.Context(), map[string]engine.Beat{"bg_first": {}, "bg_second": {}})
	require.NoError(t, err)
	require.Equal(t, engine.Renewal{}, news)
	fenced(t, e, dead, lease, "bg_first")

	ended, err := e.Abandon(t.Context(), "bg_first", 1, engine.StatusFailed, engine.Beat{}, engine.End{FinishedAt: time.Now()})
	require.NoError(t, err)
	require.EqualValues(t, len("so far"), ended.OutputBytes)
	require.Equal(t, "so far", artifact(t, e, "bg_first", engine.OutputLog))
	require.NoError(t, e.Requeue(t.Context(), "bg_second", 1))
	require.Equal(t, 2, started(t, e, "bg_second").Run().Attempt)
}

func leave(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	lease := started(t, e, "bg_a")
	left := e.worker
	e.join(t, engine.WorkerInfo{TTL: forever})
	require.NoError(t, left.Leave(t.Context()), "twice")
	fenced(t, e, left, lease, "bg_a")
	require.Equal(t, "bg_a", orphans(t, e.worker), "at once")
	fenced(t, e, left, lease, "bg_a")
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
}

// fenced tries every write of a worker whose lease has ended.
func fenced(t *testing.T, e *store, w engine.Worker, l engine.Lease, id string) {
	t.Helper()
	ctx, before, log := t.Context(), get(t, e, id), read(t, e, id)
	end := engine.End{Summary: "zombie", FinishedAt: time.Now()}
	for name, write := range map[string]func() error{
		"submit":  func() error { return w.Submit(ctx, newRun("bg_zombie", "s"), nil) },
		"claimed": func() error { return w.Submit(ctx, newRun("bg_zombie", "s"), &everything) },
		"adopt":   func() error { _, err := w.Adopt(ctx, newRun("bg_zombie", "s"), everything); return err },
		"claim":   func() error { _, err := w.Claim(ctx, 1, everything); return err },
		"start":   func() error { _, err := w.Start(ctx, id); return err },
		"renew":   func() error { _, err := w.Renew(ctx, map[string]engine.Beat{id: {Detail: "zombie"}}); return err },
		"orphans": func() error { _, err := w.Orphans(ctx, 1); return err },
		"requeue": func() error { return w.Requeue(ctx, id, before.Attempt) },
		"abandon": func() error {
			_, err := w.Abandon(ctx, id, before.Attempt, engine.StatusFailed, engine.Beat{}, end)
			return err
		},
		"notices":  func() error { _, err := w.Notices(ctx, 1); return err },
		"report":   func() error { return l.Report(ctx, engine.Beat{Detail: "zombie"}) },
		"append":   func() error { return l.Append(ctx, int64(len(log)), []byte("zombie")) },
		"save":     func() error { return l.Save(ctx, []byte("zombie")) },
		"complete": func() error { _, err := l.Complete(ctx, engine.StatusSucceeded, engine.Beat{}, end); return err },
	} {
		require.ErrorIs(t, write(), engine.ErrFenced, name)
	}
	same(t, before, get(t, e, id))
	require.Equal(t, log, read(t, e, id))
	require.ErrorIs(t, get1(t, e, "bg_zombie"), engine.ErrNotFound)
}

func claimNotStarted(t *testing.T, e *store) {
	e.mortal(t)
	submit(t, e, "bg_a", "s")
	queue(t, e, "bg_b", "s")
	require.Equal(t, "bg_b", claimUpTo(t, e.worker, 10, everything))
	dead := e.dies(t)
	news, err := e.worker.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, news.Queued)
	require.False(t, news.Orphans)
	require.Empty(t, orphans(t, e.worker))
	require.Equal(t, "bg_a bg_b", claimUpTo(t, e.worker, 10, everything))
	_, err = dead.Start(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrFenced)
	require.Equal(t, 1, started(t, e, "bg_a").Run().Attempt, "it was never started")

	e.join(t, engine.WorkerInfo{TTL: forever})
	require.Equal(t, "bg_b", claimUpTo(t, e.worker, 10, everything))
	require.Equal(t, "bg_a", orphans(t, e.worker))
}

func permits(t *testing.T, e *store) {
	p := engine.Permits{Session: 2, Owner: 3}
	limit(t, e, 1<<30, 1<<30) // sessions with the same first letter have one owner
	for i, session := range []string{"s1", "s1", "s1", "s2", "s2", "x"} {
		queue(t, e, fmt.Sprintf("bg_%d", i), session)
	}
	require.Equal(t, "bg_0 bg_1 bg_3 bg_5", claimUpTo(t, e.worker, 10, p))
	require.Empty(t, claimUpTo(t, e.worker, 10, p))

	var limited *engine.LimitError
	err := e.worker.Submit(t.Context(), newRun("bg_6", "s1"), &p)
	require.ErrorIs(t, err, engine.ErrSessionLimit)
	require.ErrorAs(t, err, &limited)
	require.Equal(t, 2, limited.Max)
	require.Equal(t, []string{"bg_0", "bg_1"}, limited.Active)
	err = e.worker.Submit(t.Context(), newRun("bg_6", "s2"), &p)
	require.ErrorIs(t, err, engine.ErrOwnerLimit)
	require.ErrorAs(t, err, &limited)
	require.Equal(t, 3, limited.Max)
	require.ErrorIs(t, get1(t, e, "bg_6"), engine.ErrNotFound)
	require.NoError(t, e.worker.Submit(t.Context(), newRun("bg_6", "s2"), nil), "the queue takes it")

	complete(t, started(t, e, "bg_0"), engine.StatusSucceeded)
	require.Equal(t, "bg_2", claimUpTo(t, e.worker, 10, p), "one that ended gives its permit back")
	require.NoError(t, e.Requeue(t.Context(), "bg_1", 0))
	require.NoError(t, e.worker.Submit(t.Context(), newRun("bg_7", "s2"), &p), "so does one that was given back")
	_, err = e.Cancel(t.Context(), "bg_2", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)
	require.Equal(t, "bg_1", claimUpTo(t, e.worker, 10, p), "and one that was canceled")

	won := race(20, func(i int) error {
		return e.worker.Submit(t.Context(), newRun(fmt.Sprintf("bg_r%d", i), "r"), &p)
	})
	require.Equal(t, 2, won)
}

func permitsParked(t *testing.T, e *store) {
	p := engine.Permits{Session: 1, Parked: 2, Owner: 3}
	adopt := func(id, session string) error {
		run := newRun(id, session)
		run.Origin = engine.OriginParked
		_, err := e.worker.Adopt(t.Context(), run, p)
		return err
	}
	require.NoError(t, e.worker.Submit(t.Context(), newRun("bg_a", "s"), &p))
	require.NoError(t, adopt("bg_b", "s"), "parked calls are counted apart")
	require.NoError(t, adopt("bg_c", "s"))
	err := adopt("bg_d", "s")
	require.ErrorIs(t, err, engine.ErrParkedLimit)
	var limited *engine.LimitError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, []string{"bg_b", "bg_c"}, limited.Active)
	p.Parked = 0
	require.ErrorIs(t, adopt("bg_d", "s"), engine.ErrOwnerLimit, "they count for their owner")
	p.Owner = 0
	require.NoError(t, adopt("bg_d", "s"), "0 is no limit")
}

func keys(t *testing.T, e *store) {
	keyed := func(id, session string) error {
		run := newRun(id, session)
		run.IdempotencyKey = "key"
		return e.Submit(t.Context(), run)
	}
	require.NoError(t, keyed("bg_a", "s"))
	var exists *engine.ExistsError
	require.ErrorAs(t, keyed("bg_b", "s"), &exists)
	require.Equal(t, "bg_a", exists.ID)
	require.ErrorIs(t, keyed("bg_b", "s"), engine.ErrExists)
	require.NoError(t, keyed("bg_b", "other"), "keys are a session's own")
	run := newRun("bg_c", "s")
	run.IdempotencyKey = "key"
	_, err := e.Adopt(t.Context(), run)
	require.ErrorAs(t, err, &exists)
	full := engine.Permits{Session: 1}
	require.ErrorAs(t, e.worker.Submit(t.Context(), run, &full), &exists, "also without a permit left")

	complete(t, started(t, e, "bg_a"), engine.StatusSucceeded)
	require.ErrorAs(t, keyed("bg_c", "s"), &exists, "as long as there is its record")
	_, err = e.Prune(t.Context(), engine.Retention{Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.NoError(t, keyed("bg_c", "s"))
}

func renew(t *testing.T, e *store) {
	e.mortal(t)
	submit(t, e, "bg_a", "s")
	submit(t, e, "bg_b", "s")
	lease := started(t, e, "bg_a")
	started(t, e, "bg_b")
	_, err := e.Cancel(t.Context(), "bg_b", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)
	for range 5 {
		time.Sleep(engine.DefaultTTL - time.Second)
		news, err := e.worker.Renew(t.Context(), map[string]engine.Beat{"bg_a": {Detail: "half"}, "bg_x": {}})
		require.NoError(t, err)
		require.Equal(t, []string{"bg_b"}, news.Strays, "a start whose answer was lost")
		require.Equal(t, []string{"bg_b"}, news.Stops, "until it has ended")
		require.True(t, get(t, e, "bg_a").HeartbeatAt.Equal(time.Now()))
		require.Equal(t, "half", get(t, e, "bg_a").Detail)
	}
	_, err = e.Abandon(t.Context(), "bg_b", 1, engine.StatusCanceled, engine.Beat{}, engine.End{FinishedAt: time.Now()})
	require.NoError(t, err)
	queue(t, e, "bg_c", "s")
	news, err := e.worker.Renew(t.Context(), map[string]engine.Beat{"bg_a": {}})
	require.NoError(t, err)
	require.Equal(t, engine.Renewal{Queued: true, Notices: true}, news)

	time.Sleep(engine.DefaultTTL)
	_, err = e.worker.Renew(t.Context(), nil)
	require.ErrorIs(t, err, engine.ErrFenced)
	require.ErrorIs(t, lease.Append(t.Context(), 0, []byte("late")), engine.ErrFenced, "though nobody has taken it over")
	require.Equal(t, engine.StatusRunning, get(t, e, "bg_a").Status)
}

// eventsOfWorkers: workers see changes by other workers.
func eventsOfWorkers(t *testing.T, e *store) {
	other := joined(t, e, engine.WorkerInfo{TTL: forever})
	feed := e.Watch(t.Context(), "")
	queue(t, e, "bg_a", "s")
	require.Equal(t, "queued bg_a queued", took(t, feed))
	require.Equal(t, "bg_a", claimUpTo(t, other, 1, everything))
	lease, err := other.Start(t.Context(), "bg_a")
	require.NoError(t, err)
	require.NoError(t, lease.Append(t.Context(), 0, []byte("elsewhere")))
	require.Equal(t, "elsewhere", read(t, e, "bg_a"))
	require.Equal(t, "started bg_a running", took(t, feed))

	_, err = e.Cancel(t.Context(), "bg_a", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)
	require.Equal(t, "stopping bg_a running", took(t, feed))
	news, err := other.Renew(t.Context(), map[string]engine.Beat{"bg_a": {}})
	require.NoError(t, err)
	require.Equal(t, []string{"bg_a"}, news.Stops, "events may be lost")
	news, err = e.worker.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, engine.Renewal{}, news, "it is not its run")
	complete(t, lease, engine.StatusCanceled)
	require.Equal(t, "ended bg_a canceled", took(t, feed))
}

func oneWorker(t *testing.T, e *store) {
	if !e.single {
		joined(t, e, engine.WorkerInfo{})
		return
	}
	_, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.ErrorIs(t, err, engine.ErrLocked)
	submit(t, e, "bg_a", "s")
	e.mortal(t)
	time.Sleep(engine.DefaultTTL - time.Second)
	_, err = e.Join(t.Context(), engine.WorkerInfo{})
	require.ErrorIs(t, err, engine.ErrLocked)
	time.Sleep(time.Second)
	joined(t, e, engine.WorkerInfo{})
}

func claimWorkers(t *testing.T, e *store) {
	workers := []engine.Worker{e.worker, joined(t, e, engine.WorkerInfo{}), joined(t, e, engine.WorkerInfo{})}
	const runs = 60
	for i := range runs {
		queue(t, e, fmt.Sprintf("bg_%d", i), "s")
	}
	taken := make(chan string, runs)
	race(30, func(i int) error {
		w := workers[i%len(workers)]
		claimed, err := w.Claim(t.Context(), 7, everything)
		for _, r := range claimed {
			if _, err := w.Start(t.Context(), r.ID); err != nil {
				t.Error(err)
			}
			taken <- r.ID
		}
		return err
	})
	require.Len(t, taken, runs, "each once")
	for i := range runs {
		require.Equal(t, 1, get(t, e, fmt.Sprintf("bg_%d", i)).Attempt)
	}

	queue(t, e, "bg_mine", "s")
	require.Equal(t, "bg_mine", claimUpTo(t, workers[1], 1, everything))
	require.Empty(t, claimUpTo(t, workers[0], 1, everything))
	_, err := workers[0].Start(t.Context(), "bg_mine")
	require.ErrorIs(t, err, engine.ErrFenced)
	require.ErrorIs(t, workers[0].Requeue(t.Context(), "bg_mine", 0), engine.ErrFenced)
	_, err = workers[0].Abandon(t.Context(), "bg_mine", 0, engine.StatusFailed, engine.Beat{}, engine.End{})
	require.ErrorIs(t, err, engine.ErrFenced)
	require.NoError(t, workers[1].Requeue(t.Context(), "bg_mine", 0))
	require.Equal(t, "bg_mine", claimUpTo(t, workers[0], 1, everything))
}

func permitsWorkers(t *testing.T, e *store) {
	p := engine.Permits{Session: 5, Owner: 8}
	workers := []engine.Worker{e.worker, joined(t, e, engine.WorkerInfo{}), joined(t, e, engine.WorkerInfo{})}
	won := race(60, func(i int) error {
		return workers[i%3].Submit(t.Context(), newRun(fmt.Sprintf("bg_%d", i), "s"), &p)
	})
	require.Equal(t, 5, won)
	for i := range 10 {
		queue(t, e, fmt.Sprintf("bg_q%d", i), "q")
	}
	race(9, func(i int) error { _, err := workers[i%3].Claim(t.Context(), 2, p); return err })
	require.Empty(t, claimUpTo(t, workers[0], 10, p))
	require.Len(t, claimed(t, e, "q"), 5)
	require.NoError(t, workers[1].Leave(t.Context()))
	race(9, func(i int) error { _, err := workers[i%3].Claim(t.Context(), 2, p); return err })
	require.Len(t, claimed(t, e, "q"), 5, "what a worker had claimed is free again")
}

// claimed returns the runs of a session that hold permits, as named by a
// refusal.
func claimed(t *testing.T, e *store, session string) []string {
	t.Helper()
	var limited *engine.LimitError
	err := e.worker.Submit(t.Context(), newRun("bg_refused", session), &engine.Permits{Session: 1})
	require.ErrorAs(t, err, &limited)
	return limited.Active
}

func orphansRace(t *testing.T, e *store) {
	e.mortal(t)
	for i := range 20 {
		id := fmt.Sprintf("bg_%d", i)
		submit(t, e, id, "s")
		started(t, e, id)
	}
	e.dies(t)
	other := joined(t, e, engine.WorkerInfo{TTL: forever})
	for range 4 {
		time.Sleep(engine.DefaultTTL)
		_, err := other.Renew(t.Context(), nil)
		require.NoError(t, err)
	}
	taken := make(chan string, 100)
	race(20, func(i int) error {
		w := []engine.Worker{e.worker, other}[i%2]
		runs, err := w.Orphans(t.Context(), 3)
		for _, r := range runs {
			taken <- r.ID
			if err := w.Requeue(t.Context(), r.ID, 1); err != nil {
				t.Error(err)
			}
		}
		return err
	})
	require.Len(t, taken, 20, "each once")
}

func deadClaims(t *testing.T, e *store) {
	other := joined(t, e, engine.WorkerInfo{})
	queue(t, e, "bg_a", "s")
	p := engine.Permits{Session: 1}
	require.Equal(t, "bg_a", claimUpTo(t, other, 1, p))
	require.Empty(t, claimUpTo(t, e.worker, 1, p))
	time.Sleep(engine.DefaultTTL)
	news, err := e.worker.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, news.Queued)
	require.Equal(t, "bg_a", claimUpTo(t, e.worker, 1, p), "and its permit came free")
	_, err = other.Start(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrFenced)

	other = joined(t, e, engine.WorkerInfo{TTL: forever})
	require.NoError(t, other.Submit(t.Context(), newRun("bg_b", "s"), &everything))
	feed := e.Watch(t.Context(), "")
	require.NoError(t, other.Leave(t.Context()))
	require.Equal(t, "queued bg_b queued", took(t, feed))
	require.Equal(t, "bg_b", claimUpTo(t, e.worker, 1, everything))
}

func noticesWorkers(t *testing.T, e *store) {
	other := joined(t, e, engine.WorkerInfo{})
	for _, id := range []string{"bg_a", "bg_b", "bg_c"} {
		submit(t, e, id, "s")
		complete(t, started(t, e, id), engine.StatusSucceeded)
	}
	require.Equal(t, "bg_a bg_b", taken(t, other, 2))
	require.Equal(t, "bg_c", taken(t, e.worker, 10))
	require.Empty(t, taken(t, other, 10))
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_a"}))
	news, err := e.worker.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, news.Notices)

	time.Sleep(engine.DefaultTTL)
	news, err = e.worker.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, news.Notices)
	require.Equal(t, "bg_b", taken(t, e.worker, 10), "its taker is dead, and it was not acknowledged")
}

func keysWorkers(t *testing.T, e *store) {
	workers := []engine.Worker{e.worker, joined(t, e, engine.WorkerInfo{})}
	won := race(20, func(i int) error {
		run := newRun(fmt.Sprintf("bg_%d", i), "s")
		run.IdempotencyKey = "key"
		return workers[i%2].Submit(t.Context(), run, nil)
	})
	require.Equal(t, 1, won)
	runs, err := e.List(t.Context(), engine.Query{Session: "s", IdempotencyKey: "key"})
	require.NoError(t, err)
	require.Len(t, runs, 1)
}
