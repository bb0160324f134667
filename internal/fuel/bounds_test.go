package fuel

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestNothingRunsLong has programs that run for ages between two turns of any
// loop. What they use between two checks the counter is bounded.
func TestNothingRunsLong(t *testing.T) {
	c, end := wasmbin.OpI32Const, wasmbin.OpEnd
	long := func(move ...any) []byte {
		body := code(append(append([]any{wasmbin.OpLoop, void}, move...), wasmbin.OpBr, uint32(0), end)...)
		return module([]fn{{name: "f", body: body}}, func(m *wasmbin.Module) {
			m.Memories = []wasmbin.Limits{{Min: 1 << 14}}
			segments := uint32(1)
			m.Data, m.DataCount = []wasmbin.Data{{Mode: wasmbin.Passive, Init: make([]byte, 48<<20)}}, &segments
		})
	}
	tests := map[string][]byte{
		// Function i calls function i+1 twice: 2^40 calls, no loop, no recursion.
		"call tree": callTree(40),
		"call tree by table": module([]fn{
			{name: "f", body: code(c, 0, wasmbin.OpCallIndirect, uint32(0), uint32(0), c, 0, wasmbin.OpCallIndirect, uint32(0), uint32(0))},
		}, func(m *wasmbin.Module) {
			m.Tables = []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}}}}
			m.Elements = []wasmbin.Element{{Offset: code(c, 0), Type: wasmbin.FuncRef, Funcs: []uint32{0}}}
		}),
		"one long fill":      long(c, 0, c, 1, c, 1<<30, wasmbin.OpMemoryFill, byte(0)),
		"one long copy up":   long(c, 1, c, 0, c, 1<<29, wasmbin.OpMemoryCopy, byte(0), byte(0)),
		"one long copy down": long(c, 0, c, 1, c, 1<<29, wasmbin.OpMemoryCopy, byte(0), byte(0)),
		"one long init":      long(c, 0, c, 0, c, 48<<20, wasmbin.OpMemoryInit, byte(0), byte(0)),
	}
	for name, wasm := range tests {
		t.Run(name, func(t *testing.T) {
			const budget = 3_000_000
			asked, last := 0, int64(0)
			stop := errors.New("enough")
			g := instantiate(t, wasm, nil, nil)
			g.meter = NewMeter(MaxBudget, nil)
			g.meter.interrupt = func() error {
				left := int64(g.counter().Get())
				used := g.meter.count(left)
				most := int64(Slice + 4*maxRun)
				if strings.HasPrefix(name, "one long") {
					most = bulkSlice + 2*chunk>>bytesShift
				}
				require.Less(t, used-last, most, "between two looks")
				last = used
				if asked++; used > budget {
					return stop
				}
				return nil
			}
			_, used, err := g.run("f")
			if name == "call tree by table" && err != nil && !errors.Is(err, stop) {
				require.ErrorContains(t, err, "stack overflow") // which ends it as well
				return
			}

			require.ErrorIs(t, err, stop)
			require.Greater(t, used, int64(budget))
			require.Greater(t, asked, 5)
		})
	}
}

func callTree(depth int) []byte {
	fns := []fn{}
	for i := range depth {
		f := fn{body: code(wasmbin.OpCall, uint32(i+1), wasmbin.OpCall, uint32(i+1))}
		if i == 0 {
			f.name = "f"
		}
		fns = append(fns, f)
	}
	return module(append(fns, fn{body: code(wasmbin.OpI32Const, 1, wasmbin.OpDrop)}), nil)
}

// TestLongBulk moves memory in chunks as if it were moved at once.
func TestLongBulk(t *testing.T) {
	const size = 3*chunk + 777
	get := func(i uint32) []byte { return wasmbin.AppendOpX(nil, wasmbin.OpLocalGet, i) }
	wasm := module([]fn{
		{name: "fill", sig: sig(vals{i32, i32, i32}, nil), body: code(get(0), get(1), get(2), wasmbin.OpMemoryFill, byte(0))},
		{name: "copy", sig: sig(vals{i32, i32, i32}, nil), body: code(get(0), get(1), get(2), wasmbin.OpMemoryCopy, byte(0), byte(0))},
	}, func(m *wasmbin.Module) {
		m.Memories = []wasmbin.Limits{{Min: 64}}
		m.Exports = []wasmbin.Export{{Name: "memory", Kind: wasmbin.KindMemory}}
	})
	g := instantiate(t, wasm, nil, nil)
	memory, ok := g.mod.Memory().Read(0, 64*wasmbin.PageSize)
	require.True(t, ok)
	want := make([]byte, len(memory))
	for i := range memory {
		memory[i] = byte(i * 31 >> 3)
	}

	copy(want, memory)
	for _, move := range [][2]uint64{{1000, 5000}, {5000, 1000}, {7, 7}, {64, 0}, {0, 2 * chunk}} {
		_, used, err := g.call(MaxBudget, "copy", move[0], move[1], size)
		require.NoError(t, err)
		require.EqualValues(t, 4+size/64, used)
		copy(want[move[0]:move[0]+size], want[move[1]:move[1]+size])
		require.Equal(t, want, memory)
	}

	_, used, err := g.call(MaxBudget, "fill", 9, 0xab, size)
	require.NoError(t, err)
	require.EqualValues(t, 4+size/64, used)
	for i := range size {
		want[9+i] = 0xab
	}

	require.Equal(t, want, memory)
	for _, name := range []string{"copy", "fill"} {
		_, used, err = g.call(MaxBudget, name, 64*wasmbin.PageSize-size+1, 0, size)
		require.ErrorContains(t, err, "out of bounds memory access")
		require.EqualValues(t, 4, used)
		require.Equal(t, want, memory, "a trap moves nothing")
	}
}

