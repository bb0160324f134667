package exceptions

import (
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

const (
	i32 = byte(wasmbin.I32)

	opI32LtS wasmbin.Op = 0x48
	opI32GtS wasmbin.Op = 0x4a
	opI32And wasmbin.Op = 0x71

	callees = 4 // functions of a generated program
	logged  = 0 // the imported function that notes a number

	localSum, localExn = 1, 2
)

// generator makes a valid program from bytes: functions of type (i32) -> i32 that log,
// throw, catch, call each other and branch, with one form of exceptions.
type generator struct {
	emitter

	choices  []byte
	legacy   bool
	function int
	labels   []label
	size     int
}

// label is an open block of the program.
type label struct {
	loop    bool
	value   bool // a branch to it takes one, so none is made
	catches bool // is a clause of a try, which rethrow may name
}

func generate(choices []byte, legacy bool) []byte {
	void32 := wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I32}}
	m := &wasmbin.Module{
		Types: []wasmbin.FuncType{
			{Params: []wasmbin.ValType{wasmbin.I32}, Results: []wasmbin.ValType{wasmbin.I32}}, {}, void32,
			{Results: []wasmbin.ValType{wasmbin.I32, wasmbin.ExnRef}},
		},
		Imports: []wasmbin.Import{{Module: "env", Name: "log", Type: 2}},
		Tags:    []uint32{1, 2, 2},
		Tables:  []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: callees}}}},
		Globals: []wasmbin.Global{{
			GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: []byte{byte(wasmbin.OpI32Const), 50, byte(wasmbin.OpEnd)},
		}},
		Exports:  []wasmbin.Export{{Name: "f", Index: 1}, {Name: "tag", Kind: wasmbin.KindTag, Index: 1}},
		Elements: []wasmbin.Element{{Offset: []byte{byte(wasmbin.OpI32Const), 0, byte(wasmbin.OpEnd)}, Type: wasmbin.FuncRef}},
	}
	if legacy {
		m.Types = m.Types[:3]
	}

	for i := range callees {
		g := generator{choices: choices, legacy: legacy, function: i}
		g.program()
		choices = g.choices
		m.Functions = append(m.Functions, 0)
		code := wasmbin.Code{Body: g.out, Locals: []wasmbin.LocalGroup{{Count: 1, Type: wasmbin.I32}}}
		if !legacy {
			code.Locals = append(code.Locals, wasmbin.LocalGroup{Count: 1, Type: wasmbin.ExnRef})
		}
		m.Codes = append(m.Codes, code)
		m.Elements[0].Funcs = append(m.Elements[0].Funcs, uint32(i+1))
	}
	return m.Encode()
}

func (g *generator) pick(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := g.choices[0]
	g.choices = g.choices[1:]
	return int(c) % n
}

// program writes the body of a function. A budget in a global ends each program.
func (g *generator) program() {
	g.opX(wasmbin.OpGlobalGet, 0).constant(wasmbin.OpI32Const, 1).op(opI32LtS).op(wasmbin.OpIf).raw(void).constant(wasmbin.OpI32Const, -1).op(wasmbin.OpReturn).op(wasmbin.OpEnd)
	g.opX(wasmbin.OpGlobalGet, 0).constant(wasmbin.OpI32Const, -1).op(wasmbin.OpI32Add).opX(wasmbin.OpGlobalSet, 0)
	g.statements(4)
	g.opX(wasmbin.OpLocalGet, localSum).op(wasmbin.OpEnd)
}

func (g *generator) statements(n int) {
	for range n {
		if g.size++; g.size > 60 {
			return
		}
		g.statement()
	}
}

