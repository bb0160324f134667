package background

import (
	"context"
	"errors"
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

// lossy is an engine that loses some of its answers.
type lossy struct {
	engine.Engine
	adopt, start, abandon, get atomic.Int32 // how many answers are lost from now on
	suspend                    atomic.Int32 // how many suspensions are not stored
}

func (e *lossy) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w, err := e.Engine.Join(ctx, info)
	return lossyWorker{w, e}, err
}

func (e *lossy) Get(ctx context.Context, id string) (engine.Run, error) {
	if e.get.Load() > 0 && e.get.Add(-1) >= 0 {
		return engine.Run{}, engine.ErrUnavailable
	}
	return e.Engine.Get(ctx, id)
}

type lossyWorker struct {
	engine.Worker
	of *lossy
}

func (w lossyWorker) Adopt(ctx context.Context, run engine.Run, p engine.Permits) (engine.Lease, error) {
	l, err := w.Worker.Adopt(ctx, run, p)
	if err == nil && w.of.adopt.Add(-1) >= 0 {
		return nil, engine.ErrUnavailable
	}
	return l, err
}

func (w lossyWorker) Start(ctx context.Context, id string) (engine.Lease, error) {
	l, err := w.Worker.Start(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case w.of.start.Add(-1) >= 0:
		return nil, engine.ErrUnavailable
	}
	return lossyLease{l, w.of}, nil
}

func (w lossyWorker) Abandon(ctx context.Context, id string, attempt int, s engine.Status, b engine.Beat, e engine.End) (engine.Run, error) {
	if w.of.abandon.Add(-1) >= 0 {
		return engine.Run{}, engine.ErrUnavailable
	}
	return w.Worker.Abandon(ctx, id, attempt, s, b, e)
}

type lossyLease struct {
	engine.Lease
	of *lossy
}

func (l lossyLease) Suspend(ctx context.Context, s engine.Suspension) (engine.Run, error) {
	if l.of.suspend.Add(-1) >= 0 {
		return engine.Run{}, engine.ErrUnavailable
	}
	return l.Lease.Suspend(ctx, s)
}

// A call whose parking is stored but not confirmed is not executed a second time.
func TestUnconfirmedParking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{Engine: memory.New()}
		var again atomic.Int32
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)), Readmit: func(context.Context, engine.Run) error { return nil },
			Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
				again.Add(1)
				return value(`"again"`)
			}})
		store.adopt.Store(1)
		ran := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: works(time.Minute)})
		require.False(t, ran.Parked)
		require.JSONEq(t, `"done"`, string(ran.Outcome.Result))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, again.Load(), "the work is done once")
		require.Empty(t, active(t, m, alice))
	})
}

// A run that is to be suspended while the engine is unavailable waits once the
// suspension can be stored.
func TestSuspensionWithoutItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{Engine: memory.New()}
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)), Executor: steps(
			func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
				return Outcome{Suspend: &Suspension{State: []byte{1}, Wake: time.Now().Add(time.Hour)}}, nil
			},
			func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return value(`"done"`) },
		)})
		store.suspend.Store(1)
		id := spawned(t, m, alice, "waits")
		time.Sleep(time.Minute)
		require.Equal(t, engine.StatusWaiting, must(store.Get(t.Context(), id)).Status)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, engine.StatusSucceeded, must(store.Get(t.Context(), id)).Status)
	})
}

// A notice whose run temporarily cannot be read is handed out later.
func TestNoticeReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{Engine: memory.New()}
		var box mailbox
		m := newManager(t, Config{Engine: store, OnNotice: box.put, Logger: logTo(new(testlog.Buffer))})
		id := spawn(t, m, alice, "second").ID
		synctest.Wait()
		store.get.Store(1)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{id}, box.ids())
	})
}

// The run of a firing that was missed for too long is not started, even if storing its end
// fails at first.
func TestMissedFiringStoredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{Engine: memory.New()}
		m, err := New(t.Context(), Config{Engine: store, Executor: script, Logger: logTo(new(testlog.Buffer))})
		require.NoError(t, err)
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: time.Now().Add(time.Hour)})
		require.NoError(t, m.Close(t.Context()))
		time.Sleep(1000 * time.Hour)
		store.abandon.Store(1)
		m = newManager(t, Config{Engine: store, Executor: script, Logger: logTo(new(testlog.Buffer))})
		time.Sleep(time.Hour)
		synctest.Wait()
		runs := firings(t, m, s)
		require.Len(t, runs, 1)
		require.Equal(t, engine.StatusFailed, runs[0].Status)
	})
}

// A run that was stopped just before it was queued again is not started again.
func TestStoppedRunIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		w, err := store.Join(t.Context(), engine.WorkerInfo{})
		require.NoError(t, err)
		run := engine.Run{ID: newID(runPrefix), Session: alice, Tool: "deaf", Args: []byte("{}"), CreatedAt: time.Now(), Timeout: time.Minute, OutputCap: 1 << 10}
		require.NoError(t, w.Submit(t.Context(), run, &engine.Permits{}))
		_, err = w.Start(t.Context(), run.ID)
		require.NoError(t, err)
		_, err = store.Cancel(t.Context(), run.ID, engine.Cancellation{At: time.Now(), By: "session"}, canceled(time.Now()))
		require.NoError(t, err)
		require.NoError(t, w.Requeue(t.Context(), run.ID, 1)) // it was about to
		require.NoError(t, w.Leave(t.Context()))

		var ran atomic.Int32
		m := newManager(t, Config{Engine: store, Readmit: func(context.Context, engine.Run) error { return nil }, Logger: logTo(new(testlog.Buffer)),
			Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
				ran.Add(1)
				<-ctx.Done()
				return Outcome{}, errors.New("stopped")
			}})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, engine.StatusCanceled, must(m.Get(t.Context(), alice, run.ID)).Status)
		require.Zero(t, ran.Load())
	})
}

