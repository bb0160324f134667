package instance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLedger: what one module takes another cannot have, by kind, until it is given
// back.
func TestLedger(t *testing.T) {
	l := NewLedger(Config{Memory: 100})
	defer l.Close()
	a, b := l.Account(0), l.Account(0)
	require.NoError(t, a.Take(Stacks, 60))
	require.NoError(t, b.Take(Buffers, 40))
	err := b.Take(Linear, 1)
	require.ErrorIs(t, err, ErrHostMemory)
	require.ErrorIs(t, err, ErrMemory)
	require.ErrorContains(t, err, "hold 100 of the 100 bytes this host allows them, and 1 more are needed")

	a.Give(Stacks, 60)
	require.NoError(t, b.Take(Linear, 1))
	require.Equal(t, Figures{Held: [kinds]int64{Linear: 1, Buffers: 40}, Peak: 41}, b.Figures())
	f := l.Figures()
	require.EqualValues(t, 41, f.Total())
	require.EqualValues(t, 100, f.Peak)
}

// TestTakeAwaitsFrees: memory that is on its way back is waited for.
func TestTakeAwaitsFrees(t *testing.T) {
	l := NewLedger(Config{Memory: 100})
	defer l.Close()
	a := l.Account(0)
	require.NoError(t, a.Take(Linear, 100))
	l.freeLater(func() {
		time.Sleep(10 * time.Millisecond)
		a.Give(Linear, 100)
	})
	require.NoError(t, a.Take(Linear, 100))
}

// TestSnapshotLifetime: calls of a view share what is taken for the first of them,
// and one that nobody waits for any more is not taken to its end.
func TestSnapshotLifetime(t *testing.T) {
	l := NewLedger(Config{Memory: 100})
	defer l.Close()
	a := l.Account(0)
	taken := 0
	take := func() func(context.Context, *Snapshot) error {
		taken++
		return func(ctx context.Context, _ *Snapshot) error { <-ctx.Done(); return ErrAgain }
	}
	s := a.Snapshot("view", take)
	require.Same(t, s, a.Snapshot("view", take))
	require.Equal(t, 1, taken)

	s.Release()
	select {
	case <-s.Taken:
		require.Fail(t, "a call still waits for it")
	case <-time.After(time.Millisecond):
	}
	s.Release()
	<-s.Taken
	require.Nil(t, s.Image)

	impure := errors.New("it reads the time")
	s = a.Snapshot("view", func() func(context.Context, *Snapshot) error {
		return func(context.Context, *Snapshot) error { return impure }
	})
	<-s.Taken
	require.Same(t, s, a.Snapshot("view", take), "it is not tried again")
	s.Release()
	s.Release()
	a.Close()
}
