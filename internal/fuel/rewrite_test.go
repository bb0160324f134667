package fuel

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

func TestRewriteRefusesReservedNames(t *testing.T) {
	tests := map[string]func(*wasmbin.Module){
		"import of refill": func(m *wasmbin.Module) {
			m.Types = []wasmbin.FuncType{sig(vals{i64}, vals{i64})}
			m.Imports = []wasmbin.Import{{Module: ImportModule, Name: ImportName}}
		},
		"import of the counter": func(m *wasmbin.Module) {
			m.Imports = []wasmbin.Import{{Module: "toolhost.fuel.x", Name: "counter", Kind: wasmbin.KindGlobal,
				Global: wasmbin.GlobalType{Type: i64, Mutable: true}}}
		},
		"export": func(m *wasmbin.Module) {
			m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: i64, Mutable: true}, Init: code(wasmbin.OpI64Const, 0)}}
			m.Exports = []wasmbin.Export{{Name: CounterExport, Kind: wasmbin.KindGlobal}}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := rewrite(false, module(nil, change))
			require.ErrorIs(t, err, ErrReserved)
		})
	}
}

// TestRewriteKeepsIndicesClosed has an index just above the last of each kind,
// which is where ours go.
func TestRewriteKeepsIndicesClosed(t *testing.T) {
	drop, end := wasmbin.OpDrop, wasmbin.OpEnd
	tests := map[string][]byte{
		"global.get":     module([]fn{{body: code(wasmbin.OpGlobalGet, uint32(1), drop)}}, counted),
		"global.set":     module([]fn{{body: code(wasmbin.OpI64Const, 0, wasmbin.OpGlobalSet, uint32(1))}}, counted),
		"dead global":    module([]fn{{body: code(wasmbin.OpUnreachable, wasmbin.OpI64Const, 0, wasmbin.OpGlobalSet, uint32(1))}}, counted),
		"call":           module([]fn{{body: code(wasmbin.OpCall, uint32(2))}}, counted),
		"return_call":    module([]fn{{body: code(wasmbin.OpReturnCall, uint32(2))}}, counted),
		"ref.func":       module([]fn{{body: code(wasmbin.OpRefFunc, uint32(2), drop)}}, counted),
		"undeclared":     module([]fn{{body: code(wasmbin.OpRefFunc, uint32(0), drop)}}, counted),
		"undeclared own": module([]fn{{body: code()}, {body: code(wasmbin.OpUnreachable, wasmbin.OpRefFunc, uint32(2), drop)}}, counted),
		"local":          module([]fn{{body: code(wasmbin.OpLocalGet, uint32(0), drop)}}, counted),
		"local of fill":  module([]fn{{body: code(wasmbin.OpI32Const, 0, wasmbin.OpI32Const, 0, wasmbin.OpI32Const, 0, wasmbin.OpMemoryFill, byte(0), wasmbin.OpLocalGet, uint32(0), drop)}}, counted),
		"block type":     module([]fn{{body: code(wasmbin.OpI64Const, 0, wasmbin.OpBlock, 2, end, drop)}}, counted),
		"call_indirect":  module([]fn{{body: code(wasmbin.OpI64Const, 0, wasmbin.OpI32Const, 0, wasmbin.OpCallIndirect, uint32(2), uint32(0), drop)}}, counted),
		"element": module([]fn{{body: code()}}, func(m *wasmbin.Module) {
			counted(m)
			m.Elements[0].Funcs = []uint32{2}
		}),
		"element expression": module([]fn{{body: code()}}, func(m *wasmbin.Module) {
			counted(m)
			m.Elements[0].Exprs = [][]byte{code(wasmbin.OpRefFunc, uint32(2))}
		}),
		"constant expression": module([]fn{{body: code()}}, func(m *wasmbin.Module) {
			counted(m)
			m.Globals[0].Init = code(wasmbin.OpGlobalGet, uint32(1))
		}),
		"export of a global": module([]fn{{body: code()}}, func(m *wasmbin.Module) {
			counted(m)
			m.Exports = []wasmbin.Export{{Name: "mine", Kind: wasmbin.KindGlobal, Index: 1}}
		}),
		"export of a function": module([]fn{{body: code()}}, func(m *wasmbin.Module) {
			counted(m)
			m.Exports = []wasmbin.Export{{Name: "mine", Index: 2}}
		}),
		"start": module([]fn{{body: code()}}, func(m *wasmbin.Module) {
			counted(m)
			start := uint32(2)
			m.Start = &start
		}),
		"else without if":    module([]fn{{body: code(wasmbin.OpBlock, void, wasmbin.OpElse, end)}}, counted),
		"code after the end": module([]fn{{body: code(end, wasmbin.OpNop)}}, counted),
		"open block":         module([]fn{{body: code(wasmbin.OpBlock, void)}}, counted),
	}
	for name, wasm := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := rewrite(false, wasm)
			require.ErrorIs(t, err, wasmbin.ErrMalformed)
		})
	}

	_, err := rewrite(false, module([]fn{{body: code()}}, counted))
	require.NoError(t, err)
}

