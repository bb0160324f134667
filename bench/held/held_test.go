package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/bench/internal/engine"
	"github.com/toolhost/toolhost/bench/internal/ratio"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestPrograms: programs have the same result and the same fuel in every layout, and the same
// result on other engines. Those that take long to compile, or come from a registry that
// tests do not need otherwise, are compared when they are measured.
func TestPrograms(t *testing.T) {
	for _, name := range []string{"js", "joins", "webp"} {
		t.Run(name, func(t *testing.T) {
			p, err := options{only: name}.programs()
			require.NoError(t, err)
			wasm, input, err := p[0].fetch(t.Context(), t.TempDir())
			require.NoError(t, err)

			var results []string
			fuel := map[int64]bool{}
			run := func(e engine.Engine, seed uint64) {
				code, err := laidOut(wasm, seed > 0, rand.New(rand.NewPCG(seed, 0)))
				require.NoError(t, err)
				compiled, err := e.Load(code, p[0].host(input))
				require.NoError(t, err)
				defer compiled.Close()
				in, err := compiled.Start()
				require.NoError(t, err)
				defer in.Close()
				out, err := p[0].run(in, input)
				require.NoError(t, err)
				require.NotEmpty(t, out)
				results = append(results, string(out))
				if e.Name == "metered" {
					fuel[in.Fuel()] = true
				}
			}
			for _, e := range engine.All {
				switch e.Name {
				case "metered":
					run(e, 0)
					run(e, 1)
				case "wazero", "wasmtime":
					run(e, 2)
				}
			}

			require.Len(t, results, 4)
			for _, r := range results {
				require.Equal(t, results[0], r)
			}
			require.Len(t, fuel, 1)
			require.NotContains(t, fuel, int64(0))
		})
	}
}

// TestExceptions: a module with exceptions runs on engines without them, and can be metered.
func TestExceptions(t *testing.T) {
	i32 := []wasmbin.ValType{wasmbin.I32}
	m := &wasmbin.Module{
		Types:     []wasmbin.FuncType{{Params: i32}, {Results: i32}},
		Tags:      []uint32{0},
		Functions: []uint32{0, 1},
		Exports:   []wasmbin.Export{{Name: "run", Index: 1}},
		Codes: []wasmbin.Code{
			{Body: []byte{byte(wasmbin.OpLocalGet), 0, byte(wasmbin.OpThrow), 0, byte(wasmbin.OpEnd)}},
			{Body: []byte{
				byte(wasmbin.OpTry), byte(wasmbin.I32), byte(wasmbin.OpI32Const), 5, byte(wasmbin.OpCall), 0, byte(wasmbin.OpUnreachable),
				byte(wasmbin.OpCatch), 0, byte(wasmbin.OpEnd), byte(wasmbin.OpEnd),
			}},
		},
	}

	for _, e := range engine.All {
		wasm, err := laidOut(m.Encode(), true, rand.New(rand.NewPCG(1, 0)))
		require.NoError(t, err)
		p, err := e.Load(wasm, engine.Host{})
		require.NoError(t, err, e.Name)
		in, err := p.Start()
		require.NoError(t, err)
		got, err := in.Call("run")
		require.NoError(t, err, e.Name)
		require.Equal(t, uint64(5), got, e.Name)
		require.NoError(t, in.Close())
		p.Close()
	}
}

// TestTable: figures are geometric means over processes, with their standard error.
func TestTable(t *testing.T) {
	engines := options{engines: "wazero again,metered"}.used()
	require.Len(t, engines, 3)
	times := func(plain, again, metered float64) []timing {
		return []timing{{"x", "wazero", plain}, {"x", "metered", metered}, {"x", "wazero again", again}}
	}
	all := append(times(1, 1, 1), times(2, 2, 2.42)...)

	text := table([]program{{name: "x", title: "X"}}, engines, all)

	require.Equal(t, strings.TrimSpace(`
| program | plain wazero | other layout, spread | metered |
|---|---|---|---|
| X | 1500 ms | 1.000 ± 0.000, 0.000 | 1.100 ± 0.105 |
| **geometric mean** | | 1.000 ± 0.000 | 1.100 ± 0.105 |
| worst | | 1.000 | 1.100 |`), strings.TrimSpace(text))
	require.InDelta(t, math.Sqrt2, ratio.Deviation([]float64{1, 3}), 1e-9)
}
