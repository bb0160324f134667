package exceptions

import "github.com/toolhost/toolhost/internal/wasmbin"

// A part says which part of a block code stands in.
type part byte

const (
	plain    part = iota // a block, loop or if
	body                 // of a try or try_table
	catching             // a clause of a try for one tag
	rest                 // the clause of a try for all tags
)

// frame is an open block of the original. Heights count the open blocks of the rewritten
// function, the function itself included; a label is the difference of two.
type frame struct {
	part     part
	legacy   bool            // is a try
	height   int             // of the block that its label becomes
	handler  int             // of the block where what is thrown directly in it goes
	outer    int             // the same outside it
	clauses  []wasmbin.Catch // of try_table
	saved    uint32          // local that keeps what a clause has caught
	catching int             // open clauses around it
}

// function rewrites one function.
//
// One that may throw, or catches, is put in two blocks. The inner one is what its own
// label becomes; the outer one ends where exceptions leave it.
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

// catches reports whether there is a try or try_table in what is left to read.
func catches(rd *wasmbin.Reader) bool {
	var in wasmbin.Instr
	for rd.Next(&in) {
		if in.Op == wasmbin.OpTry || in.Op == wasmbin.OpTryTable {
			return true
		}
	}
	return false
}

// writer writes one function.
type writer struct {
	*lowerer
	emitter

	rd      wasmbin.Reader
	frames  []frame
	height  int
	wrapped bool
	results []wasmbin.ValType
	locals  uint32 // of the original
	saves   int    // locals added
}

func (w *writer) block(t ...byte) {
	w.op(wasmbin.OpBlock).raw(t...)
	w.height++
}

func (w *writer) end() {
	w.op(wasmbin.OpEnd)
	w.height--
}

// to writes a branch to the block of that height.
func (w *writer) to(op wasmbin.Op, height int) { w.opX(op, uint32(w.height-height)) }

func (w *writer) top() *frame { return &w.frames[len(w.frames)-1] }

// at is the block with that label.
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

// other copies what has nothing to do with exceptions but for its types.
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

// blockTypeOf writes the type of a block.
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

// call writes a call, and the check after it if it may throw.
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

// clausesOpen is how many clauses of tries the code stands in.
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
