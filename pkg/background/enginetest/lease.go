package enginetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

func claim(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	time.Sleep(time.Second)
	lease := claimed(t, e, "bg_a")
	run := lease.Run()
	require.Equal(t, background.StatusRunning, run.Status)
	require.Equal(t, 1, run.Attempt)
	require.True(t, run.StartedAt.Equal(time.Now()))
	require.True(t, run.HeartbeatAt.Equal(time.Now()))
	same(t, run, get(t, e, "bg_a"))

	_, err := e.Claim(t.Context(), "bg_a")
	require.ErrorIs(t, err, background.ErrNotClaimable, "while the lease lasts")
	complete(t, lease, background.StatusFailed)
	time.Sleep(2 * background.LeaseTTL)
	_, err = e.Claim(t.Context(), "bg_a")
	require.ErrorIs(t, err, background.ErrNotClaimable, "of a terminal run")
}

func claimStale(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	old := claimed(t, e, "bg_a")
	time.Sleep(background.LeaseTTL - time.Second)
	_, err := old.Extend(t.Context(), background.Beat{Detail: "old"})
	require.NoError(t, err)
	time.Sleep(background.LeaseTTL - time.Second)
	_, err = e.Claim(t.Context(), "bg_a")
	require.ErrorIs(t, err, background.ErrNotClaimable, "the extension counts")
	time.Sleep(time.Second)

	next := claimed(t, e, "bg_a")
	require.Equal(t, 2, next.Run().Attempt)
	before := get(t, e, "bg_a")
	_, err = old.Extend(t.Context(), background.Beat{Detail: "zombie"})
	require.ErrorIs(t, err, background.ErrFenced)
	require.ErrorIs(t, old.Append(t.Context(), 0, []byte("zombie")), background.ErrFenced)
	_, err = old.Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{Summary: "zombie"})
	require.ErrorIs(t, err, background.ErrFenced)
	same(t, before, get(t, e, "bg_a"))
	require.Empty(t, read(t, e, "bg_a"))
	complete(t, next, background.StatusSucceeded)
}

func extend(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	time.Sleep(time.Second)
	c, err := lease.Extend(t.Context(), background.Beat{Detail: "half", Progress: &background.Progress{Done: 1, Total: 2}, OutputBytes: 7})
	require.NoError(t, err)
	require.Nil(t, c)
	run := get(t, e, "bg_a")
	require.Equal(t, "half", run.Detail)
	require.Equal(t, &background.Progress{Done: 1, Total: 2}, run.Progress)
	require.EqualValues(t, 7, run.OutputBytes)
	require.True(t, run.HeartbeatAt.Equal(time.Now()))
	require.Equal(t, background.StatusRunning, run.Status)
}

func completeFinal(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	end := background.End{Summary: "no", Error: &background.RunError{Kind: background.KindTrap, Message: "unreachable"}, FinishedAt: time.Now()}
	stored, err := lease.Complete(t.Context(), background.StatusFailed, background.Beat{OutputBytes: 5}, end)
	require.NoError(t, err)
	require.Equal(t, background.StatusFailed, stored.Status)
	require.Equal(t, background.KindTrap, stored.Error.Kind)
	require.EqualValues(t, 5, stored.OutputBytes)
	same(t, stored, get(t, e, "bg_a"))

	_, err = lease.Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{})
	require.ErrorIs(t, err, background.ErrFenced)
	_, err = lease.Extend(t.Context(), background.Beat{Detail: "late"})
	require.ErrorIs(t, err, background.ErrFenced)
	require.ErrorIs(t, lease.Append(t.Context(), 0, []byte("late")), background.ErrFenced)
	after, err := e.Cancel(t.Context(), "bg_a", background.Cancellation{By: "late"})
	require.NoError(t, err)
	same(t, stored, after)
	same(t, stored, get(t, e, "bg_a"))
}

func completeRace(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	var mu sync.Mutex // a lease is used by one goroutine at a time
	won := race(16, func(int) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := lease.Complete(context.Background(), background.StatusSucceeded, background.Beat{}, background.End{})
		return err
	})
	require.Equal(t, 1, won)
}

func claimRace(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	require.Equal(t, 1, race(16, func(int) error { _, err := e.Claim(t.Context(), "bg_a"); return err }))
	require.Equal(t, 1, get(t, e, "bg_a").Attempt)
	time.Sleep(background.LeaseTTL)
	require.Equal(t, 1, race(16, func(int) error { _, err := e.Claim(t.Context(), "bg_a"); return err }), "of a stale one")
	require.Equal(t, 2, get(t, e, "bg_a").Attempt)
}

func checkpoint(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	first := claimed(t, e, "bg_a")
	require.Nil(t, first.Checkpoint())
	data := []byte("page 1")
	require.NoError(t, first.Save(t.Context(), data))
	data[0] = 'X'
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	require.ErrorIs(t, first.Save(t.Context(), []byte("zombie")), background.ErrFenced)

	second := claimed(t, e, "bg_a")
	require.Equal(t, "page 1", string(second.Checkpoint()))
	second.Checkpoint()[0] = 'X'
	require.Equal(t, "page 1", string(second.Checkpoint()))
	require.NoError(t, second.Save(t.Context(), []byte("page 2")))
	require.NoError(t, second.Save(t.Context(), []byte("page 3")))
	time.Sleep(background.LeaseTTL)

	third := claimed(t, e, "bg_a")
	require.Equal(t, "page 3", string(third.Checkpoint()))
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 3))
	require.Equal(t, "page 3", string(claimed(t, e, "bg_a").Checkpoint()), "it stays until there is another")
}

// fencing tries every write of a lease after every way to lose it.
func fencing(t *testing.T, e background.Engine) {
	for name, lose := range map[string]func(id string, l background.Lease) error{
		"claimed": func(id string, _ background.Lease) error {
			time.Sleep(background.LeaseTTL)
			_, err := e.Claim(t.Context(), id)
			return err
		},
		"requeued": func(id string, _ background.Lease) error { return e.Requeue(t.Context(), id, 1) },
		"abandoned": func(id string, _ background.Lease) error {
			_, err := e.Abandon(t.Context(), id, 1, background.StatusFailed, background.Beat{}, background.End{FinishedAt: time.Now()})
			return err
		},
		"completed": func(_ string, l background.Lease) error {
			_, err := l.Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{FinishedAt: time.Now()})
			return err
		},
	} {
		id := "bg_" + name
		submit(t, e, id, "s")
		l := claimed(t, e, id)
		require.NoError(t, l.Append(t.Context(), 0, []byte("mine")), name)
		require.NoError(t, lose(id, l), name)
		before, log := get(t, e, id), read(t, e, id)
		_, err := l.Extend(t.Context(), background.Beat{Detail: "zombie"})
		require.ErrorIs(t, err, background.ErrFenced, name)
		require.ErrorIs(t, l.Append(t.Context(), 4, []byte("zombie")), background.ErrFenced, name)
		require.ErrorIs(t, l.Save(t.Context(), []byte("zombie")), background.ErrFenced, name)
		_, err = l.Complete(t.Context(), background.StatusCanceled, background.Beat{}, background.End{Summary: "zombie"})
		require.ErrorIs(t, err, background.ErrFenced, name)
		same(t, before, get(t, e, id))
		require.Equal(t, log, read(t, e, id))
		require.Equal(t, 1, l.Run().Attempt, "a lease knows what it was")
	}
}
