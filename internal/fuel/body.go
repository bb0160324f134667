package fuel

import (
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// bodies rewrites the code of every function.
func (r *rewriter) bodies() error {
	var w walker
	w.r = r
	for i := range r.m.Codes {
		if err := w.function(uint32(i)); err != nil {
			return err
		}
	}
	return nil
}

// walker rewrites one function at a time. It cuts the code into stretches that
// run from their start to their end and charges for each at its start.
type walker struct {
	r      *rewriter
	rd     wasmbin.Reader
	code   *wasmbin.Code
	locals uint32 // original number, parameters included
	frames []frame
	dead   bool // code that is never reached: it is copied and costs nothing

	emitter
	stretch []byte // code of the current stretch
	cost    int64  // of the current stretch
	check   bool   // look at the counter at its start
	scratch uint32 // number of i32 locals added
}

// frame is an open block.
type frame struct {
	op   wasmbin.Op
	dead bool // the code around it is dead
}

func (w *walker) function(i uint32) error {
	m := w.r.m
	w.code = &m.Codes[i]
	w.locals = uint32(len(m.Types[m.Functions[i]].Params))
	for _, g := range w.code.Locals {
		w.locals += g.Count
	}
	w.frames = append(w.frames[:0], frame{op: wasmbin.OpBlock})
	w.emitter = emitter{counter: w.r.globals, refill: w.r.imported, stats: &w.r.stats,
		out: make([]byte, 0, len(w.code.Body)*3/2+32)}
	w.dead, w.check, w.cost, w.scratch, w.stretch = false, true, 0, 0, w.stretch[:0]
	w.rd.Reset(w.code, w.r.types)
	var in wasmbin.Instr
	for w.rd.Next(&in) {
		if err := w.instr(&in); err != nil {
			return err
		}
	}
	if w.rd.Err() != nil {
		return w.rd.Err()
	}
	if len(w.frames) > 0 {
		return w.rd.Errorf(&in, "function body ends within a block")
	}
	w.flush()
	if w.scratch > 0 {
		w.code.Locals = append(w.code.Locals[:len(w.code.Locals):len(w.code.Locals)],
			wasmbin.LocalGroup{Count: w.scratch, Type: wasmbin.I32})
	}
	w.code.Body = w.out
	return nil
}

// instr adds one instruction.
func (w *walker) instr(in *wasmbin.Instr) error {
	if len(w.frames) == 0 {
		return w.rd.Errorf(in, "code after the end of the function")
	}
	if err := w.validate(in); err != nil {
		return err
	}
	switch in.Op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf, wasmbin.OpTryTable:
		if len(w.frames) >= wasmbin.MaxNesting {
			return w.rd.Errorf(in, "blocks nest deeper than %d", wasmbin.MaxNesting)
		}
		w.frames = append(w.frames, frame{op: in.Op, dead: w.dead})
	case wasmbin.OpElse:
		top := &w.frames[len(w.frames)-1]
		if top.op != wasmbin.OpIf {
			return w.rd.Errorf(in, "else outside an if")
		}
		top.op, w.dead = wasmbin.OpElse, top.dead
	case wasmbin.OpEnd:
		w.dead = w.frames[len(w.frames)-1].dead
		w.frames = w.frames[:len(w.frames)-1]
	}
	if w.dead {
		w.copy(in)
		return nil
	}
	w.live(in)
	return nil
}

// live adds an instruction that can be reached: its price, and the end of the
// stretch where control leaves or enters.
func (w *walker) live(in *wasmbin.Instr) {
	cost := price(in.Op)
	if w.calls(in) && in.X < w.r.imported {
		cost += HostCallCost
	}
	if w.cost += cost; cost > 0 {
		w.r.stats.Operators++
	}
	if s, ok := sizeOf(in.Op); ok {
		w.sized(in, s)
		return
	}
	w.copy(in)
	switch in.Op {
	case wasmbin.OpLoop:
		w.flush()
		w.check = true
		w.r.stats.Loops++
	case wasmbin.OpIf, wasmbin.OpElse, wasmbin.OpEnd, wasmbin.OpBrIf, wasmbin.OpBrOnNull, wasmbin.OpBrOnNonNull, wasmbin.OpTryTable:
		w.flush()
	case wasmbin.OpBr, wasmbin.OpBrTable, wasmbin.OpReturn, wasmbin.OpUnreachable, wasmbin.OpThrow, wasmbin.OpThrowRef,
		wasmbin.OpReturnCall, wasmbin.OpReturnCallIndirect, wasmbin.OpReturnCallRef:
		w.flush()
		w.dead = true
	case wasmbin.OpCall, wasmbin.OpCallIndirect, wasmbin.OpCallRef:
		if w.r.throws {
			w.flush() // what follows runs only if the call does not throw
		}
	}
}

