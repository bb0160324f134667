// Package exceptions rewrites a module that uses WebAssembly exceptions so that it no longer
// does, because the runtime's implementation is unsafe to use (see wasmbin.Features).
//
// A thrown exception is held in two globals: its tag, which is 0 while no exception is in flight,
// and its value. A throw sets them and branches to its handler. After each call that may throw,
// the caller reads the tag. If it is set, the caller branches to its own handler, or returns
// zeros if it has none. No frame is skipped, so the passes that meter, stop, save and limit guest
// code see only branches, calls and returns. An exception that an export does not catch becomes a
// trap, which leaves the tag set: see [TagExport].
//
// The package reads both forms: try, catch, rethrow and delegate, which compilers emitted before
// the standard, and try_table with throw_ref. An exnref becomes an i64, with the tag in its upper
// half and the value in its lower half; null is 0.
//
// The value of an exception is either empty or one i32: a pointer, which is what compilers of C,
// C++ and Rust throw. Tags of other types, imported tags, tables of exnref, and ref.is_null on an
// exnref are refused, the last of these by the runtime.
//
// A call that may throw grows by a load and a branch. The analysis covers the whole module:
// functions that contain a throw may throw, as may their callers, and calls by reference.
package exceptions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Version changes whenever the same input gives a different output.
const Version = 2

const (
	// TagExport names the exported tag of the exception in flight, a mutable global of type i32.
	// After a trap it is nonzero if and only if the trap was an exception that an export did not
	// catch. It is missing from modules without tags.
	TagExport = "toolhost.exceptions.tag"
	// reservedPrefix begins every name that this package adds to a module's exports. Guests that
	// already export such a name are refused.
	reservedPrefix = "toolhost.exceptions"
)

// Limits on the growth of a module. A function with many results needs a zero for each result
// wherever it passes an exception on, and an export with many parameters passes all of them on.
const (
	maxGrowth = 8       // times the size of the original code
	minRoom   = 1 << 20 // bytes by which any module may grow
)

// Lower rewrites the module in place. Its errors wrap wasmbin.ErrMalformed or
// wasmbin.ErrUnsupported, and leave the module half rewritten. In a module without tags, it only
// replaces the exnref types.
//
// The functions, globals and types that it adds come after the module's own.
func Lower(m *wasmbin.Module) error {
	for _, e := range m.Exports {
		if strings.HasPrefix(e.Name, reservedPrefix) {
			return &wasmbin.Error{Err: wasmbin.ErrUnsupported, Section: "export", Detail: fmt.Sprintf("%q is a name of the host", e.Name)}
		}
	}

	lowerTypes(m)
	if len(m.Tags) == 0 {
		return nil
	}

	l := newLowerer(m)
	if err := l.checkTags(); err != nil {
		return err
	}
	throws, err := throwing(m)
	if err != nil {
		return err
	}
	l.throws = throws

	for i := range m.Codes {
		if err := l.function(i); err != nil {
			return err
		}
	}
	if err := l.guardEntries(); err != nil {
		return err
	}
	l.add()
	return nil
}

// lowerTypes replaces every exnref outside the code by i64.
func lowerTypes(m *wasmbin.Module) {
	all := func(types []wasmbin.ValType) {
		for i := range types {
			types[i] = lowered(types[i])
		}
	}
	for i := range m.Types {
		all(m.Types[i].Params)
		all(m.Types[i].Results)
	}
	for i := range m.Imports {
		m.Imports[i].Global.Type = lowered(m.Imports[i].Global.Type)
	}

	for i := range m.Globals {
		if g := &m.Globals[i]; g.Type == wasmbin.ExnRef {
			g.Type = wasmbin.I64
			if g.Init[0] == byte(wasmbin.OpRefNull) {
				g.Init = []byte{byte(wasmbin.OpI64Const), 0, byte(wasmbin.OpEnd)}
			}
		}
	}
	for i := range m.Codes {
		for j := range m.Codes[i].Locals {
			g := &m.Codes[i].Locals[j]
			g.Type = lowered(g.Type)
		}
	}
}

func lowered(t wasmbin.ValType) wasmbin.ValType {
	if t == wasmbin.ExnRef {
		return wasmbin.I64
	}
	return t
}

// lowerer rewrites a module. Indices are those of the original module; what is added comes after
// them.
type lowerer struct {
	m        *wasmbin.Module
	imported uint32
	funcs    uint32 // index of the function take; throwRef follows it
	globals  uint32 // index of the global with the tag; the value follows it
	types    int
	throws   []bool // for each function of the module: whether it may throw
	added    map[string]uint32
	size     int // size of the new code so far
	room     int

	guards      []wasmbin.Code
	guardedType []uint32
}

func newLowerer(m *wasmbin.Module) *lowerer {
	l := &lowerer{
		m:        m,
		imported: uint32(m.ImportCount(wasmbin.KindFunc)),
		funcs:    uint32(m.Count(wasmbin.KindFunc)),
		globals:  uint32(m.Count(wasmbin.KindGlobal)),
		types:    len(m.Types),
		added:    make(map[string]uint32),
		room:     minRoom,
	}
	for i := range m.Codes {
		l.room += maxGrowth * len(m.Codes[i].Body)
	}
	return l
}

// grow adds to the size of the new code.
func (l *lowerer) grow(size int) error {
	if l.size += size; l.size > l.room {
		return &wasmbin.Error{Err: wasmbin.ErrUnsupported, Section: "code", Detail: "exceptions take more code than the module has, more than eight times"}
	}
	return nil
}