// TestLongInit copies a data segment in chunks as if it were copied at once.
func TestLongInit(t *testing.T) {
	const size, offset, to = 3*chunk + 777, 100, 9
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 31 >> 3)
	}
	get := func(i uint32) []byte { return wasmbin.AppendOpX(nil, wasmbin.OpLocalGet, i) }
	init := func(name string, segment byte) fn {
		return fn{name: name, sig: sig(vals{i32, i32, i32}, nil), body: code(get(0), get(1), get(2), wasmbin.OpMemoryInit, segment, byte(0))}
	}
	segments := uint32(2)
	g := instantiate(t, module([]fn{
		init("short", 0), init("long", 1),
		{name: "drop", body: code(wasmbin.OpDataDrop, byte(1))},
	}, func(m *wasmbin.Module) {
		m.Memories = []wasmbin.Limits{{Min: 8}}
		m.Exports = []wasmbin.Export{{Name: "memory", Kind: wasmbin.KindMemory}}
		m.DataCount = &segments
		m.Data = []wasmbin.Data{
			{Mode: wasmbin.Passive, Init: data[:chunk]},
			{Mode: wasmbin.Passive, Init: data},
		}
	}), nil, nil)
	memory, ok := g.mod.Memory().Read(0, 8*wasmbin.PageSize)
	require.True(t, ok)

	want := make([]byte, len(memory))
	copy(want[to:], data[offset:])
	_, used, err := g.call(MaxBudget, "long", to, offset, size-offset)
	require.NoError(t, err)
	require.EqualValues(t, 4+(size-offset)/64, used)
	require.Equal(t, want, memory)
	copy(want, data[:chunk])
	_, used, err = g.call(MaxBudget, "short", 0, 0, chunk)
	require.NoError(t, err)
	require.EqualValues(t, 4+chunk/64, used)
	require.Equal(t, want, memory)

	traps := func(name string, params ...uint64) {
		t.Helper()
		_, used, err := g.call(MaxBudget, name, params...)
		require.ErrorContains(t, err, "out of bounds memory access")
		require.EqualValues(t, 4, used)
		require.Equal(t, want, memory, "a trap moves nothing")
	}
	traps("long", 0, 1, size)
	traps("long", 0, 1<<32-1, size)
	traps("long", 8*wasmbin.PageSize-size+1, 0, size)
	_, _, err = g.call(MaxBudget, "drop")
	require.NoError(t, err)
	traps("long", 0, 0, size)
}

func TestTablesAreLimited(t *testing.T) {
	table := func(min uint32) wasmbin.Table {
		return wasmbin.Table{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: min}}}
	}
	_, err := rewrite(false, module(nil, func(m *wasmbin.Module) { m.Tables = []wasmbin.Table{table(maxEntries / 2), table(maxEntries/2 + 1)} }))
	require.ErrorIs(t, err, wasmbin.ErrUnsupported)

	grow := code(wasmbin.OpRefNull, byte(0x70), wasmbin.OpLocalGet, uint32(0), wasmbin.OpTableGrow, uint32(1))
	g := instantiate(t, module([]fn{{name: "f", sig: sig(vals{i32}, vals{i32}), body: grow}},
		func(m *wasmbin.Module) { m.Tables = []wasmbin.Table{table(1), table(1)} }), nil, nil)
	res, _, err := g.call(MaxBudget, "f", maxEntries)
	require.NoError(t, err)
	require.EqualValues(t, uint32(1<<32-1), res[0])
	res, _, err = g.call(MaxBudget, "f", maxEntries/2-1)
	require.NoError(t, err)
	require.EqualValues(t, 1, res[0])
}
