package fuel

import "github.com/toolhost/toolhost/internal/wasmbin"

// generator makes valid modules out of arbitrary bytes. What it makes ends: a
// global counts every loop iteration and function entry down and traps at zero.
type generator struct {
	seed   []byte
	fns    []wasmbin.FuncType // of the functions of the module
	fn     int                // being generated
	out    []byte
	labels []genLabel
	ops    int // left for this function
}

// genLabel is an open block: what a branch to it takes.
type genLabel struct {
	takes    wasmbin.ValType // 0 for nothing
	dispatch uint32          // number of blocks of a dispatch loop, for its label
}

// next is a number below n.
func (g *generator) next(n int) int {
	if len(g.seed) == 0 {
		return 0
	}
	b := g.seed[0]
	g.seed = g.seed[1:]
	return int(b) % n
}

func (g *generator) op(op wasmbin.Op)            { g.out = wasmbin.AppendOp(g.out, op) }
func (g *generator) opX(op wasmbin.Op, x uint32) { g.out = wasmbin.AppendOpX(g.out, op, x) }
func (g *generator) constant(t wasmbin.ValType, v int64) {
	op := wasmbin.OpI32Const
	if t == i64 {
		op = wasmbin.OpI64Const
	}
	g.out = wasmbin.AppendS64(wasmbin.AppendOp(g.out, op), v)
}

// generate makes a module. Function 0 is imported, the others are numbered from
// 1 and take an i32; the last one is exported as f.
func generate(seed []byte) []byte {
	g := &generator{seed: seed}
	n := 1 + g.next(5)
	for range n {
		t := sig(vals{i32}, nil)
		if g.next(3) > 0 {
			t.Results = vals{[]wasmbin.ValType{i32, i64}[g.next(2)]}
		}
		g.fns = append(g.fns, t)
	}

	var fns []fn
	for i := range g.fns {
		g.fn, g.out, g.ops = i, nil, 60
		g.labels = append(g.labels[:0], genLabel{takes: g.result()})
		g.tick()
		g.statements(3)
		if t := g.result(); t != 0 {
			g.expression(t, 3)
		}

		g.op(wasmbin.OpEnd)
		f := fn{sig: g.fns[i], body: g.out, locals: []wasmbin.LocalGroup{{Count: 2, Type: i32}, {Count: 2, Type: i64}}}
		if i == n-1 {
			f.name = "f"
		}
		fns = append(fns, f)
	}

	return module(fns, func(m *wasmbin.Module) {
		m.Types = []wasmbin.FuncType{{}}
		m.Imports = []wasmbin.Import{{Module: "env", Name: "host"}}
		m.Memories = []wasmbin.Limits{{Min: 1, Max: 3, HasMax: true}}
		m.Tables = []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: uint32(n) + 2}}}}
		e := wasmbin.Element{Offset: code(wasmbin.OpI32Const, 0), Type: wasmbin.FuncRef}
		for i := range n + 1 {
			e.Funcs = append(e.Funcs, uint32(i))
		}
		m.Elements = []wasmbin.Element{e}
		m.Globals = []wasmbin.Global{
			{GlobalType: wasmbin.GlobalType{Type: i32, Mutable: true}, Init: code(wasmbin.OpI32Const, 300)},
			{GlobalType: wasmbin.GlobalType{Type: i64, Mutable: true}, Init: code(wasmbin.OpI64Const, 0)},
		}
		for i, name := range []string{"left", "sum"} {
			m.Exports = append(m.Exports, wasmbin.Export{Name: name, Kind: wasmbin.KindGlobal, Index: uint32(i)})
		}
		m.Exports = append(m.Exports, wasmbin.Export{Name: "memory", Kind: wasmbin.KindMemory})
	})
}

// result is what the current function returns, 0 for nothing.
func (g *generator) result() wasmbin.ValType {
	if r := g.fns[g.fn].Results; len(r) > 0 {
		return r[0]
	}
	return 0
}

// tick counts down and traps at zero.
func (g *generator) tick() {
	g.opX(wasmbin.OpGlobalGet, 0)
	g.constant(i32, 1)
	g.op(wasmbin.OpI32Sub)
	g.opX(wasmbin.OpGlobalSet, 0)
	g.opX(wasmbin.OpGlobalGet, 0)
	g.op(wasmbin.OpI32Eqz)
	g.op(wasmbin.OpIf)
	g.out = append(g.out, void)
	g.op(wasmbin.OpUnreachable)
	g.op(wasmbin.OpEnd)
}

func (g *generator) statements(depth int) {
	for range 1 + g.next(4) {
		g.statement(depth)
	}
}

