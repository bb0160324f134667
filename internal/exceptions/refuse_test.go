package exceptions

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

func TestLowerRefuses(t *testing.T) {
	const (
		try, catch, throw, rethrow = byte(wasmbin.OpTry), byte(wasmbin.OpCatch), byte(wasmbin.OpThrow), byte(wasmbin.OpRethrow)
		delegate, all, table, end  = byte(wasmbin.OpDelegate), byte(wasmbin.OpCatchAll), byte(wasmbin.OpTryTable), byte(wasmbin.OpEnd)
	)
	for name, c := range map[string]struct {
		body []byte
		say  string
	}{
		"no tag to throw":           {[]byte{throw, 1, end}, "throw: no tag 1"},
		"no tag to catch":           {[]byte{try, void, catch, 1, end, end}, "catch: no tag 1"},
		"no tag of a table":         {[]byte{table, void, 1, 0, 1, 0, end, end}, "try_table: no tag 1"},
		"no label of a table":       {[]byte{table, void, 1, 2, 1, end, end}, "try_table: no label 1"},
		"unknown clause":            {[]byte{table, void, 1, 4, 0, end, end}, "unknown catch clause 0x4"},
		"catch outside":             {[]byte{catch, 0, end}, "catch outside a try"},
		"catch in a table":          {[]byte{table, void, 0, catch, 0, end, end}, "catch outside a try"},
		"catch in a block":          {[]byte{try, void, byte(wasmbin.OpBlock), void, catch, 0, end, end, end}, "catch outside a try"},
		"catch after catch_all":     {[]byte{try, void, all, catch, 0, end, end}, "catch outside a try"},
		"two of catch_all":          {[]byte{try, void, all, all, end, end}, "catch_all outside a try"},
		"delegate outside":          {[]byte{delegate, 0, end}, "delegate outside a try"},
		"delegate after catch":      {[]byte{try, void, catch, 0, delegate, 0, end}, "delegate outside a try"},
		"delegate too far":          {[]byte{try, void, delegate, 1, end}, "delegate: no label 1"},
		"rethrow of a body":         {[]byte{try, void, rethrow, 0, catch, 0, end, end}, "rethrow: label 0 is not that of a catch"},
		"rethrow too far":           {[]byte{try, void, catch, 0, rethrow, 2, end, end}, "rethrow: no label 2"},
		"branch too far":            {[]byte{byte(wasmbin.OpBr), 1, end}, "br: no label 1"},
		"br_table too far":          {[]byte{byte(wasmbin.OpI32Const), 0, byte(wasmbin.OpBrTable), 0, 1, end}, "br_table: no label 1"},
		"open try":                  {[]byte{try, void, end}, "ends within a block"},
		"code after the end":        {[]byte{end, try, void, end, end}, "after the end"},
		"the global of the tag":     {[]byte{byte(wasmbin.OpGlobalGet), 0, byte(wasmbin.OpDrop), end}, "global.get: no global 0"},
		"the function that takes":   {[]byte{byte(wasmbin.OpCall), 1, end}, "call: no function 1"},
		"the function by reference": {[]byte{byte(wasmbin.OpRefFunc), 1, end}, "ref.func: no function 1"},
		"the local that saves":      {[]byte{try, void, all, byte(wasmbin.OpLocalGet), 0, byte(wasmbin.OpDrop), end, end}, "local.get: no local 0"},
		"an added type":             {[]byte{byte(wasmbin.OpI32Const), 0, byte(wasmbin.OpCallIndirect), 2, 0, end}, "call_indirect: no type 2"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &wasmbin.Module{Types: []wasmbin.FuncType{{}}, Functions: []uint32{0}, Tags: []uint32{0}, Codes: []wasmbin.Code{{Body: c.body}}}
			_, err := lower(m.Encode())
			require.ErrorIs(t, err, wasmbin.ErrMalformed)
			require.ErrorContains(t, err, c.say)
		})
	}
}

func TestLowerRefusesTags(t *testing.T) {
	i32s := []wasmbin.ValType{wasmbin.I32, wasmbin.I32}
	for name, c := range map[string]struct {
		tag wasmbin.FuncType
		err error
		say string
	}{
		"two values": {wasmbin.FuncType{Params: i32s}, wasmbin.ErrUnsupported, "tag 0 has the type (i32, i32) -> ()"},
		"an i64":     {wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I64}}, wasmbin.ErrUnsupported, "other than one i32"},
		"a result":   {wasmbin.FuncType{Results: i32s}, wasmbin.ErrMalformed, "tag 0 has results"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lower((&wasmbin.Module{Types: []wasmbin.FuncType{c.tag}, Tags: []uint32{0}}).Encode())
			require.ErrorIs(t, err, c.err)
			require.ErrorContains(t, err, c.say)
		})
	}
}

// No module can have the global that says whether an exception has left it, with tags or not.
func TestLowerRefusesExport(t *testing.T) {
	for _, name := range []string{TagExport, "toolhost.exceptions"} {
		m := &wasmbin.Module{Globals: []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32}, Init: []byte{byte(wasmbin.OpI32Const), 1, byte(wasmbin.OpEnd)}}}}
		m.Exports = []wasmbin.Export{{Name: name, Kind: wasmbin.KindGlobal}}
		_, err := lower(m.Encode())
		require.ErrorIs(t, err, wasmbin.ErrUnsupported)
		require.ErrorContains(t, err, `"`+name+`" is a name of the host`)
	}
}

// A small module cannot become a large one: each of these functions passes on 1,000
// results, or is exported with 1,000 parameters.
func TestLowerBoundsGrowth(t *testing.T) {
	thousand := make([]wasmbin.ValType, 1000)
	for i := range thousand {
		thousand[i] = wasmbin.V128
	}
	for name, many := range map[string]wasmbin.FuncType{"results": {Results: thousand}, "parameters": {Params: thousand}} {
		t.Run(name, func(t *testing.T) {
			m := &wasmbin.Module{Types: []wasmbin.FuncType{many, {}}, Tags: []uint32{1}}
			for i := range 2000 {
				m.Functions = append(m.Functions, 0)
				m.Codes = append(m.Codes, wasmbin.Code{Body: []byte{byte(wasmbin.OpThrow), 0, byte(wasmbin.OpEnd)}})
				m.Exports = append(m.Exports, wasmbin.Export{Name: string(rune('a' + i)), Index: uint32(i)})
			}
			_, err := lower(m.Encode())
			require.ErrorIs(t, err, wasmbin.ErrUnsupported)
			require.ErrorContains(t, err, "exceptions take more code")
		})
	}
}

// FuzzLower looks for panics, and for modules that the runtime refuses although all of
// their instructions were valid. Bytes that are no module are a program of the generator.
func FuzzLower(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 8 {
		choices := randomBytes(random)
		f.Add(choices)
		f.Add(generate(choices, i%2 == 0))
	}
	f.Add(assigns())
	f.Add(recurses())

	f.Fuzz(func(t *testing.T, data []byte) {
		if out, err := lower(data); err == nil {
			again, err := wasmbin.Parse(out)
			require.NoError(t, err)
			require.Empty(t, again.Tags)
			return
		} else if len(data) >= 4 && string(data[:4]) == "\x00asm" {
			require.True(t, errors.Is(err, wasmbin.ErrMalformed) || errors.Is(err, wasmbin.ErrUnsupported), err)
			return
		}

		for _, legacy := range []bool{true, false} {
			wasm, err := lower(generate(data, legacy))
			require.NoError(t, err)
			require.Equal(t, runGenerated(t, engines["interpreter"], wasm), runGenerated(t, engines["compiler"], wasm))
		}
	})
}
