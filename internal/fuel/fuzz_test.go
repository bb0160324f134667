package fuel

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/internal/exceptions"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// FuzzRewrite looks for panics, and for modules that rewriting makes valid or
// invalid: the runtime must accept the program if and only if it accepts the
// module, except for what this package refuses by itself.
func FuzzRewrite(f *testing.F) {
	for _, build := range endless {
		f.Add(build())
	}
	f.Add(module([]fn{{name: "f", body: code(wasmbin.OpRefFunc, uint32(1), wasmbin.OpDrop)}}, counted))
	f.Add(module([]fn{{name: "f", body: code()}, {name: "g", body: code(wasmbin.OpI32Const, 0, wasmbin.OpRefFunc, uint32(1), wasmbin.OpTableSet, uint32(0))}}, counted))
	f.Add(module([]fn{{name: "f", body: code(wasmbin.OpI32Const, 0, wasmbin.OpCallIndirect, uint32(0), uint32(0))}}, counted))
	f.Add(module([]fn{{name: "f", body: code(wasmbin.OpBlock, byte(0x40), wasmbin.OpTryTable, byte(0x40), byte(1), byte(2), byte(0), wasmbin.OpThrow, uint32(0), wasmbin.OpEnd, wasmbin.OpEnd)}}, func(m *wasmbin.Module) {
		m.Tags = []uint32{uint32(len(m.Types))}
		m.Types = append(m.Types, wasmbin.FuncType{})
	}))
	for i := range byte(8) {
		f.Add(generate([]byte{4, i, 11, 2, 9, i, 3, 6, 12, 8, 14, i, 5, 7, 11, 3, 2, 1, 10, 9, 6, 13, 4, 2}))
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(wasmbin.Features))
	f.Cleanup(func() { rt.Close(ctx) })
	compile := func(wasm []byte) error {
		m, err := rt.CompileModule(ctx, wasm)
		if err == nil {
			m.Close(ctx)
		}
		return err
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		p, err := rewrite(false, wasm)
		if err != nil {
			require.True(t, errors.Is(err, wasmbin.ErrMalformed) || errors.Is(err, wasmbin.ErrUnsupported) || errors.Is(err, ErrReserved), err)
			return
		}
		m, err := wasmbin.Parse(wasm)
		require.NoError(t, err)
		require.NoError(t, exceptions.Lower(m)) // the runtime does not know them
		m.Customs = nil                         // the runtime refuses some that do not matter
		plain, metered := compile(m.Encode()), compile(p.Wasm)
		require.Equal(t, plain == nil, metered == nil, "plain: %v, metered: %v", plain, metered)
	})
}
