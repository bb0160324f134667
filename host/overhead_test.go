package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

func refFunc() code { return wasmbin.AppendOpX(nil, wasmbin.OpRefFunc, fnHelper) }

func constant(c code) []byte { return append(c, byte(wasmbin.OpEnd)) }

// Modules with much overhead besides their memory.
func withTables(n int, min uint32) func(*wasmbin.Module) {
	return func(m *wasmbin.Module) {
		for range n {
			m.Tables = append(m.Tables, wasmbin.Table{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: min}}})
		}
	}
}

func withGlobals(n int) func(*wasmbin.Module) {
	return func(m *wasmbin.Module) {
		for range n {
			m.Globals = append(m.Globals, wasmbin.Global{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: constant(i32(0))})
		}
	}
}

// withElements has segments of so many entries each, one over the other.
func withElements(segments, entries int) func(*wasmbin.Module) {
	return func(m *wasmbin.Module) {
		withTables(1, uint32(entries))(m)
		funcs := make([]uint32, entries)
		for i := range funcs {
			funcs[i] = fnHelper
		}
		for range segments {
			m.Elements = append(m.Elements, wasmbin.Element{Offset: constant(i32(0)), Type: wasmbin.FuncRef, Funcs: funcs})
		}
	}
}

func withImports(n int) func(*wasmbin.Module) {
	return func(m *wasmbin.Module) {
		for range n {
			m.Imports = append(m.Imports, m.Imports[fnYield])
		}
		for i := range m.Exports[1:] {
			m.Exports[1+i].Index += uint32(n)
		}
	}
}

// withData has segments that cannot be taken out of the module: the first
// computes where it goes.
func withData(n int) func(*wasmbin.Module) {
	return func(m *wasmbin.Module) {
		m.Data = append(m.Data, wasmbin.Data{Offset: constant(op(wasmbin.OpI32Add, i32(dataAt), i32(1))), Init: []byte("x")})
		for range n - 1 {
			m.Data = append(m.Data, wasmbin.Data{Offset: constant(i32(dataAt)), Init: []byte("x")})
		}
	}
}

func withConstant(n int) func(*wasmbin.Module) {
	return func(m *wasmbin.Module) {
		c := i32(0)
		for len(c) < n {
			c = append(c, op(wasmbin.OpI32Add, i32(1))...)
		}
		m.Globals = append(m.Globals, wasmbin.Global{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32}, Init: constant(c)})
	}
}

// TestBesideIsBounded: what a runtime makes for each instance takes time and
// memory that no limit of a call knows.
func TestBesideIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*wasmbin.Module)
		want   string
	}{
		"imports":     {withImports(1001 - int(imported)), "import: 1001 functions are imported, expected at most 1000"},
		"tables":      {withTables(101, 0), "table: 101 tables, expected at most 100"},
		"entries":     {withTables(3, 1<<19), "table: 1572864 entries are in the tables at the start, expected at most 1048576"},
		"globals":     {withGlobals(10_001), "global: 10001 globals, expected at most 10000"},
		"elements":    {withElements(16, 1<<16), "element: 1048592 segments and entries for tables, expected at most 1048576"},
		"expressions": {withConstant(4 << 20), "module: 4194306 bytes of constant expressions, expected at most 4194304"},
		"data":        {withData(100_001), "data: 100001 segments, expected at most 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			wasm := guest{change: c.change}.wasm()
			_, err := h.Compile(context.Background(), wasm)
			require.EqualError(t, err, c.want)
			require.ErrorIs(t, err, host.ErrABI)
			_, err = h.Inspect(wasm)
			require.EqualError(t, err, c.want)
		})
	}
}

