package snapshot_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/internal/snapshot"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

func i32(v int64) []byte {
	return append(wasmbin.AppendS64([]byte{byte(wasmbin.OpI32Const)}, v), byte(wasmbin.OpEnd))
}

// base has a page of memory, a function without parameters, and a table.
func base(body ...byte) *wasmbin.Module {
	return &wasmbin.Module{
		Types:     []wasmbin.FuncType{{}},
		Functions: []uint32{0},
		Codes:     []wasmbin.Code{{Body: append(body, byte(wasmbin.OpEnd))}},
		Memories:  []wasmbin.Limits{{Min: 1, Max: 1, HasMax: true}},
		Tables:    []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}}}},
		Exports:   []wasmbin.Export{{Name: "memory", Kind: wasmbin.KindMemory}},
	}
}

func global(t wasmbin.ValType, mutable bool, init ...byte) wasmbin.Global {
	return wasmbin.Global{GlobalType: wasmbin.GlobalType{Type: t, Mutable: mutable}, Init: append(init, byte(wasmbin.OpEnd))}
}

// prepare prepares an encoded module.
func prepare(wasm []byte) (*snapshot.Program, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	p, err := snapshot.Prepare(m)
	if err != nil {
		return nil, err
	}
	p.Wasm = m.Encode()
	return p, nil
}

// TestWhy: what a module contains decides whether its instances can be put back.
func TestWhy(t *testing.T) {
	null := []byte{byte(wasmbin.OpRefNull), byte(wasmbin.FuncRef)}
	zero := []byte{byte(wasmbin.OpI32Const), 0}
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	with := func(change func(*wasmbin.Module), body ...byte) *wasmbin.Module {
		m := base(body...)
		change(m)
		return m
	}
	segment := func(m *wasmbin.Module) {
		m.Data = []wasmbin.Data{{Mode: wasmbin.Passive, Init: []byte("x")}}
		m.DataCount = new(uint32(1))
	}
	element := func(m *wasmbin.Module) {
		m.Elements = []wasmbin.Element{{Mode: wasmbin.Passive, Type: wasmbin.FuncRef, Funcs: []uint32{0}}}
	}
	for name, c := range map[string]struct {
		module *wasmbin.Module
		why    string
	}{
		"nothing special": {base(), ""},
		"table.get":       {base(join(zero, []byte{byte(wasmbin.OpTableGet), 0, byte(wasmbin.OpDrop)})...), ""},
		"memory.fill":     {base(join(zero, zero, zero, []byte{0xfc, 0x0b, 0})...), ""},
		"table.set":       {base(join(zero, null, []byte{byte(wasmbin.OpTableSet), 0})...), "table.set"},
		"table.grow":      {base(join(null, zero, []byte{0xfc, 0x0f, 0, byte(wasmbin.OpDrop)})...), "table.grow"},
		"table.fill":      {base(join(zero, null, zero, []byte{0xfc, 0x11, 0})...), "table.fill"},
		"table.copy":      {base(join(zero, zero, zero, []byte{0xfc, 0x0e, 0, 0})...), "table.copy"},
		"table.init":      {with(element, join(zero, zero, zero, []byte{0xfc, 0x0c, 0, 0})...), "table.init"},
		"elem.drop":       {with(element, 0xfc, 0x0d, 0), "elem.drop"},
		"memory.init":     {with(segment, join(zero, zero, zero, []byte{0xfc, 0x08, 0, 0})...), "memory.init"},
		"data.drop":       {with(segment, 0xfc, 0x09, 0), "data.drop"},
		"reference":       {with(func(m *wasmbin.Module) { m.Globals = []wasmbin.Global{global(wasmbin.FuncRef, true, null...)} }), "reference"},
		"fixed reference": {with(func(m *wasmbin.Module) { m.Globals = []wasmbin.Global{global(wasmbin.FuncRef, false, null...)} }), ""},
		"no memory":       {with(func(m *wasmbin.Module) { m.Memories, m.Exports = nil, nil }), "no memory"},
		"imported memory": {with(func(m *wasmbin.Module) { m.Imports = []wasmbin.Import{{Kind: wasmbin.KindMemory}}; m.Memories = nil }), "imports"},
		"computed offset": {with(func(m *wasmbin.Module) {
			m.Globals = []wasmbin.Global{global(wasmbin.I32, false, zero...)}
			m.Data = []wasmbin.Data{{Offset: []byte{byte(wasmbin.OpGlobalGet), 0, byte(wasmbin.OpEnd)}, Init: []byte("x")}}
		}), "computes"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := prepare(c.module.Encode())
			require.NoError(t, err)
			why, err := snapshot.Why(c.module.Encode())
			require.NoError(t, err)
			require.Equal(t, why, p.Why)
			if c.why == "" {
				require.Empty(t, why)
			}
			require.Contains(t, why, c.why)
			_, err = wasmbin.Parse(p.Wasm)
			require.NoError(t, err)
		})
	}
}

