package fuel

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

const (
	// chunk is how many bytes a fill or copy moves between two checks of the
	// counter. It is a multiple of what a unit pays for.
	chunk = 64 << 10
	// bulkSlice is how much of a slice is used when a long fill or copy refills
	// it, in units: 512 KiB. A whole slice pays for 6 MiB, which takes ten
	// milliseconds and more where each page of them is touched for the first time.
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

// entries is how many entries the tables can have together.
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

// bulk writes a memory.fill or memory.copy whose length is in local n and on the
// stack: a long one is done by a function that checks the counter every chunk.
// It pays for itself there, and leaves nothing to charge.
func (e *emitter) bulk(r *rewriter, op wasmbin.Op, n uint32) {
	e.get(n).i32(chunk).op(wasmbin.OpI32GtU).op(wasmbin.OpIf)
	e.out = wasmbin.AppendS64(e.out, int64(r.types))
	e.release()
	e.opX(wasmbin.OpCall, r.bulkFunc(op))
	e.hold()
	e.i32(0).set(n)
	e.op(wasmbin.OpElse).bulkOp(op).end()
}

func (e *emitter) bulkOp(op wasmbin.Op) *emitter {
	e.op(op)
	if e.out = append(e.out, 0); op == wasmbin.OpMemoryCopy {
		e.out = append(e.out, 0)
	}
	return e
}

// addBulk adds the functions for long fills and copies. Their parameters are
// those of the operator; 0 is the destination, 1 the value or source, 2 the length.
func (r *rewriter) addBulk(t uint32) {
	for _, op := range [...]wasmbin.Op{wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy} {
		e := r.emitter(128)
		e.trapIfOutside(op)

		e.block(wasmbin.OpLoop)
		e.nextChunk(op)
		e.getCounter().i64(chunk >> bytesShift).op(wasmbin.OpI64Sub).setCounter()
		e.refillEarly()
		e.get(2).i32(chunk).op(wasmbin.OpI32GtU).opX(wasmbin.OpBrIf, 0)
		e.end()

		e.get(0).get(1).get(2).bulkOp(op)
		e.chargeSize(size{right: bytesShift}, 2)
		r.addFunction(t, e.end())
	}
}

// refillEarly asks for more once bulkSlice is used, or the budget ends.
func (e *emitter) refillEarly() {
	e.getCounter().i64(Slice - bulkSlice).op(wasmbin.OpI64LtS)
	e.block(wasmbin.OpIf).refill().end()
}

// trapIfOutside runs the operator as it is if it is out of bounds: it traps
// before it has changed anything.
func (e *emitter) trapIfOutside(op wasmbin.Op) {
	ends := []uint32{0}
	if op == wasmbin.OpMemoryCopy {
		ends = append(ends, 1)
	}

	for _, start := range ends {
		e.get(start).op(wasmbin.OpI64ExtendI32U)
		e.get(2).op(wasmbin.OpI64ExtendI32U)
		e.op(wasmbin.OpI64Add)
		e.op(wasmbin.OpMemorySize)
		e.out = append(e.out, 0)
		e.op(wasmbin.OpI64ExtendI32U).i64(16).op(wasmbin.OpI64Shl)
		e.op(wasmbin.OpI64GtU)
		e.block(wasmbin.OpIf).get(0).get(1).get(2).bulkOp(op).end()
	}
}

// nextChunk moves one chunk. A fill goes up; so does a copy to lower addresses,
// while one to higher addresses goes down, as the parts may overlap.
func (e *emitter) nextChunk(op wasmbin.Op) {
	shorten := func() { e.get(2).i32(chunk).op(wasmbin.OpI32Sub).set(2) }
	advance := func(i uint32) { e.get(i).i32(chunk).op(wasmbin.OpI32Add).set(i) }
	up := func() {
		e.get(0).get(1).i32(chunk).bulkOp(op)
		advance(0)
		if op == wasmbin.OpMemoryCopy {
			advance(1)
		}
		shorten()
	}
	if op == wasmbin.OpMemoryFill {
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
	e.i32(chunk).bulkOp(op).end()
}
