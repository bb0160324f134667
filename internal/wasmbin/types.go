package wasmbin

import (
	"slices"
	"strconv"
	"strings"
)

// ValType is a value type, as the byte it is in the format.
type ValType byte

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

// IsRef reports whether values of the type are references.
func (t ValType) IsRef() bool {
	return t == FuncRef || t == ExternRef || t == ExnRef
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

	return "type " + strconv.Itoa(int(t))
}

// FuncType is the type of a function.
type FuncType struct {
	Params, Results []ValType
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
