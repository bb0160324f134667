package exceptions

import (
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// open writes the start of a try or try_table: the block that its label becomes, and a
// block that ends where the clauses begin.
//
//	block $label (param …) (result …)
//	  block $handler (param …)
//	    …
//	    br $label
//	  end
//	  clauses
//	end
func (w *writer) open(in *wasmbin.Instr) error {
	if len(w.frames) >= wasmbin.MaxNesting {
		return w.rd.Errorf(in, "blocks nest deeper than %d", wasmbin.MaxNesting)
	}
	outer, open := w.top().handler, w.clausesOpen()
	w.op(wasmbin.OpBlock).blockTypeOf(in.Block)
	w.height++
	label := w.height
	var params []wasmbin.ValType
	if in.Block.Typed {
		params = w.m.Types[in.Block.Index].Params
	}

	w.block(w.blockType(params, nil)...)
	f := frame{part: body, legacy: in.Op == wasmbin.OpTry, height: label, handler: w.height, outer: outer, catching: open}
	for _, c := range in.Catches {
		to, err := w.at(in, c.Label)
		if err != nil {
			return err
		}
		if !c.All() && int64(c.Tag) >= int64(len(w.m.Tags)) {
			return w.rd.Errorf(in, "try_table: no tag %d", c.Tag)
		}
		c.Label = uint32(to.height)
		f.clauses = append(f.clauses, c)
	}
	w.frames = append(w.frames, f)
	return nil
}

// clause writes a clause of a try_table. Its label is given as a height.
func (w *writer) clause(c wasmbin.Catch) {
	if !c.All() {
		w.block(void)
		w.unless(c.Tag)
		if w.hasValue(c.Tag) {
			w.opX(wasmbin.OpGlobalGet, w.value())
		}
	}
	w.opX(wasmbin.OpCall, w.take())
	if !c.Ref() {
		w.op(wasmbin.OpDrop)
	}
	w.to(wasmbin.OpBr, int(c.Label))
	if !c.All() {
		w.end()
	}
}

// unless leaves the innermost block unless the exception has this tag.
func (w *writer) unless(tag uint32) {
	w.opX(wasmbin.OpGlobalGet, w.tag()).constant(wasmbin.OpI32Const, int64(int32(tag+1))).op(wasmbin.OpI32Ne).opX(wasmbin.OpBrIf, 0)
}

// exception writes the code that replaces an exception instruction.
func (w *writer) exception(in *wasmbin.Instr) error {
	switch in.Op {
	case wasmbin.OpTry, wasmbin.OpTryTable:
		return w.open(in)
	case wasmbin.OpCatch, wasmbin.OpCatchAll:
		return w.catch(in)
	case wasmbin.OpDelegate:
		return w.delegate(in)
	case wasmbin.OpThrow:
		if int64(in.X) >= int64(len(w.m.Tags)) {
			return w.rd.Errorf(in, "throw: no tag %d", in.X)
		}
		if w.hasValue(in.X) {
			w.opX(wasmbin.OpGlobalSet, w.value())
		}
		w.constant(wasmbin.OpI32Const, int64(int32(in.X+1))).opX(wasmbin.OpGlobalSet, w.tag())
	case wasmbin.OpRethrow:
		f, err := w.at(in, in.X)
		if err != nil {
			return err
		}
		if f.part != catching && f.part != rest {
			return w.rd.Errorf(in, "rethrow: label %d is not that of a catch", in.X)
		}
		w.opX(wasmbin.OpLocalGet, f.saved).opX(wasmbin.OpCall, w.throwRef())
	case wasmbin.OpThrowRef:
		w.opX(wasmbin.OpCall, w.throwRef())
	}

	w.to(wasmbin.OpBr, w.top().handler)
	return nil
}

// catch writes the start of a try's clause.
func (w *writer) catch(in *wasmbin.Instr) error {
	f := w.top()
	all := in.Op == wasmbin.OpCatchAll
	if !f.legacy || f.part == rest {
		return w.rd.Errorf(in, "%v outside a try", in.Op)
	}
	if !all && int64(in.X) >= int64(len(w.m.Tags)) {
		return w.rd.Errorf(in, "catch: no tag %d", in.X)
	}

	w.to(wasmbin.OpBr, f.height)
	w.end()
	f.handler = f.outer
	f.saved = w.locals + uint32(f.catching)
	w.saves = max(w.saves, f.catching+1)
	if f.part = rest; !all {
		f.part = catching
		w.block(void)
		w.unless(in.X)
	}
	w.opX(wasmbin.OpCall, w.take()).opX(wasmbin.OpLocalSet, f.saved)
	if !all && w.hasValue(in.X) {
		w.opX(wasmbin.OpGlobalGet, w.value())
	}
	return nil
}

// delegate writes the end of a try that passes its exceptions to another one.
func (w *writer) delegate(in *wasmbin.Instr) error {
	f := *w.top()
	if !f.legacy || f.part != body {
		return w.rd.Errorf(in, "delegate outside a try")
	}
	w.frames = slices.Delete(w.frames, len(w.frames)-1, len(w.frames))
	to, err := w.at(in, in.X)
	if err != nil {
		return err
	}

	w.to(wasmbin.OpBr, f.height)
	w.end()
	w.to(wasmbin.OpBr, to.handler)
	w.end()
	return nil
}
