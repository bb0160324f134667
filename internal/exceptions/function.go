package exceptions

import "github.com/toolhost/toolhost/internal/wasmbin"

// A part says in which part of a block the current code is.
type part byte

const (
	plain    part = iota // a block, loop or if
	body                 // body of a try or try_table
	catching             // clause of a try for one tag
	rest                 // clause of a try for all tags
)

// frame is an open block of the original function. Heights count the open blocks of the
// rewritten function, including the function itself; a label is the difference between
// two heights.
type frame struct {
	part     part
	legacy   bool            // whether the block is a try
	height   int             // height of the block that its label becomes
	handler  int             // height of the block to which a throw directly inside it branches
	outer    int             // height of the block to which a throw just outside it branches
	clauses  []wasmbin.Catch // clauses of a try_table
	saved    uint32          // local that keeps the exception that a clause has caught
	catching int             // number of open clauses around it
}

// function rewrites one function.
//
// The code of a function that may throw or catch is wrapped in two blocks. The
// function's own label becomes the inner block; the outer block ends where exceptions
// leave the function.
//
//	block $throw
//	  block $function (result …)
//	    …
//	  end
//	  return
//	end
//	zeros
func (l *lowerer) function(i int) error {
	m := l.m
	code, t := &m.Codes[i], &m.Types[m.Functions[i]]
	w := writer{lowerer: l, results: t.Results, locals: uint32(len(t.Params))}
	for _, g := range code.Locals {
		w.locals += g.Count
	}

	w.rd.Exceptions = true
	w.rd.Reset(code, l.types)
	w.out = make([]byte, 0, len(code.Body)*5/4+16)
	w.height = 1
	if l.throws[i] || catches(&w.rd) {
		w.wrapped = true
		w.block(void)
		w.block(l.blockType(nil, t.Results)...)
	}

	w.rd.Reset(code, l.types)
	w.frames = []frame{{height: w.height, handler: w.height - 1, outer: w.height - 1}}
	var in wasmbin.Instr
	for w.rd.Next(&in) {
		if err := w.instr(code, &in); err != nil {
			return err
		}
	}
	if err := w.rd.Err(); err != nil {
		return err
	}
	if len(w.frames) > 0 {
		return w.rd.Errorf(&in, "function body ends within a block")
	}

	code.Body = w.out
	if w.saves > 0 {
		if int(w.locals)+w.saves > wasmbin.MaxLocals {
			return w.rd.Errorf(&in, "catch clauses nest too deep")
		}
		code.Locals = append(code.Locals[:len(code.Locals):len(code.Locals)], wasmbin.LocalGroup{Count: uint32(w.saves), Type: wasmbin.I64})
	}
	return l.grow(len(code.Body))
}

// catches reports whether there is a try or try_table in the rest of the code.
func catches(rd *wasmbin.Reader) bool {
	var in wasmbin.Instr
	for rd.Next(&in) {
		if in.Op == wasmbin.OpTry || in.Op == wasmbin.OpTryTable {
			return true
		}
	}
	return false
}

// writer writes the new code of one function.
type writer struct {
	*lowerer
	emitter

	rd      wasmbin.Reader
	frames  []frame
	height  int
	wrapped bool
	results []wasmbin.ValType
	locals  uint32 // number of locals in the original
	saves   int    // number of locals added
}

func (w *writer) block(t ...byte) {
	w.op(wasmbin.OpBlock).raw(t...)
	w.height++
}

func (w *writer) end() {
	w.op(wasmbin.OpEnd)
	w.height--
}

// to writes a branch to the block at a height.
func (w *writer) to(op wasmbin.Op, height int) { w.opX(op, uint32(w.height-height)) }

func (w *writer) top() *frame { return &w.frames[len(w.frames)-1] }

// at returns the block with a label.
func (w *writer) at(in *wasmbin.Instr, label uint32) (*frame, error) {
	if uint64(label) >= uint64(len(w.frames)) {
		return nil, w.rd.Errorf(in, "%v: no label %d", in.Op, label)
	}
	return &w.frames[len(w.frames)-1-int(label)], nil
}

