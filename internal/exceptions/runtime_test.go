package exceptions

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// runFunction runs the one function of a module, of type (i32) -> i32 with one more
// local, as it is, with the exceptions of the runtime.
func runFunction(t *testing.T, config wazero.RuntimeConfig, wasm []byte, arg uint64) int32 {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(wasmbin.Features|experimental.CoreFeaturesExceptionHandling))
	defer rt.Close(ctx)
	mod, err := rt.Instantiate(ctx, wasm)
	require.NoError(t, err)
	values, err := mod.ExportedFunction("f").Call(ctx, arg)
	require.NoError(t, err)
	return int32(values[0])
}

func oneFunction(body []byte) []byte {
	m := &wasmbin.Module{
		Types:     []wasmbin.FuncType{{Params: []wasmbin.ValType{wasmbin.I32}, Results: []wasmbin.ValType{wasmbin.I32}}, {}},
		Functions: []uint32{0},
		Tags:      []uint32{1},
		Exports:   []wasmbin.Export{{Name: "f"}},
		Codes:     []wasmbin.Code{{Locals: []wasmbin.LocalGroup{{Count: 1, Type: wasmbin.I32}}, Body: body}},
	}
	return m.Encode()
}

// assigns catches what it throws itself, after it has assigned 2 to a local that was 1.
func assigns() []byte {
	var e emitter
	e.constant(wasmbin.OpI32Const, 1).opX(wasmbin.OpLocalSet, 1)
	e.op(wasmbin.OpBlock).raw(void).op(wasmbin.OpTryTable).raw(void, 1, 2, 0)
	e.constant(wasmbin.OpI32Const, 2).opX(wasmbin.OpLocalSet, 1)
	e.opX(wasmbin.OpThrow, 0).op(wasmbin.OpEnd).op(wasmbin.OpEnd)
	e.opX(wasmbin.OpLocalGet, 1).op(wasmbin.OpEnd)
	return oneFunction(e.out)
}

// recurses calls itself within a try_table, as often as its parameter says.
func recurses() []byte {
	var e emitter
	e.opX(wasmbin.OpLocalGet, 0).op(wasmbin.OpI32Eqz).op(wasmbin.OpIf).raw(void).constant(wasmbin.OpI32Const, 1).op(wasmbin.OpReturn).op(wasmbin.OpEnd)
	e.op(wasmbin.OpBlock).raw(void).op(wasmbin.OpTryTable).raw(void, 1, 2, 0)
	e.opX(wasmbin.OpLocalGet, 0).constant(wasmbin.OpI32Const, -1).op(wasmbin.OpI32Add).opX(wasmbin.OpCall, 0).opX(wasmbin.OpLocalSet, 1)
	e.op(wasmbin.OpEnd).op(wasmbin.OpEnd)
	e.opX(wasmbin.OpLocalGet, 1).op(wasmbin.OpEnd)
	return oneFunction(e.out)
}

// TestRuntimeFaults has what makes this package needed. When it fails, a newer runtime
// has mended a fault, and docs/fuel.md is to be changed.
func TestRuntimeFaults(t *testing.T) {
	require.EqualValues(t, 2, runFunction(t, engines["interpreter"], assigns(), 0), "the interpreter keeps it")
	require.EqualValues(t, 1, runFunction(t, engines["compiler"], assigns(), 0), "an assignment to a local is lost")

	const depth = 1500 // the interpreter has a limit of 2,000
	allocated := func(config wazero.RuntimeConfig) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.EqualValues(t, 1, runFunction(t, config, recurses(), depth))
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) >> 20
	}
	t.Logf("%d nested calls allocate %d MiB compiled, %d MiB interpreted", depth, allocated(engines["compiler"]), allocated(engines["interpreter"]))
	require.Greater(t, allocated(engines["compiler"]), uint64(30), "each try_table copies the stack")
}

// The lowered functions have neither fault.
func TestLoweredHaveNoFault(t *testing.T) {
	for name, config := range engines {
		wasm, err := lower(assigns())
		require.NoError(t, err)
		require.EqualValues(t, 2, runFunction(t, config, wasm, 0), name)
		wasm, err = lower(recurses())
		require.NoError(t, err)
		require.EqualValues(t, 1, runFunction(t, config, wasm, 1000), name)
	}
}