// TestBesideIsPaidFor: it counts for the memory of the host, while a call has an
// instance and while one is warm, about as much as it takes.
func TestBesideIsPaidFor(t *testing.T) {
	growable := func(m *wasmbin.Module) { withTables(1, 1)(m) }
	growth := opX(wasmbin.OpTableGrow, 0, code{byte(wasmbin.OpRefNull), byte(wasmbin.FuncRef)}, i32(1<<20-1))
	for name, g := range map[string]guest{
		"nothing":        {},
		"entries":        {change: withTables(1, 1<<20)},
		"a growing one":  {change: growable, helper: drop(growth)},
		"tables":         {change: withTables(100, 0)},
		"globals":        {change: withGlobals(10_000)},
		"elements":       {change: withElements(20, 10_000)},
		"imports":        {change: withImports(900)},
		"data":           {change: withData(50_000)},
		"moderate":       {change: withElements(1, 3000)},
		"few references": {change: declared, initialize: drop(refFunc())},
	} {
		t.Run(name, func(t *testing.T) {
			g.invoke = seq(drop(progress(0, 1, 0, 0)), i32(0))
			if g.helper != nil {
				g.invoke = seq(call(fnHelper), g.invoke)
			}
			for _, dir := range []string{"", t.TempDir()} { // and what the cache has of it
				h := cachedHost(t, dir, 0)
				m := compile(t, h, g.wasm())
				if dir != "" {
					require.NoError(t, m.Close(context.Background()))
					m = compile(t, h, g.wasm())
					require.EqualValues(t, 1, h.Stats().Compiled.Cached)
				}
				require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
				warm := int64(h.Stats().Idle)
				snapshots := h.Stats().Memory - warm*(page+m.Overhead())
				require.GreaterOrEqual(t, snapshots, int64(0))
				require.Less(t, snapshots, int64(page), "the image of a snapshot")

				heap, ledger := int64(liveHeap()), h.Stats().Memory
				const calls = 4
				var inside func(depth int) host.Call
				inside = func(depth int) host.Call {
					return host.Call{Observers: host.Observers{Progress: func(host.Progress) {
						if depth < calls {
							require.NoError(t, do(context.Background(), h, m, inside(depth+1)).err)
							return
						}
						heap, ledger = int64(liveHeap())-heap, h.Stats().Memory-ledger
					}}}
				}
				require.NoError(t, do(context.Background(), h, m, inside(1)).err)
				more := calls - warm // instances than there were
				require.Equal(t, more*(page+m.Overhead()), ledger)
				t.Logf("%d instances take %d bytes of heap, of which %d are counted", more, heap, more*m.Overhead())
				if m.Overhead() == 0 {
					require.Less(t, heap, more*(64<<10))
					continue
				}
				if fulltest.Enabled() { // what else the process frees meanwhile counts too
					require.Greater(t, more*m.Overhead(), heap*2/3-more*(32<<10))
					require.Less(t, more*m.Overhead(), heap*3/2)
				}
				require.NoError(t, m.Close(context.Background()))
				require.Zero(t, h.Stats().Memory)
			}
		})
	}
}

// TestBesideIsRefused where the host has no memory for it.
func TestBesideIsRefused(t *testing.T) {
	h, err := host.New(context.Background(), host.Config{Memory: 2 << 20})
	require.NoError(t, err)
	defer h.Close(context.Background())
	o := do(context.Background(), h, compile(t, h, guest{change: withTables(1, 1<<18)}.wasm()), host.Call{})
	require.ErrorIs(t, o.err, host.ErrHostMemory)
	o = do(context.Background(), h, compile(t, h, guest{change: withTables(1, 1<<17)}.wasm()), host.Call{})
	require.NoError(t, o.err)
	require.LessOrEqual(t, h.Stats().MemoryPeak, int64(2<<20))
}

func declared(m *wasmbin.Module) {
	m.Elements = append(m.Elements, wasmbin.Element{Mode: wasmbin.Declarative, Type: wasmbin.FuncRef, Funcs: []uint32{fnHelper}})
}

// TestReferencesTakeNoMemory, however many a call, or one call after another in
// a warm instance, takes.
func TestReferencesTakeNoMemory(t *testing.T) {
	h := newHost(t, nil)
	const turns = 200_000
	m := compile(t, h, guest{invoke: seq(times(turns, drop(refFunc())), drop(progress(0, 1, 0, 0)), i32(0)), change: declared}.wasm())
	for range 5 {
		before, during := int64(liveHeap()), int64(0)
		o := do(context.Background(), h, m, host.Call{Observers: host.Observers{Progress: func(host.Progress) { during = int64(liveHeap()) }}})
		require.NoError(t, o.err)
		require.Less(t, during-before, int64(1<<20))
	}
	require.EqualValues(t, 4, m.Stats().Warm)
}