func (g *generator) statement() {
	deep := len(g.labels) > 12
	switch k := g.pick(16); {
	case k < 3:
		g.add(int64(g.pick(100)))
	case k < 5:
		g.opX(wasmbin.OpLocalGet, localSum).opX(wasmbin.OpCall, logged)
	case k < 7:
		g.throw(g.pick(3))
	case k == 7:
		g.call(func() { g.opX(wasmbin.OpCall, uint32(1+g.pick(callees))) })
	case k == 8:
		g.call(func() {
			g.constant(wasmbin.OpI32Const, int64(g.pick(callees+1))).opX(wasmbin.OpCallIndirect, 0).raw(0) // may trap
		})
	case k == 9:
		g.rethrow()
	case k == 10:
		g.branch()
	case k == 11 && g.pick(4) == 0:
		g.opX(wasmbin.OpLocalGet, localSum).opX(wasmbin.OpReturnCall, uint32(1+g.pick(callees)))
	case deep:
	case k == 12:
		g.within(wasmbin.OpBlock, label{}, func() { g.statements(3) })
		g.op(wasmbin.OpEnd)
	case k == 13:
		g.within(wasmbin.OpLoop, label{loop: true}, func() { g.statements(3) })
		g.op(wasmbin.OpEnd)
	case g.legacy:
		g.try()
	default:
		g.tryTable()
	}
}

// add makes the sum a number that depends on all before it.
func (g *generator) add(n int64) {
	g.opX(wasmbin.OpLocalGet, localSum).constant(wasmbin.OpI32Const, 31).op(wasmbin.OpI32Mul).constant(wasmbin.OpI32Const, n).op(wasmbin.OpI32Add).opX(wasmbin.OpLocalSet, localSum)
}

// maybe does something if the sum is odd, so that what follows is not dead.
func (g *generator) maybe(do func()) {
	g.opX(wasmbin.OpLocalGet, localSum).constant(wasmbin.OpI32Const, 1).op(opI32And)
	g.within(wasmbin.OpIf, label{}, do)
	g.op(wasmbin.OpEnd)
}

func (g *generator) within(op wasmbin.Op, l label, do func()) {
	g.op(op).raw(void)
	g.labels = append(g.labels, l)
	do()
	g.labels = g.labels[:len(g.labels)-1]
}

func (g *generator) throw(tag int) {
	do := func() {
		if tag > 0 {
			g.opX(wasmbin.OpLocalGet, localSum)
		}
		g.opX(wasmbin.OpThrow, uint32(tag))
	}
	if g.pick(8) == 0 {
		do()
		return
	}
	g.maybe(do)
}

// call leaves numbers below those that it takes.
func (g *generator) call(do func()) {
	g.opX(wasmbin.OpLocalGet, localSum)
	g.opX(wasmbin.OpLocalGet, localSum).constant(wasmbin.OpI32Const, 1).op(wasmbin.OpI32Add)
	do()
	g.op(wasmbin.OpI32Add).opX(wasmbin.OpLocalSet, localSum)
}

func (g *generator) rethrow() {
	if !g.legacy {
		g.maybe(func() { g.opX(wasmbin.OpLocalGet, localExn).op(wasmbin.OpThrowRef) }) // a trap, if it is null
		return
	}
	g.maybe(func() {
		for i, l := range slices.Backward(g.labels) {
			if l.catches && g.pick(2) == 0 {
				g.opX(wasmbin.OpRethrow, uint32(len(g.labels)-1-i))
				return
			}
		}
	})
}

// branch leaves a block, or repeats a loop as long as the budget lasts.
func (g *generator) branch() {
	if len(g.labels) == 0 {
		return
	}
	depth := g.pick(len(g.labels))
	to := g.labels[len(g.labels)-1-depth]
	if to.value {
		return
	}

	if to.loop {
		g.opX(wasmbin.OpGlobalGet, 0).constant(wasmbin.OpI32Const, -1).op(wasmbin.OpI32Add).opX(wasmbin.OpGlobalSet, 0)
		g.opX(wasmbin.OpGlobalGet, 0).constant(wasmbin.OpI32Const, 1).op(opI32GtS)
	} else {
		g.opX(wasmbin.OpLocalGet, localSum).constant(wasmbin.OpI32Const, 2).op(opI32And)
	}
	other := g.pick(len(g.labels))
	if l := g.labels[len(g.labels)-1-other]; l.value || l.loop || to.loop {
		g.opX(wasmbin.OpBrIf, uint32(depth))
		return
	}
	g.op(wasmbin.OpBrTable).raw(1, byte(other), byte(depth))
}

