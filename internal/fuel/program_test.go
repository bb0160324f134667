package fuel

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// result is what running a generated program came to.
type result struct {
	values []uint64
	err    string
	left   uint64
	sum    uint64
	hosted int
	memory []byte
}

// runProgram runs f(arg) of a generated module, under a meter unless budget is
// below zero.
func runProgram(t *testing.T, config wazero.RuntimeConfig, wasm []byte, budget int64) (result, int64, error) {
	ctx := context.Background()
	meter := NewMeter(budget, nil)
	rt := newRuntimeWith(t, config, &meter)
	defer rt.Close(ctx)
	var r result
	withHost(t, func() { r.hosted++ })(rt)
	mod, err := rt.Instantiate(ctx, wasm)
	require.NoError(t, err)
	r.values, err = mod.ExportedFunction("f").Call(ctx, 7)
	used := int64(0)
	if g := mod.ExportedGlobal(CounterExport); g != nil {
		if left := int64(g.Get()); err == nil {
			err = meter.Finish(left)
			used = meter.Used(left)
		}
	}
	if err != nil {
		r.err = firstLine(err)
	}

	r.left, r.sum = mod.ExportedGlobal("left").Get(), mod.ExportedGlobal("sum").Get()
	r.memory, _ = mod.Memory().Read(0, mod.Memory().Size())
	r.memory = bytes.Clone(r.memory)
	return r, used, err
}

// checkProgram holds that rewriting a module changes nothing but that it is
// counted, that both ways of placing charges count the same, and that the count
// is what the program needs.
func checkProgram(t *testing.T, config wazero.RuntimeConfig, wasm []byte) {
	want, _, _ := runProgram(t, config, wasm, -1)
	fast, err := rewrite(false, wasm)
	require.NoError(t, err)
	got, used, err := runProgram(t, config, fast.Wasm, MaxBudget)
	require.Equal(t, want, got)

	simple, serr := rewrite(true, wasm)
	require.NoError(t, serr)
	other, usedSimple, _ := runProgram(t, config, simple.Wasm, MaxBudget)
	require.Equal(t, want, other)
	if err != nil {
		return
	}

	require.Equal(t, usedSimple, used, "fuel: simple, fast")
	_, again, err := runProgram(t, config, fast.Wasm, used)
	require.NoError(t, err, "with exactly what it needs")
	require.Equal(t, used, again)
	if used > 0 {
		_, _, err = runProgram(t, config, fast.Wasm, used-1)
		require.ErrorIs(t, err, ErrExhausted)
	}
}

func TestGeneratedPrograms(t *testing.T) {
	config := wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(wasmbin.Features)
	compiler := wazero.NewRuntimeConfigCompiler().WithCoreFeatures(wasmbin.Features)
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		bytes := make([]byte, 200+rng.IntN(600))
		for i := range bytes {
			bytes[i] = byte(rng.Uint32())
		}
		if seed%10 == 0 {
			checkProgram(t, compiler, generate(bytes))
		} else {
			checkProgram(t, config, generate(bytes))
		}
	}
}

// FuzzProgram looks for modules that rewriting changes or miscounts.
func FuzzProgram(f *testing.F) {
	f.Add([]byte{3, 1, 0, 2, 11, 3, 1, 8, 0, 3, 2, 9})
	f.Add([]byte("a dispatch loop, a recursion, a table"))
	config := wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(wasmbin.Features)
	f.Fuzz(func(t *testing.T, seed []byte) {
		if len(seed) > 2000 {
			t.Skip()
		}
		checkProgram(t, config, generate(seed))
	})
}
