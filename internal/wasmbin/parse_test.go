package wasmbin

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
)

// section returns a section with a length of one byte.
func section(id byte, body ...byte) []byte {
	return append([]byte{id, byte(len(body))}, body...)
}

func binary(sections ...[]byte) []byte {
	return append([]byte(header), bytes.Join(sections, nil)...)
}

var voidType = section(secType, 1, 0x60, 0, 0)

// withBody is a module with one function of type () -> ().
func withBody(body ...byte) []byte {
	code := append([]byte{1, byte(len(body) + 1), 0}, body...)
	return binary(voidType, section(secFunction, 1, 0), section(secCode, code...))
}

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		name string
		wasm []byte
		err  error
		say  string
	}{
		{"empty file", nil, ErrMalformed, "the file is empty"},
		{"text", []byte("#!/bin/sh\necho hi\n"), ErrMalformed, "text file"},
		{"wat", []byte("  (module)"), ErrMalformed, "wat2wasm"},
		{"program", []byte("\x7fELF\x02\x01\x01\x00"), ErrMalformed, "native program"},
		{"other binary", []byte("\x89PNG\r\n\x1a\n\x00\x00"), ErrMalformed, `"\0asm"`},
		{"cut header", []byte("\x00asm\x01"), ErrTruncated, "cut off"},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), ErrUnsupported, "core modules"},
		{"version 2", []byte("\x00asm\x02\x00\x00\x00"), ErrUnsupported, "version 1"},
		{"attribute of a tag", binary(voidType, section(secTag, 1, 1, 0)), ErrMalformed, "attribute 0x1"},
		{"tag without type", binary(section(secTag, 1, 0, 0)), ErrMalformed, "no type 0"},
		{"tag after globals", binary(voidType, section(secGlobal, 0), section(secTag, 1, 0, 0)), ErrMalformed, "out of order"},
		{"export of a tag that is not there", binary(section(secExport, 1, 1, 't', 4, 0)), ErrMalformed, "export of a tag"},
		{"table of exceptions", binary(section(secTable, 1, 0x69, 0, 0)), ErrUnsupported, "table of exceptions"},
		{"import of a tag", binary(voidType, section(secImport, 1, 1, 'e', 1, 't', 4, 0, 0)), ErrUnsupported, `import "t": the tags`},
		{"unknown kind", binary(voidType, section(secImport, 1, 1, 'e', 1, 't', 5, 0, 0)), ErrMalformed, `unknown kind 0x5 of import "t"`},
		{"unknown section", binary(section(14)), ErrMalformed, "unknown section id 14"},
		{"cut section", binary([]byte{1, 100, 0}), ErrTruncated, "cut off"},
		{"section order", binary(section(secFunction, 0), section(secType, 0)), ErrMalformed, "out of order"},
		{"section twice", binary(section(secType, 0), section(secType, 0)), ErrMalformed, "out of order"},
		{"section too long", binary(section(secType, 0, 0)), ErrMalformed, "1 bytes more"},
		{"section length of 6 bytes", binary([]byte{1, 0x81, 0x80, 0x80, 0x80, 0x80, 0}), ErrMalformed, "32 bits"},
		{"section length above 32 bits", binary([]byte{1, 0x81, 0x80, 0x80, 0x80, 0x10}), ErrMalformed, "32 bits"},
		{"huge count", binary(section(secType, 0xff, 0xff, 0xff, 0xff, 0x0f)), ErrMalformed, "count 4294967295"},
		{"name of 4 GiB", binary(section(secImport, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0)), ErrMalformed, "count"},
		{"name not UTF-8", binary(section(secImport, 1, 1, 0xff, 0, 2, 0)), ErrMalformed, "UTF-8"},
		{"unknown value type", binary(section(secType, 1, 0x60, 1, 0x10, 0)), ErrMalformed, "not a value type"},
		{"struct type", binary(section(secType, 1, 0x5f, 0, 0)), ErrUnsupported, "garbage-collected"},
		{"no such type", binary(section(secFunction, 1, 0)), ErrMalformed, "no type 0"},
		{"typed reference", binary(section(secType, 1, 0x60, 1, 0x63, 5, 0)), ErrUnsupported, "typed function references"},
		{"recursive types", binary(section(secType, 1, 0x4e, 1, 0x60, 0, 0)), ErrUnsupported, "garbage-collected"},
		{"table with initializer", binary(section(secTable, 1, 0x40, 0, 0x70, 0, 1, 0xd0, 0x70, 0x0b)), ErrUnsupported, "initializer"},
		{"memory64", binary(section(secMemory, 1, 4, 1)), ErrUnsupported, "64-bit"},
		{"shared memory", binary(section(secMemory, 1, 3, 1, 1)), ErrUnsupported, "threads"},
		{"two memories", binary(section(secMemory, 2, 0, 1, 0, 1)), ErrUnsupported, "more than one memory"},
		{"memory above 4 GiB", binary(section(secMemory, 1, 0, 0x81, 0x80, 4)), ErrMalformed, "65536 pages"},
		{"minimum above maximum", binary(section(secMemory, 1, 1, 2, 1)), ErrMalformed, "above its maximum"},
		{"mutability", binary(section(secGlobal, 1, 0x7f, 2, 0x41, 0, 0x0b)), ErrMalformed, "mutability"},
		{"constant expression", binary(section(secGlobal, 1, 0x7f, 0, 0x10, 0, 0x0b)), ErrMalformed, "constant expression"},
		{"open constant expression", binary(section(secGlobal, 1, 0x7f, 0, 0x41, 0)), ErrTruncated, "constant expression"},
		{"export of nothing", binary(section(secExport, 1, 1, 'f', 0, 0)), ErrMalformed, "does not exist"},
		{"export twice", binary(voidType, section(secFunction, 1, 0), section(secExport, 2, 1, 'f', 0, 0, 1, 'f', 0, 0)), ErrMalformed, "repeated"},
		{"start of nothing", binary(section(secStart, 0)), ErrMalformed, "no such function"},
		{"bodies missing", binary(voidType, section(secFunction, 1, 0)), ErrMalformed, "differ"},
		{"data count", binary(section(secDataCount, 1)), ErrMalformed, "data count"},
		{"element form", binary(section(secElement, 1, 8, 0)), ErrMalformed, "element segment"},
		{"data in memory 1", binary(section(secData, 1, 2, 1, 0x41, 0, 0x0b, 0)), ErrUnsupported, "more than one memory"},
		{"body without end", withBody(0x01), ErrMalformed, "end"},
		{"too many locals", binary(voidType, section(secFunction, 1, 0), section(secCode, 1, 6, 1, 0xd1, 0x86, 3, 0x7f, 0x0b)), ErrUnsupported, "50000 locals"},
		{"4 billion locals", binary(voidType, section(secFunction, 1, 0), section(secCode, 1, 8, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x7f, 0x0b)), ErrUnsupported, "50000 locals"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse(test.wasm)
			require.ErrorIs(t, err, test.err)
			require.ErrorContains(t, err, test.say)
			var at *Error
			require.ErrorAs(t, err, &at)
		})
	}
}