// counted gives a module one of everything: an imported function 0 that has
// type 0, a memory, a table, an i64 global and an element segment. The first
// function of the module is 1 and has type 1.
func counted(m *wasmbin.Module) {
	m.Types = []wasmbin.FuncType{{}}
	m.Imports = []wasmbin.Import{{Module: "env", Name: "host"}}
	m.Memories = []wasmbin.Limits{{Min: 1}}
	m.Tables = []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 4}}}}
	m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: i64, Mutable: true}, Init: code(wasmbin.OpI64Const, 0)}}
	m.Elements = []wasmbin.Element{{Offset: code(wasmbin.OpI32Const, 0), Type: wasmbin.FuncRef, Funcs: []uint32{1}}}
}

// TestCost holds the cost table: what each body costs, counted by hand.
func TestCost(t *testing.T) {
	get0, c := []any{wasmbin.OpLocalGet, uint32(0)}, wasmbin.OpI32Const
	if_, end, br := wasmbin.OpIf, wasmbin.OpEnd, wasmbin.OpBr
	tests := []struct {
		name string
		body []byte
		arg  uint64
		want int64
	}{
		{"nothing", code(), 0, 0},
		{"free operators", code(wasmbin.OpNop, wasmbin.OpBlock, void, wasmbin.OpLoop, void, end, end, wasmbin.OpReturn), 0, 0},
		{"drop is free", code(c, 1, wasmbin.OpDrop), 0, 1},
		{"if taken", code(get0[0], get0[1], if_, void, c, 1, wasmbin.OpDrop, end), 1, 3},
		{"if not taken", code(get0[0], get0[1], if_, void, c, 1, wasmbin.OpDrop, end), 0, 2},
		{"else", code(get0[0], get0[1], if_, void, wasmbin.OpNop, wasmbin.OpElse, c, 1, c, 1, wasmbin.OpDrop, wasmbin.OpDrop, end), 0, 4},
		{"br skips", code(wasmbin.OpBlock, void, br, uint32(0), c, 1, wasmbin.OpDrop, end), 0, 1},
		{"br_if", code(wasmbin.OpBlock, void, get0[0], get0[1], wasmbin.OpBrIf, uint32(0), c, 1, wasmbin.OpDrop, end), 0, 3},
		{"br_if taken", code(wasmbin.OpBlock, void, get0[0], get0[1], wasmbin.OpBrIf, uint32(0), c, 1, wasmbin.OpDrop, end), 1, 2},
		{"return skips", code(wasmbin.OpReturn, c, 1, wasmbin.OpDrop), 0, 0},
		{"loop of 3", code(wasmbin.OpLoop, void, get0[0], get0[1], c, 1, wasmbin.OpI32Sub, wasmbin.OpLocalTee, uint32(0), wasmbin.OpBrIf, uint32(0), end), 3, 15},
		{"br_table", code(wasmbin.OpBlock, void, wasmbin.OpBlock, void, get0[0], get0[1], wasmbin.OpBrTable, uint32(1), uint32(0), uint32(1), end, c, 1, wasmbin.OpDrop, end), 0, 3},
		{"call", code(wasmbin.OpCall, uint32(2)), 0, 1 + 2},
		{"host call", code(wasmbin.OpCall, uint32(0)), 0, 1 + HostCallCost},
		{"host call by table", code(c, 0, wasmbin.OpCallIndirect, uint32(0), uint32(0)), 0, 2 + HostCallCost},
		{"fill", code(c, 0, c, 0, get0[0], get0[1], wasmbin.OpMemoryFill, byte(0)), 640, 4 + 10},
		{"short fill", code(c, 0, c, 0, get0[0], get0[1], wasmbin.OpMemoryFill, byte(0)), 63, 4},
		{"copy", code(c, 0, c, 0, get0[0], get0[1], wasmbin.OpMemoryCopy, byte(0), byte(0)), 65, 4 + 1},
		{"grow", code(get0[0], get0[1], wasmbin.OpMemoryGrow, byte(0), wasmbin.OpDrop), 2, 1 + GrowCost + 2*1024},
		{"grow refused", code(get0[0], get0[1], wasmbin.OpMemoryGrow, byte(0), wasmbin.OpDrop), 1 << 20, 1 + GrowCost},
		{"table.grow", code(wasmbin.OpRefNull, byte(0x70), get0[0], get0[1], wasmbin.OpTableGrow, uint32(0), wasmbin.OpDrop), 80, 2 + GrowCost + 10},
		{"table.fill", code(c, 0, wasmbin.OpRefNull, byte(0x70), get0[0], get0[1], wasmbin.OpTableFill, uint32(0)), 0, 4},
		{"ref.func", code(wasmbin.OpRefFunc, uint32(1), wasmbin.OpDrop), 0, RefFuncCost},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wasm := module([]fn{
				{name: "f", sig: sig(vals{i32}, nil), body: test.body},
				{body: code(c, 1, c, 2, wasmbin.OpDrop, wasmbin.OpDrop)},
			}, func(m *wasmbin.Module) {
				counted(m)
				m.Elements[0].Funcs = []uint32{0, 1}
			})
			g := instantiate(t, wasm, nil, withHost(t, func() {}))
			_, used, err := g.call(MaxBudget, "f", test.arg)
			require.NoError(t, err)
			require.Equal(t, test.want, used)
			// The budget is exact: what a call needs is enough, one less is not.
			g = instantiate(t, wasm, nil, withHost(t, func() {}))
			_, used, err = g.call(test.want, "f", test.arg)
			require.NoError(t, err)
			require.Equal(t, test.want, used)
			if test.want > 0 {
				g = instantiate(t, wasm, nil, withHost(t, func() {}))
				_, used, err = g.call(test.want-1, "f", test.arg)
				require.ErrorIs(t, err, ErrExhausted)
				require.Equal(t, test.want-1, used)
			}
		})
	}
}

