package background

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

var errHangUp = errors.New("the caller hangs up")

// keyed returns a call with the key k. count is incremented each time its work begins.
func keyed(count *int, d time.Duration) RunRequest {
	work := works(d)
	return RunRequest{
		SpawnRequest: SpawnRequest{Tool: "letter", Args: json.RawMessage(`{"to":1}`), IdempotencyKey: "k"},
		Work: func(ctx context.Context, sink *output.Sink) (Outcome, error) {
			*count++
			return work(ctx, sink)
		},
		Stops: func(cause error) bool { return errors.Is(cause, errHangUp) },
	}
}

// The record of a call with a key is stored before the work begins, and its end before
// the call returns.
func TestKeyedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		count := 0
		req := keyed(&count, time.Minute)
		work := req.Work
		req.Work = func(ctx context.Context, sink *output.Sink) (Outcome, error) {
			run, found, err := m.WithKey(t.Context(), alice, req.SpawnRequest)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, engine.StatusRunning, run.Status)
			return work(ctx, sink)
		}

		ran := call1(t, m, alice, req)
		require.False(t, ran.Reused)
		require.JSONEq(t, `"done"`, string(ran.Outcome.Result))
		run := must(m.engine.Get(t.Context(), ran.Run.ID))
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.Zero(t, run.ParkedAt)
		require.Empty(t, pendingOf(t, m, alice, 0), "the caller was there")

		again := call1(t, m, alice, req)
		require.True(t, again.Reused)
		require.Equal(t, run.ID, again.Run.ID)
		require.Equal(t, 1, count)

		req.Args = json.RawMessage(`{"to":2}`)
		_, err := m.Run(t.Context(), alice, req)
		require.ErrorIs(t, err, ErrKeyReused)
		_, _, err = m.WithKey(t.Context(), alice, req.SpawnRequest)
		require.ErrorIs(t, err, ErrKeyReused)
		require.False(t, call1(t, m, bob, keyed(&count, 0)).Reused, "the key of another session")
		require.Equal(t, 2, count)
	})
}

// A call with a key continues when its caller leaves, unless the caller cancels the
// call.
func TestKeyedCallWhoseCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		count := 0
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := m.Run(ctx, alice, keyed(&count, time.Minute))
		require.ErrorIs(t, err, context.Canceled)

		again := call1(t, m, alice, keyed(&count, time.Minute))
		require.True(t, again.Reused)
		require.Equal(t, engine.StatusRunning, again.Run.Status)
		run := wait(t, m, alice, again.Run.ID)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.Equal(t, 1, count)
		require.Len(t, pendingOf(t, m, alice, 0), 1, "nobody was there for its end")

		stopping, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(errHangUp) })
		req := keyed(&count, time.Hour)
		req.IdempotencyKey = "other"
		began := time.Now()
		ran, err := m.Run(stopping, alice, req)
		require.Error(t, err)
		require.Equal(t, time.Second, time.Since(began))
		run = must(m.engine.Get(t.Context(), ran.Run.ID))
		require.Equal(t, engine.StatusCanceled, run.Status)
		require.Equal(t, errHangUp.Error(), run.Cancel.Reason)
	})
}

func TestKeyedCallIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		count := 0
		req := keyed(&count, time.Minute)
		req.ParkAfter = time.Second
		ran := call1(t, m, alice, req)
		require.True(t, ran.Parked)
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, ran.Run.ID).Status)
		require.Len(t, pendingOf(t, m, alice, 0), 1)
	})
}

// Of several simultaneous calls with the same key, only one does the work.
func TestKeyedCallsRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		count, reused := make(chan int, 20), make(chan bool, 20)
		for range 20 {
			go func() {
				n := 0
				ran, err := m.Run(t.Context(), alice, keyed(&n, time.Second))
				require.NoError(t, err)
				count <- n
				reused <- ran.Reused
			}()
		}
		total, others := 0, 0
		for range 20 {
			total += <-count
			if <-reused {
				others++
			}
		}
		require.Equal(t, 1, total)
		require.Equal(t, 19, others)
	})
}

// If there is no slot for a call with a key, its work does not begin, and the key stays
// free.
func TestKeyedCallAtALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Parked: 1})
		count := 0
		first := keyed(&count, time.Minute)
		first.IdempotencyKey = "first"
		go func() { _, _ = m.Run(t.Context(), alice, first) }()
		synctest.Wait()

		_, err := m.Run(t.Context(), alice, keyed(&count, 0))
		require.ErrorIs(t, err, engine.ErrParkedLimit)
		require.Equal(t, 1, count)
		_, found, err := m.WithKey(t.Context(), alice, keyed(&count, 0).SpawnRequest)
		require.NoError(t, err)
		require.False(t, found)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.False(t, call1(t, m, alice, keyed(&count, 0)).Reused)
	})
}

// A worker that dies during a call leaves a record, which says what became of the call.
func TestKeyedCallWhoseHostDied(t *testing.T) {
	for name, readmit := range map[string]error{"may run again": nil, "may not": &Error{Kind: engine.KindOrphaned, Message: "who knows"}} {
		bubble(t, name, func(t *testing.T) {
			e := memory.New()
			w, err := e.Join(t.Context(), engine.WorkerInfo{})
			require.NoError(t, err)
			_, err = w.Adopt(t.Context(), engine.Run{
				ID: newID(runPrefix), Session: alice, Tool: "echo", Args: json.RawMessage(`{}`), IdempotencyKey: "k", Origin: engine.OriginParked,
				StartedAt: time.Now(), CreatedAt: time.Now(), Timeout: time.Minute, SignalOnCompletion: true,
			}, engine.Permits{})
			require.NoError(t, err)
			require.NoError(t, w.Leave(t.Context()))

			m := newManager(t, Config{Engine: e, Readmit: func(context.Context, engine.Run) error { return readmit }})
			count := 0
			req := keyed(&count, 0)
			req.Tool, req.Args = "echo", nil
			ran := call1(t, m, alice, req)
			require.True(t, ran.Reused)
			run := wait(t, m, alice, ran.Run.ID)
			require.Zero(t, count)
			if readmit == nil {
				require.Equal(t, engine.StatusSucceeded, run.Status)
				require.Equal(t, 2, run.Attempt)
			} else {
				require.Equal(t, engine.KindOrphaned, run.Error.Kind)
			}
		})
	}
}
