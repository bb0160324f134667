package fuel

import (
	"cmp"
	"slices"
)

const (
	// maxDebt is how much a function may have run without being charged for it when
	// it calls another: as often as the stack has frames.
	maxDebt = 32
	// maxLoopDebt is how much that may be at the head of a loop.
	maxLoopDebt = 1 << 12
	// unlimited is above any potential.
	unlimited = 1 << 50
)

// place decides where a function is charged. Every point of its code gets a
// potential: what has been charged when control is there, less what has been
// executed. An edge then charges the difference between the potential it leads to
// and the one it comes from, so that whatever path is taken, the charges add up to
// the price of what it executes. The difference may be below zero: then the edge
// gives back what another way would have cost.
//
// Two points of each node have a potential, where it is entered and where it
// starts, and so has the end of the function: zero. A step between two points that
// costs nothing fixes the potential of one by that of the other, and the steps that
// cost nothing form a forest. It is made of the steps that are taken most often, as
// far as can be guessed, see steps; the idea is Ball and Larus's, who place the
// counters of path profiles this way ("Efficient Path Profiling", MICRO 1996).
//
// Potentials have bounds where something looks at the counter. No more may be
// charged in advance there than any path from there to the end executes: so a
// counter that is found below zero with nothing left to grant means that the call
// needs more than its budget. And little may be owed before a call and at the head of
// a loop, or much could run before a check sees it. Steps that would break a bound
// are left out of the forest.
//
// The caller has charged prepaid. If free, place decides what callers charge.
func (g *graph) place(prepaid int64, free bool) {
	g.findTraps()
	if g.nodes[0].trap >= 0 {
		return
	}

	f := newForest(2*len(g.nodes) + 1)
	end := int32(2 * len(g.nodes))
	calls := g.bound(f, free)

	steps := g.steps(calls)
	entry := step{from: end, to: 0, change: prepaid, weight: entryEdge}
	if free {
		entry.weight = 0
	}
	steps = append(steps, entry)
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.weight, a.weight) })
	for _, s := range steps {
		f.join(s, false)
	}
	for _, s := range steps {
		f.join(s, true)
	}

	for i := range g.nodes {
		nd := &g.nodes[i]
		if nd.trap >= 0 {
			continue
		}
		nd.in = f.above(int32(2*i), end)
		nd.start = f.above(int32(2*i+1), end) - nd.in
		nd.out = nd.in + nd.start - nd.cost
	}
}

// findTraps finds the nodes that nothing but traps follows.
func (g *graph) findTraps() {
	for i := int32(len(g.nodes)) - 1; i >= 0; i-- {
		nd := &g.nodes[i]
		trap, leads, busy := int64(0), false, nd.busy
		g.each(i, func(to int32) {
			if to <= i || to == exit || g.nodes[to].trap < 0 {
				leads = true
				return
			}
			trap = max(trap, g.nodes[to].trap)
			busy = busy || g.nodes[to].busy
		})

		if nd.trap = -1; !leads {
			nd.trap, nd.busy = trap+nd.cost, busy
		}
	}
}

// bound sets the bounds of all potentials, and returns how many calls are at least
// on the way from each node to the end or back to a loop.
func (g *graph) bound(f *forest, free bool) []int32 {
	rest, calls := g.least()
	for i := range g.nodes {
		nd := &g.nodes[i]
		if nd.trap >= 0 {
			continue
		}
		if nd.busy || nd.end == endBrIf && g.labels[nd.target] <= int32(i) {
			f.limit(int32(2*i+1), -unlimited, rest[i])
		}
		if nd.leaves > 0 {
			f.limit(int32(2*i+1), nd.called-maxDebt, unlimited)
		}
		if g.loops[nd.loop].header == int32(i) {
			f.limit(int32(2*i), -maxLoopDebt, rest[i])
		}
	}

	most := rest[0]
	if free {
		most = min(most, maxPrepaid)
	}
	f.limit(0, 0, most)
	f.limit(int32(2*len(g.nodes)), 0, 0)
	return calls
}

// least returns the least that runs from each node to the end, and the fewest calls from
// it to the end or back to a loop. The shortest path takes no back edge to a loop that it
// has been at, so the second turn knows all that is needed of the heads of loops.
func (g *graph) least() (rest []int64, calls []int32) {
	rest, calls = make([]int64, len(g.nodes)), make([]int32, len(g.nodes))
	for i := range rest {
		rest[i] = unlimited
	}

	for range 2 {
		for i := int32(len(g.nodes)) - 1; i >= 0; i-- {
			nd := &g.nodes[i]
			if nd.trap >= 0 {
				continue
			}
			least, fewest := int64(unlimited), int32(1<<30)
			g.each(i, func(to int32) {
				switch {
				case to == exit:
					least, fewest = 0, 0
				case to <= i:
					least, fewest = min(least, rest[to]), 0
				case g.nodes[to].trap < 0:
					least, fewest = min(least, rest[to]), min(fewest, calls[to])
				}
			})
			rest[i], calls[i] = nd.cost+least, fewest+nd.leaves
		}
	}
	return rest, calls
}

