package fuel

import "math"

// place decides where a function is charged. Every point of its code gets a
// potential: what has been charged when control is there, less what has been
// executed. An edge then charges the difference between the potential it leads
// to and the one it comes from, so that whatever path is taken the charges sum
// up to what it executes; the idea is Ball and Larus's, who place the counters
// of path profiles so ("Efficient Path Profiling", MICRO 1996).
//
// Potentials are chosen from the end backwards. A node is left with the lowest
// potential among the nodes it leads to, so that the cheaper way costs nothing
// and the dearer one charges the rest. A back edge is charged and checked in any
// case, so it takes no part in that. A way out of a loop does not either: instead
// the whole loop is lifted or lowered against the code around it (its base) as
// far as all its ways out can charge something or nothing, and the most binding
// one nothing. The potential of a loop's points is relative to its base until
// resolve adds the bases up.
//
// As no edge charges less than nothing, what was charged in advance is always
// less than what any path from here to the end executes. So a counter that is
// found below zero with nothing left to grant means that the call needs more
// than its budget, wherever it is checked.
//
// Some loops would have to be lowered so far that the code before them had to
// give something back. They are held at the level of the code around them
// (fixed), and their ways out limit the potentials of the nodes they leave. With
// all loops fixed and back edges limiting too, which is strict, every potential
// is zero or more and every edge leads to no less than it comes from.
func (g *graph) place(prepaid int64) {
	if g.flat {
		g.flatten()
		return
	}
	for i := range g.loops {
		g.loops[i].fixed = false
	}

	for try := range 4 { // some loops fixed; all of them not and then fixed, with back edges limiting too
		if try > 1 {
			for i := range g.loops {
				g.loops[i].fixed = try > 2
			}
		}
		if g.potentials(try > 1) {
			g.resolve()
			if g.chargesAreCharges(prepaid) {
				return
			}
		}
	}
	g.flat = true // see above: this does not happen
	g.flatten()
}

// flatten charges every node where it starts.
func (g *graph) flatten() {
	for i := range g.nodes {
		nd := &g.nodes[i]
		nd.in, nd.out, nd.start, nd.trap = 0, 0, nd.cost, -1
	}
}

const none = math.MaxInt64

// potentials sets the potentials of all nodes, relative to the base of their
// loop. If strict, back edges limit them too. It fails if an edge would have to
// give something back.
func (g *graph) potentials(strict bool) bool {
	for i := range g.loops {
		l := &g.loops[i]
		l.exits, l.base, l.backOut = l.exits[:0], 0, math.MinInt64
	}

	ok := true
	for i := int32(len(g.nodes)) - 1; i >= 0; i-- {
		nd := &g.nodes[i]
		g.leave(i, strict)
		if nd.trap < 0 {
			nd.in, nd.start = nd.cost+nd.out, 0
			if nd.pinned {
				nd.start, nd.in = nd.in, 0
			}
		}
		if l := &g.loops[nd.loop]; l.header == i && !g.closeLoop(nd.loop) {
			ok = false
		}
	}

	return ok
}

// leave sets the potential node i is left with, or finds that all its ways trap.
func (g *graph) leave(i int32, strict bool) {
	nd := &g.nodes[i]
	stay, back, trap, leads := int64(none), false, int64(0), false
	busy := nd.busy
	first, fixed := len(g.loops[nd.loop].exits), g.loops[nd.loop].fixed
	g.each(i, func(to int32) {
		if to <= i { // a back edge
			leads = true
			if l := g.nodes[to].loop; l == nd.loop {
				back = true
			} else if fixed {
				stay = min(stay, 0)
			} else {
				g.leaveLoop(nd.loop, l, 0)
			}
			return
		}
		if to != exit && g.nodes[to].trap >= 0 {
			trap = max(trap, g.nodes[to].trap)
			busy = busy || g.nodes[to].busy
			return
		}

		leads = true
		level, value := g.level(to)
		if level == nd.loop || fixed {
			stay = min(stay, value)
		} else {
			g.leaveLoop(nd.loop, level, value)
		}
	})
	if !leads {
		nd.trap, nd.busy, nd.start = trap+nd.cost, busy, 0
		return
	}

	nd.trap = -1
	if back && strict && stay != none {
		stay = min(stay, 0)
	}
	if nd.out = stay; stay == none {
		nd.out = 0
		if d := &g.loops[nd.loop].dispatch; back && d.tableLen > 0 {
			nd.out = d.cost // what its header will have: the back edge charges nothing
		}
	}

	l := &g.loops[nd.loop]
	if back {
		l.backOut = max(l.backOut, nd.out)
	}
	for e := first; e < len(l.exits); e++ {
		l.exits[e].out = nd.out
	}
}

