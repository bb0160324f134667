// Package atomics rewrites a module's atomic instructions as ordinary ones. Only one
// thread runs in an instance, and no memory is shared, so each instruction becomes a load,
// a store, or a load followed by a store. Compilers emit atomic instructions for
// single-threaded programs too, for example to count references.
//
// The runtime supports atomic instructions, but cannot compile them on ARM processors
// older than version 8.1.
package atomics

import (
	"bytes"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

const (
	void = 0x40 // type of a block without a result

	notify = 0xfe00
	fence  = 0xfe03
	first  = 0xfe10 // opcode of the first load; the other operations follow, each in seven widths
	widths = 7
)

// The operations, in the order of their opcodes.
const (
	opLoad = iota
	opStore
	opAdd
	opSub
	opAnd
	opOr
	opXor
	opExchange
	opCompare
)

// width is a value type together with its size in memory.
type width struct {
	wide        bool // i64 rather than i32
	align       uint32
	load, store wasmbin.Op
}

var all = [widths]width{
	{false, 2, 0x28, 0x36}, {true, 3, 0x29, 0x37},
	{false, 0, 0x2d, 0x3a}, {false, 1, 0x2f, 0x3b},
	{true, 0, 0x31, 0x3c}, {true, 1, 0x33, 0x3d}, {true, 2, 0x35, 0x3e},
}

// binary maps the operations that combine two values to their operators for i32 and i64.
var binary = map[int][2]wasmbin.Op{
	opAdd: {wasmbin.OpI32Add, wasmbin.OpI64Add}, opSub: {wasmbin.OpI32Sub, wasmbin.OpI64Sub},
	opAnd: {0x71, 0x83}, opOr: {0x72, wasmbin.OpI64Or}, opXor: {0x73, 0x85},
}

// Lower rewrites the module in place. Its errors wrap wasmbin.ErrMalformed or
// wasmbin.ErrUnsupported, and leave the module half rewritten. Wait instructions are
// refused, because they need shared memory.
//
// The code may double in size, and grow by another 1 MiB on top of that: in unreachable
// code, a four-byte instruction can become fourteen times as large.
func Lower(m *wasmbin.Module) error {
	room := 1 << 20
	for i := range m.Codes {
		room += len(m.Codes[i].Body)
	}
	for i := range m.Codes {
		code := &m.Codes[i]
		if bytes.IndexByte(code.Body, 0xfe) < 0 {
			continue
		}
		w, size := writer{locals: uint32(len(m.Types[m.Functions[i]].Params) + code.NumLocals()), most: room + len(code.Body)}, len(code.Body)
		if err := w.function(code, len(m.Types)); err != nil {
			return err
		}
		room -= len(code.Body) - size
	}
	return nil
}

// writer writes the new code of a function.
type writer struct {
	rd     wasmbin.Reader
	out    []byte
	locals uint32 // number of locals in the original
	most   int    // maximum size of the new code, in bytes
	used   bool
}

// The locals that are added: the address, and two values of each type.
const (
	address = 0
	narrow  = 1
	wide    = 3
)

func (w *writer) function(code *wasmbin.Code, types int) error {
	w.rd.Atomics, w.rd.Exceptions = true, true
	w.rd.Reset(code, types)
	copied := 0
	var in wasmbin.Instr
	for w.rd.Next(&in) {
		if in.Op>>8 != 0xfe {
			continue
		}
		w.out = append(w.out, code.Body[copied:in.Pos]...)
		copied = in.End
		if err := w.instr(&in); err != nil {
			return err
		}
		if len(w.out) > w.most {
			return &wasmbin.Error{Err: wasmbin.ErrUnsupported, Section: "code", Detail: "atomic instructions take more code than the module has, more than twice"}
		}
	}
	if err := w.rd.Err(); err != nil || copied == 0 {
		return err
	}

	code.Body = append(w.out, code.Body[copied:]...)
	if !w.used {
		return nil
	}
	if w.locals+5 > wasmbin.MaxLocals {
		return w.rd.Errorf(&in, "more than %d locals", wasmbin.MaxLocals)
	}
	groups := []wasmbin.LocalGroup{{Count: 3, Type: wasmbin.I32}, {Count: 2, Type: wasmbin.I64}}
	code.Locals = append(code.Locals[:len(code.Locals):len(code.Locals)], groups...)
	return nil
}

func (w *writer) op(ops ...wasmbin.Op) {
	for _, op := range ops {
		w.out = wasmbin.AppendOp(w.out, op)
	}
}

func (w *writer) local(op wasmbin.Op, i uint32) { w.out = wasmbin.AppendOpX(w.out, op, w.locals+i) }

func (w *writer) constant(v uint32) {
	w.out = wasmbin.AppendS64(wasmbin.AppendOp(w.out, wasmbin.OpI32Const), int64(int32(v)))
}

// access writes a load or store.
func (w *writer) access(op wasmbin.Op, in *wasmbin.Instr) {
	w.out = wasmbin.AppendU32(wasmbin.AppendOpX(w.out, op, in.X), in.Y)
}

// load writes a load from the address.
func (w *writer) load(op wasmbin.Op, in *wasmbin.Instr) {
	w.local(wasmbin.OpLocalGet, address)
	w.access(op, in)
}

// instr writes the code that replaces an atomic instruction.
func (w *writer) instr(in *wasmbin.Instr) error {
	if in.Op == fence {
		return nil
	}
	w.used = true
	if in.Op == notify { // nobody waits
		if in.X != 2 {
			return w.rd.Errorf(in, "alignment 2^%d of an atomic instruction", in.X)
		}
		w.local(wasmbin.OpLocalSet, narrow)
		w.address(in)
		w.load(wasmbin.OpI32Load, in)
		w.op(wasmbin.OpDrop)
		w.constant(0)
		return nil
	}

	n := int(in.Op - first)
	if width := all[n%widths]; in.X == width.align {
		w.operation(n/widths, width, in)
		return nil
	}
	return w.rd.Errorf(in, "alignment 2^%d of an atomic instruction", in.X)
}

// address pops the address from the stack, and traps if it is not aligned.
func (w *writer) address(in *wasmbin.Instr) {
	w.local(wasmbin.OpLocalSet, address)
	if in.X == 0 {
		return
	}

	mask := uint32(1)<<in.X - 1
	w.local(wasmbin.OpLocalGet, address)
	if in.Y&mask != 0 {
		w.constant(in.Y & mask)
		w.op(wasmbin.OpI32Add)
	}
	w.constant(mask)
	w.op(0x71, wasmbin.OpIf, void, wasmbin.OpUnreachable, wasmbin.OpEnd)
}

// operation writes a load, a store, or a load and a store that together return the old
// value.
func (w *writer) operation(operation int, t width, in *wasmbin.Instr) {
	value := uint32(narrow)
	if t.wide {
		value = wide
	}
	if operation == opCompare {
		w.local(wasmbin.OpLocalSet, value+1)
	}
	if operation != opLoad {
		w.local(wasmbin.OpLocalSet, value)
	}
	w.address(in)
	if operation != opStore {
		w.load(t.load, in)
	}

	switch operation {
	case opLoad:
	case opStore, opExchange:
		w.local(wasmbin.OpLocalGet, address)
		w.local(wasmbin.OpLocalGet, value)
		w.access(t.store, in)
	case opCompare:
		w.load(t.load, in)
		w.local(wasmbin.OpLocalGet, value)
		w.mask(t)
		w.op(pick(t.wide, wasmbin.OpI32Eq, 0x51), wasmbin.OpIf, void)
		w.local(wasmbin.OpLocalGet, address)
		w.local(wasmbin.OpLocalGet, value+1)
		w.access(t.store, in)
		w.op(wasmbin.OpEnd)
	default:
		w.local(wasmbin.OpLocalGet, address)
		w.load(t.load, in)
		w.local(wasmbin.OpLocalGet, value)
		ops := binary[operation]
		w.op(pick(t.wide, ops[0], ops[1]))
		w.access(t.store, in)
	}
}

// mask clears those bits of the value on the stack that do not fit in memory.
func (w *writer) mask(t width) {
	if t == all[0] || t == all[1] {
		return
	}
	w.out = wasmbin.AppendOp(w.out, pick(t.wide, wasmbin.OpI32Const, wasmbin.OpI64Const))
	w.out = wasmbin.AppendS64(w.out, 1<<(8<<t.align)-1)
	w.op(pick(t.wide, 0x71, 0x83))
}

func pick(wide bool, narrow, other wasmbin.Op) wasmbin.Op {
	if wide {
		return other
	}
	return narrow
}
