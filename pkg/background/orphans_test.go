package background

import (
	"context"
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

// TestChildOfARunThatEnded: a held child is not run if its parent has ended in the meantime.
func TestChildOfARunThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := false
		m := newManager(t, Config{Logger: logTo(new(testlog.Buffer)), Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			switch {
			case run.Tool == "effect":
				ran = true
				return value(`1`)
			case StateOf(ctx) == nil:
				return Outcome{Suspend: &Suspension{State: []byte{1}, Wake: time.Now().Add(time.Hour), Await: []string{ChildID(run.ID, 1)},
					Children: []Child{{1, SpawnRequest{Tool: "effect", Silent: true, Held: "approval"}}}}}, nil
			}
			return Outcome{}, &Error{Kind: engine.KindOrphaned, Message: "the plugin was removed"}
		}})
		id := spawned(t, m, alice, "waits")
		require.Equal(t, engine.StatusFailed, wait(t, m, alice, id).Status)
		_, err := m.Release(t.Context(), ChildID(id, 1))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.False(t, ran, "nobody waits for it")
	})
}

// TestParkedCallThatWaits: a parked call that is suspended costs nothing while it waits.
func TestParkedCallThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gets atomic.Int64
		store := &hookEngine{Engine: memory.New(), before: func(method string) error {
			if method == "get" {
				gets.Add(1)
			}
			return nil
		}}
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)), Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return value(`1`) }})
		r, err := m.Run(t.Context(), alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "waits", Timeout: time.Hour}, ParkAfter: time.Second, Work: func(context.Context, *output.Sink) (Outcome, error) {
			time.Sleep(2 * time.Second)
			return Outcome{Suspend: &Suspension{State: []byte{1}, Wake: time.Now().Add(24 * time.Hour)}}, nil
		}})
		require.NoError(t, err)
		require.True(t, r.Parked)
		time.Sleep(10 * time.Second)
		gets.Store(0)
		time.Sleep(time.Hour)
		require.Less(t, gets.Load(), int64(10))
		time.Sleep(24 * time.Hour)
	})
}

// TestEndOfASessionWithChildren: if a run continues after its session has ended, the children
// that it waits for are not stopped.
func TestEndOfASessionWithChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Logger: logTo(new(testlog.Buffer)), Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			switch {
			case run.Tool == "effect":
				select {
				case <-time.After(time.Minute):
					return value(`1`)
				case <-sink.Stopping():
					return Outcome{}, ErrStopped
				}
			case StateOf(ctx) == nil:
				return Outcome{Suspend: &Suspension{State: []byte{1}, Await: []string{ChildID(run.ID, 1)},
					Children: []Child{{1, SpawnRequest{Tool: "effect", Silent: true, Parked: true}}}}}, nil
			}
			return value(`2`)
		}})
		id := spawned(t, m, alice, "waits")
		time.Sleep(time.Second)
		require.NoError(t, m.EndSession(t.Context(), alice))
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, id).Status, "a spawned run continues")
		child := must(m.engine.Get(t.Context(), ChildID(id, 1)))
		require.Equal(t, engine.StatusSucceeded, child.Status, child.Cancel)
	})
}