// level is the loop that an edge to a later node leads into, seen from before
// it, and the potential there.
func (g *graph) level(to int32) (int32, int64) {
	if to == exit {
		return 0, 0
	}
	nd := &g.nodes[to]
	if l := &g.loops[nd.loop]; l.header == to {
		return l.parent, nd.in + l.base
	}
	return nd.loop, nd.in
}

// exitEdge is a way out of a loop: the potential it comes from, and the loop and
// potential it leads to.
type exitEdge struct {
	level      int32
	out, value int64
}

func (g *graph) leaveLoop(from, level int32, value int64) {
	l := &g.loops[from]
	l.exits = append(l.exits, exitEdge{level: level, value: value})
}

// closeLoop sets the base of a loop whose nodes are all done.
func (g *graph) closeLoop(i int32) bool {
	l := &g.loops[i]
	if l.backOut > g.nodes[l.header].in {
		return false
	}
	if l.fixed {
		return true
	}

	base := int64(none)
	for _, e := range l.exits {
		if e.level == l.parent {
			base = min(base, e.value-e.out)
		}
	}

	if base != none {
		l.base = base
	}
	if l.base+g.nodes[l.header].in < 0 {
		l.fixed = true // for the next try
		return false
	}

	parent := &g.loops[l.parent]
	for _, e := range l.exits {
		if e.level != l.parent {
			e.out += l.base
			parent.exits = append(parent.exits, e)
		}
	}

	return true
}

// resolve makes all potentials absolute.
func (g *graph) resolve() {
	for i := 1; i < len(g.loops); i++ {
		g.loops[i].base += g.loops[g.loops[i].parent].base
	}
	for i := range g.nodes {
		nd := &g.nodes[i]
		if nd.trap >= 0 {
			continue
		}
		base := g.loops[nd.loop].base
		nd.in += base
		nd.out += base
	}
}

// edge is what the edge from node i to node to charges.
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

// trapCharge is what it costs to begin a way that ends in a trap, with out
// charged in advance. Without a call it is a few operators before the end.
func (g *graph) trapCharge(to int32, out int64) int64 {
	if !g.nodes[to].busy {
		return 0
	}
	return max(0, g.nodes[to].trap-out)
}

// entry is what the function charges when it is entered with prepaid charged by
// its caller.
func (g *graph) entry(prepaid int64) int64 {
	nd := &g.nodes[0]
	if nd.trap >= 0 {
		return max(0, nd.trap-prepaid)
	}
	return nd.in - prepaid
}

func (g *graph) chargesAreCharges(prepaid int64) bool {
	ok := prepaid > 0 || g.entry(0) >= 0
	for i := range g.nodes {
		if g.nodes[i].start < 0 {
			ok = false
		}
		g.each(int32(i), func(to int32) {
			if g.edge(int32(i), to) < 0 {
				ok = false
			}
		})
	}
	return ok
}

// holds reports whether the function should keep the counter in a local: that
// saves a store wherever it charges, and costs a store and a load around every
// call. Loops are taken to run eight times.
func (g *graph) holds() bool {
	if len(g.loops) == 1 {
		return false
	}

	often := make([]int64, len(g.loops))
	for i := range often {
		often[i] = 1
		if i > 0 {
			often[i] = min(often[g.loops[i].parent]*8, 1<<20)
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
