package main

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// endless is a command that does not end by itself.
type endless struct {
	name  string
	wasm  func(*loader) ([]byte, error)
	waits bool // in the host, for the most part
}

var endlessGuests = []endless{
	{"tight loop", calls("sieve", "run", 1<<30), false},
	{"interpreter", calls("vm", "run", 1<<30), false},
	{"memory-bound loop", calls("memory", "run", 1<<30), false},
	{"deep recursion", calls("fib", "run", 60), false},
	{"go, allocating", calls("go", "trees", 1<<30), false},
	{"memory.fill of 64 MiB", repeats(moves(wasmbin.OpMemoryFill, 0, 1, 64<<20, 0)), false},
	{"memory.fill of 900 MiB", repeats(moves(wasmbin.OpMemoryFill, 0, 1, 900<<20, 0)), false},
	{"memory.copy of 400 MiB", repeats(moves(wasmbin.OpMemoryCopy, 400<<20, 0, 400<<20, 0, 0)), false},
	{"memory.init of 24 MiB", repeats(slices.Concat(
		moves(wasmbin.OpMemoryInit, 100<<20, 0, segment, 1, 0), moves(wasmbin.OpMemoryInit, 800<<20, 0, segment, 1, 0))), false},
	{"table.fill of 1,048,576 entries", repeats(slices.Concat(i32s(0), []byte{0xd0, byte(wasmbin.FuncRef)}, i32s(entries), []byte{0xfc, 0x11, 0})), false},
	{"table.copy of 1,048,575 entries", repeats(moves(wasmbin.OpTableCopy, 1, 0, entries-1, 0, 0)), false},
	{"memory.grow", repeats(append(append(i32s(1), byte(wasmbin.OpMemoryGrow), 0), byte(wasmbin.OpDrop))), false},
	{"random_get of 64 MiB", repeats(slices.Concat(i32s(0, 64<<20), []byte{byte(wasmbin.OpCall), randomGet, byte(wasmbin.OpDrop)})), true},
	{"sleep of an hour", repeats(slices.Concat(i32s(0, 64, 1, 128), []byte{byte(wasmbin.OpCall), pollOneoff, byte(wasmbin.OpDrop)})), true},
}

// calls is a module of the workloads that calls one of its exports.
func calls(file, export string, arg int64) func(*loader) ([]byte, error) {
	return func(l *loader) ([]byte, error) {
		wasm, err := l.read(file)
		if err != nil {
			return nil, err
		}
		m, err := wasmbin.Parse(wasm)
		if err != nil {
			return nil, err
		}

		var body []byte
		m.Exports = slices.DeleteFunc(m.Exports, func(e wasmbin.Export) bool {
			if e.Name == abi.ExportInitialize {
				body = wasmbin.AppendOpX(body, wasmbin.OpCall, e.Index)
			}
			return e.Name == abi.ExportInitialize
		})
		f := slices.IndexFunc(m.Exports, func(e wasmbin.Export) bool { return e.Name == export })
		body = wasmbin.AppendOpX(append(body, i32s(arg)...), wasmbin.OpCall, m.Exports[f].Index)
		return asCommand(m, append(body, byte(wasmbin.OpDrop))), nil
	}
}

// What the modules of repeats have: the functions they import, the length of their data
// segment 1, and that of their table.
const (
	randomGet  = 0
	pollOneoff = 1
	segment    = 24 << 20
	entries    = 1 << 20
)

// repeats is a module that does something over and over.
func repeats(what []byte) func(*loader) ([]byte, error) {
	return func(*loader) ([]byte, error) {
		i32 := wasmbin.I32
		segments := uint32(2)

		return asCommand(&wasmbin.Module{
			Types: []wasmbin.FuncType{
				{Params: []wasmbin.ValType{i32, i32}, Results: []wasmbin.ValType{i32}},
				{Params: []wasmbin.ValType{i32, i32, i32, i32}, Results: []wasmbin.ValType{i32}},
			},
			Imports: []wasmbin.Import{
				{Module: abi.ImportWASI, Name: "random_get", Type: 0},
				{Module: abi.ImportWASI, Name: "poll_oneoff", Type: 1},
			},
			Tables:    []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: entries}}}},
			Memories:  []wasmbin.Limits{{Min: 15_000}},
			DataCount: &segments,
			Data: []wasmbin.Data{
				{Offset: append(i32s(0), byte(wasmbin.OpEnd)), Init: subscription()},
				{Mode: wasmbin.Passive, Init: bytes.Repeat([]byte("x"), segment)},
			},
		}, slices.Concat([]byte{byte(wasmbin.OpLoop), 0x40}, what, []byte{byte(wasmbin.OpBr), 0, byte(wasmbin.OpEnd)})), nil
	}
}

// subscription asks poll_oneoff for an hour of the monotonic clock.
func subscription() []byte {
	s := make([]byte, 48)
	s[16] = 1
	binary.LittleEndian.PutUint64(s[24:], uint64(time.Hour))
	return s
}

// asCommand encodes a module that does what start does when it is run.
func asCommand(m *wasmbin.Module, start []byte) []byte {
	if len(m.Memories) == 0 {
		m.Memories = []wasmbin.Limits{{Min: 1}}
	}
	if !slices.ContainsFunc(m.Exports, func(e wasmbin.Export) bool { return e.Name == abi.ExportMemory }) {
		m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportMemory, Kind: wasmbin.KindMemory})
	}

	m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportStart, Index: uint32(m.Count(wasmbin.KindFunc))})
	m.Functions = append(m.Functions, uint32(len(m.Types)))
	m.Types = append(m.Types, wasmbin.FuncType{})
	m.Codes = append(m.Codes, wasmbin.Code{Body: append(start, byte(wasmbin.OpEnd))})
	return m.Encode()
}

// moves is an operator with three operands and its immediates.
func moves(op wasmbin.Op, to, from, n int64, immediates ...byte) []byte {
	return append(wasmbin.AppendOp(i32s(to, from, n), op), immediates...)
}

// i32s pushes constants.
func i32s(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = wasmbin.AppendS64(wasmbin.AppendOp(b, wasmbin.OpI32Const), v)
	}
	return b
}
