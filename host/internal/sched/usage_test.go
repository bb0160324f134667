package sched

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUsage: a guest is charged for the time it holds a slot, not for the time it waits
// for one, lends it, or is idle.
func TestUsage(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		first, second := newGuest("a", false), newGuest("b", false)
		began := time.Now()
		_, _, ended := first.Usage()
		require.True(t, ended.IsZero())

		require.True(t, enter(p, first))
		waiting(t, p, second)
		time.Sleep(3 * time.Millisecond)
		computed, waited := first.UsageSoFar()
		require.Equal(t, []time.Duration{3 * time.Millisecond, 0}, []time.Duration{computed, waited})
		computed, waited = second.UsageSoFar()
		require.Equal(t, []time.Duration{0, 3 * time.Millisecond}, []time.Duration{computed, waited}, "it waits")
		first.Idle() // it sleeps
		require.True(t, granted(second))
		time.Sleep(5 * time.Millisecond)
		second.Lend()
		time.Sleep(lendFor / 2)
		computed, _ = second.UsageSoFar()
		require.Equal(t, 5*time.Millisecond, computed, "it lends its slot")
		require.True(t, second.reclaim())
		second.Lend() // nobody wants the slot: it keeps it
		time.Sleep(time.Hour)
		second.Idle()
		require.True(t, first.Compute())
		time.Sleep(time.Millisecond)
		first.Idle()

		computed, waited = first.UsageSoFar()
		require.Equal(t, []time.Duration{4 * time.Millisecond, 0}, []time.Duration{computed, waited}, "the same after the end")
		computed, waited, ended = first.Usage()
		require.Equal(t, 4*time.Millisecond, computed)
		require.Zero(t, waited)
		require.Equal(t, time.Since(began), ended.Sub(began))
		computed, waited, _ = second.Usage()
		require.Equal(t, 5*time.Millisecond, computed)
		require.Equal(t, 3*time.Millisecond, waited)
	})
}

// TestUsageOfRevoked: the time after a slot was taken away is not charged.
func TestUsageOfRevoked(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		lends, other := newGuest("a", false), newGuest("b", false)
		require.True(t, enter(p, lends))
		time.Sleep(time.Millisecond)
		waiting(t, p, other)
		lends.Lend()
		time.Sleep(time.Hour)
		require.True(t, granted(other))
		other.Idle()
		require.False(t, lends.reclaim())
		lends.Idle()

		computed, _, _ := lends.Usage()
		require.Equal(t, time.Millisecond, computed)
	})
}