// TestImage: the image is what the segments make of a memory, in their order.
// Data that has to trap stays in the module, and data that is spread too far.
func TestImage(t *testing.T) {
	const memory = 100 << 20
	data := func(at int64, s string) wasmbin.Data { return wasmbin.Data{Offset: i32(at), Init: []byte(s)} }
	large := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		data  []wasmbin.Data
		at    uint64
		image string
		stays bool
	}{
		"none":                {nil, 0, "", false},
		"one":                 {[]wasmbin.Data{data(2, "ab")}, 2, "ab", false},
		"the later one wins":  {[]wasmbin.Data{data(0, "abcd"), data(1, "xy")}, 0, "axyd", false},
		"in any order":        {[]wasmbin.Data{data(9, "z"), data(5, "a")}, 5, "a\x00\x00\x00z", false},
		"zeros at the ends":   {[]wasmbin.Data{data(0, "\x00\x00a\x00\x00")}, 2, "a", false},
		"only zeros":          {[]wasmbin.Data{data(7, "\x00\x00")}, 0, "", false},
		"up to the last byte": {[]wasmbin.Data{data(memory-1, "z")}, memory - 1, "z", false},
		"past the end":        {[]wasmbin.Data{data(0, "a"), data(memory-1, "zz")}, 0, "", true},
		"nothing at the end":  {[]wasmbin.Data{data(memory, "")}, 0, "", false},
		"nothing past it":     {[]wasmbin.Data{data(memory+1, "")}, 0, "", true},
		"far away":            {[]wasmbin.Data{data(-1, "a")}, 0, "", true},
		"small and sparse":    {[]wasmbin.Data{data(0, "a"), data(1<<20-1, "z")}, 0, "a" + strings.Repeat("\x00", 1<<20-2) + "z", false},
		"too sparse":          {[]wasmbin.Data{data(0, "a"), data(1<<20, "z")}, 0, "", true},
		"not too sparse":      {[]wasmbin.Data{data(0, large(1<<18)), data(1<<21-1, "z")}, 0, large(1<<18) + strings.Repeat("\x00", 1<<21-1<<18-1) + "z", false},
		"largest":             {[]wasmbin.Data{data(5, large(64<<20))}, 5, large(64 << 20), false},
		"too large":           {[]wasmbin.Data{data(5, large(64<<20+1))}, 0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := base()
			m.Memories[0].Min, m.Memories[0].Max = memory>>16, memory>>16
			m.Data = c.data
			p, err := prepare(m.Encode())
			require.NoError(t, err)
			require.True(t, c.image == string(p.Image), "%d bytes", len(p.Image))
			require.Equal(t, c.at, p.At)
			require.Equal(t, c.stays, p.Why != "", p.Why)
			left, err := wasmbin.Parse(p.Wasm)
			require.NoError(t, err)
			require.Equal(t, c.stays, len(left.Data) > 0)
		})
	}
}

// TestExports: the start function is not run, and every mutable global can be
// read and set, in the runtime.
func TestExports(t *testing.T) {
	m := base(byte(wasmbin.OpUnreachable))
	m.Start = new(uint32(0))
	m.Globals = []wasmbin.Global{
		global(wasmbin.I32, false, byte(wasmbin.OpI32Const), 1), global(wasmbin.I32, true, byte(wasmbin.OpI32Const), 2),
		global(wasmbin.I64, true, byte(wasmbin.OpI64Const), 3),
		global(wasmbin.F32, true, byte(wasmbin.OpF32Const), 1, 2, 3, 4),
		global(wasmbin.F64, true, byte(wasmbin.OpF64Const), 1, 2, 3, 4, 5, 6, 7, 8),
	}
	p, err := prepare(m.Encode())
	require.NoError(t, err)
	require.True(t, p.Start)
	require.Equal(t, 4, p.Globals)

	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features))
	defer r.Close(ctx)
	in, err := r.Instantiate(ctx, p.Wasm)
	require.NoError(t, err, "the start function did not run")
	_, err = in.ExportedFunction(snapshot.StartExport).Call(ctx)

	require.ErrorContains(t, err, "unreachable")
	for i, want := range []uint64{2, 3, 0x04030201, 0x0807060504030201} {
		g := in.ExportedGlobal(snapshot.GlobalExport(i)).(api.MutableGlobal)
		require.Equal(t, want, g.Get())
		g.Set(9)
		require.Equal(t, uint64(9), g.Get())
	}

	_, ok := in.Memory().Grow(1)
	require.True(t, ok, "the host holds the maximum")
}

func TestReservedNamesAreRefused(t *testing.T) {
	for _, name := range []string{snapshot.StartExport, snapshot.GlobalExport(7)} {
		m := base()
		m.Exports = append(m.Exports, wasmbin.Export{Name: name})
		_, err := prepare(m.Encode())
		require.ErrorIs(t, err, snapshot.ErrReserved)
	}
	_, err := prepare([]byte("no module"))
	require.ErrorIs(t, err, wasmbin.ErrMalformed)
}

// FuzzPrepare: what is not refused stays a module, with all its code.
func FuzzPrepare(f *testing.F) {
	m := base()
	m.Data = []wasmbin.Data{{Offset: i32(3), Init: []byte("data")}}
	m.Globals = []wasmbin.Global{global(wasmbin.I32, true, byte(wasmbin.OpI32Const), 2)}
	f.Add(m.Encode())
	f.Fuzz(func(t *testing.T, wasm []byte) {
		p, err := prepare(wasm)
		if err != nil {
			return
		}
		before, err := wasmbin.Parse(wasm)
		require.NoError(t, err)
		after, err := wasmbin.Parse(p.Wasm)
		require.NoError(t, err)
		require.Len(t, after.Codes, len(before.Codes))
		for i := range before.Codes {
			require.Equal(t, before.Codes[i].Body, after.Codes[i].Body)
		}
		require.Nil(t, after.Start)
	})
}
