package fuel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// maxNodes and maxAllNodes limit how many nodes the graphs of a function and of a
// module may have: a node and its loop take some 200 bytes, and three bytes of code
// make one. The largest programs have 70,000 and 1.5 million.
const (
	maxNodes    = 200_000
	maxAllNodes = 5_000_000
)

// builder makes graphs.
type builder struct {
	r      *rewriter
	rd     wasmbin.Reader
	code   *wasmbin.Code
	g      *graph
	frames []block
	nodes  []node // nodes of the previous graph, for reuse
	cur    int32  // current node, below zero in dead code
	loop   int32  // innermost loop
	locals uint32
	prev   [2]before // the two previous instructions, if they are in the current node
	blocks bool      // whether the current node is the first of a loop and has had only blocks so far
}

// before is an instruction that has been read.
type before struct {
	op    wasmbin.Op
	x     uint32
	value int64 // value of a constant
}

// block is an open block while its function is read.
type block struct {
	op        wasmbin.Op
	label     int32
	otherwise int32 // label of an if's else
	loop      int32 // loop around it
	dead      bool
	targeted  bool
	arity     int // number of values that a branch to it takes
}

// build reads a function, refusing what is not well-formed.
func (b *builder) build(code *wasmbin.Code, t *wasmbin.FuncType) (*graph, error) {
	g := &graph{nodes: b.nodes[:0]}
	b.g, b.code = g, code
	b.locals = localCount(code, t)
	b.loop, b.cur = 0, -1
	g.loops = append(g.loops, loop{parent: -1, header: -1})
	g.labels = append(g.labels, exit)
	b.frames = append(b.frames[:0], block{op: wasmbin.OpBlock, targeted: true, arity: len(t.Results)})
	b.rd.Reset(code, b.r.types)
	b.begin(0, false)
	var in wasmbin.Instr
	n := uint32(0)
	for ; b.rd.Next(&in); n++ {
		if err := b.instr(n, &in); err != nil {
			return nil, err
		}
	}

	if b.rd.Err() != nil {
		return nil, b.rd.Err()
	}
	if len(b.frames) > 0 {
		return nil, b.rd.Errorf(&in, "function body ends within a block")
	}

	b.nodes = g.nodes
	g.nodes = slices.Clone(g.nodes)
	g.countBacks()
	return g, nil
}

// begin starts a node with instruction n.
func (b *builder) begin(n uint32, lead bool) {
	b.cur = int32(len(b.g.nodes))
	b.g.nodes = append(b.g.nodes, node{first: n, last: n, loop: b.loop, lead: lead, trap: -1})
	b.prev = [2]before{}
	b.blocks = false
}

// finish ends the current node before instruction n.
func (b *builder) finish(n uint32, how ending, target int32) *node {
	nd := &b.g.nodes[b.cur]
	nd.last, nd.end, nd.target = n, how, target
	b.cur = -1
	return nd
}

func (b *builder) tooMany(what string, most int) error {
	return &wasmbin.Error{
		Err: wasmbin.ErrUnsupported, Section: "code", Offset: b.code.Offset,
		Detail: fmt.Sprintf("%s with more than %d blocks: split it, or build with optimization (-O2)", what, most),
	}
}

func (b *builder) newLabel() int32 {
	b.g.labels = append(b.g.labels, exit)
	return int32(len(b.g.labels) - 1)
}

func (b *builder) instr(n uint32, in *wasmbin.Instr) error {
	if len(b.frames) == 0 {
		return b.rd.Errorf(in, "code after the end of the function")
	}
	if err := b.r.validate(&b.rd, in, b.locals); err != nil {
		return err
	}
	if len(b.g.nodes) > maxNodes {
		return b.tooMany("a function", maxNodes)
	}

	switch in.Op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
		return b.open(n, in)
	case wasmbin.OpElse:
		return b.otherwise(n, in)
	case wasmbin.OpEnd:
		b.close(n)
		return nil
	}

	if b.cur >= 0 {
		return b.live(n, in)
	}
	return nil
}