// A stop that could not be stored is not undone by a suspension.
func TestUnstoredStopMeetsSuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hooked(nil)
		var away atomic.Bool
		store.before = func(method string) error {
			if method == "cancel" && away.Load() {
				return engine.ErrUnavailable
			}
			return nil
		}
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)), Executor: steps(
			func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
				<-sink.Stopping()
				return Outcome{Suspend: &Suspension{State: []byte{1}, Wake: time.Now().Add(time.Hour)}}, nil
			},
			func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return value(`"done"`) },
		)})
		id := spawned(t, m, alice, "waits")
		away.Store(true)
		_, err := m.Stop(t.Context(), alice, id, StopRequest{})
		require.NoError(t, err)
		away.Store(false)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, engine.StatusCanceled, must(store.Get(t.Context(), id)).Status)
	})
}

// late is an engine that starts no run before the given time.
type late struct {
	engine.Engine
	until time.Time
}

func (e *late) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w, err := e.Engine.Join(ctx, info)
	return lateWorker{w, e}, err
}

type lateWorker struct {
	engine.Worker
	of *late
}

func (w lateWorker) Start(ctx context.Context, id string) (engine.Lease, error) {
	if time.Now().Before(w.of.until) {
		return nil, engine.ErrUnavailable
	}
	return w.Worker.Start(ctx, id)
}

// A run that could not be started under a lease that has since ended is not executed by two
// tasks.
func TestStartUnderTheNextLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &late{Engine: memory.New(), until: time.Now().Add(2*HeartbeatEvery + 500*time.Millisecond)}
		var now, most atomic.Int32
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)),
			Readmit: func(context.Context, engine.Run) error { time.Sleep(3 * time.Second); return nil },
			Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
					return Outcome{}, context.Cause(ctx)
				}
				return value(`1`)
			}})
		id := spawned(t, m, alice, "tool")
		require.NoError(t, m.member.worker().Leave(t.Context())) // as if it had not been renewed in time
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, engine.StatusSucceeded, must(store.Get(t.Context(), id)).Status)
		require.EqualValues(t, 1, most.Load(), "at a time")
		require.Equal(t, 1, must(store.Get(t.Context(), id)).Attempt)
	})
}

// slow is an engine that takes long to prune, and can take long to fail when a run
// ends.
type slow struct {
	engine.Engine
	ends   atomic.Bool // whether ends of runs fail
	pruned atomic.Bool // whether the one slow prune has begun
}

func (e *slow) Prune(ctx context.Context, r engine.Retention) (int, error) {
	if e.pruned.CompareAndSwap(false, true) {
		select {
		case <-time.After(50 * time.Second):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return e.Engine.Prune(ctx, r)
}

func (e *slow) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w, err := e.Engine.Join(ctx, info)
	return slowWorker{w, e}, err
}

type slowWorker struct {
	engine.Worker
	of *slow
}

func (w slowWorker) Start(ctx context.Context, id string) (engine.Lease, error) {
	l, err := w.Worker.Start(ctx, id)
	if err != nil {
		return nil, err
	}
	return slowLease{l, w.of}, nil
}

type slowLease struct {
	engine.Lease
	of *slow
}

func (l slowLease) Complete(ctx context.Context, s engine.Status, b engine.Beat, e engine.End) (engine.Run, error) {
	if l.of.ends.Load() {
		time.Sleep(10 * time.Second)
		return engine.Run{}, engine.ErrUnavailable
	}
	return l.Lease.Complete(ctx, s, b, e)
}

// The lease is kept while the engine takes long to prune.
func TestLongPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Engine: memory.New()}
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer))})
		time.Sleep(pruneEvery - time.Second)
		id := spawned(t, m, alice, "sleep")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.True(t, m.runs.get(id) != nil && !m.runs.get(id).ended(), "its work continues")
		require.Equal(t, 1, must(store.Get(t.Context(), id)).Attempt)
	})
}

// The lease is kept while ends of runs cannot be stored.
func TestManyUnstoredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Engine: memory.New()}
		m := newManager(t, Config{Engine: store, PerSession: 20, Logger: logTo(new(testlog.Buffer))})
		id := spawned(t, m, alice, "sleep")
		store.ends.Store(true)
		for range 10 {
			spawned(t, m, alice, "second")
		}
		time.Sleep(3 * time.Minute)
		store.ends.Store(false)
		require.True(t, m.runs.get(id) != nil && !m.runs.get(id).ended(), "its work continues")
		require.Equal(t, 1, must(store.Get(t.Context(), id)).Attempt)
		time.Sleep(3 * time.Minute)
	})
}

// TestSaveStateInDoubt: if the answer to a write is lost, the work is not told that its
// children have not begun while in fact they run.
func TestSaveStateInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 1
		store := &hookEngine{Engine: memory.New(), after: func(method string) error {
			if method == "suspend" && lost > 0 {
				lost--
				return engine.ErrUnavailable
			}
			return nil
		}}
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)), Executor: steps(func(ctx context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
			err := SaveState(ctx, Suspension{State: []byte{1}, Children: []Child{{1, SpawnRequest{Tool: "echo", Silent: true}}}})
			if err != nil {
				return value(`"not begun"`)
			}
			return value(`"begun"`)
		})})
		id := spawned(t, m, alice, "waits")
		wait(t, m, alice, id)
		synctest.Wait()
		children := must(m.List(t.Context(), engine.Query{Session: alice, Parent: id}))
		result := string(must(m.engine.Payload(t.Context(), id, engine.PartResult)))
		require.Equal(t, result == `"begun"`, len(children) == 1)
	})
}