// calls reports whether the instruction calls the function in.X.
func (w *walker) calls(in *wasmbin.Instr) bool {
	return in.Op == wasmbin.OpCall || in.Op == wasmbin.OpReturnCall
}

// sized adds an instruction that is also charged by the operand on top of the
// stack: after it, so that it has not trapped, and with a check of its own, so
// that a row of them is not free until the next loop.
func (w *walker) sized(in *wasmbin.Instr, s size) {
	n := w.locals
	w.scratch = max(w.scratch, 1)
	w.stretch = wasmbin.AppendOpX(w.stretch, wasmbin.OpLocalTee, n)
	w.copy(in)
	w.flush()
	if s.grows {
		w.scratch = 2
		w.opX(wasmbin.OpLocalTee, n+1)
	}
	w.opX(wasmbin.OpGlobalGet, w.counter)
	w.opX(wasmbin.OpLocalGet, n)
	w.op(wasmbin.OpI64ExtendI32U)
	if s.left > 0 {
		w.i64(s.left)
		w.op(wasmbin.OpI64Shl)
	} else {
		w.i64(s.right)
		w.op(wasmbin.OpI64ShrU)
	}
	if s.grows {
		w.i64(0)
		w.opX(wasmbin.OpLocalGet, n+1)
		w.i32(-1)
		w.op(wasmbin.OpI32Ne)
		w.op(wasmbin.OpSelect)
	}
	w.op(wasmbin.OpI64Sub)
	w.opX(wasmbin.OpGlobalSet, w.counter)
	w.stats.Charges++
	w.checkpoint()
}

// copy adds the instruction as it is, but for functions that have moved.
func (w *walker) copy(in *wasmbin.Instr) {
	switch in.Op {
	case wasmbin.OpCall, wasmbin.OpReturnCall:
		w.stretch = wasmbin.AppendOpX(w.stretch, in.Op, w.r.direct(in.X))
	case wasmbin.OpRefFunc:
		w.stretch = wasmbin.AppendOpX(w.stretch, in.Op, w.r.reference(in.X))
	default:
		w.stretch = append(w.stretch, w.code.Body[in.Pos:in.End]...)
	}
}

// flush ends the current stretch.
func (w *walker) flush() {
	if w.cost > 0 {
		w.charge(w.cost)
	}
	if w.check {
		w.checkpoint()
	}
	w.out = append(w.out, w.stretch...)
	w.stretch, w.cost, w.check = w.stretch[:0], 0, false
}

// validate refuses what the rewritten module would make valid: indices just
// above the original's.
func (w *walker) validate(in *wasmbin.Instr) error {
	limit, what := uint32(0), ""
	switch in.Op {
	case wasmbin.OpLocalGet, wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		limit, what = w.locals, "local"
	case wasmbin.OpGlobalGet, wasmbin.OpGlobalSet:
		limit, what = w.r.globals, "global"
	case wasmbin.OpCall, wasmbin.OpReturnCall:
		limit, what = w.r.funcs, "function"
	case wasmbin.OpRefFunc:
		if in.X < w.r.imported && !w.r.declared[in.X] {
			return w.rd.Errorf(in, "ref.func of undeclared function %d", in.X)
		}
		limit, what = w.r.funcs, "function"
	case wasmbin.OpCallIndirect, wasmbin.OpReturnCallIndirect, wasmbin.OpCallRef, wasmbin.OpReturnCallRef:
		limit, what = uint32(w.r.types), "type"
	case wasmbin.OpTableInit, wasmbin.OpElemDrop:
		limit, what = w.r.elements, "element segment"
	default:
		return nil
	}
	if in.X >= limit {
		return w.rd.Errorf(in, "%v: no %s %d", in.Op, what, in.X)
	}
	return nil
}