// open starts a block.
func (b *builder) open(n uint32, in *wasmbin.Instr) error {
	if len(b.frames) >= wasmbin.MaxNesting {
		return b.rd.Errorf(in, "blocks nest deeper than %d", wasmbin.MaxNesting)
	}
	f := block{op: in.Op, loop: b.loop, dead: b.cur < 0}
	if !f.dead {
		f.label = b.newLabel()
		f.arity = b.r.arity(in)
		switch in.Op {
		case wasmbin.OpLoop:
			b.finish(n, endFall, 0)
			b.g.loops = append(b.g.loops, loop{parent: b.loop, header: int32(len(b.g.nodes))})
			b.loop = int32(len(b.g.loops) - 1)
			b.g.labels[f.label] = int32(len(b.g.nodes))
			b.begin(n, true)
			b.blocks = true
		case wasmbin.OpIf:
			f.otherwise = b.newLabel()
			b.spend(price(in.Op))
			b.finish(n+1, endIf, f.otherwise)
			b.begin(n+1, false)
		}
		b.prev = [2]before{}
	}

	b.frames = append(b.frames, f)
	return nil
}

// otherwise handles the else of an if.
func (b *builder) otherwise(n uint32, in *wasmbin.Instr) error {
	f := &b.frames[len(b.frames)-1]
	if f.op != wasmbin.OpIf {
		return b.rd.Errorf(in, "else outside an if")
	}
	f.op = wasmbin.OpElse
	if f.dead {
		return nil
	}
	if b.cur >= 0 {
		b.finish(n, endJoin, f.label)
	}

	b.g.labels[f.otherwise] = int32(len(b.g.nodes))
	b.begin(n, true)
	return nil
}

// close handles the end of a block.
func (b *builder) close(n uint32) {
	f := b.frames[len(b.frames)-1]
	b.frames = b.frames[:len(b.frames)-1]
	if f.dead {
		return
	}
	if f.op == wasmbin.OpLoop {
		b.g.loops[b.loop].end = int32(len(b.g.nodes))
	}
	b.loop = f.loop
	if len(b.frames) == 0 {
		if b.cur >= 0 {
			b.finish(n, endFinish, 0)
		}
		return
	}

	live := b.cur >= 0
	if live && f.op == wasmbin.OpBlock && !f.targeted {
		b.prev, b.blocks = [2]before{}, false
		return // nothing but the code before it leads here
	}
	if live {
		b.finish(n, endFall, 0)
	}

	b.begin(n, true)
	if f.op != wasmbin.OpLoop {
		b.g.labels[f.label] = b.cur
	}
	if f.op == wasmbin.OpIf {
		b.g.labels[f.otherwise] = b.cur
	}
}

// live adds an instruction that can be reached.
func (b *builder) live(n uint32, in *wasmbin.Instr) error {
	b.spend(price(in.Op))
	switch in.Op {
	case wasmbin.OpBr, wasmbin.OpBrIf:
		return b.branch(n, in)
	case wasmbin.OpBrTable:
		return b.switchOn(n, in)
	case wasmbin.OpReturn:
		b.finish(n+1, endReturn, 0)
		return nil
	case wasmbin.OpReturnCall, wasmbin.OpReturnCallIndirect:
		b.call(in)
		b.finish(n+1, endReturn, 0)
		return nil
	case wasmbin.OpCall, wasmbin.OpCallIndirect:
		b.call(in)
	case wasmbin.OpUnreachable:
		b.finish(n+1, endTrap, 0)
		return nil
	default:
		if _, ok := sizeOf(in.Op); ok {
			b.g.nodes[b.cur].busy = true
			b.r.noteBulk(in)
		}
	}

	b.blocks = b.blocks && in.Op == wasmbin.OpLocalGet && b.prev[1].op != wasmbin.OpLocalGet
	b.prev[0], b.prev[1] = b.prev[1], before{op: in.Op, x: in.X, value: in.Const}
	return nil
}

