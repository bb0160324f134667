package fair

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// granted reports whether a request has a slot.
func granted(r *request) bool {
	if r == nil {
		return true
	}
	select {
	case <-r.granted:
		return true
	default:
		return false
	}
}

// TestGreedyClient: how many of its calls wait does not matter to others. Where
// clients are expected there is a place for the next one, and where they are not
// it has the first that comes free.
func TestGreedyClient(t *testing.T) {
	for name, c := range map[string]struct {
		shared bool
		has    int // places of the greedy one before anybody else is there
	}{"shared": {true, 48}, "not shared": {false, 64}} {
		t.Run(name, func(t *testing.T) {
			s := NewSemaphore(64, c.shared)
			var greedy []*request
			for range 500 {
				greedy = append(greedy, s.enter("greedy"))
			}
			has := func() (n int) {
				for _, w := range greedy {
					if granted(w) {
						n++
					}
				}
				return n
			}
			require.Equal(t, c.has, has())
			var others []*request
			for i := range 30 {
				others = append(others, s.enter(fmt.Sprint(i)))
			}
			at := 0 // of the others have a place
			for ; at < 64-c.has; at++ {
				require.True(t, granted(others[at]), "there is one for the next %d", 64-c.has)
			}
			for ; at < len(others); at++ {
				require.False(t, granted(others[at]))
				s.Release("greedy")
				require.True(t, granted(others[at]), "each end makes room for the one that came first")
				require.Equal(t, c.has, has(), "and for none of those that wait longer")
			}
		})
	}
}

// TestSemaphoreFollowsItsRule compares it with a rule that one can read: a free slot
// goes at once to the first request of the client that has the fewest slots, if it
// has less than its cap.
func TestSemaphoreFollowsItsRule(t *testing.T) {
	type call struct {
		who string
		w   *request
	}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		most, clients := 1+rng.IntN(8), 1+rng.IntN(6)
		s := NewSemaphore(most, seed%2 == 0)
		var waiting, placed []call
		has := func(who string) (n int) {
			for _, c := range placed {
				if c.who == who {
					n++
				}
			}
			return n
		}
		hand := func() {
			for len(placed) < most {
				best := -1
				for i, c := range waiting {
					if n := has(c.who); n < s.each && (best < 0 || n < has(waiting[best].who)) {
						best = i
					}
				}
				if best < 0 {
					return
				}
				placed = append(placed, waiting[best])
				waiting = slices.Delete(waiting, best, best+1)
			}
		}
		for step := range 300 {
			who := fmt.Sprint(rng.IntN(clients))
			switch op := rng.IntN(10); {
			case op < 5:
				waiting = append(waiting, call{who, s.enter(who)})
			case op < 8 && len(placed) > 0:
				at := rng.IntN(len(placed))
				s.Release(placed[at].who)
				placed = slices.Delete(placed, at, at+1)
			case op == 8 && len(waiting) > 0:
				at := rng.IntN(len(waiting))
				full := len(placed) == most
				require.Equal(t, !full, s.withdraw(waiting[at].w))
				waiting = slices.Delete(waiting, at, at+1)
			case op == 9:
				ok := len(placed) < most && has(who) < s.each
				require.Equal(t, ok, s.TryAcquire(who), "seed %d, step %d", seed, step)
				if ok {
					placed = append(placed, call{who: who})
				}
			}
			hand()
			for _, c := range placed {
				require.True(t, granted(c.w), "seed %d, step %d", seed, step)
			}
			for _, c := range waiting {
				require.False(t, granted(c.w), "seed %d, step %d", seed, step)
			}
		}
		for _, c := range waiting {
			s.withdraw(c.w)
		}
		for _, c := range placed {
			s.Release(c.who)
		}
		require.Empty(t, s.clients, "nobody leaves a trace")
		require.Empty(t, s.waiting)
		require.Zero(t, s.held)
	}
}

// TestEveryClientGetsASlot: a stream of new clients does not starve a client with
// many calls. That client gets its first slot when it is its turn, keeps one, and
// gets more when no client without a slot waits.
func TestEveryClientGetsASlot(t *testing.T) {
	s := NewSemaphore(2, false)
	var others []*request
	came, left := 0, 0
	enter := func() {
		others = append(others, s.enter(fmt.Sprint(came)))
		came++
	}
	leave := func() {
		require.True(t, granted(others[left]), "they come in their order")
		s.Release(fmt.Sprint(left))
		left++
	}
	enter()
	enter()
	var patient []*request
	for range 20 {
		patient = append(patient, s.enter("patient"))
	}
	enter()
	leave()
	for i := range patient[:18] {
		require.True(t, granted(patient[i]), "it came before those that wait")
		enter()
		leave()
		require.False(t, granted(patient[i+1]), "it has one already")
		s.Release("patient")
	}
	for left < came {
		leave()
	}
	require.True(t, granted(patient[18]))
	require.True(t, granted(patient[19]), "all others have left")
}

// TestCancelStorm: calls that give up at the moment they get a place pass it on.
func TestCancelStorm(t *testing.T) {
	s := NewSemaphore(4, true)
	var all sync.WaitGroup
	for i := range 2000 {
		who := fmt.Sprint(i % 7)
		all.Go(func() {
			w := s.enter(who)
			switch {
			case w == nil:
				s.Release(who)
			case i%3 == 0:
				<-w.granted
				s.Release(who)
			default:
				s.withdraw(w)
			}
		})
	}
	all.Wait() // those of every third have all had a place
	require.Empty(t, s.clients)
	require.Zero(t, s.held)
}

func TestContended(t *testing.T) {
	s := NewSemaphore(1, false)
	require.True(t, s.TryAcquire("a"))
	require.False(t, s.Contended())
	w := s.enter("b")
	require.True(t, s.Contended())
	s.Release("a")
	<-w.granted
	require.False(t, s.Contended())
	s.Release("b")
}
