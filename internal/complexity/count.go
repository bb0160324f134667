package complexity

import (
	"math"
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// counts are what decides how long a compiler takes for a function, and how much
// memory. The comments name the part of wazero's that it decides about.
type counts struct {
	size   uint64 // bytes of code
	blocks uint64 // basic blocks: memory of all passes, and recursion
	loops  uint64 // the deepest nesting of loops: rounds of passRedundantPhiElimination
	depth  uint64 // sum over all edges of how deep they begin in the dominator tree: subPassLoopDetection
	preds  uint64 // sum over all labels of the square of the branches to it: addPred
	walk   uint64 // sum over all reads of a local of the blocks back to where it was set: findValue
	live   uint64 // sum over all blocks of the values that live there: livenessAnalysis
	meets  uint64 // sum over all blocks with several edges of the locals that live there: findValue
	phis   uint64 // sum over all edges of the square of the values that may differ by it: passRedundantPhiElimination
	access uint64 // sum over all blocks of the memory accesses on the way there: knownSafeBounds
	values uint64 // that blocks, branches, calls and functions pass, and calls
	traps  uint64 // instructions that become many: divisions, conversions and what calls into the host
	calls  uint64 // that may change globals: reloadAfterCall
}

// counter counts functions, one after the other. It keeps what it allocates.
//
// It reads the code once and follows the blocks that the compiler makes of it.
// Where it cannot know a number without more than that, it takes one that is not
// too small.
type counter struct {
	m       *wasmbin.Module
	imports []uint32 // type of each imported function

	rd     wasmbin.Reader
	frames []frame
	loops  []int // frames that are loops, by their index
	locals []local
	merges []merge
	ends   []int32 // last block of each loop
	starts []int32 // what begins to live with each block, less what ends

	counts
	at     int32 // number of the instruction
	place        // of the current block
	block  int32 // its number
	linear int32 // since this block each has begun where the one before ended
	height int   // of the operand stack
	dead   bool  // what follows is never reached
}

// place is where a block is, seen from the entry of its function.
type place struct {
	depth  int // in the dominator tree
	chain  int // blocks with one predecessor each, up to this one
	access int // memory accesses on the way here
}

// frame is an open block of the code.
type frame struct {
	op     wasmbin.Op
	dead   bool
	start  int32 // number of the instruction that begins it
	height int   // of the operand stack below it
	params int   // values it takes
	leaves int   // and leaves
	loop   int32 // number of the loop it is
	header int32 // block it begins with, if it is a loop
	begin  place // of an if
	sets   int   // local.set and local.tee in it
	loops  bool  // a loop that repeats is in it
	label
}

// label is where branches lead to.
type label struct {
	preds int
	then  int   // of them from before the else
	takes int   // values that a branch takes
	least place // of where branches begin: the place above the block that follows is no deeper
}

// merge is a block that more than one edge leads to, or that takes values.
type merge struct {
	block        int32
	preds, takes int
	most         int // locals that can differ by where control comes from
	loops        int // around it, and itself
}

func newCounter(m *wasmbin.Module) *counter {
	c := &counter{m: m}
	for i := range m.Imports {
		if m.Imports[i].Kind == wasmbin.KindFunc {
			c.imports = append(c.imports, m.Imports[i].Type)
		}
	}
	return c
}

// function counts a function of the module.
func (c *counter) function(i int) counts {
	c.begin(i)
	var in wasmbin.Instr
	for len(c.frames) > 0 && c.rd.Next(&in) {
		c.instr(&in)
	}

	c.settle()
	return c.counts
}

func (c *counter) begin(i int) {
	code, t := &c.m.Codes[i], &c.m.Types[c.m.Functions[i]]
	n := len(t.Params)
	for _, g := range code.Locals {
		n += int(g.Count)
	}
	c.locals = slices.Grow(c.locals[:0], n)[:n]
	clear(c.locals)

	c.frames, c.loops, c.merges, c.ends = c.frames[:0], c.loops[:0], c.merges[:0], c.ends[:0]
	c.at, c.block, c.linear, c.height, c.dead = 0, 0, 1, 0, false
	c.counts = counts{size: uint64(len(code.Body)), values: uint64(len(t.Params) + len(t.Results))}

	c.frames = append(c.frames, frame{op: wasmbin.OpBlock, leaves: len(t.Results), label: label{takes: len(t.Results)}})
	c.enter(place{depth: 1})
	c.rd.Reset(code, len(c.m.Types))
}

// enter begins a block.
func (c *counter) enter(at place) {
	c.block++
	c.blocks++
	c.place = at
	c.counts.access += uint64(at.access)
	c.live += uint64(c.height)
}

// follow begins a block that only one edge leads to.
func (c *counter) follow(from place) {
	c.counts.depth += uint64(from.depth)
	c.enter(place{from.depth + 1, from.chain + 1, from.access})
}

// edge adds an edge to a label.
func (c *counter) edge(l *label, from place) {
	if l.preds++; l.preds == 1 {
		l.least = from
	} else {
		l.least.depth = min(l.least.depth, from.depth)
		l.least.chain = max(l.least.chain, from.chain)
		l.least.access = min(l.least.access, from.access)
	}
	c.counts.depth += uint64(from.depth)
	c.values += uint64(l.takes)
}

// target is where a branch leads to. A label that is not there is an error that
// others find.
func (c *counter) target(depth uint32) *label {
	return &c.frames[max(0, len(c.frames)-1-int(min(depth, math.MaxInt32)))].label
}

// instr counts the next instruction.
func (c *counter) instr(in *wasmbin.Instr) {
	c.at++
	if in.Op < 0x100 && plain[in.Op] { // most are; in dead code it does not matter
		c.height += int(oneByteEffects[in.Op]) - '3'
		if accesses(in.Op) {
			c.place.access++
		}
		return
	}

	switch in.Op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
		c.start(in)
	case wasmbin.OpElse:
		c.otherwise()
	case wasmbin.OpEnd:
		c.end()
	default:
		if !c.dead {
			c.reached(in)
		}
	}
}

