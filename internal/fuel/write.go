package fuel

import "github.com/toolhost/toolhost/internal/wasmbin"

// bodies rewrites the code of every function.
func (r *rewriter) bodies(graphs []*graph) error {
	p := newPlanner(r, graphs)
	p.plan()
	w := writer{r: r}
	for i, g := range graphs {
		w.function(uint32(i), g, p.check[i])
	}
	return nil
}

// graphs reads all functions.
func (r *rewriter) graphs() ([]*graph, error) {
	m := r.m
	b := builder{r: r}
	graphs := make([]*graph, len(m.Codes))
	nodes := 0
	for i := range m.Codes {
		g, err := b.build(&m.Codes[i], &m.Types[m.Functions[i]])
		if err != nil {
			return nil, err
		}
		if nodes += len(g.nodes); nodes > maxAllNodes {
			return nil, b.tooMany("a module", maxAllNodes)
		}
		graphs[i] = g
	}

	return graphs, nil
}

// writer writes the code of functions whose charges are placed. It reads the
// code again and follows its nodes.
type writer struct {
	r  *rewriter
	rd wasmbin.Reader
	emitter

	code    *wasmbin.Code
	g       *graph
	locals  uint32 // original number of locals, parameters included
	first   uint32 // index of the first i32 local added
	scratch uint32 // number of i32 locals added
	opened  []opened
	label   int32 // next label
	node    int32 // next node
	cur     int32 // current node, below zero in dead code
	site    int   // next call
	before  wasmbin.Op
}

// opened is an open block while its function is written.
type opened struct {
	label int32
	node  int32 // node of the if that it belongs to; below zero if there is none, or if that has an else
	arity int   // number of values that a branch to it passes
}

func (w *writer) function(f uint32, g *graph, check bool) {
	m := w.r.m
	w.code, w.g = &m.Codes[f], g
	w.emitter = w.r.emitter(len(w.code.Body)*3/2 + 32)
	w.locals = localCount(w.code, &m.Types[m.Functions[f]])
	w.opened = append(w.opened[:0], opened{node: -1, arity: len(m.Types[m.Functions[f]].Results)})
	w.label, w.node, w.cur, w.site, w.scratch = 1, 0, -1, 0, 0
	w.first = w.locals
	if g.holds() {
		w.held, w.local = true, w.locals
		w.first++
		w.hold()
	}

	w.pay(g.entry(w.r.prepaid[f]))
	if check {
		w.checkpoint()
	}
	w.rd.Reset(w.code, w.r.types)
	var in wasmbin.Instr
	for n := uint32(0); w.rd.Next(&in); n++ {
		w.instr(n, &in)
	}
	locals := w.code.Locals[:len(w.code.Locals):len(w.code.Locals)]
	if w.held {
		locals = append(locals, wasmbin.LocalGroup{Count: 1, Type: wasmbin.I64})
	}
	if w.scratch > 0 {
		locals = append(locals, wasmbin.LocalGroup{Count: w.scratch, Type: wasmbin.I32})
	}

	w.code.Locals, w.code.Body = locals, w.out
}

// pay charges n, unless it is zero.
func (w *writer) pay(n int64) {
	if n != 0 {
		w.charge(n)
	}
}

func (w *writer) copy(in *wasmbin.Instr) { w.out = w.r.appendMoved(w.out, w.code, in) }

// instr writes instruction n and the charges before and after it.
func (w *writer) instr(n uint32, in *wasmbin.Instr) {
	nodes := w.g.nodes
	for int(w.node) < len(nodes) && nodes[w.node].first == n && !nodes[w.node].lead {
		w.fallInto(w.node)
		w.enter()
	}

	if int(w.node) < len(nodes) && nodes[w.node].first == n {
		w.lead(in)
		return
	}
	if w.cur >= 0 && n < nodes[w.cur].last {
		w.live(n, in)
		return
	}

	switch in.Op { // dead code, or the end of the function
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
		w.opened = append(w.opened, opened{node: -1})
	case wasmbin.OpEnd:
		w.opened = w.opened[:len(w.opened)-1]
		if len(w.opened) == 0 && w.cur >= 0 && nodes[w.cur].end == endFinish {
			w.pay(w.g.edge(w.cur, exit))
			w.exit()
		}
	}

	w.copy(in)
}

