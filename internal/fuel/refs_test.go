package fuel

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestReferencesAreMadeOnce: to take a reference again and again takes fuel, and
// no memory.
func TestReferencesAreMadeOnce(t *testing.T) {
	const turns = 500_000
	get, c := wasmbin.OpLocalGet, wasmbin.OpI32Const
	wasm := module([]fn{{name: "f", sig: sig(vals{i32}, nil), body: code(
		wasmbin.OpLoop, void,
		wasmbin.OpRefFunc, uint32(1), wasmbin.OpDrop,
		c, 0, wasmbin.OpRefFunc, uint32(0), wasmbin.OpTableSet, uint32(0),
		get, uint32(0), c, 1, wasmbin.OpI32Sub, wasmbin.OpLocalTee, uint32(0), wasmbin.OpBrIf, uint32(0),
		wasmbin.OpEnd)}}, func(m *wasmbin.Module) {
		counted(m)
		m.Elements[0].Funcs = []uint32{0, 1}
	})
	for name, simple := range map[string]bool{"graph": false, "simple": true} {
		t.Run(name, func(t *testing.T) {
			p, err := rewrite(simple, wasm)
			require.NoError(t, err)
			require.Equal(t, 2, p.Stats.References)
			g := start(t, p, nil, withHost(t, func() {}))
			before := heap()
			_, used, err := g.call(MaxBudget, "f", turns)
			require.NoError(t, err)
			require.EqualValues(t, turns*(2*RefFuncCost+2+5), used)
			require.Less(t, heap()-before, int64(1<<20))
			runtime.KeepAlive(g)
		})
	}
}

// heap is what is in use of Go's heap.
func heap() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// TestReferences: what code does with a reference is what it did, for functions
// of the module and of its host, whatever declares them.
func TestReferences(t *testing.T) {
	end := wasmbin.OpEnd
	element := func(m *wasmbin.Module) { m.Elements[0].Funcs = []uint32{0, 2} }
	for name, change := range map[string]func(*wasmbin.Module){
		"element": element,
		"declarative": func(m *wasmbin.Module) {
			element(m)
			m.Elements[0].Mode, m.Elements[0].Offset = wasmbin.Declarative, nil
		},
		"expressions": func(m *wasmbin.Module) {
			m.Elements[0].Funcs, m.Elements[0].Exprs = nil, [][]byte{code(wasmbin.OpRefFunc, uint32(0)), code(wasmbin.OpRefFunc, uint32(2))}
		},
		"globals": func(m *wasmbin.Module) {
			for _, f := range []uint32{0, 2} {
				m.Globals = append(m.Globals, wasmbin.Global{GlobalType: wasmbin.GlobalType{Type: wasmbin.FuncRef}, Init: code(wasmbin.OpRefFunc, f)})
			}
		},
		"exports": func(m *wasmbin.Module) {
			m.Exports = append(m.Exports, wasmbin.Export{Name: "a"}, wasmbin.Export{Name: "b", Index: 2})
		},
	} {
		t.Run(name, func(t *testing.T) {
			called := 0
			g := instantiate(t, module([]fn{
				{name: "f", body: code(
					wasmbin.OpI32Const, 2, wasmbin.OpRefFunc, uint32(0), wasmbin.OpTableSet, uint32(0),
					wasmbin.OpI32Const, 3, wasmbin.OpRefFunc, uint32(2), wasmbin.OpTableSet, uint32(0),
					wasmbin.OpI32Const, 2, wasmbin.OpCallIndirect, uint32(0), uint32(0),
					wasmbin.OpI32Const, 3, wasmbin.OpCallIndirect, uint32(0), uint32(0),
					wasmbin.OpRefFunc, uint32(2), wasmbin.OpRefIsNull, wasmbin.OpIf, void, wasmbin.OpUnreachable, end)},
				{body: code(wasmbin.OpCall, uint32(0))},
			}, func(m *wasmbin.Module) { counted(m); change(m) }), nil, withHost(t, func() { called++ }))
			_, used, err := g.call(MaxBudget, "f")
			require.NoError(t, err)
			require.Equal(t, 2, called)
			require.EqualValues(t, 2*(2+RefFuncCost)+2*2+RefFuncCost+2+1+2*HostCallCost, used)
		})
	}
}

// TestReferencesAreBounded: they are made with each instance.
func TestReferencesAreBounded(t *testing.T) {
	refer := func(n int) []byte {
		var body []byte
		var funcs []uint32
		fns := make([]fn, n)
		for i := range fns {
			fns[i].body = code()
			body = append(wasmbin.AppendOpX(body, wasmbin.OpRefFunc, uint32(i)), byte(wasmbin.OpDrop))
			funcs = append(funcs, uint32(i))
		}
		fns[0].body = code(body)
		return module(fns, func(m *wasmbin.Module) {
			m.Elements = []wasmbin.Element{{Mode: wasmbin.Declarative, Type: wasmbin.FuncRef, Funcs: funcs}}
		})
	}
	p, err := rewrite(false, refer(maxReferences))
	require.NoError(t, err)
	require.Equal(t, maxReferences, p.Stats.References)
	_, err = rewrite(false, refer(maxReferences+1))
	require.ErrorIs(t, err, wasmbin.ErrUnsupported)
	require.ErrorContains(t, err, "ref.func of more than 10000 functions")
}
