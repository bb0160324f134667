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
	g := &Guest{GuestOptions: GuestOptions{Client: client}}
	g.background.Store(background)
	return g
}

func enter(p *Scheduler, g *Guest) bool {
	g.s = p
	return g.enter()
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
		require.False(t, enter(p, g))
	}
}

func leaveAll(guests ...*Guest) {
	for _, g := range guests {
		g.Idle()
	}
}

// TestSlots: no more guests compute than there are slots, and one that leaves
// makes room for the one that waits.
func TestSlots(t *testing.T) {
	run(t, 2, func(t *testing.T, p *Scheduler) {
		a, b, c := newGuest("", false), newGuest("", false), newGuest("", false)
		require.True(t, enter(p, a))
		require.True(t, a.yield())
		require.True(t, enter(p, b))
		waiting(t, p, c)
		require.Equal(t, Stats{Computing: 2, Waiting: 1, Waited: 1}, p.Stats())

		time.Sleep(time.Millisecond)
		b.Idle()
		b.Idle() // twice is once
		require.True(t, granted(c))
		require.Equal(t, Stats{Computing: 2, Waited: 1, WaitTime: time.Millisecond}, p.Stats())
		leaveAll(a, c)
	})
}

// TestQuitWaiting: a guest that stops waiting, such as one that is stopped, takes
// no slot, also where it got one at that moment.
func TestQuitWaiting(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		a, b, c := newGuest("", true), newGuest("", true), newGuest("", true)
		require.True(t, enter(p, a))
		waiting(t, p, b, c)
		b.Idle()
		a.Idle()
		require.False(t, granted(b))
		require.True(t, granted(c))
		c.Idle() // which never looked
	})
}

// TestUrgency: a direct call has a slot at the next refill of a background run,
// and those give way to nobody else before their quantum is over.
func TestUrgency(t *testing.T) {
	run(t, 2, func(t *testing.T, p *Scheduler) {
		runs := []*Guest{newGuest("a", true), newGuest("b", true)}
		for _, g := range runs {
			require.True(t, enter(p, g))
		}
		other, call := newGuest("c", true), newGuest("d", false)
		waiting(t, p, other)
		require.True(t, runs[0].yield(), "another run waits for its quantum")

		waiting(t, p, call)
		require.False(t, runs[0].yield())
		require.True(t, granted(call))
		require.True(t, runs[1].yield(), "one has given way")

		call.Idle()
		require.True(t, granted(other), "which came before the one that gave way")
		other.Idle()
		require.True(t, granted(runs[0]))
		leaveAll(runs...)
	})
}

// TestLongCallsAreLessUrgent: a direct call that has computed for long gives way
// to one that has not, and not to a background run.
func TestLongCallsAreLessUrgent(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		long, run, brief := newGuest("a", false), newGuest("b", true), newGuest("c", false)
		require.True(t, enter(p, long))
		waiting(t, p, run)
		time.Sleep(briefMost)
		require.True(t, long.yield(), "its quantum is over, and it goes first still")

		waiting(t, p, brief)
		require.False(t, long.yield())
		require.True(t, granted(brief))
		brief.Idle()
		require.True(t, granted(long))
		long.Idle()
		run.Idle()
	})
}

// TestParkedCallsGiveWay: a direct call that was parked counts as a background
// run from its next quantum on.
func TestParkedCallsGiveWay(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		parked, run := newGuest("a", false), newGuest("b", true)
		require.True(t, enter(p, parked))
		waiting(t, p, run)
		time.Sleep(quantum)
		require.True(t, parked.yield())
		parked.background.Store(true)
		time.Sleep(quantum)
		require.False(t, parked.yield())
		require.True(t, granted(run))
		leaveAll(parked, run)
	})
}

// TestHurry: a run that is asked to stop while it waits goes before others.
func TestHurry(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		a, b, c := newGuest("a", true), newGuest("b", true), newGuest("c", true)
		require.True(t, enter(p, a))
		waiting(t, p, b, c)
		c.hurry()
		require.False(t, a.yield())
		require.True(t, granted(c))
		leaveAll(a, b, c)
	})
}

// turns has one guest after the other compute for a quantum, and counts how many
// each had.
func turns(t *testing.T, p *Scheduler, n int, guests ...*Guest) map[string]int {
	t.Helper()
	had := map[string]int{}
	computing := map[*Guest]bool{}
	for _, g := range guests {
		computing[g] = enter(p, g)
	}
	for range n {
		time.Sleep(quantum)
		for _, g := range guests {
			if computing[g] {
				had[g.Client]++
				computing[g] = g.yield()
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
				leaveAll(guests...)
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
		leaveAll(guests...)
	})
}

// TestCertainQuantum: what a run is certain of is not taken away by the next call.
func TestCertainQuantum(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		call, run, next := newGuest("a", false), newGuest("b", true), newGuest("c", false)
		require.True(t, enter(p, call))
		waiting(t, p, run)
		time.Sleep(leastShare)
		require.False(t, call.yield())
		require.True(t, granted(run))
		waiting(t, p, next)
		require.True(t, run.yield())
		time.Sleep(quantum)
		require.False(t, run.yield())
		leaveAll(call, run, next)
	})
}

// TestLend: others compute while a guest is in a host function for long. One that
// comes back soon keeps its slot.
func TestLend(t *testing.T) {
	run(t, 1, func(t *testing.T, p *Scheduler) {
		lends, other := newGuest("a", true), newGuest("b", true)
		require.True(t, enter(p, lends))
		lends.Lend()
		lends.Lend() // a function within another
		time.Sleep(time.Hour)
		require.True(t, lends.reclaim(), "nobody wants it")

		waiting(t, p, other)
		for range 100 { // never for long
			lends.Lend()
			time.Sleep(lendFor / 2)
			require.True(t, lends.reclaim())
			require.False(t, granted(other))
		}

		lends.Lend()
		time.Sleep(2*lendFor + time.Microsecond)
		require.True(t, granted(other))
		require.False(t, lends.reclaim())
		require.False(t, enter(p, lends))
		leaveAll(lends, other)
	})
}

// TestProcessorsChange: slots follow the number of processors.
func TestProcessorsChange(t *testing.T) {
	slots := 1
	p := New(func() int { return slots })
	a, b, c := newGuest("a", true), newGuest("b", true), newGuest("c", true)
	require.True(t, enter(p, a))
	waiting(t, p, b)
	slots = 3
	require.True(t, enter(p, c))
	require.True(t, granted(b), "which came before")
	leaveAll(a, b, c)
	require.Zero(t, p.Stats().Computing)
}
