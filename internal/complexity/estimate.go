package complexity

import (
	"time"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// estimate adds up how long the functions of a module take to compile. It is
// within some times what they do take: most of it follows from bounds on what a
// function makes the compiler do.
type estimate struct {
	sum     time.Duration
	types   uint64
	globals uint64
	mutable uint64
	largest uint64 // blocks of the functions so far
}

func newEstimate(m *wasmbin.Module) *estimate {
	e := &estimate{types: uint64(len(m.Types)), globals: uint64(len(m.Globals))}
	for i := range m.Types {
		values := len(m.Types[i].Params) + len(m.Types[i].Results)
		e.sum += 2*time.Microsecond + time.Duration(values)*1500*time.Nanosecond // code to call it
	}
	for _, g := range m.Globals {
		if g.Mutable {
			e.mutable++
		}
	}
	return e
}

// add adds a function. The weights are picoseconds, measured.
func (e *estimate) add(f counts) {
	e.largest = max(e.largest, f.blocks)
	ps := f.size*70_000 + f.blocks*5_000_000 + f.values*800_000 + f.traps*5_000_000 +
		f.depth*8_000 + f.preds*300 + f.walk*25_000 + f.live*250_000 + f.meets*1_200_000 + f.phis*800 + f.access*8_000 +
		f.calls*e.mutable*330_000 +
		e.types*14_000 + e.globals*10_000 + e.largest*2_600 // for each function
	e.sum += time.Duration(ps / 1_000)
}

func (e *estimate) check(most time.Duration) *Error {
	if e.sum <= most {
		return nil
	}
	return &Error{
		Module: true, What: "milliseconds of compiling, by estimate,",
		Found: uint64(e.sum.Milliseconds()), Most: uint64(most.Milliseconds()),
	}
}
