package exceptions

import "github.com/toolhost/toolhost/internal/wasmbin"

// void is the type of a block that has no parameters and no results.
const void = 0x40

// emitter appends instructions.
type emitter struct{ out []byte }

func (e *emitter) op(op wasmbin.Op) *emitter {
	e.out = wasmbin.AppendOp(e.out, op)
	return e
}

func (e *emitter) opX(op wasmbin.Op, x uint32) *emitter {
	e.out = wasmbin.AppendOpX(e.out, op, x)
	return e
}

func (e *emitter) constant(op wasmbin.Op, v int64) *emitter {
	e.out = wasmbin.AppendS64(wasmbin.AppendOp(e.out, op), v)
	return e
}

func (e *emitter) raw(b ...byte) *emitter {
	e.out = append(e.out, b...)
	return e
}

// zero appends a constant: the zero value of a type.
func (e *emitter) zero(t wasmbin.ValType) {
	switch t {
	case wasmbin.I32:
		e.constant(wasmbin.OpI32Const, 0)
	case wasmbin.I64:
		e.constant(wasmbin.OpI64Const, 0)
	case wasmbin.F32:
		e.op(wasmbin.OpF32Const).raw(make([]byte, 4)...)
	case wasmbin.F64:
		e.op(wasmbin.OpF64Const).raw(make([]byte, 8)...)
	case wasmbin.V128:
		e.op(wasmbin.OpV128Const).raw(make([]byte, 16)...)
	default:
		e.op(wasmbin.OpRefNull).raw(byte(t))
	}
}
