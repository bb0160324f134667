package compiler

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Overhead counts the parts of a module's instance other than its memory.
type Overhead struct{ imports, tables, entries, globals, elements, segments, data, constants, values, exports int }

// CountOverhead counts the overhead of a module that has not been rewritten.
func CountOverhead(m *wasmbin.Module) Overhead {
	o := Overhead{
		imports: len(m.Imports), tables: len(m.Tables), globals: len(m.Globals),
		segments: len(m.Elements) + len(m.Data), data: len(m.Data),
	}

	for _, t := range m.Tables {
		o.entries += int(t.Limits.Min)
	}
	for _, g := range m.Globals {
		o.constants += len(g.Init)
	}
	for _, e := range m.Elements {
		o.elements += 1 + len(e.Funcs) + len(e.Exprs)
		o.constants += len(e.Offset)
		for _, x := range e.Exprs {
			o.constants += len(x)
		}
	}

	o.exports = len(m.Exports)
	for _, d := range m.Data {
		o.constants += len(d.Offset)
	}
	for i := range m.Types {
		o.values += len(m.Types[i].Params) + len(m.Types[i].Results)
	}
	return o
}

// Check returns an [*Error] if a count exceeds its limit. The runtime makes all of these
// parts for each instance, without interruption: a module at every limit takes a fifth
// of a second of processor time, most of it for its elements. Types are an exception:
// the runtime reads them once, when the host loads the module, which takes a second at
// the limit, and allocates memory that grows with the square of the number of their
// values. A program has one table entry and one element for each function whose address
// it takes: a few thousand in Go, several hundred thousand with GHC.
func (o Overhead) Check() error {
	for _, c := range []struct {
		part, what  string
		found, most int
	}{
		{"import", "functions are imported", o.imports, 1000},
		{"export", "things are exported", o.exports, 100_000},
		{"table", "tables", o.tables, 100},
		{"table", "entries are in the tables at the start", o.entries, 1 << 20},
		{"global", "globals", o.globals, 10_000},
		{"element", "segments and entries for tables", o.elements, 1 << 20},
		{"data", "segments", o.data, 100_000},
		{"module", "bytes of constant expressions", o.constants, 4 << 20},
		{"module", "parameters and results of types", o.values, 1 << 18},
	} {
		if c.found > c.most {
			return &Error{Kind: Refused, Part: c.part, Reason: fmt.Sprintf("%d %s, expected at most %d", c.found, c.what, c.most)}
		}
	}
	return nil
}

// freeOverhead is the overhead, in bytes, that does not count: any instance has some.
const freeOverhead = 16 << 10

// bytes returns the approximate heap of an instance of the rewritten module: its
// tables may grow to their maximum, and a reference takes a global and an
// element.
func (o Overhead) bytes(s *fuel.Stats) uint64 {
	globals, elements := o.globals+s.References, o.elements+s.References
	n := o.imports*48 + o.tables*112 + s.Entries*8 + globals*104 + elements*40 + o.segments*24
	if n <= freeOverhead {
		return 0
	}
	return uint64(n)
}
