package exceptions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Instructions of the cases below.
const (
	block, br, call, drop, end      = byte(wasmbin.OpBlock), byte(wasmbin.OpBr), byte(wasmbin.OpCall), byte(wasmbin.OpDrop), byte(wasmbin.OpEnd)
	returnCall, local, number, add  = byte(wasmbin.OpReturnCall), byte(wasmbin.OpLocalGet), byte(wasmbin.OpI32Const), byte(wasmbin.OpI32Add)
	try, catch, throw, rethrow      = byte(wasmbin.OpTry), byte(wasmbin.OpCatch), byte(wasmbin.OpThrow), byte(wasmbin.OpRethrow)
	delegate, all, table, throwRef  = byte(wasmbin.OpDelegate), byte(wasmbin.OpCatchAll), byte(wasmbin.OpTryTable), byte(wasmbin.OpThrowRef)
	exn, getGlobal, setGlobal, null = byte(wasmbin.ExnRef), byte(wasmbin.OpGlobalGet), byte(wasmbin.OpGlobalSet), byte(wasmbin.OpRefNull)
)

// throwsTwice is function 0 of each case: it throws its parameter, twice, with tag 1.
var throwsTwice = []byte{local, 0, local, 0, add, throw, 1, number, 0, end}

// forms are bodies of f, function 1, of type 0, which is called with 7, and what it
// returns, or below zero if it fails. Type 1 is (), type 2 (i32), type 3 (i32) -> exnref,
// type 4 () -> (i32, exnref). Function 2 takes an i32 and returns what it has caught of
// function 0. Global 0 is an exnref. Tag 0 has no value, tag 1 has one.
var forms = map[string]struct {
	legacy bool
	body   []byte
	want   int32
}{
	"caught":               {true, []byte{try, i32, number, 3, call, 0, catch, 1, end, end}, 6},
	"caught by all":        {true, []byte{try, i32, number, 3, call, 0, all, number, 5, end, end}, 5},
	"another tag":          {true, []byte{try, i32, number, 3, call, 0, catch, 0, number, 5, end, end}, -1},
	"no clause":            {true, []byte{try, i32, number, 3, call, 0, end, end}, -1},
	"a try with parameter": {true, []byte{number, 4, try, 0, call, 0, catch, 1, number, 1, add, end, end}, 9},
	"values below":         {true, []byte{number, 40, try, i32, number, 9, number, 4, call, 0, add, catch, 1, end, add, end}, 48},
	"rethrow":              {true, []byte{try, i32, try, i32, number, 3, call, 0, all, rethrow, 0, end, catch, 1, end, end}, 6},
	"rethrow of the outer": {true, []byte{
		try, i32,
		try, i32, number, 3, call, 0, catch, 1, drop, try, i32, number, 30, call, 0, catch, 1, drop, rethrow, 1, end, end,
		catch, 1, end, end,
	}, 6},
	"delegate past a try": {true, []byte{
		try, i32, try, i32, try, i32, number, 3, call, 0, delegate, 1, catch, 1, drop, number, 1, end, catch, 1, end, end,
	}, 6},
	"delegate to the caller":     {true, []byte{try, i32, try, i32, number, 3, call, 0, delegate, 1, catch, 1, end, end}, -1},
	"delegate out of a clause":   {true, []byte{try, i32, number, 3, call, 0, catch, 1, drop, try, i32, number, 4, call, 0, delegate, 0, end, end}, -1},
	"throw in a clause":          {true, []byte{try, i32, try, i32, number, 3, call, 0, catch, 1, throw, 1, catch, 1, drop, number, 1, end, catch, 1, end, end}, 6},
	"a branch out of a clause":   {true, []byte{block, i32, try, i32, number, 3, call, 0, catch, 1, br, 1, end, drop, number, 1, end, end}, 6},
	"a branch to the function":   {true, []byte{try, i32, number, 3, call, 0, catch, 1, br, 1, end, drop, number, 1, end}, 6},
	"a tail call leaves the try": {true, []byte{try, i32, number, 3, returnCall, 0, catch, 1, end, end}, -1},

	"table":              {false, []byte{block, i32, table, i32, 1, 0, 1, 0, number, 3, call, 0, end, end, end}, 6},
	"table with a value": {false, []byte{block, i32, number, 4, table, 0, 1, 0, 1, 0, call, 0, end, end, end}, 8},
	"the first clause": {false, []byte{
		block, i32, block, i32, table, i32, 2, 0, 1, 0, 0, 1, 1, number, 3, call, 0, end, end, number, 1, add, end, end,
	}, 7},
	"a clause to the function": {false, []byte{table, i32, 1, 0, 1, 0, number, 3, call, 0, end, end}, 6},
	"throw_ref":                {false, []byte{block, i32, table, i32, 1, 0, 1, 0, block, exn, table, i32, 1, 3, 0, number, 3, call, 0, end, br, 1, end, throwRef, end, end, end}, 6},
	"throw_ref of null":        {false, []byte{block, void, table, void, 1, 2, 0, null, exn, throwRef, end, end, number, 1, end}, -1},
	"catch_ref":                {false, []byte{block, 4, table, i32, 1, 1, 1, 0, number, 3, call, 0, end, br, 1, end, setGlobal, 0, drop, block, i32, table, i32, 1, 0, 1, 0, getGlobal, 0, throwRef, end, end, end}, 6},
	"exnref of a call":         {false, []byte{block, i32, table, i32, 1, 0, 1, 0, number, 3, call, 2, throwRef, end, end, end}, 6},
	"exnref of select": {false, []byte{
		block, i32, table, i32, 1, 0, 1, 0,
		number, 3, call, 2, null, exn, number, 1, byte(wasmbin.OpSelectTyped), 1, exn, throwRef, end, end, end,
	}, 6},
	"exnref of two": {false, []byte{
		number, 3, call, 2, setGlobal, 0, number, 30, call, 2, drop,
		block, i32, table, i32, 1, 0, 1, 0, getGlobal, 0, throwRef, end, end, end,
	}, 6},
}

