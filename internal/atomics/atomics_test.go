package atomics

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

const offset = 4 // of every instruction

// module has f, which executes an instruction with an address and two values.
func module(n int) *wasmbin.Module {
	operation, t := -1, all[0]
	align := byte(2)
	if n >= 0x10 {
		operation, t = (n-0x10)/widths, all[(n-0x10)%widths]
		align = byte(t.align)
	}
	typ, one, two := wasmbin.I32, byte(1), byte(2)
	if t.wide {
		typ, one, two = wasmbin.I64, 3, 4
	}

	body := []byte{0x20, 0}
	if operation != opLoad {
		body = append(body, 0x20, one)
	}
	if operation == opCompare {
		body = append(body, 0x20, two)
	}
	body = append(body, 0xfe, byte(n), align, offset)
	var results []wasmbin.ValType
	if operation != opStore {
		results = []wasmbin.ValType{typ}
	}
	return &wasmbin.Module{
		Types:     []wasmbin.FuncType{{Params: []wasmbin.ValType{wasmbin.I32, wasmbin.I32, wasmbin.I32, wasmbin.I64, wasmbin.I64}, Results: results}},
		Functions: []uint32{0},
		Memories:  []wasmbin.Limits{{Min: 1, Max: 1, HasMax: true}},
		Exports:   []wasmbin.Export{{Name: "f"}, {Name: "memory", Kind: wasmbin.KindMemory}},
		Codes:     []wasmbin.Code{{Body: append(body, 0xfe, 3, 0, byte(wasmbin.OpEnd))}},
	}
}

// outcome is the result of f and what it leaves in memory.
func outcome(t *testing.T, threads bool, wasm []byte, address uint32, one, two uint64) string {
	features := wasmbin.Features
	if threads {
		features |= experimental.CoreFeaturesThreads
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features))
	defer rt.Close(ctx)
	mod, err := rt.Instantiate(ctx, wasm)
	require.NoError(t, err)
	for i := range uint32(64) {
		mod.Memory().WriteByte(i, byte(0xf0+i))
	}

	got, err := mod.ExportedFunction("f").Call(ctx, uint64(address), one&0xffffffff, two&0xffffffff, one, two)
	memory, _ := mod.Memory().Read(0, 64)
	return fmt.Sprintf("%x %v %x", got, err != nil, memory)
}

// TestLower: each instruction does what the runtime makes of it, at addresses that are
// aligned, that are not, and that are outside of the memory.
func TestLower(t *testing.T) {
	values := [][2]uint64{{0, 1}, {0xfbfaf9f8f7f6f5f4, 5}, {0xf4, 6}, {0xf5f4, 7}, {0xf7f6f5f4, 1<<64 - 1}}
	for n := range 0x4f {
		if n >= 1 && n < 0x10 {
			continue
		}
		t.Run(fmt.Sprintf("%#x", n), func(t *testing.T) {
			atomic, plain := module(n).Encode(), module(n)
			require.NoError(t, Lower(plain))
			for _, address := range []uint32{0, 1, 2, 4, 12, 65528, 65532, 1<<32 - 4} {
				for _, v := range values {
					require.Equal(t, outcome(t, true, atomic, address, v[0], v[1]), outcome(t, false, plain.Encode(), address, v[0], v[1]), "%d %x", address, v)
				}
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	for name, body := range map[string][]byte{
		"wait":            {0x20, 0, 0x20, 1, 0x20, 3, 0xfe, 1, 2, 0, 0x1a, 0x0b},
		"lower alignment": {0x20, 0, 0xfe, 0x10, 1, 0, 0x1a, 0x0b},
		"unknown":         {0xfe, 0x4f, 0, 0, 0x0b},
		"number too high": {0x20, 0, 0xfe, 0x90, 0x02, 2, 0, 0x1a, 0x0b},
	} {
		m := module(0x10)
		m.Codes[0].Body = body
		err := Lower(m)
		var e *wasmbin.Error
		require.ErrorAs(t, err, &e, name)
	}
}

// Code that is never reached needs no operands, and would become many times as large.
func TestGrowthIsBounded(t *testing.T) {
	m := module(0x10)
	m.Codes[0].Body = append(append([]byte{0x00}, bytes.Repeat([]byte{0xfe, 0x49, 3, 0}, 1<<20)...), 0x0b)
	require.ErrorIs(t, Lower(m), wasmbin.ErrUnsupported)
}
