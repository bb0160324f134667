package host_test

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// code is an expression or a statement of a hand-made guest.
type code []byte

func seq(parts ...code) code { return slices.Concat(parts...) }

// op applies an operation without immediates to its operands.
func op(o wasmbin.Op, operands ...code) code { return wasmbin.AppendOp(seq(operands...), o) }

// opX applies an operation with an index to its operands.
func opX(o wasmbin.Op, x uint32, operands ...code) code {
	return wasmbin.AppendOpX(seq(operands...), o, x)
}

func i32(v int64) code {
	return wasmbin.AppendS64(wasmbin.AppendOp(nil, wasmbin.OpI32Const), int64(int32(v)))
}

func i64(v int64) code { return wasmbin.AppendS64(wasmbin.AppendOp(nil, wasmbin.OpI64Const), v) }

func f64(v float64) code {
	return binary.LittleEndian.AppendUint64(wasmbin.AppendOp(nil, wasmbin.OpF64Const), math.Float64bits(v))
}

const void = 0x40 // a block without a result

func drop(e code) code    { return op(wasmbin.OpDrop, e) }
func get(n uint32) code   { return opX(wasmbin.OpLocalGet, n) }
func load(at code) code   { return append(op(wasmbin.OpI32Load, at), 2, 0) }
func call(f uint32) code  { return opX(wasmbin.OpCall, f) }
func br(label int) code   { return opX(wasmbin.OpBr, uint32(label)) }
func unreachable() code   { return op(wasmbin.OpUnreachable) }
func grow(pages int) code { return append(op(wasmbin.OpMemoryGrow, i32(int64(pages))), 0) }

func set(n uint32, e code) code { return opX(wasmbin.OpLocalSet, n, e) }

func store(at int64, e code) code { return append(op(0x36, i32(at), e), 2, 0) } // i32.store

// loop runs its body once, and again for each br(0) in it.
func loop(body ...code) code {
	return slices.Concat([]byte{byte(wasmbin.OpLoop), void}, seq(body...), []byte{byte(wasmbin.OpEnd)})
}

// when runs its body if the condition is not 0.
func when(cond code, body ...code) code {
	return slices.Concat(cond, []byte{byte(wasmbin.OpIf), void}, seq(body...), []byte{byte(wasmbin.OpEnd)})
}

// forever runs its body without end.
func forever(body ...code) code { return loop(seq(body...), br(0)) }

// times runs its body n times; it uses local 3.
func times(n int64, body ...code) code {
	return seq(set(3, i32(n)), loop(seq(body...),
		set(3, op(wasmbin.OpI32Sub, get(3), i32(1))), when(get(3), br(1))))
}

// The functions a hand-made guest imports, by their index.
const (
	fnRead uint32 = iota
	fnWrite
	fnProgress
	fnCall
	fnExit
	fnFDWrite
	fnRandom
	fnClock
	fnPoll
	fnArgs
	fnEnv
	fnPrestat
	fnFDRead
	fnYield
	imported
)

func sig(params string, result bool) wasmbin.FuncType {
	var t wasmbin.FuncType
	for _, p := range params {
		t.Params = append(t.Params, map[rune]wasmbin.ValType{'i': wasmbin.I32, 'l': wasmbin.I64, 'd': wasmbin.F64}[p])
	}
	if result {
		t.Results = []wasmbin.ValType{wasmbin.I32}
	}
	return t
}

var imports = [imported]struct {
	module, name string
	sig          wasmbin.FuncType
}{
	fnRead:     {abi.Version, abi.ImportRead, sig("iii", true)},
	fnWrite:    {abi.Version, abi.ImportWrite, sig("iii", true)},
	fnProgress: {abi.Version, abi.ImportProgress, sig("ddii", true)},
	fnCall:     {abi.Version, abi.ImportCall, sig("iiii", true)},
	fnExit:     {abi.ImportWASI, "proc_exit", sig("i", false)},
	fnFDWrite:  {abi.ImportWASI, "fd_write", sig("iiii", true)},
	fnRandom:   {abi.ImportWASI, "random_get", sig("ii", true)},
	fnClock:    {abi.ImportWASI, "clock_time_get", sig("ili", true)},
	fnPoll:     {abi.ImportWASI, "poll_oneoff", sig("iiii", true)},
	fnArgs:     {abi.ImportWASI, "args_sizes_get", sig("ii", true)},
	fnEnv:      {abi.ImportWASI, "environ_sizes_get", sig("ii", true)},
	fnPrestat:  {abi.ImportWASI, "fd_prestat_get", sig("ii", true)},
	fnFDRead:   {abi.ImportWASI, "fd_read", sig("iiii", true)},
	fnYield:    {abi.ImportWASI, "sched_yield", sig("", true)},
}

