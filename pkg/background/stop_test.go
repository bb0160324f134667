package background

import (
	"context"
	"encoding/json"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func TestStop(t *testing.T) {
	for _, c := range []struct {
		tool  string
		force bool
		took  time.Duration
		want  ending
	}{
		{"sleep", false, 0, ending{status: engine.StatusCanceled}},
		{"deaf", false, 5 * time.Second, ending{status: engine.StatusCanceled}},
		{"deaf", true, 0, ending{status: engine.StatusCanceled}},
		{"stubborn", false, 0, ending{status: engine.StatusSucceeded, end: engine.End{Result: json.RawMessage(`{"partial":true}`)}}},
		{"halfway", false, 0, ending{status: engine.StatusFailed, end: engine.End{Result: json.RawMessage(`{"partial":true}`), Error: &engine.RunError{Kind: engine.KindToolError, Message: "half done"}}}},
		{"undead", false, 6 * time.Second, ending{status: engine.StatusRunning}},
		{"undead", true, time.Second, ending{status: engine.StatusRunning}},
		{"echo", false, 0, ending{status: engine.StatusSucceeded, end: engine.End{Result: json.RawMessage(`{}`)}}},
		{"nonsense", true, 0, ending{status: engine.StatusFailed, end: engine.End{Error: &engine.RunError{Kind: engine.KindToolError, Message: "unknown tool: nonsense"}}}},
	} {
		bubble(t, c.tool, func(t *testing.T) {
			m := newManager(t, Config{Grace: 5 * time.Second})
			id := spawned(t, m, alice, c.tool)
			for range 2 { // twice gives the same answer
				began := time.Now()
				stopped, err := m.Stop(t.Context(), alice, id, StopRequest{Force: c.force})
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(began), c.took)
				require.Equal(t, id, stopped.ID)
				stopped.Result, _ = m.Payload(t.Context(), alice, id, engine.PartResult)
				require.Equal(t, c.want, ending{status: stopped.Status, end: engine.End{Result: stopped.Result, Error: stopped.Error}})
				require.True(t, stopped.Cancel != nil || stopped.Status.Terminal())
			}
			time.Sleep(time.Hour) // for undead to end
		})
	}
}

// TestForceComesBeforeTheRequest: a forced stop cancels the context before it closes
// the channel of Stopping. Otherwise work that reacts to the channel could still end by
// itself, with a result.
func TestForceComesBeforeTheRequest(t *testing.T) {
	task := newTask(t.Context(), engine.Run{})
	cancel := task.cancel
	task.cancel = func(cause error) {
		select {
		case <-task.sink.Stopping():
			t.Error("the work was asked before its context ended")
		default:
		}
		cancel(cause)
	}
	task.requestStop(0)
	require.ErrorIs(t, context.Cause(task.ctx), ErrStopped)
	<-task.sink.Stopping()
}

// The engine's event about a stop may arrive before the call that stored the stop
// returns. It does not turn a forced stop into one with a grace period.
func TestForceComesBeforeTheHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := hooked(nil)
		e.after = func(method string) error {
			if method == "cancel" {
				time.Sleep(100 * time.Millisecond) // the hint is handled meanwhile
			}
			return nil
		}
		m := newManager(t, Config{Engine: e, Executor: func(ctx context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
			<-sink.Stopping()
			if ctx.Err() != nil {
				return Outcome{}, ctx.Err()
			}
			return Outcome{Result: json.RawMessage(`"gave way"`)}, nil
		}})
		id := spawned(t, m, alice, "sleeper")
		synctest.Wait()

		stopped, err := m.Stop(t.Context(), alice, id, StopRequest{Force: true})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status, "%+v", stopped)
	})
}

func TestStopKeepsWhoAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		id := spawned(t, m, alice, "undead")
		at := time.Now()
		_, err := m.Stop(t.Context(), alice, id, StopRequest{By: "operator", Reason: "too \n slow"})
		require.NoError(t, err)
		_, err = m.Stop(t.Context(), alice, id, StopRequest{Reason: "another"})
		require.NoError(t, err)
		require.NotNil(t, check(t, m, alice, CheckRequest{IDs: []string{id}}).Cancel)
		run := wait(t, m, alice, id)
		require.Equal(t, engine.StatusCanceled, run.Status, "only after the work has ended")
		require.Equal(t, time.Hour, run.Elapsed(time.Now()))
		require.Equal(t, engine.Cancellation{At: run.Cancel.At, By: "operator", Reason: "too slow"}, *run.Cancel)
		require.True(t, run.Cancel.At.Equal(at))
		require.Equal(t, "Canceled by request.", run.Summary)
		require.Nil(t, run.Error)
	})
}

func TestForceShortensTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Grace: time.Minute})
		id := spawned(t, m, alice, "deaf")
		polite := make(chan engine.Run)
		go func() {
			stopped, err := m.Stop(t.Context(), alice, id, StopRequest{})
			require.NoError(t, err)
			polite <- stopped
		}()
		synctest.Wait()
		began := time.Now()
		stopped, err := m.Stop(t.Context(), alice, id, StopRequest{Force: true})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status)
		require.Equal(t, stopped, <-polite)
		require.Zero(t, time.Since(began))
	})
}

func TestStopSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requested, ended time.Time
		var cause error
		m := newManager(t, Config{Grace: 3 * time.Second, Executor: func(ctx context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
			<-sink.Stopping()
			requested = time.Now()
			<-ctx.Done()
			ended, cause = time.Now(), context.Cause(ctx)
			return Outcome{}, ctx.Err()
		}})
		id := spawned(t, m, alice, "tool")
		began := time.Now()
		stopped, err := m.Stop(t.Context(), alice, id, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status)
		require.Zero(t, requested.Sub(began))
		require.Equal(t, 3*time.Second, ended.Sub(began))
		require.ErrorIs(t, cause, ErrStopped)
	})
}

func TestStopBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		var ran atomic.Bool
		m := newManager(t, Config{Engine: gated(open), Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			ran.Store(true)
			return Outcome{}, nil
		}})
		id := spawned(t, m, alice, "tool")
		time.AfterFunc(time.Second, func() { close(open) })
		stopped, err := m.Stop(t.Context(), alice, id, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status)
		run := wait(t, m, alice, id)
		require.Equal(t, engine.StatusCanceled, run.Status)
		require.Zero(t, run.Attempt)
		require.False(t, ran.Load(), "it never started")
	})
}

func TestStopFreedByContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		id := spawned(t, m, alice, "deaf")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stopped, err := m.Stop(ctx, alice, id, StopRequest{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotNil(t, stopped.Cancel)
		require.False(t, stopped.Status.Terminal())
		require.Equal(t, engine.StatusCanceled, wait(t, m, alice, id).Status, "the stop continues")
	})
}

func TestPanicAfterStopIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Logger: logTo(new(testlog.Buffer)), Executor: func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
			<-sink.Stopping()
			panic("in the clean-up")
		}})
		id := spawned(t, m, alice, "tool")
		stopped, err := m.Stop(t.Context(), alice, id, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.KindInternal, stopped.Error.Kind)
	})
}

func TestCancelInTheRecordReachesTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		id := spawned(t, m, alice, "sleep")
		began := time.Now()
		_, err := m.engine.Cancel(t.Context(), id, engine.Cancellation{At: time.Now(), By: "another process"}, canceled(time.Now()))
		require.NoError(t, err)
		run := wait(t, m, alice, id)
		require.Equal(t, engine.StatusCanceled, run.Status)
		require.Equal(t, "another process", run.Cancel.By)
		require.LessOrEqual(t, time.Since(began), HeartbeatEvery)
	})
}

// A stop that races with the end of the work never loses a result and never reports an
// end other than the stored one. It causes one terminal write and one notice, and
// leaves a slot for the next run.
func TestStopRacesCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hooked(nil)
		var completed atomic.Int32
		store.after = func(method string) error {
			if method == "complete" {
				completed.Add(1)
			}
			return nil
		}
		var gave atomic.Bool
		finish := make(chan struct{})
		var told []string
		m := newManager(t, Config{Engine: store, PerSession: 1,
			OnNotice: func(n engine.Run) { told = append(told, n.ID) },
			Executor: func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
				select {
				case <-finish:
					gave.Store(true)
					return Outcome{Result: json.RawMessage(`"done"`)}, nil
				case <-sink.Stopping():
					return Outcome{}, context.Canceled
				}
			}})
		won := map[engine.Status]int{}
		for i := range 10_000 {
			gave.Store(false)
			completed.Store(0)
			id := spawned(t, m, alice, "tool")
			over, done := make(chan struct{}), m.runs.get(id).done
			go func() {
				defer close(over)
				select {
				case finish <- struct{}{}:
				case <-done:
				}
			}()
			if i%2 == 0 {
				runtime.Gosched()
			}
			by := "session"
			if i%4 < 2 {
				by = "operator" // who does not tell the agent
			}
			stopped, err := m.Stop(t.Context(), alice, id, StopRequest{Force: i%3 == 0, By: by})
			require.NoError(t, err)
			run := wait(t, m, alice, id)
			require.Equal(t, run.Status, stopped.Status)
			if gave.Load() {
				require.Equal(t, engine.StatusSucceeded, run.Status)
				require.JSONEq(t, `"done"`, string(run.Result))
			} else {
				require.Equal(t, engine.StatusCanceled, run.Status)
			}
			won[run.Status]++
			<-over
			require.EqualValues(t, 1, completed.Load(), "one terminal write")
			synctest.Wait()
			switch {
			case by == "operator":
				require.Equal(t, []string{id}, told, "one notice")
				require.NoError(t, m.Acknowledge(t.Context(), alice, told))
			case stopped.Status == engine.StatusCanceled:
				require.Empty(t, told, "none of what the agent saw")
			default: // it may have ended, and been reported, before the stop
				require.LessOrEqual(t, len(told), 1)
			}
			require.Empty(t, pendingOf(t, m, alice, 0))
			told = nil
			_, err = m.engine.Prune(t.Context(), engine.Retention{Before: time.Now().Add(time.Hour)})
			require.NoError(t, err)
		}
		t.Log(won)
		require.Greater(t, won[engine.StatusSucceeded], 100)
		require.Greater(t, won[engine.StatusCanceled], 100)
	})
}