func formModule(legacy bool, body []byte) *wasmbin.Module {
	i := []wasmbin.ValType{wasmbin.I32}
	e := []wasmbin.ValType{wasmbin.ExnRef}
	m := &wasmbin.Module{
		Types:     []wasmbin.FuncType{{Params: i, Results: i}, {}, {Params: i}},
		Tags:      []uint32{1, 2},
		Functions: []uint32{0, 0},
		Codes:     []wasmbin.Code{{Body: throwsTwice}, {Body: body}},
		Exports:   []wasmbin.Export{{Name: "f", Index: 1}},
	}
	if !legacy {
		m.Types = append(m.Types, wasmbin.FuncType{Params: i, Results: e}, wasmbin.FuncType{Results: append(i, e...)})
		m.Functions = append(m.Functions, 3)
		m.Codes = append(m.Codes, wasmbin.Code{Body: []byte{block, exn, table, i32, 1, 3, 0, local, 0, call, 0, end, drop, null, exn, end, end}})
		m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: wasmbin.ExnRef, Mutable: true}, Init: []byte{null, exn, end}}}
	}
	return m
}

func TestForms(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			want := outcome{Log: []int32{}, End: "returned", Value: form.want}
			if form.want < 0 {
				want = outcome{Log: []int32{}, End: "failed"}
			}
			program := formModule(form.legacy, form.body).Encode()
			wasm, err := lower(program)
			require.NoError(t, err)
			for engine, config := range engines {
				require.Equal(t, want, runGenerated(t, config, wasm), engine)
			}

			var flags []string
			if !form.legacy {
				flags = []string{"--experimental-wasm-exnref"}
			}
			require.Equal(t, []outcome{want}, runInNode(t, [][]byte{program}, flags...), "node")
		})
	}
}

// The host calls functions by their exports and as the start function: what they throw
// is a trap. A caught exception leaves nothing behind.
func TestEntries(t *testing.T) {
	m := formModule(true, []byte{number, 1, end})
	m.Functions = append(m.Functions, 1)
	m.Codes = append(m.Codes, wasmbin.Code{Body: []byte{throw, 0, end}})
	m.Exports = append(m.Exports, wasmbin.Export{Name: "g", Index: 2}, wasmbin.Export{Name: "again", Index: 2})
	start := uint32(2)
	m.Start = &start

	functions := len(m.Functions)
	require.NoError(t, Lower(m))
	require.Len(t, m.Functions, functions+3, "take, throw_ref, and one for all entries")
	require.EqualValues(t, functions+2, *m.Start)
	require.EqualValues(t, functions+2, m.Exports[1].Index)
	require.EqualValues(t, functions+2, m.Exports[2].Index)
	require.EqualValues(t, 1, m.Exports[0].Index, "it does not throw")
}
