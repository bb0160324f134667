package background

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
		require.Equal(t, StatusSucceeded, must(m.Get(t.Context(), alice, id)).Status, "records can be read")
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, ErrClosed)
		require.Empty(t, m.limits.held)
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
			require.Equal(t, StatusFailed, run.Status)
			require.Equal(t, RunError{KindInterrupted, textInterrupted}, *run.Error)
		}
		require.Equal(t, StatusSucceeded, must(m.Get(t.Context(), alice, stubborn)).Status, "a result is kept")
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
		require.Equal(t, 6*time.Second, time.Since(began))
		require.Equal(t, StatusRunning, must(m.Get(t.Context(), alice, id)).Status)
		time.Sleep(time.Hour)
		require.Equal(t, KindInterrupted, must(m.Get(t.Context(), alice, id)).Error.Kind)
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
		require.Zero(t, must(m.List(t.Context(), alice, ListRequest{})).Active)
	})
}