func (g *generator) statement(depth int) {
	if g.ops--; g.ops <= 0 || depth <= 0 {
		g.assign(1)
		return
	}
	switch g.next(16) {
	case 0, 1:
		g.assign(depth)
	case 2:
		g.block(wasmbin.OpBlock, depth)
	case 3:
		g.block(wasmbin.OpLoop, depth)
	case 4, 5:
		g.conditional(depth)
	case 6, 7:
		g.branch(wasmbin.OpBrIf, depth)
	case 8:
		g.branch(wasmbin.OpBr, depth)
		g.statements(depth - 1) // dead
	case 9:
		g.table(depth)
	case 10:
		g.call(depth)
	case 11:
		g.dispatch(depth)
	case 12:
		g.bulk(depth)
	case 13:
		g.opX(wasmbin.OpCall, 0)
	case 14:
		g.leave(depth)
	case 15:
		g.expression(i32, depth-1)
		g.expression(i64, depth-1)
		g.out = append(wasmbin.AppendOp(g.out, wasmbin.OpI64Store32), 0, 8)
	}
}

func (g *generator) assign(depth int) {
	switch g.next(3) {
	case 0:
		g.expression(i32, depth-1)
		g.opX(wasmbin.OpLocalSet, uint32(g.next(3)))
	case 1:
		g.expression(i64, depth-1)
		g.opX(wasmbin.OpLocalSet, 3+uint32(g.next(2)))
	default:
		g.expression(i64, depth-1)
		g.opX(wasmbin.OpGlobalSet, 1)
	}
}

// block opens a block or loop, fills it and drops its value.
func (g *generator) block(op wasmbin.Op, depth int) {
	t := []wasmbin.ValType{0, 0, i32, i64}[g.next(4)]
	g.op(op)
	g.blockType(t)
	label := genLabel{takes: t}
	if op == wasmbin.OpLoop {
		label.takes = 0
	}

	g.labels = append(g.labels, label)
	if op == wasmbin.OpLoop {
		g.tick()
	}
	g.statements(depth - 1)
	g.closeWith(t, depth)
}

// closeWith leaves a value of type t and ends the block, and drops the value.
func (g *generator) closeWith(t wasmbin.ValType, depth int) {
	if t != 0 {
		g.expression(t, depth-1)
	}
	g.op(wasmbin.OpEnd)
	g.labels = g.labels[:len(g.labels)-1]
	if t != 0 {
		g.op(wasmbin.OpDrop)
	}
}

func (g *generator) blockType(t wasmbin.ValType) {
	if t == 0 {
		g.out = append(g.out, void)
	} else {
		g.out = append(g.out, byte(t))
	}
}

func (g *generator) conditional(depth int) {
	t := []wasmbin.ValType{0, i32}[g.next(2)]
	g.expression(i32, depth-1)
	g.op(wasmbin.OpIf)
	g.blockType(t)
	g.labels = append(g.labels, genLabel{takes: t})
	g.statements(depth - 1)
	if t != 0 || g.next(2) == 0 {
		if t != 0 {
			g.expression(t, depth-1)
		}
		g.op(wasmbin.OpElse)
		g.statements(depth - 1)
	}

	g.closeWith(t, depth)
}

func (g *generator) branch(op wasmbin.Op, depth int) {
	d := g.next(len(g.labels))
	l := g.labels[len(g.labels)-1-d]
	if l.takes != 0 {
		g.expression(l.takes, depth-1)
	}
	if op == wasmbin.OpBrIf {
		g.expression(i32, depth-1)
	} else if l.dispatch > 0 && g.next(4) > 0 {
		g.constant(i32, int64(g.next(int(l.dispatch)+2)))
		g.opX(wasmbin.OpLocalSet, 0)
	}

	g.opX(op, uint32(d))
	if op == wasmbin.OpBrIf && l.takes != 0 {
		g.op(wasmbin.OpDrop)
	}
}

// table branches to several labels that take the same.
func (g *generator) table(depth int) {
	takes := g.labels[len(g.labels)-1-g.next(len(g.labels))].takes
	var fit []uint32
	for d := range g.labels {
		if g.labels[len(g.labels)-1-d].takes == takes {
			fit = append(fit, uint32(d))
		}
	}

	g.op(wasmbin.OpBlock)
	g.out = append(g.out, void)
	if takes != 0 {
		g.expression(takes, depth-1)
	}
	g.expression(i32, depth-1)
	n := g.next(4)
	g.opX(wasmbin.OpBrTable, uint32(n))
	for range n + 1 {
		g.out = wasmbin.AppendU32(g.out, fit[g.next(len(fit))]+1)
	}
	g.op(wasmbin.OpEnd)
}

