package fuel

import "github.com/toolhost/toolhost/internal/wasmbin"

// program is a rewritten module.
type program struct {
	Wasm  []byte
	Stats Stats
}

// rewrite rewrites a module, or if simple, has a walker rewrite its code.
func rewrite(simple bool, wasm []byte) (*program, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	if !simple {
		stats, err := Rewrite(m)
		return &program{m.Encode(), stats}, err
	}

	r := newRewriter(m)
	stats, err := r.rewrite(func([]*graph) error {
		w := walker{r: r}
		for i := range m.Codes {
			if err := w.function(uint32(i)); err != nil {
				return err
			}
		}
		return nil
	})
	return &program{m.Encode(), stats}, err
}

// walker rewrites one function at a time in the simple way: it cuts the code
// into stretches that run from their start to their end and charges for each at
// its start, and it checks the counter at the function's entry and at every
// loop's head. Tests compare what it counts with what graphs count.
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
	check   bool   // check the counter at its start
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
	w.locals = localCount(w.code, &m.Types[m.Functions[i]])
	w.frames = append(w.frames[:0], frame{op: wasmbin.OpBlock})
	w.emitter = w.r.emitter(len(w.code.Body)*3/2 + 32)
	w.dead, w.check, w.cost, w.scratch, w.stretch = false, true, -w.r.prepaid[i], 0, w.stretch[:0]
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
	if err := w.r.validate(&w.rd, in, w.locals); err != nil {
		return err
	}

	switch in.Op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
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
	if in.Op == wasmbin.OpCall || in.Op == wasmbin.OpReturnCall {
		if in.X < w.r.imported {
			cost += HostCallCost
		} else {
			cost += w.r.prepaid[in.X-w.r.imported]
		}
	}

	w.cost += cost
	if s, ok := sizeOf(in.Op); ok {
		w.sized(in, s)
		return
	}

	w.copy(in)
	switch in.Op {
	case wasmbin.OpLoop:
		w.flush()
		w.check = true
	case wasmbin.OpIf, wasmbin.OpElse, wasmbin.OpEnd, wasmbin.OpBrIf:
		w.flush()
	case wasmbin.OpBr, wasmbin.OpBrTable, wasmbin.OpReturn, wasmbin.OpUnreachable,
		wasmbin.OpReturnCall, wasmbin.OpReturnCallIndirect:
		w.flush()
		w.dead = true
	}
}

// sized adds an instruction that is also charged by the operand on top of the
// stack.
func (w *walker) sized(in *wasmbin.Instr, s size) {
	n := w.locals
	w.scratch = max(w.scratch, s.scratch())
	w.stretch = wasmbin.AppendOpX(w.stretch, wasmbin.OpLocalTee, n)
	if b, long := w.r.bulkOf(in); long {
		w.flush()
		w.bulk(w.r, b, n)
	} else {
		w.copy(in)
		w.flush()
	}
	w.chargeSize(s, n)
}

// copy adds the instruction as it is, but for functions that have moved.
func (w *walker) copy(in *wasmbin.Instr) {
	w.stretch = w.r.appendMoved(w.stretch, w.code, in)
}

// flush ends the current stretch.
func (w *walker) flush() {
	if w.cost != 0 {
		w.charge(w.cost)
	}
	if w.check {
		w.checkpoint()
	}
	w.out = append(w.out, w.stretch...)
	w.stretch, w.cost, w.check = w.stretch[:0], 0, false
}
