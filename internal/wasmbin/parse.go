package wasmbin

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Section ids of the format.
const (
	secCustom    = 0
	secType      = 1
	secImport    = 2
	secFunction  = 3
	secTable     = 4
	secMemory    = 5
	secGlobal    = 6
	secExport    = 7
	secStart     = 8
	secElement   = 9
	secCode      = 10
	secData      = 11
	secDataCount = 12
	secTag       = 13
)

// sectionNames are indexed by section id.
var sectionNames = [...]string{
	"custom", "type", "import", "function", "table", "memory", "global",
	"export", "start", "element", "code", "data", "data count", "tag",
}

// sectionRank is the place of each section id in the order the format asks for.
var sectionRank = [...]int{
	secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secTag: 6, secGlobal: 7,
	secExport: 8, secStart: 9, secElement: 10, secDataCount: 11, secCode: 12, secData: 13,
}

const header = "\x00asm\x01\x00\x00\x00"

// Parse decodes a module. Its error is an [*Error] that wraps [ErrMalformed] or
// [ErrUnsupported].
//
// The module keeps views into wasm, which must not change while it is used.
// Function bodies are not looked into; use a [Reader].
func Parse(wasm []byte) (*Module, error) {
	if err := checkHeader(wasm); err != nil {
		return nil, err
	}
	p := &parser{m: &Module{}, names: make(map[string]bool)}
	c := &cursor{b: wasm, pos: len(header)}
	rank, last := 0, byte(0)
	for c.left() > 0 {
		at := c.pos
		id := c.byte("section id")
		if int(id) >= len(sectionNames) {
			c.malformed(at, "byte %#x: unknown section id %d", at, id)
			break
		}
		c.section = sectionNames[id]
		size := int(c.u32("section size"))
		s := &cursor{base: c.pos, section: c.section, b: c.bytes(size, "section")}
		if c.err != nil {
			break
		}
		if id != secCustom {
			if sectionRank[id] <= rank {
				c.malformed(at, "section out of order or repeated")
				break
			}
			rank, last = sectionRank[id], id
		}
		p.section(id, last, s)
		if s.err == nil && s.left() > 0 {
			s.malformed(s.pos, "%d bytes more than the section's content", s.left())
		}
		if s.err != nil {
			return nil, s.err
		}
	}
	if c.err != nil {
		if c.err.cause == ErrTruncated {
			c.err.Detail += "; is the file cut off?"
		}
		return nil, c.err
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return p.m, nil
}

func checkHeader(wasm []byte) error {
	refuse := func(reason error, detail string) error {
		return &Error{Err: reason, Detail: detail}
	}
	switch {
	case len(wasm) == 0:
		return refuse(ErrMalformed, "the file is empty")
	case bytes.HasPrefix(wasm, []byte(header)):
		return nil
	case bytes.HasPrefix(wasm, []byte("\x00asm")) && len(wasm) >= 8 && wasm[6] == 1:
		return refuse(ErrUnsupported, "this is a component, and only core modules are accepted; "+
			"build for wasm32-wasip1 instead of wasip2, or take the core module out of it with wasm-tools")
	case bytes.HasPrefix(wasm, []byte("\x00asm")) && len(wasm) >= 8:
		return refuse(ErrUnsupported, "unknown version of the binary format; only version 1 is accepted")
	case bytes.HasPrefix([]byte(header), wasm):
		e := &Error{Err: ErrMalformed, Detail: "the file ends within its first 8 bytes; is it cut off?", cause: ErrTruncated}
		return e
	}
	head := bytes.TrimLeft(wasm[:min(len(wasm), 512)], " \t\r\n")
	if bytes.HasPrefix(head, []byte("(module")) || bytes.HasPrefix(head, []byte(";;")) {
		return refuse(ErrMalformed, "this is WebAssembly text; translate it with wat2wasm first")
	}
	if isText(wasm[:min(len(wasm), 512)]) {
		return refuse(ErrMalformed, "this is a text file and no WebAssembly binary")
	}
	return refuse(ErrMalformed, `no WebAssembly binary: it does not start with "\0asm"`)
}

// isText reports whether the start of a file looks like text.
func isText(head []byte) bool {
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		if r == utf8.RuneError && n <= 1 && utf8.FullRune(head) {
			return false
		}
		if r < ' ' && r != '\n' && r != '\r' && r != '\t' {
			return false
		}
		head = head[n:]
	}
	return true
}

