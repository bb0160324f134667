// Package wasmbin reads and writes WebAssembly core modules: their sections and
// the instructions of their functions.
//
// It is strict and bounded. It checks every count against the remaining bytes
// before it allocates, and nothing recurses. Overlong numbers, sections longer
// than their content, and instructions that [Features] does not enable are
// errors that name the section and the byte. The runtime type-checks function
// bodies, not this package. But it sees exactly the instructions that the
// runtime will see.
//
// The format is https://www.w3.org/TR/wasm-core-2/#binary-format with [Features].
package wasmbin

import (
	"slices"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// Features is the one set of WebAssembly features of this project: what [Parse] and
// [Reader] accept, and what the runtime must be configured with
// (wazero.RuntimeConfig.WithCoreFeatures). It excludes threads, 64-bit and multiple
// memories, and garbage-collected types. It also excludes two features of wazero
// 1.12. Typed function references: wazero lets a module put null where a reference
// cannot be null. Exceptions: wazero copies the guest's whole stack on entry to each
// try_table, outside the limit of the call, and loses assignments to locals in its
// body. [Parse] reads exceptions, and internal/exceptions replaces them.
const Features = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst

// Limits of [Parse], in addition to those of the format.
const (
	// MaxLocals is the maximum number of locals of one function, including
	// parameters. It is the limit of the JavaScript embedding and of most tools.
	MaxLocals = 50_000
	// MaxNesting is the maximum depth of nested blocks in one function. Go nests one
	// block per resume point of a function, so thousands are ordinary.
	MaxNesting = 50_000
	// MaxPages is the maximum size of a memory, in pages of 64 KiB: 4 GiB.
	MaxPages = 1 << 16
	// PageSize is the size of one page of memory in bytes.
	PageSize = 1 << 16
	// maxValues bounds parameters and results of one function type.
	maxValues = 1_000
)

// A Module is a decoded core module. Index spaces start with the imports of
// their kind, as in the format.
//
// The byte slices it holds are views into the binary it was parsed from.
type Module struct {
	Types     []FuncType
	Imports   []Import
	Functions []uint32 // type index of each defined function
	Tables    []Table
	Memories  []Limits // sizes in pages; at most one memory
	Tags      []uint32 // type index of each exception tag
	Globals   []Global
	Exports   []Export
	Start     *uint32 // index of the start function, or nil
	Elements  []Element
	DataCount *uint32 // number of data segments; nil if its section is absent
	Codes     []Code  // code of each function in Functions
	Data      []Data
	Customs   []Custom
}

// Kind is the kind of an import or an export.
type Kind byte

// The kinds of imports and exports, with their values in the format.
const (
	KindFunc Kind = iota
	KindTable
	KindMemory
	KindGlobal

	KindTag // for exports only
)

// String returns the name of the kind in the text format.
func (k Kind) String() string {
	names := [...]string{"func", "table", "memory", "global", "tag"}
	if int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Import is one import. Kind selects which of the last four fields is set.
type Import struct {
	Module, Name string
	Kind         Kind
	Type         uint32     // type index, for a func
	Table        TableType  // for a table
	Memory       Limits     // for a memory
	Global       GlobalType // for a global
}

// Export is one export.
type Export struct {
	Name  string
	Kind  Kind
	Index uint32
}

// Limits is the size of a memory in pages or of a table in entries.
type Limits struct {
	Min    uint32
	Max    uint32 // maximum; valid only if HasMax
	HasMax bool
}

// TableType is the type of a table.
type TableType struct {
	Elem   ValType
	Limits Limits
}

// Table is a defined table.
type Table struct{ TableType }

// GlobalType is the type of a global.
type GlobalType struct {
	Type    ValType
	Mutable bool
}

// Global is a defined global. Init is its constant expression, end included.
type Global struct {
	GlobalType
	Init []byte
}

// SegmentMode says when an element or data segment is used.
type SegmentMode byte

// The modes of segments. Data segments are never declarative.
const (
	Active SegmentMode = iota
	Passive
	Declarative
)

// Element is an element segment. It lists either functions or expressions.
type Element struct {
	Mode     SegmentMode
	Table    uint32 // index of the table, for an active segment
	Offset   []byte // constant expression, for an active segment
	Type     ValType
	Funcs    []uint32 // indices of functions, if Exprs is nil
	Exprs    [][]byte // constant expressions, end included; nil if Funcs lists functions
	hasTable bool     // whether the binary gives the table index although it is optional
}

// Data is a data segment. Its memory is always memory 0.
type Data struct {
	Mode   SegmentMode
	Offset []byte // constant expression, for an active segment
	Init   []byte
}

// LocalGroup is a run of locals of one type.
type LocalGroup struct {
	Count uint32
	Type  ValType
}

// Code is the body of a defined function.
type Code struct {
	Locals []LocalGroup
	Body   []byte // instructions, the final end included
	Offset int    // offset of Body in the binary
}

// NumLocals returns how many locals the code declares, without the parameters.
func (c *Code) NumLocals() (n int) {
	for _, g := range c.Locals {
		n += int(g.Count)
	}
	return n
}

// Custom is a custom section.
type Custom struct {
	Name  string
	Data  []byte
	after byte // id of the section it follows, 0 at the start
}

// Custom returns the content of the first custom section of that name.
func (m *Module) Custom(name string) ([]byte, bool) {
	i := slices.IndexFunc(m.Customs, func(c Custom) bool { return c.Name == name })
	if i < 0 {
		return nil, false
	}
	return m.Customs[i].Data, true
}

// ImportCount returns the number of imports of a kind, which is the index of
// the first defined one.
func (m *Module) ImportCount(k Kind) int {
	n := 0
	for i := range m.Imports {
		if m.Imports[i].Kind == k {
			n++
		}
	}
	return n
}

// Count returns the number of functions, tables, memories or globals, including imports.
func (m *Module) Count(k Kind) int {
	defined := [...]int{
		KindFunc: len(m.Functions), KindTable: len(m.Tables), KindMemory: len(m.Memories),
		KindGlobal: len(m.Globals), KindTag: len(m.Tags),
	}
	return m.ImportCount(k) + defined[k]
}

// FuncType returns the type of the function with the given index, imports included. The second
// result is false if the module has no such function.
func (m *Module) FuncType(index uint32) (FuncType, bool) {
	i := index
	for j := range m.Imports {
		if m.Imports[j].Kind != KindFunc {
			continue
		}
		if i == 0 {
			return m.typeAt(m.Imports[j].Type)
		}
		i--
	}

	if uint64(i) >= uint64(len(m.Functions)) {
		return FuncType{}, false
	}
	return m.typeAt(m.Functions[i])
}

func (m *Module) typeAt(i uint32) (FuncType, bool) {
	if uint64(i) >= uint64(len(m.Types)) {
		return FuncType{}, false
	}
	return m.Types[i], true
}