// spend adds an operator's price to the current node.
func (b *builder) spend(n int64) { b.g.nodes[b.cur].cost += n }

func (b *builder) call(in *wasmbin.Instr) {
	nd := &b.g.nodes[b.cur]
	nd.busy, b.g.calling = true, true
	nd.leaves++
	if in.Op != wasmbin.OpCall && in.Op != wasmbin.OpReturnCall {
		b.g.calls = append(b.g.calls, site{node: b.cur, callee: indirect})
		nd.called = nd.cost
		return
	}
	if in.X < b.r.imported {
		nd.cost += HostCallCost
		nd.called = nd.cost
		return
	}
	nd.called = nd.cost
	b.g.calls = append(b.g.calls, site{node: b.cur, callee: in.X - b.r.imported})
}

// label resolves a label by its depth.
func (b *builder) label(in *wasmbin.Instr, depth uint32) (*block, error) {
	if uint64(depth) >= uint64(len(b.frames)) {
		return nil, b.rd.Errorf(in, "%v: no label %d", in.Op, depth)
	}
	f := &b.frames[len(b.frames)-1-int(depth)]
	f.targeted = true
	return f, nil
}

// dispatchOf returns the dispatch that a loop begins with, if any.
func (b *builder) dispatchOf(f *block) *dispatch {
	header := b.g.labels[f.label]
	return &b.g.loops[b.g.nodes[header].loop].dispatch
}

func (b *builder) branch(n uint32, in *wasmbin.Instr) error {
	f, err := b.label(in, in.X)
	if err != nil {
		return err
	}
	switch in.Op {
	case wasmbin.OpBr:
		if t, cost, ok := b.thread(f); ok {
			b.finish(n+1, endThread, t).cost += cost
			return nil
		}
		b.finish(n+1, endBr, f.label)
		return nil
	}

	b.finish(n+1, endBrIf, f.label)
	b.begin(n+1, false)
	return nil
}

// thread finds where a branch to a loop that starts with a dispatch goes in the
// end: the label and the price of the dispatch.
func (b *builder) thread(f *block) (int32, int64, bool) {
	if f.op != wasmbin.OpLoop || f.arity > 0 {
		return 0, 0, false
	}
	d := b.dispatchOf(f)
	if b.prev[1].op != wasmbin.OpLocalSet || b.prev[0].op != wasmbin.OpI32Const || d.tableLen == 0 || d.local != b.prev[1].x {
		return 0, 0, false
	}

	k := uint32(b.prev[0].value)
	t := b.g.tables[d.table+int32(min(uint64(k), uint64(d.tableLen-1)))]
	i, ok := slices.BinarySearchFunc(b.frames, t, func(f block, t int32) int { return cmp.Compare(f.label, t) })
	if ok && b.frames[i].op != wasmbin.OpLoop {
		b.frames[i].targeted = true
		return t, d.cost, true
	}

	return 0, 0, false
}

func (b *builder) switchOn(n uint32, in *wasmbin.Instr) error {
	g := b.g
	isDispatch := b.blocks && b.prev[1].op == wasmbin.OpLocalGet && b.prev[0].op == 0
	x := b.prev[1].x
	table := int32(len(g.tables))
	for _, depth := range in.Labels {
		f, err := b.label(in, depth)
		if err != nil {
			return err
		}
		g.tables = append(g.tables, f.label)
	}

	cost := g.nodes[b.cur].cost
	nd := b.finish(n+1, endTable, 0)
	nd.table, nd.tableLen = table, int32(len(in.Labels))
	if isDispatch {
		g.loops[b.loop].dispatch = dispatch{local: x, cost: cost, table: table, tableLen: int32(len(in.Labels))}
	}
	return nil
}
