package sched

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// run runs a test of a scheduler with so many slots. Time passes only where
// the test says so.
func run(t *testing.T, slots int, test func(t *testing.T, p *Scheduler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := New(func() int { return slots })
		test(t, p)
		s := p.Stats()
		require.Zero(t, s.Waiting)
		require.Zero(t, s.Computing)
	})
}

func newGuest(client string, background bool) *Guest {
	g := &Guest{client: client}
	g.background.Store(background)
	return g
}

// granted says whether a guest that waited has a slot.
func granted(g *Guest) bool {
	select {
	case <-g.slot:
		return true
	default:
		return false
	}
}

// waiting has guests wait for slots.
func waiting(t *testing.T, p *Scheduler, guests ...*Guest) {
	t.Helper()
	for _, g := range guests {
		require.False(t, p.enter(g))
	}
}

func leaveAll(p *Scheduler, guests ...*Guest) {
	for _, g := range guests {
		p.leave(g)
	}
}

// TestSlots: no more guests compute than there are slots, and one that leaves
// makes room for the one that waits.
func TestSlots(t *testing.T) {
	run(t, 2, func(t *testing.T, p *Scheduler) {
		a, b, c := newGuest("", false), newGuest("", false), newGuest("", false)
		require.True(t, p.enter(a))
		require.True(t, p.yield(a))
		require.True(t, p.enter(b))
		waiting(t, p, c)
		require.Equal(t, Stats{Computing: 2, Waiting: 1, Waited: 1}, p.Stats())

		time.Sleep(time.Millisecond)
		p.leave(b)
		p.leave(b) // twice is once
		require.True(t, granted(c))
		require.Equal(t, Stats{Computing: 2, Waited: 1, WaitTime: time.Millisecond}, p.Stats())
		leaveAll(p, a, c)
	})
}

// TestQuitWaiting: a guest that stops waiting, such as one that is stopped, takes
// no slot, also where it got one at that moment.
func TestQuitWaiting(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		a, b, c := newGuest("", true), newGuest("", true), newGuest("", true)
		require.True(t, p.enter(a))
		waiting(t, p, b, c)
		p.leave(b)
		p.leave(a)
		require.False(t, granted(b))
		require.True(t, granted(c))
		p.leave(c) // which never looked
	})
}

// TestUrgency: a direct call has a slot at the next refill of a background run,
// and those give way to nobody else before their quantum is over.
func TestUrgency(t *testing.T) {
	run(t, 2, func(t *testing.T, p *Scheduler) {
		runs := []*Guest{newGuest("a", true), newGuest("b", true)}
		for _, g := range runs {
			require.True(t, p.enter(g))
		}
		other, call := newGuest("c", true), newGuest("d", false)
		waiting(t, p, other)
		require.True(t, p.yield(runs[0]), "another run waits for its quantum")

		waiting(t, p, call)
		require.False(t, p.yield(runs[0]))
		require.True(t, granted(call))
		require.True(t, p.yield(runs[1]), "one has given way")

		p.leave(call)
		require.True(t, granted(other), "which came before the one that gave way")
		p.leave(other)
		require.True(t, granted(runs[0]))
		leaveAll(p, runs...)
	})
}

// TestLongCallsAreLessUrgent: a direct call that has computed for long gives way
// to one that has not, and not to a background run.
func TestLongCallsAreLessUrgent(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		long, run, brief := newGuest("a", false), newGuest("b", true), newGuest("c", false)
		require.True(t, p.enter(long))
		waiting(t, p, run)
		time.Sleep(briefMost)
		require.True(t, p.yield(long), "its quantum is over, and it goes first still")

		waiting(t, p, brief)
		require.False(t, p.yield(long))
		require.True(t, granted(brief))
		p.leave(brief)
		require.True(t, granted(long))
		p.leave(long)
		p.leave(run)
	})
}

// TestParkedCallsGiveWay: a direct call that was parked counts as a background
// run from its next quantum on.
func TestParkedCallsGiveWay(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		parked, run := newGuest("a", false), newGuest("b", true)
		require.True(t, p.enter(parked))
		waiting(t, p, run)
		time.Sleep(quantum)
		require.True(t, p.yield(parked))
		parked.background.Store(true)
		time.Sleep(quantum)
		require.False(t, p.yield(parked))
		require.True(t, granted(run))
		leaveAll(p, parked, run)
	})
}

