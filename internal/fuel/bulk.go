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
// look at the counter, and the host's memory, which the limit on the guest's
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
	e.opX(wasmbin.OpLocalGet, n)
	e.i32(chunk)
	e.op(wasmbin.OpI32GtU)
	e.op(wasmbin.OpIf)
	e.out = wasmbin.AppendS64(e.out, int64(r.bulkType()))
	e.release()
	e.opX(wasmbin.OpCall, r.bulkFunc(op))
	e.hold()
	e.i32(0)
	e.opX(wasmbin.OpLocalSet, n)
	e.op(wasmbin.OpElse)
	e.bulkOp(op)
	e.op(wasmbin.OpEnd)
}

func (e *emitter) bulkOp(op wasmbin.Op) {
	e.op(op)
	if e.out = append(e.out, 0); op == wasmbin.OpMemoryCopy {
		e.out = append(e.out, 0)
	}
}

// addBulk adds the functions for long fills and copies. Their parameters are
// those of the operator; 0 is the destination, 1 the value or source, 2 the length.
func (r *rewriter) addBulk(t uint32) {
	for _, op := range [...]wasmbin.Op{wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy} {
		e := r.emitter(128)
		e.trapIfOutside(op)
		e.op(wasmbin.OpLoop)
		e.out = append(e.out, 0x40)
		e.nextChunk(op)
		e.getCounter()
		e.i64(chunk >> bytesShift)
		e.op(wasmbin.OpI64Sub)
		e.setCounter()
		e.refillEarly()
		e.opX(wasmbin.OpLocalGet, 2)
		e.i32(chunk)
		e.op(wasmbin.OpI32GtU)
		e.opX(wasmbin.OpBrIf, 0)
		e.op(wasmbin.OpEnd)
		for i := range uint32(3) {
			e.opX(wasmbin.OpLocalGet, i)
		}
		e.bulkOp(op)
		e.chargeSize(size{right: bytesShift}, 2)
		e.op(wasmbin.OpEnd)
		r.m.Functions = append(r.m.Functions, t)
		r.m.Codes = append(r.m.Codes, wasmbin.Code{Body: e.out})
	}
}

// refillEarly asks for more once bulkSlice is used, or the budget ends.
func (e *emitter) refillEarly() {
	e.getCounter()
	e.i64(Slice - bulkSlice)
	e.op(wasmbin.OpI64LtS)
	e.op(wasmbin.OpIf)
	e.out = append(e.out, 0x40)
	e.refill()
	e.op(wasmbin.OpEnd)
}

// trapIfOutside runs the operator as it is if it is out of bounds: it traps
// before it has changed anything.
func (e *emitter) trapIfOutside(op wasmbin.Op) {
	ends := []uint32{0}
	if op == wasmbin.OpMemoryCopy {
		ends = append(ends, 1)
	}
	for _, start := range ends {
		e.opX(wasmbin.OpLocalGet, start)
		e.op(wasmbin.OpI64ExtendI32U)
		e.opX(wasmbin.OpLocalGet, 2)
		e.op(wasmbin.OpI64ExtendI32U)
		e.op(wasmbin.OpI64Add)
		e.op(wasmbin.OpMemorySize)
		e.out = append(e.out, 0)
		e.op(wasmbin.OpI64ExtendI32U)
		e.i64(16)
		e.op(wasmbin.OpI64Shl)
		e.op(wasmbin.OpI64GtU)
		e.op(wasmbin.OpIf)
		e.out = append(e.out, 0x40)
		for i := range uint32(3) {
			e.opX(wasmbin.OpLocalGet, i)
		}
		e.bulkOp(op)
		e.op(wasmbin.OpEnd)
	}
}

// nextChunk moves one chunk. A fill goes up; so does a copy to lower addresses,
// while one to higher addresses goes down, as the parts may overlap.
func (e *emitter) nextChunk(op wasmbin.Op) {
	shorten := func() {
		e.opX(wasmbin.OpLocalGet, 2)
		e.i32(chunk)
		e.op(wasmbin.OpI32Sub)
		e.opX(wasmbin.OpLocalSet, 2)
	}
	advance := func(i uint32) {
		e.opX(wasmbin.OpLocalGet, i)
		e.i32(chunk)
		e.op(wasmbin.OpI32Add)
		e.opX(wasmbin.OpLocalSet, i)
	}
	up := func() {
		e.opX(wasmbin.OpLocalGet, 0)
		e.opX(wasmbin.OpLocalGet, 1)
		e.i32(chunk)
		e.bulkOp(op)
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

	e.opX(wasmbin.OpLocalGet, 0)
	e.opX(wasmbin.OpLocalGet, 1)
	e.op(wasmbin.OpI32LeU)
	e.op(wasmbin.OpIf)
	e.out = append(e.out, 0x40)
	up()
	e.op(wasmbin.OpElse)

	shorten()
	for i := range uint32(2) {
		e.opX(wasmbin.OpLocalGet, i)
		e.opX(wasmbin.OpLocalGet, 2)
		e.op(wasmbin.OpI32Add)
	}

	e.i32(chunk)
	e.bulkOp(op)
	e.op(wasmbin.OpEnd)
}
