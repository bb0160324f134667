package layout_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/bench/internal/engine"
	"github.com/toolhost/toolhost/bench/internal/layout"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// module is one that names functions wherever a module can: it calls them, also in tail
// position and through a table, takes references to them in code, a global and both
// forms of element segments, exports them, and starts with one. run(x) is
// ((x+1)*3+1)*3+1 and what the start function has stored.
func module() *wasmbin.Module {
	i32 := []wasmbin.ValType{wasmbin.I32}
	op := func(body []byte, op wasmbin.Op, x uint32) []byte { return wasmbin.AppendOpX(body, op, x) }
	end := byte(wasmbin.OpEnd)
	zero := []byte{byte(wasmbin.OpI32Const), 0, end}
	expr := func(f uint32) []byte { return append(op(nil, wasmbin.OpRefFunc, f), end) }

	const imported, inc, triple, both, run, start = 0, 1, 2, 3, 4, 5
	code := make([]wasmbin.Code, 5)
	arg := op(nil, wasmbin.OpLocalGet, 0)
	code[inc-1].Body = append(bytes.Clone(arg), byte(wasmbin.OpI32Const), 1, byte(wasmbin.OpI32Add), end)
	code[triple-1].Body = append(bytes.Clone(arg), byte(wasmbin.OpI32Const), 3, byte(wasmbin.OpI32Mul), end)
	code[both-1].Body = append(op(op(bytes.Clone(arg), wasmbin.OpCall, inc), wasmbin.OpReturnCall, triple), end)
	// call both by the table, inc by a reference that is put there, and the import.
	body := op(bytes.Clone(arg), wasmbin.OpCall, both)
	body = append(body, byte(wasmbin.OpI32Const), 0, byte(wasmbin.OpCallIndirect), 0, 0)
	body = append(op(append(body, byte(wasmbin.OpI32Const), 1), wasmbin.OpRefFunc, inc), byte(wasmbin.OpTableSet), 0)
	body = append(body, byte(wasmbin.OpI32Const), 1, byte(wasmbin.OpCallIndirect), 0, 0)
	body = append(op(op(body, wasmbin.OpCall, imported), wasmbin.OpGlobalGet, 0), byte(wasmbin.OpI32Add), end)
	code[run-1].Body = body
	code[start-1].Body = append(op([]byte{byte(wasmbin.OpI32Const), 7}, wasmbin.OpGlobalSet, 0), end)

	first := uint32(start)
	return &wasmbin.Module{
		Types:     []wasmbin.FuncType{{Params: i32, Results: i32}, {}},
		Imports:   []wasmbin.Import{{Module: "env", Name: "same"}},
		Functions: []uint32{0, 0, 0, 0, 1},
		Tables:    []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 3}}}},
		Globals: []wasmbin.Global{
			{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: zero},
			{GlobalType: wasmbin.GlobalType{Type: wasmbin.FuncRef}, Init: expr(triple)},
		},
		Exports: []wasmbin.Export{{Name: "run", Index: run}, {Name: "triple", Index: triple}, {Name: "same", Index: imported}},
		Start:   &first,
		Elements: []wasmbin.Element{
			{Offset: zero, Type: wasmbin.FuncRef, Funcs: []uint32{both}},
			{Offset: []byte{byte(wasmbin.OpI32Const), 2, end}, Type: wasmbin.FuncRef, Exprs: [][]byte{expr(inc)}},
		},
		Codes: code,
	}
}

// TestShuffle: in every layout the module does the same for the same fuel, on all engines.
func TestShuffle(t *testing.T) {
	host := engine.Host{Functions: map[string]engine.Function{
		"env.same": func(_ *engine.Instance, args []uint64) uint64 { return args[0] },
	}}
	fuel := map[int64]bool{}
	layouts := map[string]bool{}
	for seed := range uint64(10) {
		m := module()
		if seed > 0 { // 0 is the module as it is
			require.NoError(t, layout.Shuffle(m, rand.New(rand.NewPCG(seed, 0))))
		}
		wasm := m.Encode()
		layouts[string(wasm)] = true

		for _, e := range engine.All {
			p, err := e.Load(wasm, host)
			require.NoError(t, err, e.Name)
			in, err := p.Start()
			require.NoError(t, err, e.Name)

			for name, want := range map[string]uint64{"run": ((10+1)*3+1)*3 + 1 + 7, "triple": 30, "same": 10} {
				got, err := in.Call(name, 10)
				require.NoError(t, err, e.Name)
				require.Equal(t, want, got, "%s on %s, seed %d", name, e.Name, seed)
			}
			if e.Name == "metered" {
				fuel[in.Fuel()] = true
			}
			require.NoError(t, in.Close())
			p.Close()
		}
	}

	require.Len(t, layouts, 10, "layouts differ")
	require.Len(t, fuel, 1, "fuel does not")
	require.NotContains(t, fuel, int64(0))
}
