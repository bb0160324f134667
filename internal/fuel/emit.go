package fuel

import "github.com/toolhost/toolhost/internal/wasmbin"

// emitter writes instructions.
type emitter struct {
	out     []byte
	counter uint32 // index of the global
	more    uint32 // index of the function that refills the counter; the one after it refills a local
	local   uint32 // index of the local that holds the counter, if held
	held    bool
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

// getCounter and setCounter move the counter to and from the stack.
func (e *emitter) getCounter() {
	if e.held {
		e.opX(wasmbin.OpLocalGet, e.local)
	} else {
		e.opX(wasmbin.OpGlobalGet, e.counter)
	}
}

func (e *emitter) setCounter() {
	if e.held {
		e.opX(wasmbin.OpLocalSet, e.local)
	} else {
		e.opX(wasmbin.OpGlobalSet, e.counter)
	}
}

// hold takes the counter into the local, and release gives it back, where it has
// to be around calls and when the function is left.
func (e *emitter) hold() {
	if e.held {
		e.opX(wasmbin.OpGlobalGet, e.counter)
		e.opX(wasmbin.OpLocalSet, e.local)
	}
}

func (e *emitter) release() {
	if e.held {
		e.opX(wasmbin.OpLocalGet, e.local)
		e.opX(wasmbin.OpGlobalSet, e.counter)
	}
}

// refill asks for more.
func (e *emitter) refill() {
	if e.held {
		e.opX(wasmbin.OpLocalGet, e.local)
		e.opX(wasmbin.OpCall, e.more+1)
		e.opX(wasmbin.OpLocalSet, e.local)
	} else {
		e.opX(wasmbin.OpCall, e.more)
	}
}

// charge subtracts n from the counter.
func (e *emitter) charge(n int64) {
	e.getCounter()
	e.i64(n)
	e.op(wasmbin.OpI64Sub)
	e.setCounter()
	if e.stats != nil {
		e.stats.Charges++
	}
}

// checkpoint asks for more when the counter is below zero. What is rare goes
// back to look again instead of joining what is frequent: where two paths join,
// the runtime's compiler makes the one without the call move its values to where
// the call has left them, but not at the head of a loop.
func (e *emitter) checkpoint() {
	e.op(wasmbin.OpLoop)
	e.out = append(e.out, 0x40)
	e.checkpointInLoop()
	e.op(wasmbin.OpEnd)
}

// checkpointInLoop does so at the head of a loop.
func (e *emitter) checkpointInLoop() {
	e.getCounter()
	e.i64(0)
	e.op(wasmbin.OpI64LtS)
	e.op(wasmbin.OpIf)
	e.out = append(e.out, 0x40)
	e.refill()
	e.opX(wasmbin.OpBr, 1)
	e.op(wasmbin.OpEnd)
	e.checked()
}

// branchBack branches to the loop depth blocks out unless the counter is below
// zero, and then asks for more first. What is rare comes last, so that the
// processor runs straight through the rest. (An if, not a br_if: see fuses.)
func (e *emitter) branchBack(depth uint32, takes int) {
	e.getCounter()
	e.i64(0)
	e.op(wasmbin.OpI64GeS)
	if takes > 0 {
		e.opX(wasmbin.OpBrIf, depth) // which passes values by itself
	} else {
		e.op(wasmbin.OpIf)
		e.out = append(e.out, 0x40)
		e.opX(wasmbin.OpBr, depth+1)
		e.op(wasmbin.OpEnd)
	}

	e.refill()
	e.opX(wasmbin.OpBr, depth)
	e.checked()
}

func (e *emitter) checked() {
	if e.stats != nil {
		e.stats.Checks++
	}
}

// scratch is how many i32 locals chargeSize needs.
func (s size) scratch() uint32 {
	if s.grows {
		return 2
	}
	return 1
}

// chargeSize charges for an operator by its size, which is in local n. It comes
// after the operator, which so has not trapped, and looks at the counter, so
// that a row of them is not free until the next loop.
func (e *emitter) chargeSize(s size, n uint32) {
	if s.grows {
		e.opX(wasmbin.OpLocalTee, n+1)
	}
	e.getCounter()
	e.opX(wasmbin.OpLocalGet, n)
	e.op(wasmbin.OpI64ExtendI32U)
	if s.left > 0 {
		e.i64(s.left)
		e.op(wasmbin.OpI64Shl)
	} else {
		e.i64(s.right)
		e.op(wasmbin.OpI64ShrU)
	}
	if s.grows {
		e.i64(0)
		e.opX(wasmbin.OpLocalGet, n+1)
		e.i32(-1)
		e.op(wasmbin.OpI32Ne)
		e.op(wasmbin.OpSelect)
	}

	e.op(wasmbin.OpI64Sub)
	e.setCounter()
	if e.stats != nil {
		e.stats.Charges++
	}
	e.checkpoint()
}

// appendMoved appends an instruction as it is, but for functions that have moved
// and references to them.
func (r *rewriter) appendMoved(b []byte, code *wasmbin.Code, in *wasmbin.Instr) []byte {
	switch in.Op {
	case wasmbin.OpCall, wasmbin.OpReturnCall:
		return wasmbin.AppendOpX(b, in.Op, r.direct(in.X))
	case wasmbin.OpRefFunc:
		return wasmbin.AppendOpX(b, wasmbin.OpGlobalGet, r.refGlobal(in.X))
	}
	return append(b, code.Body[in.Pos:in.End]...)
}
