package fair_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fair"
)

// TestAcquire: a waiter gets the slot that becomes free, and one that gives up
// learns which limit was reached.
func TestAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fair.NewSemaphore(3, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			_, err := s.Acquire(ctx, "ana")
			require.NoError(t, err)
		}

		ofKey, err := s.Acquire(ctx, "ana")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, ofKey)

		require.True(t, s.TryAcquire("bo"))
		require.False(t, s.TryAcquire("bo"))
		ofKey, err = s.Acquire(ctx, "bo")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, ofKey)

		got := make(chan error)
		go func() {
			_, err := s.Acquire(t.Context(), "bo")
			got <- err
		}()
		synctest.Wait()
		s.Release("ana")
		require.NoError(t, <-got)
	})
}

func TestVictim(t *testing.T) {
	at := func(key string, sec int64) fair.Holding { return fair.Holding{Key: key, Since: time.Unix(sec, 0)} }
	busy := func(key string) fair.Holding { return fair.Holding{Key: key, Busy: true} }
	for name, c := range map[string]struct {
		all      []fair.Holding
		newcomer string
		victim   fair.Holding // zero: none
	}{
		"none":                                 {nil, "ana", fair.Holding{}},
		"of those with the most":               {[]fair.Holding{at("ana", 1), at("bo", 3), at("bo", 2)}, "cy", at("bo", 2)},
		"of equals the oldest":                 {[]fair.Holding{at("ana", 5), at("bo", 3)}, "cy", at("bo", 3)},
		"one that is busy stays":               {[]fair.Holding{at("ana", 5), busy("bo"), busy("bo")}, "cy", at("ana", 5)},
		"what is busy counts":                  {[]fair.Holding{at("ana", 1), busy("bo"), at("bo", 3)}, "cy", at("bo", 3)},
		"a client with as many takes its own":  {[]fair.Holding{at("ana", 1), at("bo", 3)}, "bo", at("bo", 3)},
		"a client with as many takes no other": {[]fair.Holding{at("ana", 1), busy("bo")}, "bo", fair.Holding{}},
		"a client with fewer takes":            {[]fair.Holding{at("ana", 4), at("ana", 1), busy("bo")}, "bo", at("ana", 1)},
	} {
		victim, ok := fair.Victim(slices.Values(c.all), func(h fair.Holding) fair.Holding { return h }, c.newcomer)
		require.Equal(t, c.victim, victim, name)
		require.Equal(t, c.victim != fair.Holding{}, ok, name)
	}
}
