package fuel

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// maxReferences is how many functions the code of a module may take references
// to. Code that compilers write takes few or none: a pointer to a function is an
// index into a table there.
const maxReferences = 10_000

// references holds the functions that code takes references to with ref.func.
//
// The runtime makes a new reference whenever it executes one, and keeps it until
// the instance is gone: a loop around a ref.func would take as much memory as it
// has fuel, outside the limit of its call. So each function has one reference, made
// with the instance, in a global that nobody can change, and ref.func becomes a
// global.get. Two references to a function are then the same one, which no
// instruction can detect.
type references struct {
	list  []uint32
	index map[uint32]uint32 // in the list, by function
}

// refer notes that code takes a reference to a function.
func (r *rewriter) refer(f uint32) error {
	if _, ok := r.refs.index[f]; ok {
		return nil
	}
	if len(r.refs.list) == maxReferences {
		return &wasmbin.Error{Err: wasmbin.ErrUnsupported, Section: "code", Detail: fmt.Sprintf("ref.func of more than %d functions", maxReferences)}
	}

	r.refs.index[f] = uint32(len(r.refs.list))
	r.refs.list = append(r.refs.list, f)
	r.take(f)
	return nil
}

// refGlobal returns the index of the global that holds the reference to a function.
func (r *rewriter) refGlobal(f uint32) uint32 { return r.globals + 1 + r.refs.index[f] }

// refuseUndeclared refuses references to functions that are not declared. The
// runtime would do so, but does not see them.
func (r *rewriter) refuseUndeclared() error {
	for _, f := range r.refs.list {
		if !r.declared[f] {
			return &wasmbin.Error{Err: wasmbin.ErrMalformed, Section: "code", Detail: fmt.Sprintf("ref.func of undeclared function %d", f)}
		}
	}
	return nil
}

// addReferences adds the globals. They come after the counter.
func (r *rewriter) addReferences() {
	for _, f := range r.refs.list {
		r.m.Globals = append(r.m.Globals, wasmbin.Global{
			GlobalType: wasmbin.GlobalType{Type: wasmbin.FuncRef},
			Init:       append(wasmbin.AppendOpX(nil, wasmbin.OpRefFunc, r.reference(f)), byte(wasmbin.OpEnd)),
		})
	}
}