func TestReaderRefuses(t *testing.T) {
	tests := []struct {
		name string
		body []byte
		err  error
		say  string
	}{
		{"unknown", []byte{0xff, 0x0b}, ErrMalformed, "0xff"},
		{"legacy try", []byte{0x06, 0x40, 0x0b, 0x0b}, ErrUnsupported, "without tags"},
		{"atomic", []byte{0xfe, 0x03, 0x00, 0x0b}, ErrUnsupported, "threads"},
		{"struct.new", []byte{0xfb, 0x00, 0x00, 0x0b}, ErrUnsupported, "garbage-collected"},
		{"call_ref", []byte{0x14, 0, 0x0b}, ErrUnsupported, "typed function references"},
		{"relaxed vector", []byte{0xfd, 0x80, 0x02, 0x0b}, ErrUnsupported, "relaxed"},
		{"unused vector number", []byte{0xfd, 0x9a, 0x01, 0x0b}, ErrMalformed, "unknown"},
		// The runtime reads the second byte alone: to it this is 0x8c.
		{"spare bytes in a vector number", []byte{0xfd, 0x8c, 0x00, 0x0b}, ErrMalformed, "shortest"},
		{"unknown number", []byte{0xfc, 0x12, 0x0b}, ErrMalformed, "unknown"},
		{"multi-memory load", []byte{0x41, 0, 0x28, 0x42, 1, 0, 0x0b}, ErrUnsupported, "more than one memory"},
		{"memory 1", []byte{0x3f, 0x01, 0x0b}, ErrUnsupported, "more than one memory"},
		{"memory index of two bytes", []byte{0x3f, 0x80, 0x00, 0x0b}, ErrUnsupported, "more than one memory"},
		{"block type", []byte{0x02, 0x05, 0x0b, 0x0b}, ErrMalformed, "no block type 5"},
		{"block type of 5 open bytes", []byte{0x02, 0x80, 0x80, 0x80, 0x80, 0x80, 0x0b}, ErrMalformed, "33 bits"},
		{"i32 above 32 bits", []byte{0x41, 0x80, 0x80, 0x80, 0x80, 0x10, 0x0b}, ErrMalformed, "32 bits"},
		{"i64 above 64 bits", []byte{0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 0x0b}, ErrMalformed, "64 bits"},
		{"br_table longer than the body", []byte{0x0e, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x0b}, ErrMalformed, "count"},
		{"select of two types", []byte{0x1c, 2, 0x7f, 0x7f, 0x0b}, ErrMalformed, "select"},
		{"try_table", []byte{0x1f, 0x40, 0, 0x0b, 0x0b}, ErrUnsupported, "without tags"},
		{"cut immediate", []byte{0x43, 0, 0, 0x0b}, ErrTruncated, "f32.const"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := instructions(&Code{Body: test.body}, 1)
			require.ErrorIs(t, err, test.err)
			require.ErrorContains(t, err, test.say)
		})
	}
}