// A forest is a set of points whose potentials follow from those of others.
type forest struct {
	up     []int32 // of a root: itself
	lift   []int64 // potential above that of up
	lo, hi []int64 // bounds of the potential of a root
}

func newForest(points int) *forest {
	f := &forest{up: make([]int32, points), lift: make([]int64, points), lo: make([]int64, points), hi: make([]int64, points)}
	for i := range f.up {
		f.up[i], f.lo[i], f.hi[i] = int32(i), -unlimited, unlimited
	}
	return f
}

// limit bounds the potential of a point that has not been joined yet.
func (f *forest) limit(p int32, lo, hi int64) {
	f.lo[p], f.hi[p] = max(f.lo[p], lo), min(f.hi[p], hi)
}

// root returns the root of the tree of p, and how far p is above it.
func (f *forest) root(p int32) (int32, int64) {
	root, above := p, int64(0)
	for f.up[root] != root {
		above += f.lift[root]
		root = f.up[root]
	}

	for rest := above; p != root; {
		up, lift := f.up[p], f.lift[p]
		f.up[p], f.lift[p] = root, rest
		p, rest = up, rest-lift
	}
	return root, above
}

// above returns how far p is above q, in one tree with it.
func (f *forest) above(p, q int32) int64 {
	_, a := f.root(p)
	_, b := f.root(q)
	return a - b
}

// join makes a step free, unless bounds forbid it; then, if forced, it makes it as
// cheap as they permit.
func (f *forest) join(s step, forced bool) {
	a, aboveA := f.root(s.from)
	b, aboveB := f.root(s.to)
	if a == b {
		return
	}

	lift := aboveA + s.change - aboveB
	least, most := f.lo[b]-f.hi[a], f.hi[b]-f.lo[a]
	if lift < least || lift > most {
		if !forced {
			return
		}
		lift = min(max(lift, least), most)
	}

	f.up[b], f.lift[b] = a, lift
	f.lo[a] = max(f.lo[a], f.lo[b]-lift)
	f.hi[a] = min(f.hi[a], f.hi[b]-lift)
}

// edge returns what the edge from node i to node to charges.
func (g *graph) edge(i, to int32) int64 {
	out := g.nodes[i].out
	if g.nodes[i].trap >= 0 {
		return 0 // paid for where the way to the trap began
	}
	if to == exit {
		return -out
	}
	if nd := &g.nodes[to]; nd.trap < 0 {
		return nd.in - out
	}
	return g.trapCharge(to, out)
}

// trapCharge returns what it costs to begin a way that ends in a trap, with out
// charged in advance. Without a call it is a few operators before the end.
func (g *graph) trapCharge(to int32, out int64) int64 {
	if !g.nodes[to].busy {
		return 0
	}
	return max(0, g.nodes[to].trap-out)
}

// entry returns what the function charges when it is entered, if its caller has
// charged prepaid.
func (g *graph) entry(prepaid int64) int64 {
	nd := &g.nodes[0]
	if nd.trap >= 0 {
		return max(0, nd.trap-prepaid)
	}
	return nd.in - prepaid
}

// holds reports whether the function should keep the counter in a local: that
// saves a store wherever it charges, and costs a store and a load around every
// call.
func (g *graph) holds() bool {
	if len(g.loops) == 1 {
		return false
	}

	often := make([]int64, len(g.loops))
	for i := range often {
		often[i] = 1
		if i > 0 {
			often[i] = min(often[g.loops[i].parent]*turns, 1<<20)
		}
	}

	stores, calls := int64(0), int64(2)
	charges, sites := 0, 0
	for i := range g.nodes {
		nd := &g.nodes[i]
		if nd.start != 0 {
			stores += often[nd.loop]
			charges++
		}
		sites += int(nd.leaves)
		calls += 2 * int64(nd.leaves) * often[nd.loop]
		g.each(int32(i), func(to int32) {
			if to != exit && g.edge(int32(i), to) != 0 {
				stores += min(often[nd.loop], often[g.nodes[to].loop])
				charges++
			}
		})
	}

	return calls < stores && sites*4 <= charges // and does not grow much
}
