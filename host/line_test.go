package host

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// in says whether a call that entered has a place.
func in(w *waiter) bool {
	if w == nil {
		return true
	}
	select {
	case <-w.turn:
		return true
	default:
		return false
	}
}

func lineOf(most int64, shared bool) *line {
	r := newRule(most, shared, "", "")
	return &line{rule: &r}
}

func TestRules(t *testing.T) {
	for most, each := range map[int64]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3, 64: 48, 256: 192} {
		r := newRule(most, true, " of one plugin", " here")
		require.Equal(t, each, r.each)
		require.Contains(t, r.whyEach, fmt.Sprintf("at most %d calls of one plugin", each))
		require.Equal(t, int(most), newRule(most, false, "", "").each)
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
			l := lineOf(64, c.shared)
			var greedy []*waiter
			for range 500 {
				greedy = append(greedy, l.enter("greedy"))
			}
			has := func() (n int) {
				for _, w := range greedy {
					if in(w) {
						n++
					}
				}
				return n
			}
			require.Equal(t, c.has, has())
			var others []*waiter
			for i := range 30 {
				others = append(others, l.enter(fmt.Sprint(i)))
			}
			at := 0 // of the others have a place
			for ; at < 64-c.has; at++ {
				require.True(t, in(others[at]), "there is one for the next %d", 64-c.has)
			}
			for ; at < len(others); at++ {
				require.False(t, in(others[at]))
				l.leave("greedy")
				require.True(t, in(others[at]), "each end makes room for the one that came first")
				require.Equal(t, c.has, has(), "and for none of those that wait longer")
			}
		})
	}
}

// TestTheLineFollowsItsRules compares it with rules one can read: a place goes
// at once to the first call of those whose client has the fewest, if it has less
// than it can have.
func TestTheLineFollowsItsRules(t *testing.T) {
	type call struct {
		who string
		w   *waiter
	}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		most, clients := 1+rng.Int64N(8), 1+rng.IntN(6)
		l := lineOf(most, seed%2 == 0)
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
			for len(placed) < int(most) {
				best := -1
				for i, c := range waiting {
					if n := has(c.who); n < l.rule.each && (best < 0 || n < has(waiting[best].who)) {
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
				waiting = append(waiting, call{who, l.enter(who)})
			case op < 8 && len(placed) > 0:
				at := rng.IntN(len(placed))
				l.leave(placed[at].who)
				placed = slices.Delete(placed, at, at+1)
			case op == 8 && len(waiting) > 0:
				at := rng.IntN(len(waiting))
				full := len(placed) == int(most)
				require.Equal(t, full, l.quit(waiting[at].w) == l.rule.why || l.rule.each == l.rule.max)
				waiting = slices.Delete(waiting, at, at+1)
			case op == 9:
				ok := len(placed) < int(most) && has(who) < l.rule.each
				require.Equal(t, ok, l.try(who), "seed %d, step %d", seed, step)
				if ok {
					placed = append(placed, call{who: who})
				}
			}
			hand()
			for _, c := range placed {
				require.True(t, in(c.w), "seed %d, step %d", seed, step)
			}
			for _, c := range waiting {
				require.False(t, in(c.w), "seed %d, step %d", seed, step)
			}
		}
		for _, c := range waiting {
			l.quit(c.w)
		}
		for _, c := range placed {
			l.leave(c.who)
		}
		require.Empty(t, l.clients, "nobody leaves a trace")
		require.Empty(t, l.ready)
		require.Zero(t, l.taken)
	}
}

// TestEveryClientHasATurn: a stream of clients that nobody has seen before does
// not keep one out that has many calls. It has its first place when it is its
// turn, then goes on with one, and has more when nobody waits who has none.
func TestEveryClientHasATurn(t *testing.T) {
	l := lineOf(2, false)
	var others []*waiter
	came, left := 0, 0
	enter := func() {
		others = append(others, l.enter(fmt.Sprint(came)))
		came++
	}
	leave := func() {
		require.True(t, in(others[left]), "they come in their order")
		l.leave(fmt.Sprint(left))
		left++
	}
	enter()
	enter()
	var patient []*waiter
	for range 20 {
		patient = append(patient, l.enter("patient"))
	}
	enter()
	leave()
	for i := range patient[:18] {
		require.True(t, in(patient[i]), "it came before those that wait")
		enter()
		leave()
		require.False(t, in(patient[i+1]), "it has one already")
		l.leave("patient")
	}
	for left < came {
		leave()
	}
	require.True(t, in(patient[18]))
	require.True(t, in(patient[19]), "all others have left")
}

// TestCancelStorm: calls that give up at the moment they get a place pass it on.
func TestCancelStorm(t *testing.T) {
	l := lineOf(4, true)
	var all sync.WaitGroup
	for i := range 2000 {
		who := fmt.Sprint(i % 7)
		all.Go(func() {
			w := l.enter(who)
			switch {
			case w == nil:
				l.leave(who)
			case i%3 == 0:
				<-w.turn
				l.leave(who)
			default:
				l.quit(w)
			}
		})
	}
	all.Wait() // those of every third have all had a place
	require.Empty(t, l.clients)
	require.Zero(t, l.taken)
}
