package fuel

const (
	// maxPrepaid is the most a caller charges in advance for a function it calls.
	maxPrepaid = 256
	// maxRun is how much a function may run, at the dearest and with what it
	// calls, without checking the counter: well under a tenth of a millisecond.
	maxRun = 1 << 16
	// maxTail is how much may run after a recursive call without a check: as
	// often as the stack has frames.
	maxTail = 32
)

// planner decides what concerns more than one function: what callers charge in
// advance, and where calls need a check of the counter although nothing loops.
type planner struct {
	r      *rewriter
	graphs []*graph
	back   []int   // number of its calls that come back to it: see order
	early  []bool  // whether functions that come before it in the order call it
	check  []bool  // whether it checks the counter when it is entered
	run    []int64 // the most it runs, counting loops once and functions that check themselves not at all
	done   []bool
}

func newPlanner(r *rewriter, graphs []*graph) *planner {
	n := len(graphs)
	return &planner{r: r, graphs: graphs, back: make([]int, n), early: make([]bool, n), check: make([]bool, n), run: make([]int64, n), done: make([]bool, n)}
}

// plan places the charges of all functions, callees first.
func (p *planner) plan() {
	order := p.order()
	for f, early := range p.early {
		if early {
			p.prepay(uint32(f))
		}
	}

	for _, f := range order {
		g := p.graphs[f]
		for _, c := range g.calls {
			if c.callee != indirect {
				g.nodes[c.node].cost += p.r.prepaid[c.callee]
				g.nodes[c.node].called += p.r.prepaid[c.callee]
			}
		}

		switch {
		case p.early[f]:
			g.place(p.r.prepaid[f], false)
		default:
			p.prepay(f)
		}

		p.run[f] = p.checkSites(f)
		g.selfChecks = p.checksItself(f)
		if p.run[f] > maxRun || g.selfChecks {
			p.check[f], p.run[f] = true, 0
		}
		p.done[f] = true
	}
}

// checksItself reports whether a function that calls come back to checks the counter
// itself, when it is entered and when it returns: that is less code than checks
// around many calls.
func (p *planner) checksItself(f uint32) bool { return p.back[f] > 2 }

// prepay places the charges of a function, and lets its callers charge in advance if
// all of them are known.
func (p *planner) prepay(f uint32) {
	g := p.graphs[f]
	known := !p.r.taken[f]
	if g.place(0, known); known && g.nodes[0].trap < 0 {
		p.r.prepaid[f] = g.nodes[0].in
	}
}

// order returns the functions so that each comes after those it calls by name,
// except for calls of a function that is on the way to them. Every recursion by
// name has one of these.
func (p *planner) order() []uint32 {
	const (
		fresh = iota
		open
		closed
	)
	type visit struct {
		f    uint32
		next int
	}
	state := make([]byte, len(p.graphs))
	var order []uint32
	var stack []visit
	for root := range p.graphs {
		if state[root] != fresh {
			continue
		}
		stack = append(stack, visit{f: uint32(root)})

		state[root] = open
		for len(stack) > 0 {
			v := &stack[len(stack)-1]
			calls := p.graphs[v.f].calls
			if v.next == len(calls) {
				state[v.f] = closed
				order = append(order, v.f)
				stack = stack[:len(stack)-1]
				continue
			}

			callee := calls[v.next].callee
			v.next++
			switch {
			case callee == indirect:
			case state[callee] == open:
				p.early[callee] = true
				p.back[callee]++
			case state[callee] == fresh:
				state[callee] = open
				stack = append(stack, visit{f: callee})
			}
		}
	}

	return order
}

// checkSites puts checks of the counter around the calls in function f, and
// returns the most it runs.
//
// Functions that call functions that call functions can run for years without a loop. So a
// function that may run longer than maxRun checks the counter when it is entered,
// and counts for nothing in its callers: from one such entry to the next no more runs than
// what is left of the functions on the way, each once.
//
// A recursion checks the counter on its way down, before a call that comes
// back to it or a call by reference, and on its way up after it, if there is
// much to do there; or the function that is called back does both.
func (p *planner) checkSites(f uint32) int64 {
	g := p.graphs[f]
	at := make([]int64, len(g.nodes)) // what has run when a node is entered
	most, next := int64(0), 0
	for i := range g.nodes {
		run := at[i] + g.nodes[i].cost
		for ; next < len(g.calls) && int(g.calls[next].node) == i; next++ {
			c := &g.calls[next]
			if c.callee != indirect && p.done[c.callee] {
				callee := p.run[c.callee]
				if run+callee > 2*maxRun && callee > 0 {
					most, run, c.before = max(most, run), 0, true
				}
				run += callee
				continue
			}
			if c.callee != indirect && p.checksItself(c.callee) {
				continue
			}

			most, run = max(most, run), 0
			c.before = true
			c.after = g.tail(int32(i)) > maxTail
			if l := &g.loops[g.nodes[i].loop]; l.header == int32(i) {
				l.selfChecks = true
			}
		}

		most = max(most, run)
		g.each(int32(i), func(to int32) {
			if to > int32(i) && to != exit {
				at[to] = max(at[to], run)
			}
		})
	}

	return most
}

// tail estimates how much runs after a call in node i before the function returns.
func (g *graph) tail(i int32) int64 {
	n := int64(0)
	for _, nd := range g.nodes[i:] {
		if n += nd.cost; n > maxTail {
			break
		}
	}
	return n
}