// dispatch is a loop as Go compiles its functions.
func (g *generator) dispatch(depth int) {
	n := 1 + g.next(4)
	g.constant(i32, int64(g.next(n)))
	g.opX(wasmbin.OpLocalSet, 0)
	g.op(wasmbin.OpLoop)
	g.out = append(g.out, void)

	g.labels = append(g.labels, genLabel{dispatch: uint32(n)})
	for range n {
		g.op(wasmbin.OpBlock)
		g.out = append(g.out, void)
		g.labels = append(g.labels, genLabel{})
	}

	g.opX(wasmbin.OpLocalGet, 0)
	g.opX(wasmbin.OpBrTable, uint32(n-1))
	for i := range n {
		g.out = wasmbin.AppendU32(g.out, uint32(i))
	}
	for range n {
		g.op(wasmbin.OpEnd)
		g.labels = g.labels[:len(g.labels)-1]
		g.tick()
		g.statements(depth - 1)
	}

	g.op(wasmbin.OpEnd)
	g.labels = g.labels[:len(g.labels)-1]
}

func (g *generator) call(depth int) {
	f := g.next(len(g.fns))
	g.expression(i32, depth-1)
	if g.next(3) == 0 {
		g.constant(i32, int64(g.next(len(g.fns)+3)))
		g.opX(wasmbin.OpCallIndirect, uint32(f)+1)
		g.out = append(g.out, 0)
	} else {
		g.opX(wasmbin.OpCall, uint32(f)+1)
	}
	if len(g.fns[f].Results) > 0 {
		g.op(wasmbin.OpDrop)
	}
}

// leave returns, or calls a function instead.
func (g *generator) leave(depth int) {
	g.expression(i32, depth-1)
	g.op(wasmbin.OpIf)
	g.out = append(g.out, void)
	switch t := g.result(); {
	case g.next(6) == 0:
		g.op(wasmbin.OpUnreachable)
	case g.next(2) == 0:
		for i, f := range g.fns {
			if len(f.Results) == 0 && t == 0 || len(f.Results) > 0 && f.Results[0] == t {
				g.expression(i32, depth-1)
				g.opX(wasmbin.OpReturnCall, uint32(i)+1)
				break
			}
		}
	default:
		if t != 0 {
			g.expression(t, depth-1)
		}
		g.op(wasmbin.OpReturn)
	}

	g.op(wasmbin.OpEnd)
}

func (g *generator) bulk(depth int) {
	if g.next(4) == 0 {
		g.constant(i32, int64(g.next(2)))
		g.op(wasmbin.OpMemoryGrow)
		g.out = append(g.out, 0)
		g.opX(wasmbin.OpLocalSet, 1)
		return
	}

	g.constant(i32, int64(g.next(256)*64))
	g.expression(i32, 1)
	g.constant(i32, int64(g.next(256)*200))
	if g.next(2) == 0 {
		g.out = append(wasmbin.AppendOp(g.out, wasmbin.OpMemoryFill), 0)
	} else {
		g.out = append(wasmbin.AppendOp(g.out, wasmbin.OpMemoryCopy), 0, 0)
	}
}

// expression leaves a value of type t.
func (g *generator) expression(t wasmbin.ValType, depth int) {
	local := uint32(g.next(3))
	if t == i64 {
		local = 3 + uint32(g.next(2))
	}
	if g.ops--; depth <= 0 || g.ops <= 0 {
		if g.next(2) == 0 {
			g.constant(t, int64(g.next(256))-100)
		} else {
			g.opX(wasmbin.OpLocalGet, local)
		}
		return
	}

	switch g.next(6) {
	case 0:
		g.expression(t, depth-1)
		g.opX(wasmbin.OpLocalTee, local)
	case 1:
		if t == i32 {
			g.expression(i64, depth-1)
			g.op(wasmbin.OpI64Eqz)
		} else {
			g.expression(i32, depth-1)
			g.op(wasmbin.OpI64ExtendI32U)
		}
	case 2:
		g.expression(t, depth-1)
		g.expression(t, depth-1)
		g.expression(i32, depth-1)
		g.op(wasmbin.OpSelect)
	case 3:
		if t == i32 {
			g.expression(i32, depth-1)
			g.out = append(wasmbin.AppendOp(g.out, wasmbin.OpI32Load), 0, 16)
		} else {
			g.opX(wasmbin.OpGlobalGet, 1)
		}
	default:
		g.expression(t, depth-1)
		g.expression(t, depth-1)
		ops := []wasmbin.Op{wasmbin.OpI32Add, wasmbin.OpI32Mul, wasmbin.OpI32LtU, 0x6d}
		if t == i64 {
			ops = []wasmbin.Op{wasmbin.OpI64Add, wasmbin.OpI64Mul, wasmbin.OpI64Sub, 0x7f}
		}
		g.op(ops[g.next(len(ops))])
	}
}