// TestHurry: a run that is asked to stop while it waits goes before others.
func TestHurry(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		a, b, c := newGuest("a", true), newGuest("b", true), newGuest("c", true)
		require.True(t, p.enter(a))
		waiting(t, p, b, c)
		p.hurry(c)
		require.False(t, p.yield(a))
		require.True(t, granted(c))
		leaveAll(p, a, b, c)
	})
}

// turns has one guest after the other compute for a quantum, and counts how many
// each had.
func turns(t *testing.T, p *Scheduler, n int, guests ...*Guest) map[string]int {
	t.Helper()
	had := map[string]int{}
	computing := map[*Guest]bool{}
	for _, g := range guests {
		computing[g] = p.enter(g)
	}
	for range n {
		time.Sleep(quantum)
		for _, g := range guests {
			if computing[g] {
				had[g.client]++
				computing[g] = p.yield(g)
			}
		}
		for _, g := range guests {
			computing[g] = computing[g] || granted(g)
		}
	}
	return had
}

// TestClientsTakeTurns: a client with many guests has no more than one with one,
// however many slots there are.
func TestClientsTakeTurns(t *testing.T) {
	for _, slots := range []int{1, 2} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			run(t, slots, func(t *testing.T, p *Scheduler) {
				guests := []*Guest{newGuest("b", true), newGuest("c", true)}
				for range 5 {
					guests = append(guests, newGuest("a", true))
				}
				had := turns(t, p, 300, guests...)
				for _, client := range []string{"a", "b", "c"} {
					require.InDelta(t, 100*slots, had[client], 3, "%s of %v", client, had)
				}
				leaveAll(p, guests...)
			})
		})
	}
}

// TestNobodyStarves: runs have a tenth of the time while direct calls would take
// all of it.
func TestNobodyStarves(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		guests := []*Guest{newGuest("run", true), newGuest("call", false), newGuest("call", false)}
		had := turns(t, p, 1000, guests...)
		require.InDelta(t, 100, had["run"], 3, "%v", had)
		leaveAll(p, guests...)
	})
}

// TestCertainQuantum: what a run is certain of is not taken away by the next call.
func TestCertainQuantum(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		call, run, next := newGuest("a", false), newGuest("b", true), newGuest("c", false)
		require.True(t, p.enter(call))
		waiting(t, p, run)
		time.Sleep(leastShare)
		require.False(t, p.yield(call))
		require.True(t, granted(run))
		waiting(t, p, next)
		require.True(t, p.yield(run))
		time.Sleep(quantum)
		require.False(t, p.yield(run))
		leaveAll(p, call, run, next)
	})
}

// TestLend: others compute while a guest is in a host function for long. One that
// comes back soon keeps its slot.
func TestLend(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		lends, other := newGuest("a", true), newGuest("b", true)
		require.True(t, p.enter(lends))
		p.lend(lends)
		p.lend(lends) // a function within another
		time.Sleep(time.Hour)
		require.True(t, p.reclaim(lends), "nobody wants it")

		waiting(t, p, other)
		for range 100 { // never for long
			p.lend(lends)
			time.Sleep(lendFor / 2)
			require.True(t, p.reclaim(lends))
			require.False(t, granted(other))
		}

		p.lend(lends)
		time.Sleep(2*lendFor + time.Microsecond)
		require.True(t, granted(other))
		require.False(t, p.reclaim(lends))
		require.False(t, p.enter(lends))
		leaveAll(p, lends, other)
	})
}

// TestMustNotWait: a call within another has a slot in any case, and nobody gets
// one until there are few enough again.
func TestMustNotWait(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		outer, inner, other := newGuest("a", false), newGuest("a", false), newGuest("b", false)
		require.True(t, p.enter(outer))
		inner.nested = true
		require.True(t, p.enter(inner))
		waiting(t, p, other)
		p.leave(inner)
		require.False(t, granted(other))
		p.leave(outer)
		require.True(t, granted(other))
		p.leave(other)
	})
}

// TestProcessorsChange: slots follow the number of processors.
func TestProcessorsChange(t *testing.T) {
	slots := 1
	p := New(func() int { return slots })
	a, b, c := newGuest("a", true), newGuest("b", true), newGuest("c", true)
	require.True(t, p.enter(a))
	waiting(t, p, b)
	slots = 3
	require.True(t, p.enter(c))
	require.True(t, granted(b), "which came before")
	leaveAll(p, a, b, c)
	require.Zero(t, p.Stats().Computing)
}