// inside is code within a block that has been opened.
func (g *generator) inside(l label, do func()) {
	g.labels = append(g.labels, l)
	do()
	g.labels = g.labels[:len(g.labels)-1]
}

// try has a result, which the sum becomes.
func (g *generator) try() {
	part := func(l label) {
		g.inside(l, func() { g.statements(3) })
		g.opX(wasmbin.OpLocalGet, localSum)
	}
	g.constant(wasmbin.OpI32Const, 5)
	g.op(wasmbin.OpTry).raw(i32)
	part(label{value: true})

	if k := g.pick(10); k > 7 {
		g.opX(wasmbin.OpDelegate, uint32(g.pick(len(g.labels)+1)))
	} else {
		for tag := range 3 {
			if k>>tag&1 == 0 {
				continue
			}
			g.opX(wasmbin.OpCatch, uint32(tag))
			if tag > 0 {
				g.opX(wasmbin.OpCall, logged)
			}
			part(label{value: true, catches: true})
		}
		if g.pick(3) == 0 {
			g.op(wasmbin.OpCatchAll)
			part(label{value: true, catches: true})
		}
		g.op(wasmbin.OpEnd)
	}

	g.op(wasmbin.OpI32Add).opX(wasmbin.OpLocalSet, localSum)
}

// tryTable catches into blocks around it, one for each type of a clause.
func (g *generator) tryTable() {
	k := g.pick(16)
	var clauses []byte
	n := byte(0)
	clause := func(b ...byte) { clauses, n = append(clauses, b...), n+1 }
	if k&1 != 0 {
		clause(0, 0, 0) // catch a tag without value
	}
	if k&2 != 0 {
		clause(1, 2, 1) // catch_ref: value and exception
	}
	if k&4 != 0 {
		clause(0, 1, 2) // catch: value
	}
	if k&8 != 0 {
		clause(3, 3) // catch_all_ref: exception
	} else if g.pick(4) == 0 {
		clause(2, 0) // catch_all
	}

	g.op(wasmbin.OpBlock).raw(void)
	g.op(wasmbin.OpBlock).raw(byte(wasmbin.ExnRef))
	g.op(wasmbin.OpBlock).raw(i32)
	g.op(wasmbin.OpBlock).raw(3)
	g.op(wasmbin.OpBlock).raw(void)
	g.op(wasmbin.OpTryTable).raw(i32, n).raw(clauses...)
	around := len(g.labels)
	g.labels = append(g.labels, label{}, label{value: true}, label{value: true}, label{value: true}, label{}, label{value: true})
	g.statements(4)
	g.labels = g.labels[:around]
	g.opX(wasmbin.OpLocalGet, localSum).op(wasmbin.OpEnd).opX(wasmbin.OpLocalSet, localSum).opX(wasmbin.OpBr, 4)

	g.op(wasmbin.OpEnd)
	g.add(7)
	g.opX(wasmbin.OpBr, 3)
	g.op(wasmbin.OpEnd).opX(wasmbin.OpLocalSet, localExn).opX(wasmbin.OpCall, logged).opX(wasmbin.OpBr, 2)
	g.op(wasmbin.OpEnd).opX(wasmbin.OpCall, logged).opX(wasmbin.OpBr, 1)
	g.op(wasmbin.OpEnd).opX(wasmbin.OpLocalSet, localExn)
	g.add(9)
	g.op(wasmbin.OpEnd)
}
