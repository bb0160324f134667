package compiler

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Bounds of what an instance has in addition to its memory. The runtime makes all
// of it with each instance, and nothing interrupts that: a module at every bound
// takes a tenth of a second. A program made by Go has one table entry and one
// element for each of its functions, of which there are some thousands; other
// compilers make fewer.
const (
	maxImports   = 1000
	maxTables    = 100
	maxEntries   = 1 << 20 // of all tables together, at the start
	maxGlobals   = 10_000
	maxElements  = 1 << 18 // of all segments together
	maxData      = 100_000 // segments
	maxConstants = 4 << 20 // bytes of constant expressions
)

// What of it takes how many bytes of Go's heap, about.
const (
	importBytes  = 48
	tableBytes   = 112
	entryBytes   = 8
	globalBytes  = 104
	elementBytes = 40
	segmentBytes = 24
)

// Overhead counts what an instance of a module has in addition to its memory.
type Overhead struct{ imports, tables, entries, globals, elements, segments, data, constants int }

// CountOverhead counts it in a module as its author wrote it.
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
	for _, d := range m.Data {
		o.constants += len(d.Offset)
	}
	return o
}

// Check returns a [*RefusedError] if there is more of something than the bounds
// allow.
func (o Overhead) Check() error {
	for _, c := range []struct {
		part, what  string
		found, most int
	}{
		{"import", "functions are imported", o.imports, maxImports},
		{"table", "tables", o.tables, maxTables},
		{"table", "entries are in the tables at the start", o.entries, maxEntries},
		{"global", "globals", o.globals, maxGlobals},
		{"element", "segments and entries for tables", o.elements, maxElements},
		{"data", "segments", o.data, maxData},
		{"module", "bytes of constant expressions", o.constants, maxConstants},
	} {
		if c.found > c.most {
			return &RefusedError{Part: c.part, Err: fmt.Errorf("%d %s, expected at most %d", c.found, c.what, c.most)}
		}
	}
	return nil
}

// freeOverhead is how much of it is not counted: any instance has some.
const freeOverhead = 16 << 10

// bytes is what it takes in an instance of the program made of the module: its
// tables may be as large as they can grow there, and references have globals.
func (o Overhead) bytes(s *fuel.Stats) uint64 {
	n := o.imports*importBytes + o.tables*tableBytes + s.Entries*entryBytes +
		o.globals*globalBytes + s.References*(globalBytes+elementBytes) + o.elements*elementBytes + o.segments*segmentBytes
	if n <= freeOverhead {
		return 0
	}
	return uint64(n)
}