// instructions reads a body and returns the operations in it.
func instructions(code *Code, types int) ([]Op, error) {
	var r Reader
	var in Instr
	var ops []Op
	end := 0

	r.Reset(code, types)
	for r.Next(&in) {
		if in.Pos != end || in.End <= in.Pos {
			return nil, errors.New("instructions do not follow each other")
		}
		end = in.End
		ops = append(ops, in.Op)
	}

	return ops, r.Err()
}

func TestSignedNumbers(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, 1 << 40} {
		for _, bits := range []int{32, 33, 64} {
			c := &cursor{b: AppendS64(nil, v)}
			got := c.signed(bits, "number")
			if bits < 64 && (v < -1<<(bits-1) || v >= 1<<(bits-1)) {
				require.NotNil(t, c.err, "%d in %d bits", v, bits)
				continue
			}
			require.Nil(t, c.err, "%d in %d bits", v, bits)
			require.Equal(t, v, got)
			require.Zero(t, c.left())
		}
	}
}

func TestEncodeAllEntries(t *testing.T) {
	wasm := everything().Encode()
	m, err := Parse(wasm)
	require.NoError(t, err)
	require.Equal(t, wasm, m.Encode())

	f, ok := m.FuncType(1)
	require.True(t, ok)
	require.Equal(t, "(i32, externref) -> (i64, v128)", f.String())
	_, ok = m.FuncType(3)
	require.False(t, ok)
	require.Equal(t, []Limits{{Min: 1, Max: 2, HasMax: true}}, m.Memories)
	data, ok := m.Custom("toolhost.manifest")
	require.True(t, ok)
	require.Equal(t, "{}", string(data))
}

// everything is a module with every kind of entry. It need not be valid.
func everything() *Module {
	zero, null := []byte{0x41, 0, 0x0b}, []byte{0xd0, 0x70, 0x0b}
	start, count := uint32(2), uint32(2)
	return &Module{
		Types: []FuncType{{}, {Params: []ValType{I32, ExternRef}, Results: []ValType{I64, V128}}, {Params: []ValType{F32, F64}}},
		Imports: []Import{
			{Module: "m", Name: "f", Type: 0}, {Module: "m", Name: "g", Type: 1},
			{Module: "m", Name: "t", Kind: KindTable, Table: TableType{Elem: ExternRef, Limits: Limits{Min: 1}}},
			{Module: "m", Name: "v", Kind: KindGlobal, Global: GlobalType{Type: F64, Mutable: true}},
		},
		Functions: []uint32{0},
		Tables: []Table{
			{TableType: TableType{Elem: FuncRef, Limits: Limits{Min: 1, Max: 3, HasMax: true}}},
			{TableType: TableType{Elem: FuncRef, Limits: Limits{Min: 1}}},
		},
		Memories: []Limits{{Min: 1, Max: 2, HasMax: true}},
		Globals:  []Global{{GlobalType: GlobalType{Type: I32}, Init: zero}},
		Exports:  []Export{{Name: "f", Index: 2}, {Name: "m", Kind: KindMemory}},
		Start:    &start,
		Elements: []Element{
			{Offset: zero, Type: FuncRef, Funcs: []uint32{0, 2}},
			{Mode: Passive, Type: FuncRef, Funcs: []uint32{1}},
			{Table: 1, Offset: zero, Type: FuncRef, Funcs: []uint32{1}},
			{Mode: Declarative, Type: FuncRef, Funcs: []uint32{1}},
			{Offset: zero, Type: FuncRef, Exprs: [][]byte{null}},
			{Mode: Passive, Type: ExternRef, Exprs: [][]byte{}},
			{Table: 1, Offset: zero, Type: ExternRef, Exprs: [][]byte{null}},
			{Mode: Declarative, Type: FuncRef, Exprs: [][]byte{null, null}},
		},
		DataCount: &count,
		Codes:     []Code{{Locals: []LocalGroup{{3, I32}, {1, ExternRef}}, Body: []byte{0x0b}}},
		Data:      []Data{{Offset: zero, Init: []byte("a")}, {Mode: Passive, Init: []byte("bc")}},
		Customs:   []Custom{{Name: "first", Data: []byte{1}}, NewCustom("toolhost.manifest", []byte("{}"))},
	}
}

