package wasmbin

import (
	"strconv"
	"strings"
)

// ValType is a value type, as its byte in the binary format.
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
	ExnRef    ValType = 0x69 // only in modules that use exceptions
)

// IsRef reports whether values of the type are references.
func (t ValType) IsRef() bool { return t == FuncRef || t == ExternRef || t == ExnRef }

// String returns the name of the type in the text format.
func (t ValType) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return "type " + strconv.Itoa(int(t))
}

var typeNames = map[ValType]string{
	I32: "i32", I64: "i64", F32: "f32", F64: "f64", V128: "v128",
	FuncRef: "funcref", ExternRef: "externref", ExnRef: "exnref",
}

// FuncType is the type of a function.
type FuncType struct {
	Params, Results []ValType
}

// String returns the type in the form "(i32, i32) -> i64".
func (t FuncType) String() string {
	list := func(types []ValType) string {
		names := make([]string, len(types))
		for i, v := range types {
			names[i] = v.String()
		}
		return "(" + strings.Join(names, ", ") + ")"
	}

	if len(t.Results) == 1 {
		return list(t.Params) + " -> " + t.Results[0].String()
	}
	return list(t.Params) + " -> " + list(t.Results)
}
