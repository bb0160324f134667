package bombs

import (
	"bytes"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// code is a piece of a function's code.
type code []byte

func seq(parts ...code) code { return slices.Concat(parts...) }

func repeat(n int, parts ...code) code { return bytes.Repeat(seq(parts...), n) }

// each concatenates the results of make for 0 to n-1.
func each(n int, make func(i int) code) code {
	var c code
	for i := range n {
		c = append(c, make(i)...)
	}
	return c
}

func op(o wasmbin.Op) code           { return wasmbin.AppendOp(nil, o) }
func opX(o wasmbin.Op, x int) code   { return wasmbin.AppendOpX(nil, o, uint32(x)) }
func i32(v int) code                 { return wasmbin.AppendS64(op(wasmbin.OpI32Const), int64(v)) }
func get(x int) code                 { return opX(wasmbin.OpLocalGet, x) }
func set(x int) code                 { return opX(wasmbin.OpLocalSet, x) }
func call(f int) code                { return opX(wasmbin.OpCall, f) }
func brIf(label int) code            { return opX(wasmbin.OpBrIf, label) }
func drop() code                     { return op(wasmbin.OpDrop) }
func end() code                      { return op(wasmbin.OpEnd) }
func load() code                     { return append(op(wasmbin.OpI32Load), 2, 0) }
func store() code                    { return code{0x36, 2, 0} } // i32.store
func open(o wasmbin.Op) code         { return append(op(o), 0x40) }
func typed(o wasmbin.Op, t int) code { return wasmbin.AppendS64(op(o), int64(t)) }

func block(body ...code) code { return seq(open(wasmbin.OpBlock), seq(body...), end()) }
func loop(body ...code) code  { return seq(open(wasmbin.OpLoop), seq(body...), end()) }

// when returns code that runs body if local 0 is not 0.
func when(body ...code) code { return seq(get(0), open(wasmbin.OpIf), seq(body...), end()) }

// brTable returns a br_table that branches by local 0.
func brTable(labels ...uint32) code {
	c := wasmbin.AppendU32(seq(get(0), op(wasmbin.OpBrTable)), uint32(len(labels)-1))
	for _, l := range labels {
		c = wasmbin.AppendU32(c, l)
	}
	return c
}

// ints returns n times the type i32.
func ints(n int) []wasmbin.ValType {
	return slices.Repeat([]wasmbin.ValType{wasmbin.I32}, n)
}

// wide is the largest number of parameters or results of a type.
const wide = 1000

// module is a plugin under construction.
type module struct{ *wasmbin.Module }

// plugin returns a plugin that answers null, and to which code can be added. Its
// manifest is sealed in, but the plugin can also describe itself.
func plugin() module {
	manifest := plugintest.Manifest("bomb")
	m, err := wasmbin.Parse(plugintest.Plugin{
		Manifest: manifest,
		Describe: plugintest.Do().Say(abi.StreamManifest, string(plugintest.JSON(manifest))),
	}.Wasm())
	if err != nil {
		panic(err)
	}
	return module{m}
}

// addType adds a function type, and returns its index.
func (m module) addType(params, results []wasmbin.ValType) int {
	m.Types = append(m.Types, wasmbin.FuncType{Params: params, Results: results})
	return len(m.Types) - 1
}

// add adds a function, and returns its index.
func (m module) add(t int, body code, locals ...wasmbin.LocalGroup) int {
	m.Functions = append(m.Functions, uint32(t))
	m.Codes = append(m.Codes, wasmbin.Code{Locals: locals, Body: append(slices.Clip(body), byte(wasmbin.OpEnd))})
	return m.Count(wasmbin.KindFunc) - 1
}

// locals declares n locals of type i32.
func locals(n int) wasmbin.LocalGroup { return wasmbin.LocalGroup{Count: uint32(n), Type: wasmbin.I32} }

// function returns a plugin with one more function, which has n locals of type
// i32.
func function(n int, body ...code) []byte {
	m := plugin()
	m.add(m.addType(nil, nil), seq(body...), locals(n))
	return m.Encode()
}
