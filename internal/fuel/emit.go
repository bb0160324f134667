package fuel

import "github.com/toolhost/toolhost/internal/wasmbin"

// emitter writes instructions.
type emitter struct {
	out     []byte
	counter uint32 // index of the global
	refill  uint32 // index of the function
	stats   *Stats // nil if nobody counts
}

func (e *emitter) op(op wasmbin.Op)            { e.out = wasmbin.AppendOp(e.out, op) }
func (e *emitter) opX(op wasmbin.Op, x uint32) { e.out = wasmbin.AppendOpX(e.out, op, x) }

func (e *emitter) i32(v int32) {
	e.out = wasmbin.AppendS64(wasmbin.AppendOp(e.out, wasmbin.OpI32Const), int64(v))
}

func (e *emitter) i64(v int64) {
	e.out = wasmbin.AppendS64(wasmbin.AppendOp(e.out, wasmbin.OpI64Const), v)
}

// charge subtracts n from the counter.
func (e *emitter) charge(n int64) {
	e.opX(wasmbin.OpGlobalGet, e.counter)
	e.i64(n)
	e.op(wasmbin.OpI64Sub)
	e.opX(wasmbin.OpGlobalSet, e.counter)
	if e.stats != nil {
		e.stats.Charges++
	}
}

// checkpoint asks for more when the counter is below zero.
func (e *emitter) checkpoint() {
	e.opX(wasmbin.OpGlobalGet, e.counter)
	e.i64(0)
	e.op(wasmbin.OpI64LtS)
	e.op(wasmbin.OpIf)
	e.out = append(e.out, 0x40)
	e.opX(wasmbin.OpGlobalGet, e.counter)
	e.opX(wasmbin.OpCall, e.refill)
	e.opX(wasmbin.OpGlobalSet, e.counter)
	e.op(wasmbin.OpEnd)
	if e.stats != nil {
		e.stats.Checks++
	}
}
