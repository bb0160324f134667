package fuel

const (
	// turns is how often a loop is assumed to run each time it is entered.
	turns = 8
	// rarely is how much less likely a way with more calls on it is: it is the slow
	// one, or the one for errors.
	rarely = 6
	// A charge on a back edge costs less than elsewhere, as the check there needs the
	// counter too. Where a node could as well be charged at its start as on the edge to
	// it, the edge takes more code.
	backEdge  = 0.7
	otherEdge = 1.001
	// The entry is charged rather than the end, so that what traps has been paid for.
	entryEdge = 0.8
	// A charge on the edge of a br_table costs more, a jump, and much code, even if it is
	// never taken: Go's functions have such an edge for each call. In a function without
	// calls other charges cost next to nothing, because a register holds the counter.
	tableEdge     = 1.5
	tableEdgeLeaf = 4.0
	tableCode     = 1.0
)

// step is a way from one point to another, see place: from where node i is entered,
// point 2i, to where it starts, 2i+1, and from there to where the next is entered.
type step struct {
	from, to int32
	change   int64   // of the potential, if nothing is charged
	weight   float64 // what a charge there costs: about how often it is executed
}

// steps returns all steps of a function. How often they are taken is guessed: loops
// run several times, and the ways with the fewest calls are the frequent ones.
func (g *graph) steps(calls []int32) []step {
	gone := g.gone()
	often := make([]float64, len(g.nodes))
	often[0] = 1
	steps := make([]step, 0, 3*len(g.nodes))
	var ways []int32
	var shares []float64
	for i := range int32(len(g.nodes)) {
		nd := &g.nodes[i]
		if nd.trap >= 0 {
			continue
		}
		if g.loops[nd.loop].header == i {
			often[i] = min(often[i]*turns, 1e12)
		}
		steps = append(steps, step{from: 2 * i, to: 2*i + 1, weight: often[i]})

		ways, shares = g.ways(i, ways[:0]), shares[:0]
		sum := 0.0
		for _, to := range ways {
			share := g.share(i, to, ways, calls, gone)
			shares = append(shares, share)
			sum += share
		}

		for k, to := range ways {
			taken := often[i] * shares[k] / sum
			if to > i && to != exit {
				often[to] += taken
			}
			steps = append(steps, step{from: 2*i + 1, to: g.entered(to), change: -nd.cost, weight: g.cost(i, to, taken)})
		}
	}

	return steps
}

// ways appends the nodes that node i leads to without a trap.
func (g *graph) ways(i int32, ways []int32) []int32 {
	g.each(i, func(to int32) {
		if to == exit || g.nodes[to].trap < 0 {
			ways = append(ways, to)
		}
	})
	return ways
}

// entered returns the point where a node is entered, or the end of the function.
func (g *graph) entered(node int32) int32 {
	if node == exit {
		return int32(2 * len(g.nodes))
	}
	return 2 * node
}

// cost returns what a charge costs on an edge that is taken this often.
func (g *graph) cost(i, to int32, taken float64) float64 {
	switch {
	case g.nodes[i].end == endTable && g.calling:
		return float64(taken*tableEdge) + tableCode // not fused, or machines would differ
	case g.nodes[i].end == endTable:
		return float64(taken*tableEdgeLeaf) + tableCode
	case to <= i:
		return taken * backEdge
	}
	return taken * otherEdge
}

// share returns how often node i is left for node to, compared with other ways.
func (g *graph) share(i, to int32, ways []int32, calls []int32, gone []bool) float64 {
	if len(ways) < 2 || g.nodes[i].end == endTable {
		return 1
	}

	share := 1.0
	switch l := g.nodes[i].loop; {
	case l > 0 && g.leavesLoop(to, l, gone):
		share /= turns
	case l == 0 && to == exit:
		share /= 2
	}
	for _, other := range ways {
		if g.callsFrom(i, other, calls) < g.callsFrom(i, to, calls) {
			share /= rarely
			break
		}
	}
	return share
}

// gone finds the nodes in a loop that only lead out of it.
func (g *graph) gone() []bool {
	gone := make([]bool, len(g.nodes))
	for i := int32(len(g.nodes)) - 1; i >= 0; i-- {
		l := g.nodes[i].loop
		gone[i] = l > 0
		g.each(i, func(to int32) {
			if to <= i && to >= g.loops[l].header || !g.leavesLoop(to, l, gone) {
				gone[i] = false
			}
		})
	}
	return gone
}

// leavesLoop reports whether a way to node to leaves loop l.
func (g *graph) leavesLoop(to, l int32, gone []bool) bool {
	return to == exit || to < g.loops[l].header || to >= g.loops[l].end || g.nodes[to].loop == l && gone[to]
}

// callsFrom returns the least number of calls on a way to node to.
func (g *graph) callsFrom(i, to int32, calls []int32) int32 {
	if to == exit || to <= i {
		return 0
	}
	return calls[to]
}