// withHost provides the function env.host of type () -> ().
func withHost(t testing.TB, f func()) func(wazero.Runtime) {
	return func(rt wazero.Runtime) {
		_, err := rt.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(f).Export("host").Instantiate(context.Background())
		require.NoError(t, err)
	}
}

func TestTrapInBulkCostsTheOperatorOnly(t *testing.T) {
	c := wasmbin.OpI32Const
	g := instantiate(t, module([]fn{{name: "f", body: code(c, 0, c, 0, c, -1, wasmbin.OpMemoryFill, byte(0))}},
		func(m *wasmbin.Module) { m.Memories = []wasmbin.Limits{{Min: 1}} }), nil, nil)
	_, used, err := g.call(MaxBudget, "f")
	require.ErrorContains(t, err, "out of bounds memory access")
	require.EqualValues(t, 4, used)
}

func TestStartFunctionIsMetered(t *testing.T) {
	spin := endless["loop"]
	m, err := wasmbin.Parse(spin())
	require.NoError(t, err)
	start := uint32(0)
	m.Start = &start
	p, err := rewrite(false, m.Encode())
	require.NoError(t, err)
	meter := NewMeter(12_345, nil)
	rt := newRuntime(t, &meter)
	_, err = rt.Instantiate(context.Background(), p.Wasm)
	require.ErrorIs(t, err, ErrExhausted)
	require.EqualValues(t, 12_345, meter.Used(0))
}