// instr writes an instruction.
func (w *writer) instr(code *wasmbin.Code, in *wasmbin.Instr) error {
	if len(w.frames) == 0 {
		return w.rd.Errorf(in, "code after the end of the function")
	}
	switch in.Op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
		if len(w.frames) >= wasmbin.MaxNesting {
			return w.rd.Errorf(in, "blocks nest deeper than %d", wasmbin.MaxNesting)
		}
		w.op(in.Op).blockTypeOf(in.Block)
		w.height++
		w.frames = append(w.frames, frame{height: w.height, handler: w.top().handler, outer: w.top().handler, catching: w.clausesOpen()})
	case wasmbin.OpEnd:
		w.close()
	case wasmbin.OpBr, wasmbin.OpBrIf:
		f, err := w.at(in, in.X)
		if err != nil {
			return err
		}
		w.to(in.Op, f.height)
	case wasmbin.OpBrTable:
		return w.table(in)
	case wasmbin.OpCall, wasmbin.OpCallIndirect:
		return w.call(code, in)
	case wasmbin.OpTry, wasmbin.OpTryTable, wasmbin.OpCatch, wasmbin.OpCatchAll, wasmbin.OpDelegate,
		wasmbin.OpThrow, wasmbin.OpRethrow, wasmbin.OpThrowRef:
		return w.exception(in)
	default:
		return w.other(code, in)
	}
	return nil
}

// other copies an instruction that has nothing to do with exceptions, except perhaps in
// its types.
func (w *writer) other(code *wasmbin.Code, in *wasmbin.Instr) error {
	limit, what := uint64(0), ""
	switch in.Op {
	case wasmbin.OpLocalGet, wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		limit, what = uint64(w.locals), "local"
	case wasmbin.OpGlobalGet, wasmbin.OpGlobalSet:
		limit, what = uint64(w.globals), "global"
	case wasmbin.OpReturnCall, wasmbin.OpRefFunc:
		limit, what = uint64(w.funcs), "function"
	case wasmbin.OpReturnCallIndirect:
		limit, what = uint64(w.types), "type"
	case wasmbin.OpRefNull:
		if in.Type == wasmbin.ExnRef {
			w.constant(wasmbin.OpI64Const, 0)
			return nil
		}
	case wasmbin.OpSelectTyped:
		w.op(in.Op).raw(1, byte(lowered(in.Type)))
		return nil
	}

	if what != "" && uint64(in.X) >= limit {
		return w.rd.Errorf(in, "%v: no %s %d", in.Op, what, in.X)
	}
	w.raw(code.Body[in.Pos:in.End]...)
	return nil
}

// blockTypeOf writes a block's type.
func (e *emitter) blockTypeOf(b wasmbin.BlockType) {
	switch {
	case b.Typed:
		e.out = wasmbin.AppendS64(e.out, int64(b.Index))
	case b.Result != 0:
		e.raw(byte(lowered(b.Result)))
	default:
		e.raw(void)
	}
}

func (w *writer) table(in *wasmbin.Instr) error {
	w.opX(in.Op, uint32(len(in.Labels)-1))
	for _, label := range in.Labels {
		f, err := w.at(in, label)
		if err != nil {
			return err
		}
		w.out = wasmbin.AppendU32(w.out, uint32(w.height-f.height))
	}
	return nil
}

// call writes a call, followed by a check if it may throw.
func (w *writer) call(code *wasmbin.Code, in *wasmbin.Instr) error {
	throws := w.wrapped
	if in.Op == wasmbin.OpCall {
		if in.X >= w.funcs {
			return w.rd.Errorf(in, "call: no function %d", in.X)
		}
		throws = in.X >= w.imported && w.throws[in.X-w.imported]
	} else if uint64(in.X) >= uint64(w.types) {
		return w.rd.Errorf(in, "call_indirect: no type %d", in.X)
	}

	w.raw(code.Body[in.Pos:in.End]...)
	if throws {
		w.opX(wasmbin.OpGlobalGet, w.tag())
		w.to(wasmbin.OpBrIf, w.top().handler)
	}
	return nil
}

// clausesOpen returns the number of open clauses around the current code.
func (w *writer) clausesOpen() int {
	f := w.top()
	if f.part == catching || f.part == rest {
		return f.catching + 1
	}
	return f.catching
}

// close writes the end of a block.
func (w *writer) close() {
	f := w.frames[len(w.frames)-1]
	switch f.part {
	case body:
		w.to(wasmbin.OpBr, f.height)
		w.end()
		for _, c := range f.clauses {
			w.clause(c)
		}
		w.to(wasmbin.OpBr, f.outer)
	case catching:
		w.to(wasmbin.OpBr, f.height)
		w.end()
		w.to(wasmbin.OpBr, f.outer)
	}
	w.end()
	w.frames = w.frames[:len(w.frames)-1]

	if len(w.frames) == 0 && w.wrapped {
		w.op(wasmbin.OpReturn)
		w.end()
		for _, t := range w.results {
			w.zero(t)
		}
		w.end()
	}
}
