package fuel

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// rewriter changes a module in place. The refill function becomes the last imported
// function, so that every function after it moves up by one; the counter becomes the
// last global, followed by the references to functions. Other additions go after the
// existing entries. Indices in comments are those of the original.
type rewriter struct {
	m *wasmbin.Module

	types    int      // original number of types
	imported uint32   // original number of imported functions, the index of refill
	funcs    uint32   // original number of functions
	globals  uint32   // original number of globals, the index of the counter
	types1   []uint32 // type index of each imported function

	// stubs holds, for each imported function whose reference is taken, the
	// function that charges for it and calls it, and 0 for the others: a call
	// through a reference does not see that it leaves the guest.
	stubs    []uint32
	stubbed  []uint32 // imported functions that have a stub, in order
	declared []bool   // functions that ref.func may name
	refs     references
	bulks    []bulk // operators that have a function for long ones
	grown    bool   // whether there is a table.grow

	bulkIndex map[bulk]uint32 // index in bulks

	taken   []bool  // functions of the module that may be called other than by name
	prepaid []int64 // what callers charge in advance for each function of the module
}

func newRewriter(m *wasmbin.Module) *rewriter {
	r := &rewriter{
		m:        m,
		types:    len(m.Types),
		imported: uint32(m.ImportCount(wasmbin.KindFunc)),
		funcs:    uint32(m.Count(wasmbin.KindFunc)),
		globals:  uint32(m.Count(wasmbin.KindGlobal)),
		refs:     references{index: make(map[uint32]uint32)},

		bulkIndex: make(map[bulk]uint32),
	}
	for _, i := range m.Imports {
		if i.Kind == wasmbin.KindFunc {
			r.types1 = append(r.types1, i.Type)
		}
	}

	r.stubs = make([]uint32, r.imported)
	r.declared = make([]bool, r.funcs)
	r.taken = make([]bool, len(m.Functions))
	r.prepaid = make([]int64, len(m.Functions))

	return r
}

// rewrite rewrites the module. It calls bodies to rewrite its code.
func (r *rewriter) rewrite(bodies func([]*graph) error) (Stats, error) {
	m := r.m
	if err := r.limitTables(); err != nil {
		return Stats{}, err
	}
	graphs, err := r.graphs()
	if err != nil {
		return Stats{}, err
	}

	m.Types = append(m.Types, wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I32, wasmbin.I32, wasmbin.I32}})
	if err := r.segments(); err != nil {
		return Stats{}, err
	}
	for i := range m.Exports {
		if e := &m.Exports[i]; e.Kind == wasmbin.KindFunc {
			r.declared[e.Index] = true
			r.take(e.Index)
			e.Index = r.direct(e.Index)
		}
	}

	if m.Start != nil {
		r.take(*m.Start)
		*m.Start = r.direct(*m.Start)
	}
	if err := r.refuseUndeclared(); err != nil {
		return Stats{}, err
	}
	if err := bodies(graphs); err != nil {
		return Stats{}, err
	}

	r.addMeter()
	r.addReferences()
	r.addStubs()
	r.fixNames()
	return Stats{References: len(r.refs.list), Entries: r.entries()}, nil
}

// direct returns the new index of a function that is called by its index.
func (r *rewriter) direct(f uint32) uint32 {
	if f < r.imported {
		return f
	}
	return f + 1
}

// reference returns the new index of a function whose reference is taken.
func (r *rewriter) reference(f uint32) uint32 {
	if f >= r.imported {
		r.take(f)
		return f + 1
	}
	if r.stubs[f] == 0 {
		r.stubbed = append(r.stubbed, f)
		r.stubs[f] = r.more() + 1 + uint32(len(r.bulks)+len(r.stubbed))
	}
	return r.stubs[f]
}

// bulkFunc returns the index of the function that an operator uses for large sizes.
func (r *rewriter) bulkFunc(b bulk) uint32 { return r.more() + 2 + r.bulkIndex[b] }

// take notes that a function may be called in other ways than by the module's own calls.
func (r *rewriter) take(f uint32) {
	if f >= r.imported {
		r.taken[f-r.imported] = true
	}
}

// more returns the index of the function that refills the counter, the first one
// after the original's; the next one refills a local that holds it.
func (r *rewriter) more() uint32 { return r.funcs + 1 }

// emitter returns an emitter with room for size bytes of code.
func (r *rewriter) emitter(size int) emitter {
	return emitter{counter: r.globals, more: r.more(), out: make([]byte, 0, size)}
}

