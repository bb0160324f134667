package exceptions

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// calls is a loop of 1,000 calls in a try_table, of a function that throws if its
// parameter is 1.
func calls() []byte {
	m := formModule(false, nil)
	m.Codes[0].Body = []byte{local, 0, byte(wasmbin.OpIf), void, local, 0, throw, 1, end, local, 0, end}
	var e emitter
	e.op(wasmbin.OpLoop).raw(void).raw(block, i32, table, i32, 1, 0, 1, 0, local, 0, call, 0, end, end, drop)
	e.opX(wasmbin.OpLocalGet, 1).constant(wasmbin.OpI32Const, 1).op(wasmbin.OpI32Add).opX(wasmbin.OpLocalTee, 1)
	e.constant(wasmbin.OpI32Const, 1_000).op(opI32LtS).opX(wasmbin.OpBrIf, 0)
	e.op(wasmbin.OpEnd).opX(wasmbin.OpLocalGet, 1).op(wasmbin.OpEnd)
	m.Codes[1] = wasmbin.Code{Body: e.out, Locals: []wasmbin.LocalGroup{{Count: 1, Type: wasmbin.I32}}}
	return m.Encode()
}

// BenchmarkCalls has 1,000 calls that return, or throw and are caught: lowered, and by
// the exceptions of the runtime.
func BenchmarkCalls(b *testing.B) {
	lowered, err := lower(calls())
	require.NoError(b, err)
	for name, c := range map[string]struct {
		wasm     []byte
		features bool
		arg      uint64
	}{
		"return lowered":    {lowered, false, 0},
		"return by runtime": {calls(), true, 0},
		"throw lowered":     {lowered, false, 1},
		"throw by runtime":  {calls(), true, 1},
	} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			features := wasmbin.Features
			if c.features {
				features |= experimental.CoreFeaturesExceptionHandling
			}
			rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCoreFeatures(features))
			defer rt.Close(ctx)
			mod, err := rt.Instantiate(ctx, c.wasm)
			require.NoError(b, err)
			f := mod.ExportedFunction("f")
			for b.Loop() {
				if _, err := f.Call(ctx, c.arg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
