package background

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A worker whose heartbeats are lost stops its runs, and another worker takes them
// over.
func TestLostLeaseStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deaf atomic.Bool
		store := hooked(func(method string) error {
			if method == "renew" && deaf.Load() {
				return errDisk
			}
			return nil
		})
		causes := make(chan error, 10)
		m := newManager(t, Config{Engine: store, Executor: func(ctx context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			_, _ = sink.Stdout().Write([]byte("zombie"))
			return Outcome{Result: json.RawMessage(`"zombie"`)}, nil
		}})
		id := spawned(t, m, alice, "tool")
		synctest.Wait()
		other, err := store.Engine.Join(t.Context(), engine.WorkerInfo{TTL: 24 * time.Hour})
		require.NoError(t, err)

		deaf.Store(true)
		time.Sleep(leaseTTL + HeartbeatEvery)
		require.ErrorIs(t, <-causes, engine.ErrFenced)
		orphans, err := other.Orphans(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, orphans, 1)
		ended, err := other.Abandon(t.Context(), id, 1, engine.StatusFailed, engine.Beat{}, engine.End{Summary: "right", FinishedAt: time.Now()})
		require.NoError(t, err)
		deaf.Store(false)
		time.Sleep(time.Minute)

		run, err := store.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, ended.Summary, run.Summary, "the old worker changes nothing")
		require.Equal(t, engine.StatusFailed, run.Status)
		require.Empty(t, must(store.Tail(t.Context(), id, 0, 100)).Data)
	})
}

// With two managers on one engine, a run of one can be awaited, read and stopped
// through the other, and moves there when its own manager has closed.
func TestTwoManagers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var where atomic.Int64
		work := func(host int64) Executor {
			return func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
				where.Store(host)
				_, _ = sink.Stdout().Write([]byte("so far\n"))
				select {
				case <-ctx.Done():
					return Outcome{}, context.Cause(ctx)
				case <-sink.Stopping():
					return Outcome{}, context.Canceled
				case <-time.After(time.Minute):
					return Outcome{Result: json.RawMessage(`1`)}, nil
				}
			}
		}
		readmit := func(context.Context, engine.Run) error { return nil }
		first := newManager(t, Config{Engine: store, Executor: work(1), Readmit: readmit})
		id := spawned(t, first, alice, "tool")
		require.EqualValues(t, 1, where.Load())
		second := newManager(t, Config{Engine: store, Executor: work(2), Readmit: readmit})
		time.Sleep(10 * time.Second)
		require.Equal(t, engine.StatusRunning, must(second.Get(t.Context(), alice, id)).Status, "it is no orphan")
		require.Equal(t, "so far\n", string(must(second.Tail(t.Context(), alice, id, 0, 100)).Data))

		began := time.Now()
		ended := wait(t, second, alice, id)
		require.Equal(t, engine.StatusSucceeded, ended.Status)
		require.InDelta(t, 50, time.Since(began).Seconds(), 2)

		id = spawned(t, first, alice, "tool")
		stopped, err := second.Stop(t.Context(), alice, id, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status)
		require.Equal(t, engine.StatusCanceled, wait(t, second, alice, id).Status)

		id = spawned(t, first, alice, "tool")
		done, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, first.Close(done))
		ended = wait(t, second, alice, id)
		require.Equal(t, engine.StatusSucceeded, ended.Status)
		require.Equal(t, 2, ended.Attempt)
		require.EqualValues(t, 2, where.Load())
	})
}

// A process that was suspended for longer than its lease must not act any more, even before
// anything has noticed that the lease has ended.
func TestMayAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan error, 2)
		m := newManager(t, Config{Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
			asked <- MayAct(ctx)
			worker := ctx.Value(workKey{}).(*workOf).member
			worker.mu.Lock()
			until := worker.until
			worker.until = time.Now()
			worker.mu.Unlock()
			asked <- MayAct(ctx)
			worker.mu.Lock()
			worker.until = until
			worker.mu.Unlock()
			return Outcome{}, MayAct(ctx)
		}})
		id := spawned(t, m, alice, "tool")
		require.NoError(t, <-asked)
		require.ErrorIs(t, <-asked, engine.ErrFenced)
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, id).Status)
		require.NoError(t, MayAct(t.Context()), "of no run")
	})
}

// TestMayActWithItsOwnLease: work that began under a lease that has ended must not act
// just because the worker has a new lease, even if nobody has canceled the work yet.
func TestMayActWithItsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan error, 2)
		m := newManager(t, Config{Executor: func(ctx context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
			if run.Attempt > 1 {
				return Outcome{}, MayAct(ctx)
			}
			asked <- MayAct(ctx)
			member := ctx.Value(workKey{}).(*workOf).member
			_ = member.rejoin(t.Context(), member.worker())
			asked <- MayAct(ctx)
			return Outcome{}, nil
		}})
		id := spawned(t, m, alice, "tool")
		require.NoError(t, <-asked)
		require.ErrorIs(t, <-asked, engine.ErrFenced)
		require.True(t, wait(t, m, alice, id).Status.Terminal(), "the new lease takes it over")
	})
}
