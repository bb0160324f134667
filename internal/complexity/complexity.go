// Package complexity refuses small WebAssembly modules that would take a compiler
// minutes or gigabytes.
//
// wazero's compiler takes more than linear time, or recurses, in the depth of the tree
// of blocks, in the branches that meet in one place, and in the values that live across
// many blocks. [Check] counts these quantities in one linear pass over the code. The
// bounds are several times the largest counts in real programs.
//
// The counts and the bounds are for wazero 1.12. docs/complexity.md has the
// measurements.
package complexity

import (
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Version changes with the bounds and the counts: a module that was refused under one
// version may pass under another.
const Version = 1

// ErrTooComplex is matched by every [*Error].
var ErrTooComplex = errors.New("too complex to compile")

// Error says which function is too complex to compile, and why.
type Error struct {
	Function uint32 // index of the function, imports included
	Name     string // of the function in the name section, chosen by the module's author
	Module   bool   // the error is about all functions together, and Function is unset
	What     string // the quantity
	Found    uint64
	Most     uint64
}

// Error names the function and the quantity, and says what to do.
func (e *Error) Error() string {
	if e.Module {
		return fmt.Sprintf("%v: %d %s in all functions together, at most %d: leave out what is not used, or split the plugin",
			ErrTooComplex, e.Found, e.What, e.Most)
	}

	name := ""
	if runes := []rune(e.Name); len(runes) > maxName {
		name = fmt.Sprintf(" %q", string(runes[:maxName])+"…")
	} else if e.Name != "" {
		name = fmt.Sprintf(" %q", e.Name)
	}
	return fmt.Sprintf("function %d%s: %v: %d %s, at most %d: split the function, or build with optimization (-O2)",
		e.Function, name, ErrTooComplex, e.Found, e.What, e.Most)
}

// Unwrap returns [ErrTooComplex].
func (e *Error) Unwrap() error { return ErrTooComplex }

const (
	maxName   = 60       // characters of a function's name in a message
	maxLocals = 16 << 20 // of all functions of a module

	// How long it may take to compile by estimate, in processor time: some seconds
	// for each function that is out of the ordinary, and what a large program takes.
	estimateBase    = 10 * time.Second
	estimatePerByte = 5 * time.Microsecond // of code
	maxEstimate     = 2 * time.Minute
)

// Check returns an [*Error] for the first function of a module that exceeds a bound,
// or for all functions together. The module must be decoded by wasmbin, and be the one
// that the compiler will get. An invalid module may pass: the compiler refuses it.
func Check(m *wasmbin.Module) error {
	locals, size := uint64(0), 0
	for i := range m.Codes {
		size += len(m.Codes[i].Body)
		for _, g := range m.Codes[i].Locals {
			locals += uint64(g.Count)
		}
	}
	if locals > maxLocals {
		return &Error{Module: true, What: "locals", Found: locals, Most: maxLocals}
	}

	most := min(estimateBase+time.Duration(size)*estimatePerByte, maxEstimate)
	c, total := newCounter(m), newEstimate(m)
	if e := total.check(most); e != nil {
		return e
	}

	for i := range m.Codes {
		f := c.function(i)
		if e := f.check(total.mutable); e != nil {
			e.Function = uint32(len(c.imports) + i)
			if names, ok := m.Custom("name"); ok {
				e.Name = wasmbin.FuncName(names, e.Function)
			}
			return e
		}

		total.add(f)
		if e := total.check(most); e != nil {
			return e
		}
	}

	return nil
}

// check compares the counts of a function with the bounds. What the largest
// functions of real programs have is in docs/complexity.md.
func (f *counts) check(globals uint64) *Error {
	for _, b := range [...]struct {
		what        string
		found, most uint64
	}{
		{"bytes of code", f.size, 3 << 20},
		{"blocks", f.blocks, 200_000},
		{"loops within each other", f.loops, 200},
		{"steps from its blocks to the entry", f.depth, 100_000_000},
		{"steps between branches that meet", f.preds, 2_000_000_000},
		{"steps from its locals to where they are set", f.walk, 20_000_000},
		{"values across its blocks", f.live, 24_000_000},
		{"values where its branches meet", f.meets, 3_000_000},
		{"steps between values that meet", f.phis, 5_000_000_000},
		{"addresses across its blocks", f.access, 200_000_000},
		{"calls, and values passed to blocks and functions", f.values, 256 << 10},
		{"loads of globals after calls", f.calls * globals, 4_000_000},
		{"divisions, conversions and instructions for memory and tables", f.traps, 100_000},
	} {
		if b.found > b.most {
			return &Error{What: b.what, Found: b.found, Most: b.most}
		}
	}

	return nil
}

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
