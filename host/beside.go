package host

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Bounds of what an instance has beside its memory. The runtime makes all of it
// with each instance, in one go that nothing interrupts, so they bound that too:
// a module at all of them takes a tenth of a second. A program made by Go has one
// entry and one element for each of its functions, which are thousands, or some
// ten thousand; other compilers make fewer.
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

// beside is what a module has beside its memory, counted.
type beside struct{ imports, tables, entries, globals, elements, segments, data, constants int }

func countBeside(m *wasmbin.Module) beside {
	b := beside{
		imports: len(m.Imports), tables: len(m.Tables), globals: len(m.Globals),
		segments: len(m.Elements) + len(m.Data), data: len(m.Data),
	}
	for _, t := range m.Tables {
		b.entries += int(t.Limits.Min)
	}
	for _, g := range m.Globals {
		b.constants += len(g.Init)
	}
	for _, e := range m.Elements {
		b.elements += 1 + len(e.Funcs) + len(e.Exprs)
		b.constants += len(e.Offset)
		for _, x := range e.Exprs {
			b.constants += len(x)
		}
	}
	for _, d := range m.Data {
		b.constants += len(d.Offset)
	}
	return b
}

// check holds it against the bounds.
func (b beside) check() error {
	for _, c := range []struct {
		part, what  string
		found, most int
	}{
		{"import", "functions are imported", b.imports, maxImports},
		{"table", "tables", b.tables, maxTables},
		{"table", "entries are in the tables at the start", b.entries, maxEntries},
		{"global", "globals", b.globals, maxGlobals},
		{"element", "segments and entries for tables", b.elements, maxElements},
		{"data", "segments", b.data, maxData},
		{"module", "bytes of constant expressions", b.constants, maxConstants},
	} {
		if c.found > c.most {
			return &ModuleError{Part: c.part, Err: fmt.Errorf("%d %s, expected at most %d", c.found, c.what, c.most)}
		}
	}
	return nil
}

// besideFree is how much of it is not counted: any instance has some.
const besideFree = 16 << 10

// bytes is what it takes in an instance of the program made of the module: its
// tables may be as large as they can grow there, and references have globals.
func (b beside) bytes(s *fuel.Stats) uint64 {
	n := b.imports*importBytes + b.tables*tableBytes + s.Entries*entryBytes +
		b.globals*globalBytes + s.References*(globalBytes+elementBytes) + b.elements*elementBytes + b.segments*segmentBytes
	if n <= besideFree {
		return 0
	}
	return uint64(n)
}