// fallInto charges the edge from the node before to node i, if it leads there
// without a branch.
func (w *writer) fallInto(i int32) {
	if i == 0 {
		return
	}
	switch p := &w.g.nodes[i-1]; p.end {
	case endFall, endBrIf, endIf:
		w.pay(w.g.edge(i-1, i))
	case endJoin:
		w.pay(w.g.edge(i-1, w.g.labels[p.target]))
	}
}

// enter makes the next node the current one.
func (w *writer) enter() {
	w.cur = w.node
	w.node++
	w.pay(w.g.nodes[w.cur].start)
}

// lead writes the end, else or loop that begins a node.
func (w *writer) lead(in *wasmbin.Instr) {
	w.fallInto(w.node)
	top := &w.opened[len(w.opened)-1]
	switch in.Op {
	case wasmbin.OpLoop:
		w.open(in)
		w.copy(in)
		if w.g.loops[w.g.nodes[w.node].loop].checksHeader() {
			if w.passes(0) {
				w.checkpoint()
			} else {
				w.checkpointInLoop()
			}
		}
		w.enter()
		return
	case wasmbin.OpElse:
		w.copy(in)
		w.pay(w.g.edge(top.node, w.node))
		top.node = -1
	case wasmbin.OpEnd:
		if top.node >= 0 {
			if n := w.g.edge(top.node, w.node); n != 0 {
				w.op(wasmbin.OpElse)
				w.pay(n)
			}
		}
		w.opened = w.opened[:len(w.opened)-1]
		w.copy(in)
	}

	w.enter()
}

// open follows the builder's numbering of labels.
func (w *writer) open(in *wasmbin.Instr) {
	o := opened{label: w.label, node: -1, arity: w.r.arity(in)}
	w.label++
	if in.Op == wasmbin.OpIf {
		o.node = w.cur
		w.label++
	}
	w.opened = append(w.opened, o)
}

// live writes an instruction of the current node.
func (w *writer) live(n uint32, in *wasmbin.Instr) {
	nd := &w.g.nodes[w.cur]
	last := n+1 == nd.last
	switch in.Op {
	case wasmbin.OpBlock, wasmbin.OpIf:
		w.open(in)
		w.copy(in)
	case wasmbin.OpEnd: // of a block nothing branches to
		w.opened = w.opened[:len(w.opened)-1]
		w.copy(in)
	case wasmbin.OpBr:
		w.branch(in, nd)
	case wasmbin.OpBrIf:
		w.branchIf(in, nd)
	case wasmbin.OpBrTable:
		w.table(in)
	case wasmbin.OpCall, wasmbin.OpReturnCall, wasmbin.OpCallIndirect, wasmbin.OpReturnCallIndirect:
		w.call(in, nd, last)
	case wasmbin.OpReturn:
		w.leave(nd, last)
		w.copy(in)
	case wasmbin.OpUnreachable:
		w.release()
		w.copy(in)
	default:
		w.plain(in)
	}

	w.before = in.Op
}

// plain writes an instruction without control flow.
func (w *writer) plain(in *wasmbin.Instr) {
	s, ok := sizeOf(in.Op)
	if !ok {
		w.copy(in)
		return
	}

	w.scratch = max(w.scratch, s.scratch())
	w.opX(wasmbin.OpLocalTee, w.first)
	if b, long := w.r.bulkOf(in); long {
		w.bulk(w.r, b, w.first)
	} else {
		w.copy(in)
	}

	w.chargeSize(s, w.first)
}

// leave charges before a return.
func (w *writer) leave(nd *node, last bool) {
	if last && nd.end == endReturn {
		w.pay(w.g.edge(w.cur, exit))
		w.exit()
	}
}

// call writes a call and the checks of the counter around it.
func (w *writer) call(in *wasmbin.Instr, nd *node, last bool) {
	var c site
	byName := in.Op == wasmbin.OpCall || in.Op == wasmbin.OpReturnCall
	if !byName || in.X >= w.r.imported {
		c = w.g.calls[w.site]
		w.site++
	}
	if c.before {
		w.checkpoint()
	}
	if last && nd.end == endReturn { // a tail call
		w.leave(nd, last)
		w.copy(in)
		return
	}

	w.release()
	w.copy(in)
	w.hold()
	if c.after {
		w.checkpoint()
	}
}