// reached counts an instruction that can be reached and opens or ends no block.
func (c *counter) reached(in *wasmbin.Instr) {
	switch in.Op {
	case wasmbin.OpLocalGet:
		c.height++
		c.read(in.X)
	case wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		c.height += effect(in.Op)
		c.frames[len(c.frames)-1].sets++
		c.write(in.X)
	case wasmbin.OpBr:
		c.edge(c.target(in.X), c.place)
		c.dead = true
	case wasmbin.OpBrIf:
		c.height--
		c.edge(c.target(in.X), c.place)
		c.spare()
		c.follow(c.place)
	case wasmbin.OpBrTable:
		c.height--
		c.branchTable(in.Labels)
	case wasmbin.OpReturn, wasmbin.OpUnreachable:
		c.dead = true
	case wasmbin.OpCall, wasmbin.OpReturnCall:
		c.call(c.typeOf(in.X), in.Op == wasmbin.OpReturnCall)
	case wasmbin.OpCallIndirect, wasmbin.OpReturnCallIndirect:
		c.height--
		c.call(c.typeAt(in.X), in.Op == wasmbin.OpReturnCallIndirect)

	default:
		c.height += effect(in.Op)
		switch {
		case accesses(in.Op):
			c.place.access++
		case becomesMany(in.Op):
			c.traps++
		}
	}
}

// spare counts a block on an edge, which may have to be split.
func (c *counter) spare() {
	c.block++
	c.blocks++
	c.live += uint64(c.height)
}

func (c *counter) branchTable(labels []uint32) {
	for _, l := range labels {
		c.spare()
		c.counts.depth += uint64(c.place.depth)
		c.edge(c.target(l), place{c.place.depth + 1, c.place.chain + 1, c.place.access})
	}
	c.dead = true
}

func (c *counter) call(t *wasmbin.FuncType, leaves bool) {
	c.calls++
	c.values += uint64(1 + len(t.Params) + len(t.Results))
	c.height += len(t.Results) - len(t.Params)
	c.dead = leaves
}