func TestAppendCustom(t *testing.T) {
	wasm := withBody(0x0b)
	out := AppendCustom(wasm, "toolhost.manifest", []byte(`{"name":"x"}`))
	require.Equal(t, wasm, out[:len(wasm)])
	m, err := Parse(out)
	require.NoError(t, err)
	data, ok := m.Custom("toolhost.manifest")
	require.True(t, ok)
	require.Equal(t, `{"name":"x"}`, string(data))
	_, ok = m.Custom("other")
	require.False(t, ok)
}

func TestMoveFuncNames(t *testing.T) {
	data := append(section(nameModule, 1, 'm'), section(nameFuncs, 2, 0, 1, 'a', 5, 1, 'b')...)
	data = append(data, section(2, 0)...)
	moved, ok := MoveFuncNames(data, func(i uint32) uint32 { return i * 100 })
	require.True(t, ok)
	require.Equal(t, append(section(nameModule, 1, 'm'), section(nameFuncs, 2, 0, 1, 'a', 0xf4, 3, 1, 'b')...), moved)
	for _, bad := range [][]byte{{1, 9, 0}, {1, 2, 9, 0}, {1, 3, 1, 0, 1}, {1}} {
		_, ok = MoveFuncNames(bad, func(i uint32) uint32 { return i })
		require.False(t, ok)
	}
}

// TestGoModule reads and writes what a real compiler makes, and runs it.
func TestGoModule(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module guest\n\ngo 1.26\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(`package main

import "fmt"

//go:wasmexport add
func add(a, b int32) int32 { return int32(len(fmt.Sprint(a)) + len(fmt.Sprint(b))) }

func main() {}
`), 0o644))
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", "guest.wasm", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=")
	msg, err := cmd.CombinedOutput()
	require.NoError(t, err, string(msg))
	wasm, err := os.ReadFile(filepath.Join(dir, "guest.wasm"))
	require.NoError(t, err)

	m, err := Parse(wasm)
	require.NoError(t, err)
	add := slices.IndexFunc(m.Exports, func(e Export) bool { return e.Name == "add" })
	require.GreaterOrEqual(t, add, 0)
	f, ok := m.FuncType(m.Exports[add].Index)
	require.True(t, ok)

	require.Equal(t, "(i32, i32) -> i32", f.String())
	for i := range m.Codes {
		ops, err := instructions(&m.Codes[i], len(m.Types))
		require.NoError(t, err)
		require.NotEmpty(t, ops)
	}

	out := m.Encode()
	require.LessOrEqual(t, len(out), len(wasm))
	again, err := Parse(out)
	require.NoError(t, err)
	require.True(t, bytes.Equal(out, again.Encode()))

	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(Features))
	defer rt.Close(ctx)
	_, err = rt.CompileModule(ctx, out)

	require.NoError(t, err)

	for _, cut := range []int{9, 100, len(wasm) / 2, len(wasm) - 1} {
		_, err := Parse(wasm[:cut])
		require.ErrorIs(t, err, ErrTruncated)
		require.True(t, strings.Contains(err.Error(), "cut off"), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(everything().Encode())
	f.Add(withBody(0x02, 0x40, 0x0c, 0, 0x0b, 0x0b))
	f.Add([]byte("\x00asm\x0d\x00\x01\x00"))
	f.Add(binary(section(secType, 0xff, 0xff, 0xff, 0xff, 0x0f)))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := Parse(wasm)
		if err != nil {
			var at *Error
			require.ErrorAs(t, err, &at)
			return
		}

		out := m.Encode()
		again, err := Parse(out)
		require.NoError(t, err)
		require.True(t, bytes.Equal(out, again.Encode()))
		for i := range m.Codes {
			_, _ = instructions(&m.Codes[i], len(m.Types))
		}
	})
}
