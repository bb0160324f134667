package wasmbin

import (
	"slices"
	"strconv"
	"strings"
)

// ValType is a value type. The low byte is its first byte in the format; the
// two typed references (ref null t and ref t) keep their heap type above it.
type ValType uint64

// The value types with one byte.
const (
	I32       ValType = 0x7f
	I64       ValType = 0x7e
	F32       ValType = 0x7d
	F64       ValType = 0x7c
	V128      ValType = 0x7b
	FuncRef   ValType = 0x70
	ExternRef ValType = 0x6f
	ExnRef    ValType = 0x69
)

const (
	refNull    = 0x63 // (ref null heaptype)
	refNonNull = 0x64 // (ref heaptype)
)

// heap is the heap type of a typed reference: a type index, or negative for an abstract one.
func (t ValType) heap() int64 { return int64(t) >> 8 }

// IsRef reports whether values of the type are references.
func (t ValType) IsRef() bool {
	switch byte(t) {
	case byte(FuncRef), byte(ExternRef), byte(ExnRef), refNull, refNonNull:
		return true
	}
	return false
}

// String is the name of the type in the text format.
func (t ValType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	case ExnRef:
		return "exnref"
	}
	heap := ""
	switch h := t.heap(); h {
	case heapFunc:
		heap = "func"
	case heapExtern:
		heap = "extern"
	case heapExn:
		heap = "exn"
	default:
		heap = strconv.FormatInt(h, 10)
	}
	if byte(t) == refNull {
		return "(ref null " + heap + ")"
	}
	return "(ref " + heap + ")"
}

// The abstract heap types, as the signed numbers they are written as.
const (
	heapFunc   = -0x10 // 0x70
	heapExtern = -0x11 // 0x6f
	heapExn    = -0x17 // 0x69
)

// FuncType is the type of a function.
type FuncType struct {
	Params, Results []ValType
	// Group is the size of the recursion group that starts at this type,
	// 0 if none does.
	Group uint32
}

// Equal reports whether both have the same parameters and results.
func (t FuncType) Equal(u FuncType) bool {
	return slices.Equal(t.Params, u.Params) && slices.Equal(t.Results, u.Results)
}

// String is the type as "(i32, i32) -> i64".
func (t FuncType) String() string {
	var b strings.Builder
	list := func(ts []ValType) {
		b.WriteByte('(')
		for i, v := range ts {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(v.String())
		}
		b.WriteByte(')')
	}
	list(t.Params)
	b.WriteString(" -> ")
	if len(t.Results) == 1 {
		b.WriteString(t.Results[0].String())
	} else {
		list(t.Results)
	}
	return b.String()
}
