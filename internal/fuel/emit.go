package fuel

import "github.com/toolhost/toolhost/internal/wasmbin"

// emitter writes instructions.
type emitter struct {
	out     []byte
	counter uint32 // index of the global
	more    uint32 // index of the function that refills the counter; the one after it refills a local
	local   uint32 // index of the local that holds the counter, if held
	held    bool
}

// The methods below append one instruction and return the emitter, so that a
// sequence reads as in the text format.

func (e *emitter) op(op wasmbin.Op) *emitter {
	e.out = wasmbin.AppendOp(e.out, op)
	return e
}

func (e *emitter) opX(op wasmbin.Op, x uint32) *emitter {
	e.out = wasmbin.AppendOpX(e.out, op, x)
	return e
}

func (e *emitter) get(local uint32) *emitter { return e.opX(wasmbin.OpLocalGet, local) }
func (e *emitter) set(local uint32) *emitter { return e.opX(wasmbin.OpLocalSet, local) }
func (e *emitter) end() *emitter             { return e.op(wasmbin.OpEnd) }

func (e *emitter) i32(v int32) *emitter {
	e.out = wasmbin.AppendS64(wasmbin.AppendOp(e.out, wasmbin.OpI32Const), int64(v))
	return e
}

func (e *emitter) i64(v int64) *emitter {
	e.out = wasmbin.AppendS64(wasmbin.AppendOp(e.out, wasmbin.OpI64Const), v)
	return e
}

// block opens a block, loop or if without values.
func (e *emitter) block(op wasmbin.Op) *emitter {
	e.out = append(wasmbin.AppendOp(e.out, op), 0x40)
	return e
}

// getCounter and setCounter move the counter to and from the stack.
func (e *emitter) getCounter() *emitter {
	if e.held {
		return e.get(e.local)
	}
	return e.opX(wasmbin.OpGlobalGet, e.counter)
}

func (e *emitter) setCounter() *emitter {
	if e.held {
		return e.set(e.local)
	}
	return e.opX(wasmbin.OpGlobalSet, e.counter)
}

// hold loads the counter into the local. release stores it back, where the global
// has to be right: around calls and when the function is left.
func (e *emitter) hold() {
	if e.held {
		e.opX(wasmbin.OpGlobalGet, e.counter).set(e.local)
	}
}

func (e *emitter) release() {
	if e.held {
		e.get(e.local).opX(wasmbin.OpGlobalSet, e.counter)
	}
}

// refill asks for more.
func (e *emitter) refill() *emitter {
	if e.held {
		return e.get(e.local).opX(wasmbin.OpCall, e.more+1).set(e.local)
	}
	return e.opX(wasmbin.OpCall, e.more)
}

// charge subtracts n from the counter.
func (e *emitter) charge(n int64) {
	e.getCounter().i64(n).op(wasmbin.OpI64Sub).setCounter()
}

// checkpoint asks for more when the counter is below zero. The rare case jumps
// back to check again instead of joining the frequent one: where two paths join,
// the runtime's compiler makes the one without the call move its values to where
// the call has left them, but not at the head of a loop.
func (e *emitter) checkpoint() {
	e.block(wasmbin.OpLoop)
	e.checkpointInLoop()
	e.end()
}

// checkpointInLoop is like checkpoint, for the head of a loop. The refill is in the
// else, because the runtime's compiler puts an else last, but leaves what an if
// guards in the way.
func (e *emitter) checkpointInLoop() {
	e.getCounter().i64(0).op(wasmbin.OpI64GeS)
	e.block(wasmbin.OpIf).op(wasmbin.OpElse).refill().opX(wasmbin.OpBr, 1).end()
}

// chargeIf subtracts n from the counter if the condition in local c holds.
func (e *emitter) chargeIf(n int64, c uint32) {
	e.getCounter().i64(n).i64(0).get(c).op(wasmbin.OpSelect).op(wasmbin.OpI64Sub).setCounter()
}

// branchBack branches to the loop depth blocks out unless the counter is below
// zero, and then asks for more first. The rare case comes last, so that the
// processor runs straight through the rest. (An if, not a br_if: see fuses.)
func (e *emitter) branchBack(depth uint32) {
	e.getCounter().i64(0).op(wasmbin.OpI64GeS)
	e.block(wasmbin.OpIf).opX(wasmbin.OpBr, depth+1).end()
	e.refill().opX(wasmbin.OpBr, depth)
}

// scratch returns how many i32 locals chargeSize needs.
func (s size) scratch() uint32 {
	if s.grows {
		return 2
	}
	return 1
}

// chargeSize charges for an operator by its size, which is in local n. It comes
// after the operator, which has not trapped then, and checks the counter, so that
// a row of them is not free until the next loop.
func (e *emitter) chargeSize(s size, n uint32) {
	if s.grows {
		e.opX(wasmbin.OpLocalTee, n+1)
	}

	e.getCounter().get(n).op(wasmbin.OpI64ExtendI32U)
	if s.left > 0 {
		e.i64(s.left).op(wasmbin.OpI64Shl)
	} else {
		e.i64(s.right).op(wasmbin.OpI64ShrU)
	}
	if s.grows {
		e.i64(0).get(n + 1).i32(-1).op(wasmbin.OpI32Ne).op(wasmbin.OpSelect)
	}

	e.op(wasmbin.OpI64Sub).setCounter()
	e.checkpoint()
}

// appendMoved appends an instruction as it is, except for functions that have moved
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
