package background

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		id := spawned(t, m, alice, "second")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		require.NoError(t, m.Close(ctx))
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, engine.StatusSucceeded, must(m.Get(t.Context(), alice, id)).Status, "records can be read")
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestCloseInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		polite, deaf, stubborn := spawned(t, m, alice, "sleep"), spawned(t, m, alice, "deaf"), spawned(t, m, alice, "stubborn")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		var all sync.WaitGroup
		for range 3 { // at once, and all wait
			all.Go(func() { require.NoError(t, m.Close(ctx)) })
		}
		all.Wait()
		require.Equal(t, 10*time.Second, time.Since(began))
		for _, id := range []string{polite, deaf} {
			run := must(m.Get(t.Context(), alice, id))
			require.Equal(t, engine.StatusFailed, run.Status)
			require.Equal(t, errInterrupted, run.Error)
		}
		require.Equal(t, engine.StatusSucceeded, must(m.Get(t.Context(), alice, stubborn)).Status, "a result is kept")
		require.NoError(t, m.Close(ctx), "again")
	})
}

func TestCloseNamesWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		id := spawned(t, m, alice, "undead")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		err := m.Close(ctx)
		require.ErrorIs(t, err, ErrStillRunning)
		require.Contains(t, err.Error(), id)
		require.Equal(t, DefaultGrace+hung, time.Since(began))
		require.Equal(t, engine.StatusRunning, must(m.Get(t.Context(), alice, id)).Status)
		time.Sleep(time.Hour)
		require.Equal(t, engine.KindInterrupted, must(m.Get(t.Context(), alice, id)).Error.Kind)
	})
}

func TestCloseRacesSpawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 64})
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				if _, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "second"}); err != nil {
					require.ErrorIs(t, err, ErrClosed)
				}
			})
		}
		require.NoError(t, m.Close(t.Context()))
		all.Wait()
		require.Zero(t, len(active(t, m, alice)))
	})
}

// Close interrupts runs that may be run again and queues them for the next start.
// Queued runs stay queued. Close waits for neither.
func TestCloseLeavesWhatCanGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		readmit := func(_ context.Context, run engine.Run) error {
			if run.Attempt > 0 && run.Tool != "sleep" {
				return errors.New("neither idempotent nor readonly")
			}
			return nil
		}
		first, err := New(t.Context(), Config{Engine: store, Executor: script, PerSession: 3, Readmit: readmit, Logger: logTo(new(testlog.Buffer))})
		require.NoError(t, err)
		again, once := spawned(t, first, alice, "sleep"), spawned(t, first, alice, "deaf")
		secret, err := first.Spawn(t.Context(), alice, SpawnRequest{Tool: "sleep", Stored: json.RawMessage(`{}`), Args: json.RawMessage(`{}`)})
		require.NoError(t, err)
		waiting := fired(t, first, alice, "echo", "")
		after := fired(t, first, alice, "echo", again)
		waiter := make(chan engine.Run)
		go func() { waiter <- wait(t, first, alice, waiting) }()
		synctest.Wait()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		require.NoError(t, first.Close(done))
		require.Zero(t, time.Since(began))
		require.Equal(t, engine.StatusQueued, (<-waiter).Status)
		require.Equal(t, engine.StatusQueued, status(t, first, alice, again))
		require.Equal(t, engine.KindInterrupted, must(first.Get(t.Context(), alice, once)).Error.Kind)
		require.Equal(t, engine.KindInterrupted, must(first.Get(t.Context(), alice, secret.ID)).Error.Kind)
		require.Equal(t, engine.StatusQueued, status(t, first, alice, waiting))
		require.Empty(t, first.runs.all())

		m := newManager(t, Config{Engine: store, Readmit: readmit})
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, waiting).Status)
		require.Equal(t, engine.StatusQueued, status(t, m, alice, after), "also for the next manager it comes after that one")
		synctest.Wait() // the others may have ended before it was claimed
		run := must(m.Get(t.Context(), alice, again))
		require.Equal(t, engine.StatusRunning, run.Status)
		require.Equal(t, 2, run.Attempt)
		_, err = m.Stop(t.Context(), alice, again, StopRequest{})
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, after).Status)
	})
}

func TestCloseKeepsAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Readmit: yes, Grace: time.Minute})
		id := spawned(t, m, alice, "deaf")
		go func() { _, _ = m.Stop(t.Context(), alice, id, StopRequest{}) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, m.Close(ctx))
		require.Equal(t, engine.StatusCanceled, status(t, m, alice, id), "a run that was to be stopped is not run again")
	})
}

func TestCloseWithoutItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBroken(memory.New())
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer))})
		id := spawned(t, m, alice, "second")
		store.broken.Store(true)
		err := m.Close(t.Context())
		require.ErrorIs(t, err, errDisk)
		require.ErrorContains(t, err, id, "the caller is told")
		store.broken.Store(false)
		require.NoError(t, m.Close(t.Context()), "and can try again")
		require.Equal(t, engine.StatusSucceeded, must(store.Get(t.Context(), id)).Status)
	})
}

func TestCloseWithAStuckEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newSpy(time.Hour, "renew")
		m := newManager(t, Config{Engine: engine})
		time.Sleep(HeartbeatEvery + time.Millisecond) // the keeper is in it now
		began := time.Now()
		err := m.Close(t.Context())
		require.ErrorIs(t, err, ErrStillRunning)
		require.ErrorContains(t, err, "the engine did not answer")
		require.Equal(t, DefaultGrace+hung, time.Since(began))
		engine.fast.Store(true)
		time.Sleep(3 * time.Hour)
	})
}