// segments moves the functions that tables, globals and segments refer to.
func (r *rewriter) segments() error {
	m := r.m
	var err error
	expr := func(section string, e *[]byte) {
		if err == nil && *e != nil {
			*e, err = r.constExpr(section, *e)
		}
	}
	for i := range m.Globals {
		expr("global", &m.Globals[i].Init)
	}
	for i := range m.Elements {
		e := &m.Elements[i]
		expr("element", &e.Offset)
		for j := range e.Exprs {
			expr("element", &e.Exprs[j])
		}
		for j, f := range e.Funcs {
			if f >= r.funcs {
				return &wasmbin.Error{Err: wasmbin.ErrMalformed, Section: "element", Detail: fmt.Sprintf("no function %d", f)}
			}
			r.declared[f] = true
			e.Funcs[j] = r.reference(f)
		}
	}

	for i := range m.Data {
		expr("data", &m.Data[i].Offset)
	}
	return err
}

// constExpr moves the functions of a constant expression and refuses globals
// that the original does not have.
func (r *rewriter) constExpr(section string, expr []byte) ([]byte, error) {
	fail := func(what string, i uint32) ([]byte, error) {
		return nil, &wasmbin.Error{Err: wasmbin.ErrMalformed, Section: section, Detail: fmt.Sprintf("no %s %d in a constant expression", what, i)}
	}
	var rd wasmbin.Reader
	var in wasmbin.Instr
	rd.Reset(&wasmbin.Code{Body: expr}, r.types)

	var out []byte
	for rd.Next(&in) {
		switch {
		case in.Op == wasmbin.OpGlobalGet && in.X >= r.globals:
			return fail("global", in.X)
		case in.Op == wasmbin.OpRefFunc && in.X >= r.funcs:
			return fail("function", in.X)
		case in.Op == wasmbin.OpRefFunc:
			r.declared[in.X] = true
			out = wasmbin.AppendOpX(out, wasmbin.OpRefFunc, r.reference(in.X))
		default:
			out = append(out, expr[in.Pos:in.End]...)
		}
	}
	return out, rd.Err()
}

// addStubs adds the functions that stand for imported ones in tables and
// references.
func (r *rewriter) addStubs() {
	for _, f := range r.stubbed {
		t := r.types1[f]
		e := r.emitter(16)
		e.charge(HostCallCost)
		for i := range r.m.Types[t].Params {
			e.get(uint32(i))
		}
		r.addFunction(t, e.opX(wasmbin.OpCall, f).end())
	}
}

// addFunction adds a function of type t, whose code is in e.
func (r *rewriter) addFunction(t uint32, e *emitter) {
	r.m.Functions = append(r.m.Functions, t)
	r.m.Codes = append(r.m.Codes, wasmbin.Code{Body: e.out})
}

// addMeter adds the imported refill function, the functions that call it, which
// keep the call small where it is needed, and the exported counter.
func (r *rewriter) addMeter() {
	m := r.m
	i64 := []wasmbin.ValType{wasmbin.I64}
	t := uint32(len(m.Types))
	m.Types = append(m.Types, wasmbin.FuncType{Params: i64, Results: i64}, wasmbin.FuncType{})
	m.Imports = append(m.Imports, wasmbin.Import{Module: ImportModule, Name: ImportName, Type: t})

	e, held := r.emitter(16), r.emitter(16)
	r.addFunction(t+1, e.opX(wasmbin.OpGlobalGet, r.globals).opX(wasmbin.OpCall, r.imported).opX(wasmbin.OpGlobalSet, r.globals).end())
	held.get(0).opX(wasmbin.OpCall, r.imported).opX(wasmbin.OpLocalTee, 0)
	held.opX(wasmbin.OpGlobalSet, r.globals) // so that a trap is accounted to a slice
	r.addFunction(t, held.get(0).end())
	r.addBulks()

	m.Globals = append(m.Globals, wasmbin.Global{
		GlobalType: wasmbin.GlobalType{Type: wasmbin.I64, Mutable: true},
		Init:       []byte{byte(wasmbin.OpI64Const), 0, byte(wasmbin.OpEnd)},
	})
	m.Exports = append(m.Exports, wasmbin.Export{Name: CounterExport, Kind: wasmbin.KindGlobal, Index: r.globals})
}

// fixNames keeps the names of functions, for traces, and drops all other custom
// sections: they describe the code as it was.
func (r *rewriter) fixNames() {
	m := r.m
	data, ok := m.Custom("name")
	m.Customs = nil
	if !ok {
		return
	}
	if data, ok = wasmbin.MoveFuncNames(data, r.direct); ok {
		m.Customs = []wasmbin.Custom{wasmbin.NewCustom("name", data)}
	}
}
