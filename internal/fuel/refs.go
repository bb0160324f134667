package fuel

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// maxReferences is how many functions the code of a module may take references
// to. Code that compilers write takes few or none: a pointer to a function is an
// index into a table there.
const maxReferences = 10_000

// references are the functions that code takes references to with ref.func.
//
// The runtime makes a new reference whenever it executes one, and keeps it until
// the instance is gone: a loop around a ref.func would take as much memory as it
// has fuel, outside the limit of its call. So each function has one reference,
// made with the instance, in a global that nobody can change, and ref.func
// becomes a global.get. Two references to a function are the same one then,
// which no instruction can tell.
type references struct {
	list  []reference
	index map[uint32]uint32 // in the list, by function
}

type reference struct {
	function uint32 // of the original
	err      error  // what is wrong if nothing declares it
}

// refer notes that code takes a reference to a function.
func (r *rewriter) refer(rd *wasmbin.Reader, in *wasmbin.Instr) error {
	if _, ok := r.refs.index[in.X]; ok {
		return nil
	}
	if len(r.refs.list) == maxReferences {
		return &wasmbin.Error{Err: wasmbin.ErrUnsupported, Section: "code", Detail: fmt.Sprintf("ref.func of more than %d functions", maxReferences)}
	}
	r.refs.index[in.X] = uint32(len(r.refs.list))
	r.refs.list = append(r.refs.list, reference{in.X, rd.Errorf(in, "ref.func of undeclared function %d", in.X)})
	r.take(in.X)
	return nil
}

// refGlobal is the index of the global with the reference to a function.
func (r *rewriter) refGlobal(f uint32) uint32 { return r.globals + 1 + r.refs.index[f] }

// declare notes that a function occurs outside of code, so that code may take
// references to it.
func (r *rewriter) declare(f uint32) { r.declared[f] = true }

// refuseUndeclared refuses references to other functions. The runtime would,
// but does not see them.
func (r *rewriter) refuseUndeclared() error {
	for _, ref := range r.refs.list {
		if !r.declared[ref.function] {
			return ref.err
		}
	}
	return nil
}

// addReferences adds the globals. They come after the counter.
func (r *rewriter) addReferences() {
	for _, ref := range r.refs.list {
		r.m.Globals = append(r.m.Globals, wasmbin.Global{
			GlobalType: wasmbin.GlobalType{Type: wasmbin.FuncRef},
			Init:       append(wasmbin.AppendOpX(nil, wasmbin.OpRefFunc, r.reference(ref.function)), byte(wasmbin.OpEnd)),
		})
	}
}