func (c *counter) typeOf(f uint32) *wasmbin.FuncType {
	if int64(f) < int64(len(c.imports)) {
		return c.typeAt(c.imports[f])
	}
	if f -= uint32(len(c.imports)); int64(f) < int64(len(c.m.Functions)) {
		return c.typeAt(c.m.Functions[f])
	}
	return &wasmbin.FuncType{}
}

func (c *counter) typeAt(t uint32) *wasmbin.FuncType {
	if int64(t) < int64(len(c.m.Types)) {
		return &c.m.Types[t]
	}
	return &wasmbin.FuncType{}
}

func (c *counter) start(in *wasmbin.Instr) {
	f := frame{op: in.Op, dead: c.dead, start: c.at}
	if !c.dead {
		if in.Block.Typed {
			t := c.typeAt(in.Block.Index)
			f.params, f.leaves = len(t.Params), len(t.Results)
		} else if in.Block.Result != 0 {
			f.leaves = 1
		}
		c.values += uint64(f.params + f.leaves)
		if in.Op == wasmbin.OpIf {
			c.height--
		}

		f.height, f.begin, f.label = c.height-f.params, c.place, label{takes: f.leaves}
		switch in.Op {
		case wasmbin.OpIf:
			c.follow(c.place)
		case wasmbin.OpLoop:
			f.label = label{takes: f.params}
			c.edge(&f.label, c.place)
			c.enter(place{c.place.depth + 1, 0, c.place.access})
			c.linear, f.header, f.loop = c.block, c.block, int32(len(c.ends))
			c.ends = append(c.ends, open)
			c.loops = append(c.loops, len(c.frames))
			c.counts.loops = max(c.counts.loops, uint64(len(c.loops)))
		}
	}

	c.frames = append(c.frames, f)
}

func (c *counter) otherwise() {
	f := &c.frames[len(c.frames)-1]
	if f.op, f.start = wasmbin.OpElse, c.at; f.dead {
		return
	}
	if !c.dead {
		c.edge(&f.label, c.place)
	}

	c.dead, f.then = false, f.preds
	c.height = f.height + f.params
	c.follow(f.begin)
	c.linear = c.block
}

func (c *counter) end() {
	f := c.frames[len(c.frames)-1]
	c.frames = c.frames[:len(c.frames)-1]
	if f.dead {
		return
	}

	repeats := f.loops
	switch f.op {
	case wasmbin.OpLoop:
		repeats = repeats || f.preds > 1
		c.meet(&f, f.header, math.MaxInt)
		c.loops = c.loops[:len(c.loops)-1]
		c.ends[f.loop] = c.block
		f.label = label{takes: f.leaves}
	case wasmbin.OpIf: // and no else
		f.then = f.preds
		if !c.dead {
			f.then++
			c.edge(&f.label, c.place)
		}
		c.spare()
		c.counts.depth += uint64(f.begin.depth)
		c.place, c.dead = place{f.begin.depth + 1, f.begin.chain + 1, f.begin.access}, false
	}

	if !c.dead {
		c.edge(&f.label, c.place)
	}
	if f.then > 0 && f.preds > f.then {
		f.least.depth = min(f.least.depth, f.begin.depth)
	}
	if len(c.frames) > 0 {
		around := &c.frames[len(c.frames)-1]
		around.sets += f.sets
		around.loops = around.loops || repeats
	}

	c.height = f.height + f.leaves
	if c.dead = f.label.preds == 0; c.dead {
		return
	}
	l := f.label.least
	if l.depth++; f.label.preds == 1 {
		l.chain++
	} else {
		l.chain = 0
	}

	c.enter(l)
	c.linear = c.block
	most := f.sets
	if repeats {
		most = math.MaxInt
	}
	c.meet(&f, c.block, most)
}

// meet notes a block that the edges of a frame's label lead to.
func (c *counter) meet(f *frame, block int32, most int) {
	c.preds += uint64(f.preds) * uint64(f.preds)
	if f.preds > 1 || f.takes > 0 {
		c.merges = append(c.merges, merge{block, f.preds, f.takes, most, len(c.loops) + 1})
	}
}
