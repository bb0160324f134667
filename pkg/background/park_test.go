package background

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
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

// works returns work that takes the given time, and ends at once when it is stopped.
func works(d time.Duration) func(context.Context, *output.Sink) (Outcome, error) {
	return func(ctx context.Context, sink *output.Sink) (Outcome, error) {
		_, _ = sink.Stdout().Write([]byte("working\n"))
		select {
		case <-time.After(d):
			return Outcome{Result: json.RawMessage(`"done"`)}, nil
		case <-sink.Stopping():
			return Outcome{}, errors.New("stopped")
		case <-ctx.Done():
			return Outcome{}, context.Cause(ctx)
		}
	}
}

func call1(t *testing.T, m *Manager, session string, req RunRequest) RunResult {
	t.Helper()
	if req.Tool == "" {
		req.Tool = "tool"
	}
	ran, err := m.Run(t.Context(), session, req)
	require.NoError(t, err)
	return ran
}

func TestParkedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		began := time.Now()
		ran := call1(t, m, alice, RunRequest{SpawnRequest: SpawnRequest{Tool: " primes ", Title: "Primes", Args: json.RawMessage(`{"n":1}`), Version: "sha256:1"},
			ParkAfter: 10 * time.Second, Work: works(time.Minute)})
		require.Equal(t, 10*time.Second, time.Since(began))
		require.True(t, ran.Parked)
		run := ran.Run
		require.Equal(t, engine.StatusRunning, run.Status)
		require.Equal(t, engine.OriginParked, run.Origin)
		require.Equal(t, "primes", run.Tool)
		require.Equal(t, "sha256:1", run.Version)
		require.Equal(t, 1, run.Attempt)
		require.True(t, run.StartedAt.Equal(began), "it runs since the call began")
		require.True(t, run.ParkedAt.Equal(time.Now()))
		require.Equal(t, Stats{Active: 1, PerHost: DefaultPerHost, Parked: 1, Spawned: 1, Failed: map[engine.ErrorKind]int64{}}, counts(m))

		report := check(t, m, alice, CheckRequest{IDs: []string{run.ID}})
		require.Equal(t, "working\n", report.Output.Text, "with what it wrote before")
		require.Equal(t, 10*time.Second, report.Elapsed(time.Now()))
		require.Equal(t, 5*time.Minute, report.Timeout)
		run = wait(t, m, alice, run.ID)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.JSONEq(t, `"done"`, string(run.Result))
		require.Equal(t, time.Minute, time.Since(began), "it was not disturbed")
		require.Len(t, pendingOf(t, m, alice, 0), 1, "its end is told")
	})
}

func TestCallThatIsNotParked(t *testing.T) {
	failure := errors.New("its own error")
	for name, c := range map[string]struct {
		after time.Duration
		work  func(context.Context, *output.Sink) (Outcome, error)
		took  time.Duration
		err   error
	}{
		"in its budget":        {10 * time.Second, works(time.Second), time.Second, nil},
		"at once":              {time.Second, works(0), 0, nil},
		"never parked":         {0, works(4 * time.Minute), 4 * time.Minute, nil},
		"its error, unchanged": {10 * time.Second, func(context.Context, *output.Sink) (Outcome, error) { return Outcome{}, failure }, 0, failure},
		"its deadline":         {0, works(time.Hour), 5 * time.Minute, context.DeadlineExceeded},
		"runtime.Goexit":       {0, func(context.Context, *output.Sink) (Outcome, error) { runtime.Goexit(); panic("unreachable") }, 0, errExited},
	} {
		bubble(t, name, func(t *testing.T) {
			m := newManager(t, Config{})
			began := time.Now()
			ran, err := m.Run(t.Context(), alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: c.after, Work: c.work})
			require.Equal(t, c.took, time.Since(began))
			require.False(t, ran.Parked)
			if c.err == nil {
				require.NoError(t, err)
				require.JSONEq(t, `"done"`, string(ran.Outcome.Result))
			} else {
				require.Equal(t, c.err, err)
			}
			require.Empty(t, must(m.engine.List(t.Context(), engine.Query{})), "no trace is left")
			require.Empty(t, m.runs.all())
			require.Zero(t, m.Stats().Active)
		})
	}
}

func TestPanicOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		_, err := m.Run(t.Context(), alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, Work: func(context.Context, *output.Sink) (Outcome, error) { panic("in the host") }})
		var crash *panicError
		require.ErrorAs(t, err, &crash)
		require.Equal(t, "in the host", crash.value)
		var log testlog.Buffer
		m = newManager(t, Config{Logger: logTo(&log)})
		ran := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: func(context.Context, *output.Sink) (Outcome, error) {
			time.Sleep(time.Minute)
			panic("hunter2")
		}})
		run := wait(t, m, alice, ran.Run.ID)
		require.Equal(t, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}, *run.Error)
		require.Contains(t, log.String(), "hunter2")
	})
}

func TestParkedCallHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		began := time.Now()
		ran := call1(t, m, alice, RunRequest{SpawnRequest: SpawnRequest{Timeout: time.Minute}, ParkAfter: 10 * time.Second, Work: works(time.Hour)})
		require.Equal(t, engine.KindTimeout, wait(t, m, alice, ran.Run.ID).Error.Kind)
		require.Equal(t, time.Minute, time.Since(began), "from the beginning of the call")
	})
}

func TestStopOfAParkedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		ran := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: works(time.Hour)})
		stopped, err := m.Stop(t.Context(), alice, ran.Run.ID, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, stopped.Status)
	})
}

// When the caller's context ends, the work ends if the call is not parked yet, and
// continues if it is.
func TestContextOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		type key struct{}
		why := errors.New("the user left")
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		time.AfterFunc(3*time.Second, func() { cancel(why) })
		var value any
		began := time.Now()
		ran, err := m.Run(ctx, alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: time.Minute, Work: func(ctx context.Context, sink *output.Sink) (Outcome, error) {
			value = ctx.Value(key{})
			<-ctx.Done()
			time.Sleep(2 * time.Second) // is waited for
			return Outcome{}, context.Cause(ctx)
		}})
		require.Equal(t, why, err)
		require.False(t, ran.Parked)
		require.Equal(t, "value", value)
		require.Equal(t, 5*time.Second, time.Since(began))

		_, err = m.Run(ctx, alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, Work: works(0)})
		require.ErrorIs(t, err, context.Canceled, "it does not begin")

		ctx, cancel = context.WithCancelCause(t.Context())
		ran, err = m.Run(ctx, alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: time.Second, Work: works(time.Minute)})
		require.NoError(t, err)
		cancel(why)
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, ran.Run.ID).Status, "it is detached")
	})
}

// If a caller leaves at the very moment its call is parked, the call is either parked
// or canceled, never neither.
func TestParkingRacesTheCaller(t *testing.T) {
	for i := range 500 {
		synctest.Test(t, func(t *testing.T) {
			store := slowEngine(time.Duration(i%3)*time.Millisecond, "adopt")
			m := newManager(t, Config{Engine: store})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second+time.Duration(i%5-2)*time.Millisecond, cancel)
			var ended atomic.Bool
			ran, err := m.Run(ctx, alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: time.Second, Work: func(ctx context.Context, sink *output.Sink) (Outcome, error) {
				defer ended.Store(true)
				return works(time.Minute)(ctx, sink)
			}})
			if ran.Parked {
				require.NoError(t, err)
				require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, ran.Run.ID).Status)
				return
			}
			require.Error(t, err)
			require.True(t, ended.Load(), "its work has ended")
			require.Empty(t, must(store.List(t.Context(), engine.Query{})))
		})
	}
}

// The work ends while its call is being parked.
func TestParkingRacesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Engine: slowEngine(time.Second, "adopt")})
		ran := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: works(1500 * time.Millisecond)})
		require.True(t, ran.Parked)
		run := wait(t, m, alice, ran.Run.ID)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.JSONEq(t, `"done"`, string(run.Result))
		require.Equal(t, "working\n", string(must(m.Tail(t.Context(), alice, run.ID, 0, 100)).Data))
	})
}

// The work ends while its call is being parked, which then fails: the caller gets the result.
func TestFailedParkingRacesTheEnd(t *testing.T) {
	for name, after := range map[string]time.Duration{"due": time.Second, "early": time.Minute} {
		bubble(t, name, func(t *testing.T) {
			m := newManager(t, Config{Engine: hooked(func(method string) error {
				if method != "adopt" {
					return nil
				}
				time.Sleep(time.Second)
				return errors.New("no space left")
			})})
			park := make(chan struct{})
			if after > time.Second {
				time.AfterFunc(time.Second, func() { close(park) })
			}

			began := time.Now()
			ran := call1(t, m, alice, RunRequest{Park: park, ParkAfter: after, Work: works(1500 * time.Millisecond)})

			require.False(t, ran.Parked)
			require.JSONEq(t, `"done"`, string(ran.Outcome.Result))
			require.Equal(t, 2*time.Second, time.Since(began))
		})
	}
}

func TestParkedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		park := func(work func(context.Context, *output.Sink) (Outcome, error)) (RunResult, error) {
			return m.Run(t.Context(), alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: time.Second, Work: work})
		}
		var mu sync.Mutex
		var ids []string
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				ran, err := park(works(time.Minute))
				require.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				ids = append(ids, ran.Run.ID)
			})
		}
		all.Wait()
		require.Equal(t, 32, m.Stats().Parked)
		for range 5 {
			spawn(t, m, alice, "sleep") // spawned ones have places of their own
		}
		_, err := park(works(time.Minute))
		var limit *engine.LimitError
		require.ErrorAs(t, err, &limit)
		require.ErrorIs(t, err, engine.ErrParkedLimit)
		require.ElementsMatch(t, ids, limit.Active, "nothing was put out for it")
		require.Equal(t, 37, len(active(t, m, alice)))
		require.EqualValues(t, 1, m.Stats().Refused)

		ran, err := park(func(_ context.Context, sink *output.Sink) (Outcome, error) {
			<-sink.Stopping()
			return Outcome{Result: json.RawMessage(`"partial"`)}, nil
		})
		require.NoError(t, err)
		require.JSONEq(t, `"partial"`, string(ran.Outcome.Result), "a result is not lost to the limit")

		ran, err = m.Run(t.Context(), bob, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: time.Second, Work: works(time.Minute)})
		require.NoError(t, err)
		require.True(t, ran.Parked, "another session has its own")
		_, err = awaited(t.Context(), m, alice, ids, UntilAll)
		require.NoError(t, err)
		ran, err = park(works(time.Minute))
		require.NoError(t, err)
		require.True(t, ran.Parked, "those that have ended take no place")
	})
}

func TestParkedCallsCountForTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerHost: 2})
		spawn(t, m, bob, "sleep")
		ran := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: works(time.Minute)})
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, ErrHostLimit)
		_, err = m.Run(t.Context(), alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: time.Second, Work: works(time.Minute)})
		require.ErrorIs(t, err, ErrHostLimit)
		wait(t, m, alice, ran.Run.ID)
		spawn(t, m, alice, "echo")
	})
}

func TestParkingWithoutItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		engine := newBroken(memory.New())
		engine.broken.Store(true)
		m := newManager(t, Config{Engine: engine, Logger: logTo(&log)})
		began := time.Now()
		ran := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: works(time.Minute)})
		require.False(t, ran.Parked, "it continues in the foreground")
		require.JSONEq(t, `"done"`, string(ran.Outcome.Result))
		require.Equal(t, time.Minute, time.Since(began))
		require.Contains(t, log.String(), "not parked")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := m.Run(ctx, alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: time.Second, Work: works(time.Minute)})
		require.Error(t, err, "where its caller can still end it")
		require.Equal(t, 70*time.Second, time.Since(began))
	})
}

// A call that could not be parked early is parked when it is due, if there is room by then;
// otherwise it is stopped like any other call.
func TestParkedWhenDue(t *testing.T) {
	for name, room := range map[string]bool{"room": true, "no room": false} {
		bubble(t, name, func(t *testing.T) {
			m := newManager(t, Config{Parked: 1, Grace: time.Second})
			early, unparked := make(chan struct{}), 0
			close(early)
			first := call1(t, m, alice, RunRequest{Park: early, Work: works(time.Hour)})
			if room {
				time.AfterFunc(30*time.Second, func() { must(m.Stop(t.Context(), alice, first.Run.ID, StopRequest{Force: true})) })
			}

			began := time.Now()
			ran, err := m.Run(t.Context(), alice, RunRequest{
				SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: time.Minute, Park: early, Unparked: func(error) { unparked++ }, Work: works(2 * time.Minute),
			})
			require.Equal(t, 1, unparked)
			require.Equal(t, room, ran.Parked)
			if room {
				require.NoError(t, err)
				require.Equal(t, time.Minute, time.Since(began))
				return
			}
			_, limited := errors.AsType[*engine.LimitError](err)
			require.True(t, limited, "%v", err)
			require.LessOrEqual(t, time.Since(began), time.Minute+2*time.Second)
		})
	}
}

func TestRunRefusesBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		for field, req := range map[string]RunRequest{
			"tool":            {Work: works(0)},
			"work":            {SpawnRequest: SpawnRequest{Tool: "tool"}},
			"park_after":      {SpawnRequest: SpawnRequest{Tool: "tool"}, Work: works(0), ParkAfter: -1},
			"terms":           {SpawnRequest: SpawnRequest{Tool: "tool", Terms: json.RawMessage(`"` + strings.Repeat("x", maxTerms) + `"`)}, Work: works(0)},
			"timeout_seconds": {SpawnRequest: SpawnRequest{Tool: "tool", Timeout: 2 * time.Hour}, Work: works(0)},
		} {
			_, err := m.Run(t.Context(), alice, req)
			var bad *FieldError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, field, bad.Field)
		}
		broken := SpawnRequest{Args: json.RawMessage("{")}
		ran := call1(t, m, alice, RunRequest{SpawnRequest: broken, ParkAfter: time.Second, Work: works(time.Minute)})
		require.False(t, ran.Parked, "what cannot be stored is not parked")
		require.NoError(t, m.Close(t.Context()))
		_, err := m.Run(t.Context(), alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, Work: works(0)})
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestCloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		causes := make(chan error, 1)
		go func() {
			_, err := m.Run(t.Context(), alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, ParkAfter: 5 * time.Second, Work: func(ctx context.Context, _ *output.Sink) (Outcome, error) {
				<-ctx.Done()
				return Outcome{}, context.Cause(ctx)
			}})
			causes <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, m.Close(ctx))
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, ErrClosed, <-causes, "it was not parked while closing")
	})
}

// The record of a parked call contains everything that is needed to run it again,
// except its secrets.
func TestParkedSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		m := newManager(t, Config{Logger: logTo(&log)})
		secret := SpawnRequest{Args: json.RawMessage(`{"pin":"hunter2"}`), Stored: json.RawMessage(`{}`)}
		ran := call1(t, m, alice, RunRequest{SpawnRequest: secret, ParkAfter: time.Second, Work: works(time.Minute)})
		run := payload(t, m.engine, ran.Run.ID)
		require.JSONEq(t, `{}`, string(run.Args))
		require.True(t, run.Secret)
		require.NotContains(t, log.String(), "hunter2")
		wait(t, m, alice, run.ID)
	})
}

// A call is parked before it is due if its caller requests that.
func TestParkedOnRequest(t *testing.T) {
	for name, key := range map[string]string{"call": "", "call with a key": "k"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager(t, Config{})
				park, began := make(chan struct{}), time.Now()
				time.AfterFunc(time.Second, func() { close(park) })

				ran := call1(t, m, alice, RunRequest{SpawnRequest: SpawnRequest{IdempotencyKey: key}, Park: park, Work: works(time.Minute)})
				require.True(t, ran.Parked)
				require.Equal(t, time.Second, time.Since(began))

				checked, err := m.Check(t.Context(), alice, CheckRequest{IDs: []string{ran.Run.ID}, Wait: 2 * time.Minute})
				require.NoError(t, err)
				require.Equal(t, engine.StatusSucceeded, checked.Reports[0].Run.Status)
				require.Equal(t, time.Minute, time.Since(began))
			})
		})
	}
}

// A held run can be released or refused only once.
func TestHeldIsDecidedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return Outcome{}, nil }})
		hold := func() string {
			r, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "tool", Held: "approval"})
			require.NoError(t, err)
			return r.Run.ID
		}

		refused := hold()
		run, err := m.Refuse(t.Context(), refused, "operator", "not now")
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, run.Status)
		require.Equal(t, "not now", run.Cancel.Reason)
		_, err = m.Release(t.Context(), refused)
		require.ErrorIs(t, err, engine.ErrConflict)

		released := hold()
		_, err = m.Release(t.Context(), released)
		require.NoError(t, err)
		_, err = m.Refuse(t.Context(), released, "operator", "")
		require.ErrorIs(t, err, engine.ErrConflict)
		_, err = m.Release(t.Context(), released)
		require.ErrorIs(t, err, engine.ErrConflict)
		_, err = m.Check(t.Context(), alice, CheckRequest{IDs: []string{released}, Wait: time.Minute})
		require.NoError(t, err)
	})
}