// parser fills a module section by section.
type parser struct {
	m     *Module
	names map[string]bool // export names seen
}

func (p *parser) section(id, last byte, c *cursor) {
	m := p.m
	switch id {
	case secCustom:
		name := c.name("custom section name")
		m.Customs = append(m.Customs, Custom{Name: name, Data: c.bytes(c.left(), name), after: last})
	case secType:
		repeat(c, 3, func() { m.Types = append(m.Types, funcType(c)) })
	case secImport:
		repeat(c, 4, func() { m.Imports = append(m.Imports, p.importEntry(c)) })
	case secFunction:
		repeat(c, 1, func() { m.Functions = append(m.Functions, p.typeIndex(c)) })
	case secTable:
		repeat(c, 3, func() { m.Tables = append(m.Tables, Table{tableType(c)}) })
	case secMemory:
		repeat(c, 2, func() { m.Memories = append(m.Memories, memory(c)) })
	case secTag:
		repeat(c, 2, func() { m.Tags = append(m.Tags, p.tag(c)) })
	case secGlobal:
		repeat(c, 3, func() { m.Globals = append(m.Globals, Global{GlobalType: globalType(c), Init: constExpr(c)}) })
	case secExport:
		repeat(c, 3, func() { m.Exports = append(m.Exports, p.export(c)) })
	case secStart:
		f := c.u32("start function")
		m.Start = &f
	case secElement:
		repeat(c, 2, func() { m.Elements = append(m.Elements, element(c)) })
	case secDataCount:
		n := c.u32("data count")
		m.DataCount = &n
	case secCode:
		repeat(c, 3, func() { m.Codes = append(m.Codes, code(c)) })
	case secData:
		repeat(c, 2, func() { m.Data = append(m.Data, data(c)) })
	}
}

// repeat reads a vector whose entries take at least min bytes each.
func repeat(c *cursor, min int, entry func()) {
	for n := c.count(min, "number of entries"); n > 0 && c.err == nil; n-- {
		entry()
	}
}

// finish checks what holds between sections.
func (p *parser) finish() error {
	m := p.m
	fail := func(reason error, section, detail string) error {
		return &Error{Err: reason, Section: section, Detail: detail}
	}
	if len(m.Functions) != len(m.Codes) {
		return fail(ErrMalformed, "code", "number of functions and of bodies differ")
	}
	if m.DataCount != nil && int64(*m.DataCount) != int64(len(m.Data)) {
		return fail(ErrMalformed, "data count", "number of data segments differs from the data count")
	}
	if m.Count(KindMemory) > 1 {
		return fail(ErrUnsupported, "memory", "more than one memory is not supported")
	}
	var counts [KindTag + 1]int
	for k := range counts {
		counts[k] = m.Count(Kind(k))
	}
	if m.Start != nil && int64(*m.Start) >= int64(counts[KindFunc]) {
		return fail(ErrMalformed, "start", "no such function")
	}
	for _, e := range m.Exports {
		if int64(e.Index) >= int64(counts[e.Kind]) {
			return fail(ErrMalformed, "export", "export of a "+e.Kind.String()+" that does not exist")
		}
	}
	for i, code := range m.Codes {
		n := len(m.Types[m.Functions[i]].Params)
		for _, g := range code.Locals {
			n += int(g.Count)
		}
		if n > MaxLocals {
			return &Error{Err: ErrUnsupported, Section: "code", Offset: code.Offset, Detail: fmt.Sprintf("a function has more than %d locals", MaxLocals)}
		}
	}
	return nil
}
