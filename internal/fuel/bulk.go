package fuel

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

const (
	// chunk is how many bytes a fill, copy or init moves between two checks of the
	// counter. It is a multiple of what a unit pays for.
	chunk = 64 << 10
	// bulkSlice is how much of a slice is used when a long one refills it, in
	// units: 512 KiB. A whole slice pays for 6 MiB, which takes ten milliseconds and
	// more where each page of them is touched for the first time.
	bulkSlice = 8192
	// maxEntries is how many entries the tables of a module may have together.
	maxEntries = 1 << 20
)

// limitTables bounds the tables: what an instruction can do to one without a
// check of the counter, and the host's memory, which the limit on the guest's
// memory does not cover. Tables that would be larger are refused, and those that
// could grow larger get a maximum.
func (r *rewriter) limitTables() error {
	m := r.m
	left := int64(maxEntries)
	for _, t := range m.Tables {
		left -= int64(t.Limits.Min)
	}
	if left < 0 {
		return &wasmbin.Error{Err: wasmbin.ErrUnsupported, Section: "table", Detail: fmt.Sprintf("tables of more than %d entries", maxEntries)}
	}

	for i := range m.Tables {
		l := &m.Tables[i].Limits
		most := l.Min + uint32(left)/uint32(len(m.Tables))
		if !l.HasMax || l.Max > most {
			l.HasMax, l.Max = true, most
		}
	}

	return nil
}

// entries returns how many entries the tables can have together.
func (r *rewriter) entries() int {
	n := 0
	for _, t := range r.m.Tables {
		if r.grown {
			n += int(t.Limits.Max)
		} else {
			n += int(t.Limits.Min)
		}
	}
	return n
}

// bulk is an operator that moves memory: memory.fill, memory.copy, or memory.init
// of one data segment.
type bulk struct {
	op      wasmbin.Op
	segment uint32
}

// bulkOf returns the operator that an instruction executes, and whether it can move
// more than a chunk.
func (r *rewriter) bulkOf(in *wasmbin.Instr) (bulk, bool) {
	switch in.Op {
	case wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy:
		return bulk{op: in.Op}, true
	case wasmbin.OpMemoryInit:
		return bulk{in.Op, in.X}, uint64(in.X) < uint64(len(r.m.Data)) && len(r.m.Data[in.X].Init) > chunk
	}
	return bulk{}, false
}

// noteBulk notes that the code has an instruction that needs a function of addBulks.
func (r *rewriter) noteBulk(in *wasmbin.Instr) {
	b, long := r.bulkOf(in)
	if _, known := r.bulkIndex[b]; long && !known {
		r.bulkIndex[b] = uint32(len(r.bulks))
		r.bulks = append(r.bulks, b)
	}
}

// bulk writes an operator whose length is in local n and on the stack: a long one is
// done by a function that checks the counter every chunk. It pays for itself there,
// and leaves nothing to charge.
func (e *emitter) bulk(r *rewriter, b bulk, n uint32) {
	e.get(n).i32(chunk).op(wasmbin.OpI32GtU).op(wasmbin.OpIf)
	e.out = wasmbin.AppendS64(e.out, int64(r.types))
	e.release()
	e.opX(wasmbin.OpCall, r.bulkFunc(b))
	e.hold()
	e.i32(0).set(n)
	e.op(wasmbin.OpElse).bulkOp(b).end()
}

func (e *emitter) bulkOp(b bulk) *emitter {
	e.op(b.op)
	switch b.op {
	case wasmbin.OpMemoryFill:
		e.out = append(e.out, 0)
	case wasmbin.OpMemoryCopy:
		e.out = append(e.out, 0, 0)
	case wasmbin.OpMemoryInit:
		e.out = append(wasmbin.AppendU32(e.out, b.segment), 0)
	}
	return e
}

// addBulks adds the functions for long operators. Their parameters are those of the
// operator; 0 is the destination, 1 the value or source, 2 the length.
func (r *rewriter) addBulks() {
	for _, b := range r.bulks {
		e := r.emitter(128)
		e.trapIfOutside(r, b)

		e.block(wasmbin.OpLoop)
		e.nextChunk(b)
		e.getCounter().i64(chunk >> bytesShift).op(wasmbin.OpI64Sub).setCounter()
		e.refillEarly()
		e.get(2).i32(chunk).op(wasmbin.OpI32GtU).opX(wasmbin.OpBrIf, 0)
		e.end()

		e.get(0).get(1).get(2).bulkOp(b)
		e.chargeSize(size{right: bytesShift}, 2)
		r.addFunction(uint32(r.types), e.end())
	}
}

// refillEarly asks for more once bulkSlice is used, or the budget ends.
func (e *emitter) refillEarly() {
	e.getCounter().i64(Slice - bulkSlice).op(wasmbin.OpI64LtS)
	e.block(wasmbin.OpIf).refill().end()
}

// trapIfOutside runs the operator as it is if it is out of bounds: it traps before it
// has changed anything. The first chunk of a segment that was dropped traps too.
func (e *emitter) trapIfOutside(r *rewriter, b bulk) {
	memory := func() {
		e.op(wasmbin.OpMemorySize)
		e.out = append(e.out, 0)
		e.op(wasmbin.OpI64ExtendI32U).i64(16).op(wasmbin.OpI64Shl)
	}
	within := func(start uint32, size func()) {
		e.get(start).op(wasmbin.OpI64ExtendI32U)
		e.get(2).op(wasmbin.OpI64ExtendI32U)
		e.op(wasmbin.OpI64Add)
		size()
		e.op(wasmbin.OpI64GtU)
		e.block(wasmbin.OpIf).get(0).get(1).get(2).bulkOp(b).end()
	}

	within(0, memory)
	switch b.op {
	case wasmbin.OpMemoryCopy:
		within(1, memory)
	case wasmbin.OpMemoryInit:
		within(1, func() { e.i64(int64(len(r.m.Data[b.segment].Init))) })
	}
}

// nextChunk moves one chunk. Fills and inits go up; so does a copy to lower addresses,
// while one to higher addresses goes down, as the parts may overlap.
func (e *emitter) nextChunk(b bulk) {
	shorten := func() { e.get(2).i32(chunk).op(wasmbin.OpI32Sub).set(2) }
	advance := func(i uint32) { e.get(i).i32(chunk).op(wasmbin.OpI32Add).set(i) }
	up := func() {
		e.get(0).get(1).i32(chunk).bulkOp(b)
		advance(0)
		if b.op != wasmbin.OpMemoryFill {
			advance(1)
		}
		shorten()
	}
	if b.op != wasmbin.OpMemoryCopy {
		up()
		return
	}

	e.get(0).get(1).op(wasmbin.OpI32LeU).block(wasmbin.OpIf)
	up()
	e.op(wasmbin.OpElse)
	shorten()
	for i := range uint32(2) {
		e.get(i).get(2).op(wasmbin.OpI32Add)
	}
	e.i32(chunk).bulkOp(b).end()
}