func read(field abi.Field, ptr, size int64) code {
	return seq(i32(int64(field)), i32(ptr), i32(size), call(fnRead))
}

func write(s abi.Stream, ptr, size int64) code {
	return seq(i32(int64(s)), i32(ptr), i32(size), call(fnWrite))
}

func progress(done, total float64, ptr, size int64) code {
	return seq(f64(done), f64(total), i32(ptr), i32(size), call(fnProgress))
}

func capability(op, opSize, ptr, size int64) code {
	return seq(i32(op), i32(opSize), i32(ptr), i32(size), call(fnCall))
}

// wasi calls a function of WASI whose parameters are all i32.
func wasi(f uint32, params ...int64) code {
	var c code
	for _, p := range params {
		c = append(c, i32(p)...)
	}
	return seq(c, call(f))
}

// tell writes the value of an expression to OUTPUT, as four bytes.
func tell(e code) code { return seq(store(0, e), drop(write(abi.StreamOutput, 0, 4))) }

// dataAt is the address of a guest's data. The memory below it is scratch space.
const dataAt = 1024

// nothing writes an empty result, which means that the tool has none.
var nothing = drop(write(abi.StreamResult, 0, 0))

// guest is a hand-made plugin: one page of memory, four locals of type i32 in
// each function, and the imports above. Nil fields are omitted, except that
// a nil invoke answers 0.
type guest struct {
	invoke, describe, initialize, command, start code
	resume                                       code // with the locals 0 and 1 as its parameters; nil leaves it and fnStart out

	silent bool   // invoke does not say that there is no result
	helper code   // a function without parameters and results
	data   string // at dataAt
	change func(*wasmbin.Module)
}

// fnHelper is the index of the helper, and fnStart that of call_start in a guest with
// resume, which has no helper.
const (
	fnHelper = imported
	fnStart  = imported
)

func (g guest) wasm() []byte {
	m := &wasmbin.Module{Memories: []wasmbin.Limits{{Min: 1}}}
	m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportMemory, Kind: wasmbin.KindMemory})
	for i, im := range imports {
		m.Types = append(m.Types, im.sig)
		m.Imports = append(m.Imports, wasmbin.Import{Module: im.module, Name: im.name, Type: uint32(i)})
	}
	first := imported
	if g.resume != nil {
		m.Types = append(m.Types, sig("iiii", true))
		m.Imports = append(m.Imports, wasmbin.Import{Module: abi.Version, Name: abi.ImportStart, Type: uint32(first)})
		first++
	}
	add := func(name string, result bool, body code) {
		if name != "" {
			m.Exports = append(m.Exports, wasmbin.Export{Name: name, Index: first + uint32(len(m.Codes))})
		}
		m.Functions = append(m.Functions, uint32(len(m.Types)))
		m.Types = append(m.Types, sig("", result))
		m.Codes = append(m.Codes, wasmbin.Code{
			Locals: []wasmbin.LocalGroup{{Count: 4, Type: wasmbin.I32}}, Body: append(slices.Clone(body), byte(wasmbin.OpEnd)),
		})
	}
	if g.resume == nil {
		add("", false, g.helper)
	} else {
		add(abi.ExportResume, true, g.resume)
		m.Types[len(m.Types)-1] = sig("ii", true)
	}
	switch {
	case g.command != nil:
		add(abi.ExportStart, false, g.command)
	case g.silent:
		add(abi.ExportInvoke, true, g.invoke)
	case g.invoke == nil:
		add(abi.ExportInvoke, true, seq(nothing, i32(0)))
	default:
		add(abi.ExportInvoke, true, seq(nothing, g.invoke))
	}
	if g.describe != nil {
		add(abi.ExportDescribe, true, g.describe)
	}
	if g.initialize != nil {
		add(abi.ExportInitialize, false, g.initialize)
	}
	if g.start != nil {
		m.Start = new(first + uint32(len(m.Codes)))
		add("", false, g.start)
	}
	if g.data != "" {
		m.Data = []wasmbin.Data{{Offset: append(i32(dataAt), byte(wasmbin.OpEnd)), Init: []byte(g.data)}}
	}
	if g.change != nil {
		g.change(m)
	}
	return m.Encode()
}

// echo gives back its arguments.
var echo = guest{invoke: seq(
	set(0, read(abi.FieldArgs, dataAt, 4096)),
	i32(int64(abi.StreamResult)), i32(dataAt), get(0), call(fnWrite), drop(nil), i32(0),
)}
