package fuel

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestHostileShapes rewrites modules that are small but make careless rewriters
// take time with the square of their size. It takes well under a second each.
func TestHostileShapes(t *testing.T) {
	repeat := func(n int, parts ...any) []byte { c := code(parts...); return bytes.Repeat(c[:len(c)-1], n) }
	const deep = 40_000
	loops, blocks, ends := repeat(deep, wasmbin.OpLoop, void), repeat(deep, wasmbin.OpBlock, void), repeat(deep, wasmbin.OpEnd)
	branches := func(n int) []byte {
		var b []byte
		for i := range n {
			b = append(b, code(wasmbin.OpI32Const, 1, wasmbin.OpBrIf, uint32(i%deep))...)
			b = b[:len(b)-1]
		}
		return b
	}
	var table []byte
	for i := range 200_000 {
		table = wasmbin.AppendU32(table, uint32(i%deep))
	}
	dispatch := code(wasmbin.OpLoop, void, blocks, wasmbin.OpLocalGet, uint32(0), wasmbin.OpBrTable, uint32(deep-1))
	dispatch = dispatch[:len(dispatch)-1]
	for i := range deep {
		dispatch = wasmbin.AppendU32(dispatch, uint32(i))
	}

	dispatch = append(dispatch, byte(wasmbin.OpEnd))
	for range deep {
		c := code(wasmbin.OpI32Const, deep-1, wasmbin.OpLocalSet, uint32(0), wasmbin.OpI32Const, 1, wasmbin.OpIf, void,
			wasmbin.OpI32Const, deep-1, wasmbin.OpLocalSet, uint32(0), wasmbin.OpBr, uint32(1), wasmbin.OpEnd)
		dispatch = append(dispatch, c[:len(c)-1]...)
	}

	tests := map[string][]byte{
		"nested loops":        code(loops, branches(deep), ends),
		"nested blocks":       code(blocks, branches(deep), ends),
		"br_table":            code(blocks, wasmbin.OpI32Const, 1, wasmbin.OpBrTable, uint32(200_000-1), table, ends),
		"calls":               repeat(300_000, wasmbin.OpCall, uint32(0)),
		"loops in a row":      code(repeat(60_000, wasmbin.OpLoop, void, wasmbin.OpI32Const, 1, wasmbin.OpBrIf, uint32(0), wasmbin.OpEnd)),
		"ifs in a row":        code(repeat(60_000, wasmbin.OpI32Const, 1, wasmbin.OpIf, void, wasmbin.OpEnd)),
		"many jump targets":   code(dispatch, ends),
		"empty blocks, calls": code(repeat(100_000, wasmbin.OpBlock, void, wasmbin.OpEnd, wasmbin.OpCall, uint32(0))),
	}

	tests["calls"] = append(tests["calls"], byte(wasmbin.OpEnd))
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := rewrite(false, module([]fn{{name: "f", sig: sig(vals{i32}, nil), body: body}}, nil))
			require.NoError(t, err)
		})
	}

	t.Run("too many blocks", func(t *testing.T) {
		body := code(repeat(maxNodes, wasmbin.OpLoop, void, wasmbin.OpEnd))
		_, err := rewrite(false, module([]fn{{name: "f", sig: sig(nil, nil), body: body}}, nil))
		require.ErrorIs(t, err, wasmbin.ErrUnsupported)
		require.ErrorContains(t, err, "a function with more than 200000 blocks")
	})
	t.Run("tiny functions", func(t *testing.T) {
		m := &wasmbin.Module{Types: []wasmbin.FuncType{{}}}
		for range 200_000 {
			m.Functions = append(m.Functions, 0)
			m.Codes = append(m.Codes, wasmbin.Code{Body: code()})
		}
		_, err := rewrite(false, m.Encode())
		require.NoError(t, err)
	})
}