// TestReentry has the host call the guest back: one counter covers both.
func TestReentry(t *testing.T) {
	wasm := module([]fn{
		{name: "f", body: code(wasmbin.OpCall, uint32(0), wasmbin.OpCall, uint32(0))},
		{name: "back", body: code(wasmbin.OpI32Const, 1, wasmbin.OpDrop, wasmbin.OpI32Const, 1, wasmbin.OpDrop)},
	}, counted)
	var g *guest
	g = instantiate(t, wasm, nil, withHost(t, func() {
		_, err := g.mod.ExportedFunction("back").Call(context.Background())
		require.NoError(t, err)
	}))
	_, used, err := g.call(MaxBudget, "f")
	require.NoError(t, err)
	require.EqualValues(t, 2*(1+HostCallCost)+2*2, used)
}

// TestDeadCode has stack-polymorphic code, which is copied as it is.
func TestDeadCode(t *testing.T) {
	wasm := module([]fn{{name: "f", sig: sig(nil, vals{i32}), body: code(
		wasmbin.OpBlock, void, wasmbin.OpBr, uint32(0),
		wasmbin.OpI64Eqz, wasmbin.OpI32Add, wasmbin.OpDrop,
		wasmbin.OpLoop, void, wasmbin.OpBr, uint32(0), wasmbin.OpEnd,
		wasmbin.OpIf, byte(0x7f), wasmbin.OpI32Const, 1, wasmbin.OpElse, wasmbin.OpUnreachable, wasmbin.OpEnd, wasmbin.OpDrop,
		wasmbin.OpMemoryFill, byte(0), wasmbin.OpCall, uint32(0), wasmbin.OpDrop,
		wasmbin.OpEnd, wasmbin.OpI32Const, 5)}}, func(m *wasmbin.Module) { m.Memories = []wasmbin.Limits{{Min: 1}} })
	g := instantiate(t, wasm, nil, nil)
	res, used, err := g.call(MaxBudget, "f")
	require.NoError(t, err)
	require.EqualValues(t, 5, res[0])
	require.EqualValues(t, 2, used)
}

func TestRewriteDropsWhatSpeaksOfOldCode(t *testing.T) {
	m, err := wasmbin.Parse(module([]fn{{name: "f", body: code(wasmbin.OpUnreachable)}}, counted))
	require.NoError(t, err)
	m.Customs = []wasmbin.Custom{
		wasmbin.NewCustom(".debug_info", []byte{1, 2, 3}),
		wasmbin.NewCustom("name", []byte{1, 8, 1, 1, 5, 'c', 'r', 'a', 's', 'h'}),
	}
	g := instantiate(t, m.Encode(), nil, withHost(t, func() {}))
	_, _, err = g.call(MaxBudget, "f")
	require.ErrorContains(t, err, "crash()") // the trace names the function, which has moved
	p, err := rewrite(false, m.Encode())
	require.NoError(t, err)
	out, err := wasmbin.Parse(p.Wasm)
	require.NoError(t, err)
	require.Len(t, out.Customs, 1)
}
