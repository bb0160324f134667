// Package layout lays out the code of a module at random, so that a benchmark does not
// measure where a compiler happened to put a loop. No engine has to be patched: compilers
// emit functions in the order of the module.
package layout

import (
	"fmt"
	"math/rand/v2"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// maxRounds bounds the padding: in front of every function there is, with a probability of one
// half, one that nothing calls, of fewer than maxRounds times four operators. Compiled, that is up
// to several hundred bytes, so that a function begins anywhere in a cache line and in a page.
const maxRounds = 64

// Shuffle puts the functions that the module defines into another order, with functions
// of random size between them that nothing calls. What the module does, and how
// many operators it executes, stays the same. Names of functions are left out.
//
// The module must have no exceptions, see internal/exceptions. Errors are those of
// decoding a function.
func Shuffle(m *wasmbin.Module, rng *rand.Rand) error {
	imported := uint32(m.ImportCount(wasmbin.KindFunc))
	s := &shuffle{imported: imported, to: make([]uint32, len(m.Functions)), types: len(m.Types)}
	padding := uint32(len(m.Types))
	i32 := []wasmbin.ValType{wasmbin.I32}
	m.Types = append(m.Types, wasmbin.FuncType{Params: i32, Results: i32})

	var functions []uint32
	var codes []wasmbin.Code
	for _, from := range rng.Perm(len(m.Functions)) {
		if rng.IntN(2) == 0 {
			functions = append(functions, padding)
			codes = append(codes, wasmbin.Code{Body: pad(rng)})
		}
		s.to[from] = imported + uint32(len(functions))
		functions = append(functions, m.Functions[from])
		codes = append(codes, m.Codes[from])
	}
	m.Functions, m.Codes = functions, codes

	for i := range m.Codes {
		if err := s.body(&m.Codes[i].Body); err != nil {
			return fmt.Errorf("function %d: %w", i, err)
		}
	}
	return s.references(m)
}

// pad is the body of a function of random size. It returns what it computes, so that no
// compiler leaves the computation out.
func pad(rng *rand.Rand) []byte {
	body := wasmbin.AppendOpX(nil, wasmbin.OpLocalGet, 0)
	for range rng.IntN(maxRounds) {
		body = wasmbin.AppendOpX(body, wasmbin.OpLocalGet, 0)
		body = append(body, opI32Rotl)
		body = wasmbin.AppendS64(append(body, byte(wasmbin.OpI32Const)), int64(rng.Int32()))
		body = append(body, byte(wasmbin.OpI32Mul))
	}
	return append(body, byte(wasmbin.OpEnd))
}

const opI32Rotl = 0x77

// shuffle knows the new index of each function.
type shuffle struct {
	imported uint32
	to       []uint32 // of each function that is not imported
	types    int      // of the module as it was
}

func (s *shuffle) index(f uint32) uint32 {
	if f < s.imported || int(f-s.imported) >= len(s.to) {
		return f // which the engine refuses, if there is none
	}
	return s.to[f-s.imported]
}

// body changes the functions that instructions name.
func (s *shuffle) body(body *[]byte) error {
	var r wasmbin.Reader
	var in wasmbin.Instr
	r.Reset(&wasmbin.Code{Body: *body}, s.types)

	out := make([]byte, 0, len(*body)+len(*body)/8)
	for r.Next(&in) {
		switch in.Op {
		case wasmbin.OpCall, wasmbin.OpReturnCall, wasmbin.OpRefFunc:
			out = wasmbin.AppendOpX(out, in.Op, s.index(in.X))
		default:
			out = append(out, (*body)[in.Pos:in.End]...)
		}
	}
	*body = out
	return r.Err()
}

// references changes the functions that other parts of the module name.
func (s *shuffle) references(m *wasmbin.Module) error {
	exprs := []*[]byte{}
	for i := range m.Globals {
		exprs = append(exprs, &m.Globals[i].Init)
	}
	for i := range m.Elements {
		e := &m.Elements[i]
		for j := range e.Exprs {
			exprs = append(exprs, &e.Exprs[j])
		}
		for j, f := range e.Funcs {
			e.Funcs[j] = s.index(f)
		}
	}
	for _, e := range exprs {
		if err := s.body(e); err != nil {
			return fmt.Errorf("constant expression: %w", err)
		}
	}

	for i := range m.Exports {
		if e := &m.Exports[i]; e.Kind == wasmbin.KindFunc {
			e.Index = s.index(e.Index)
		}
	}
	if m.Start != nil {
		*m.Start = s.index(*m.Start)
	}
	m.Customs = nil
	return nil
}