func (l *lowerer) checkTags() error {
	for i, t := range l.m.Tags {
		f := l.m.Types[t]
		if len(f.Results) > 0 {
			return &wasmbin.Error{Err: wasmbin.ErrMalformed, Section: "tag", Detail: fmt.Sprintf("tag %d has results", i)}
		}
		if len(f.Params) > 1 || len(f.Params) == 1 && f.Params[0] != wasmbin.I32 {
			return &wasmbin.Error{
				Err: wasmbin.ErrUnsupported, Section: "tag",
				Detail: fmt.Sprintf("tag %d has the type %v: an exception with a value other than one i32 is not supported", i, f),
			}
		}
	}
	return nil
}

// hasValue reports whether exceptions of a tag have a value.
func (l *lowerer) hasValue(tag uint32) bool { return len(l.m.Types[l.m.Tags[tag]].Params) > 0 }

func (l *lowerer) tag() uint32      { return l.globals }
func (l *lowerer) value() uint32    { return l.globals + 1 }
func (l *lowerer) take() uint32     { return l.funcs }
func (l *lowerer) throwRef() uint32 { return l.funcs + 1 }

// typeOf returns the index of a function type, which it adds unless it has done so before.
func (l *lowerer) typeOf(params, results []wasmbin.ValType) uint32 {
	key := fmt.Sprint(params, results)
	i, ok := l.added[key]
	if !ok {
		i = uint32(len(l.m.Types))
		l.added[key] = i
		l.m.Types = append(l.m.Types, wasmbin.FuncType{Params: params, Results: results})
	}
	return i
}

// blockType returns the encoding of a block's type.
func (l *lowerer) blockType(params, results []wasmbin.ValType) []byte {
	switch {
	case len(params) == 0 && len(results) == 0:
		return []byte{void}
	case len(params) == 0 && len(results) == 1:
		return []byte{byte(results[0])}
	}
	return wasmbin.AppendS64(nil, int64(l.typeOf(params, results)))
}

// guardEntries puts a guard in front of each function that the host calls. The guard traps if the
// function ends with an exception.
func (l *lowerer) guardEntries() error {
	m := l.m
	guards := make(map[uint32]uint32)
	guard := func(f *uint32) error {
		if *f < l.imported || !l.throws[*f-l.imported] {
			return nil
		}
		g, ok := guards[*f]
		if !ok {
			g = l.throwRef() + 1 + uint32(len(l.guards))
			guards[*f] = g
			t := m.Functions[*f-l.imported]
			e := emitter{}
			for i := range m.Types[t].Params {
				e.opX(wasmbin.OpLocalGet, uint32(i))
			}
			e.opX(wasmbin.OpCall, *f).opX(wasmbin.OpGlobalGet, l.tag())
			e.op(wasmbin.OpIf).raw(void).op(wasmbin.OpUnreachable).op(wasmbin.OpEnd).op(wasmbin.OpEnd)
			l.guards = append(l.guards, wasmbin.Code{Body: e.out})
			l.guardedType = append(l.guardedType, t)
			if err := l.grow(len(e.out)); err != nil {
				return err
			}
		}
		*f = g
		return nil
	}

	if m.Start != nil {
		if err := guard(m.Start); err != nil {
			return err
		}
	}
	for i := range m.Exports {
		if e := &m.Exports[i]; e.Kind == wasmbin.KindFunc {
			if err := guard(&e.Index); err != nil {
				return err
			}
		}
	}
	m.Exports = slices.DeleteFunc(m.Exports, func(e wasmbin.Export) bool { return e.Kind == wasmbin.KindTag })
	return nil
}

// add adds the functions and globals that the new code refers to: take, which turns the exception
// in flight into an i64 and ends it; throwRef, which does the reverse; the guards; and the
// globals.
func (l *lowerer) add() {
	m := l.m
	var take, throwRef emitter
	take.opX(wasmbin.OpGlobalGet, l.tag()).op(wasmbin.OpI64ExtendI32U).constant(wasmbin.OpI64Const, 32).op(wasmbin.OpI64Shl)
	take.opX(wasmbin.OpGlobalGet, l.value()).op(wasmbin.OpI64ExtendI32U).op(wasmbin.OpI64Or)
	take.constant(wasmbin.OpI32Const, 0).opX(wasmbin.OpGlobalSet, l.tag()).op(wasmbin.OpEnd)

	throwRef.opX(wasmbin.OpLocalGet, 0).op(wasmbin.OpI64Eqz).op(wasmbin.OpIf).raw(void).op(wasmbin.OpUnreachable).op(wasmbin.OpEnd)
	throwRef.opX(wasmbin.OpLocalGet, 0).constant(wasmbin.OpI64Const, 32).op(wasmbin.OpI64ShrU).op(wasmbin.OpI32WrapI64).opX(wasmbin.OpGlobalSet, l.tag())
	throwRef.opX(wasmbin.OpLocalGet, 0).op(wasmbin.OpI32WrapI64).opX(wasmbin.OpGlobalSet, l.value()).op(wasmbin.OpEnd)

	i64 := []wasmbin.ValType{wasmbin.I64}
	m.Functions = append(m.Functions, l.typeOf(nil, i64), l.typeOf(i64, nil))
	m.Functions = append(m.Functions, l.guardedType...)
	m.Codes = append(m.Codes, wasmbin.Code{Body: take.out}, wasmbin.Code{Body: throwRef.out})
	m.Codes = append(m.Codes, l.guards...)

	zero := []byte{byte(wasmbin.OpI32Const), 0, byte(wasmbin.OpEnd)}
	g := wasmbin.Global{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: zero}
	m.Globals = append(m.Globals, g, g)
	m.Exports = append(m.Exports, wasmbin.Export{Name: TagExport, Kind: wasmbin.KindGlobal, Index: l.tag()})
	m.Tags = nil
}
