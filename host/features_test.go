package host_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// using returns a reactor whose code has these bytes.
func using(body ...byte) []byte { return guest{invoke: append(code(body), i32(0)...)}.wasm() }

// features has a module for each row of the table of WebAssembly features in the contract.
func features() map[string][]byte {
	zero := []byte{byte(wasmbin.OpI32Const), 0}
	memory := func(before, after []byte) []byte { return bytes.Replace(guest{}.wasm(), before, after, 1) }
	one := []byte{5, 3, 1, 0, 1} // the section of a memory of one page
	return map[string][]byte{
		"sign extension":         using(0x41, 0, 0xc0, 0x1a),
		"saturating conversions": using(0x43, 0, 0, 0, 0, 0xfc, 0, 0x1a),
		"bulk memory":            using(bytes.Join([][]byte{zero, zero, zero, {0xfc, 11, 0}}, nil)...),
		"reference types":        using(0xd0, 0x70, 0x1a),
		"SIMD, 128 bits":         using(append(append([]byte{0xfd, 12}, make([]byte, 16)...), 0x1a)...),
		"tail calls":             guest{invoke: opX(wasmbin.OpReturnCall, fnYield)}.wasm(),
		"exceptions":             exceptional(),
		"relaxed SIMD":           using(0xfd, 0x80, 2, 0x1a),
		"atomic instructions":    using(0xfe, 3, 0),
		"threads":                memory(one, []byte{5, 4, 1, 3, 1, 1}),
		"garbage collection":     using(0x41, 0, 0xfb, 0x1c, 0x1a),
		"typed references":       using(0x14, 0),
		"several memories":       memory(one, []byte{5, 5, 2, 0, 1, 0, 1}),
		"64-bit memory":          memory(one, []byte{5, 3, 1, 4, 1}),
		"custom page sizes":      memory(one, []byte{5, 4, 1, 8, 1, 0}),
		"components":             []byte("\x00asm\x0d\x00\x01\x00"),
		"several values":         change(severalValues),
		"mutable globals":        change(mutableGlobal),
		"extended constants":     change(extendedConstant),
	}
}

// exceptional returns a reactor that catches an exception.
func exceptional() []byte {
	return guest{invoke: append(code{0x06, 0x40, 0x01, 0x07, 0, 0x1a, 0x0b}, i32(0)...), change: func(m *wasmbin.Module) {
		m.Tags = []uint32{uint32(len(m.Types))}
		m.Types = append(m.Types, sig("i", false))
	}}.wasm()
}

// severalValues adds a function with two results.
func severalValues(m *wasmbin.Module) {
	m.Functions = append(m.Functions, uint32(len(m.Types)))
	m.Types = append(m.Types, wasmbin.FuncType{Results: []wasmbin.ValType{wasmbin.I32, wasmbin.I32}})
	m.Codes = append(m.Codes, wasmbin.Code{Body: append(append(i32(0), i32(0)...), byte(wasmbin.OpEnd))})
}

func mutableGlobal(m *wasmbin.Module) {
	m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: append(i32(0), byte(wasmbin.OpEnd))}}
	m.Exports = append(m.Exports, wasmbin.Export{Name: "g", Kind: wasmbin.KindGlobal})
}

func extendedConstant(m *wasmbin.Module) {
	sum := append(append(i32(1), i32(2)...), byte(wasmbin.OpI32Add), byte(wasmbin.OpEnd))
	m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32}, Init: sum}}
}

// TestFeatures: the contract says which features of WebAssembly a module may use.
func TestFeatures(t *testing.T) {
	contract, err := os.ReadFile("../docs/contract.md")
	require.NoError(t, err)
	_, table, found := bytes.Cut(contract, []byte("| feature | supported |"))
	require.True(t, found)
	table, _, _ = bytes.Cut(table, []byte("\n\n"))
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| (yes|no) \|`).FindAllStringSubmatch(string(table), -1)
	modules := features()
	require.Len(t, rows, len(modules))

	for _, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			wasm, ok := modules[row[1]]
			require.True(t, ok)
			h := newHost(t, nil)
			_, err := h.Compile(context.Background(), wasm)
			if row[2] == "yes" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, host.ErrABI)
			require.ErrorContains(t, err, "unsupported wasm")
		})
	}
}
