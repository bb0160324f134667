package wasmbin

import (
	"bytes"
	"fmt"
	"io"
	"slices"
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

// Limits that keep the decoded module within some times the size of its binary. No
// compiler comes near them; maxEntries is from the JavaScript embedding.
const (
	maxCustoms = 10_000
	maxEntries = 1_000_000 // of a section
	maxSize    = 1 << 30   // bytes of a binary
	maxU32     = 5         // bytes of a number of 32 bits
)

// Parse decodes a module. Its error is an [*Error] that wraps [ErrMalformed] or
// [ErrUnsupported].
//
// The module keeps views into wasm, which must not change while it is in use. Function
// bodies are not decoded; use a [Reader].
func Parse(wasm []byte) (*Module, error) {
	p := &parser{m: &Module{}, names: make(map[string]bool), bodies: true}
	return p.parse(&source{size: len(wasm), window: wasm})
}

// Scan decodes a module of size bytes without its bulk: Elements, Codes and Data stay
// empty, and Customs has only the named sections. Scan accepts every module that
// [Parse] accepts, and some with errors in the parts it skips. The error is that of
// Parse, or of the file.
func Scan(file io.ReaderAt, size int64, customs ...string) (*Module, error) {
	if size > maxSize {
		return nil, &Error{Err: ErrUnsupported, Detail: fmt.Sprintf("a binary of more than %d bytes", maxSize)}
	}
	p := &parser{m: &Module{}, names: make(map[string]bool), wanted: customs}
	return p.parse(&source{size: int(size), file: file})
}

// parse reads section after section.
func (p *parser) parse(src *source) (*Module, error) {
	head, err := src.bytes(0, 512)
	if err == nil {
		err = checkHeader(head)
	}
	for pos := len(header); err == nil && pos < src.size; {
		pos, err = p.next(src, pos)
	}

	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, err
	}

	return p.m, nil
}

// next reads the section at pos and returns where the next one is.
func (p *parser) next(src *source, pos int) (int, error) {
	b, err := src.bytes(pos, 1+maxU32)
	if err != nil {
		return 0, err
	}

	c := &cursor{b: b, base: pos}
	id := c.byte("section id")
	if int(id) >= len(sectionNames) {
		c.malformed(0, "byte %#x: unknown section id %d", pos, id)
		return 0, c.err
	}

	c.section = sectionNames[id]
	size := int(c.u32("section size"))
	start := pos + c.pos
	if c.err == nil && size > src.size-start {
		c.truncated("section")
	}

	if c.err != nil {
		if c.err.cause == ErrTruncated {
			c.err.Detail += "; is the file cut off?"
		}
		return 0, c.err
	}

	if id == secCustom {
		if p.customs++; p.customs > maxCustoms {
			c.fail(ErrUnsupported, 0, "more than %d custom sections", maxCustoms)
			return 0, c.err
		}
	} else {
		if sectionRank[id] <= p.rank {
			c.malformed(0, "section out of order or repeated")
			return 0, c.err
		}
		p.rank, p.last = sectionRank[id], id
	}

	return start + size, p.content(src, id, start, size)
}

// content reads as much of a section as is asked for.
func (p *parser) content(src *source, id byte, start, size int) error {
	want := size
	bulk := id == secElement || id == secCode || id == secData
	switch {
	case p.bodies:
	case bulk:
		want = maxU32
	case id == secCustom:
		name, err := p.customName(src, start, size)
		if err != nil || !slices.Contains(p.wanted, name) {
			return err
		}
	}

	b, err := src.bytes(start, min(want, size))
	if err != nil {
		return err
	}

	c := &cursor{base: start, section: sectionNames[id], b: b}
	if bulk && !p.bodies {
		p.skipped(id, c)
	} else {
		p.section(id, c)
		if c.err == nil && c.left() > 0 {
			c.malformed(c.pos, "%d bytes more than the section's content", c.left())
		}
	}

	if c.err != nil {
		return c.err
	}

	return nil
}

// customName returns the name of a custom section, or enough of it to see that it is
// not wanted.
func (p *parser) customName(src *source, start, size int) (string, error) {
	longest := 0
	for _, name := range p.wanted {
		longest = max(longest, len(name))
	}

	b, err := src.bytes(start, min(size, maxU32+longest+1))
	if err != nil {
		return "", err
	}

	c := &cursor{base: start, section: sectionNames[secCustom], b: b}
	length := c.u32("custom section name")
	if c.err == nil && int64(length) > int64(size-c.pos) {
		c.malformed(0, "custom section name: count %d is more than the %d bytes left can hold", length, size-c.pos)
	}
	if c.err != nil {
		return "", c.err
	}

	return string(c.b[c.pos:min(len(c.b), c.pos+int(length))]), nil
}

// skipped counts the entries of a section that is not read.
func (p *parser) skipped(id byte, c *cursor) {
	switch n := c.u32("number of entries"); id {
	case secCode:
		p.codes = int64(n)
	case secData:
		p.data = int64(n)
	}
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
		return &Error{Err: ErrMalformed, Detail: "the file ends within its first 8 bytes; is it cut off?", cause: ErrTruncated}
	}

	head := bytes.TrimLeft(wasm[:min(len(wasm), 512)], " \t\r\n")
	if bytes.HasPrefix(head, []byte("(module")) || bytes.HasPrefix(head, []byte(";;")) {
		return refuse(ErrMalformed, "this is WebAssembly text; translate it with wat2wasm first")
	}
	if isText(wasm[:min(len(wasm), 512)]) {
		return refuse(ErrMalformed, "this is a text file, not a WebAssembly binary")
	}

	return refuse(ErrMalformed, `not a WebAssembly binary: it does not start with "\0asm"`)
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
	m      *Module
	names  map[string]bool // export names seen
	bodies bool            // read everything; else not the bulk, and only the custom sections that are wanted
	wanted []string

	rank, customs int
	last          byte  // id of the section before, custom ones aside
	codes, data   int64 // entries of the sections
}

func (p *parser) section(id byte, c *cursor) {
	m := p.m
	switch id {
	case secCustom:
		name := c.name("custom section name")
		m.Customs = append(m.Customs, Custom{Name: name, Data: c.bytes(c.left(), name), after: p.last})
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
		p.codes = int64(len(m.Codes))
	case secData:
		repeat(c, 2, func() { m.Data = append(m.Data, data(c)) })
		p.data = int64(len(m.Data))
	}
}

// repeat reads a vector whose entries take at least min bytes each.
func repeat(c *cursor, min int, entry func()) {
	at := c.pos
	n := c.count(min, "number of entries")
	if n > maxEntries {
		c.fail(ErrUnsupported, at, "%d entries, more than %d", n, maxEntries)
	}
	for ; n > 0 && c.err == nil; n-- {
		entry()
	}
}

// finish checks what holds between sections.
func (p *parser) finish() error {
	m := p.m
	fail := func(reason error, section, detail string) error {
		return &Error{Err: reason, Section: section, Detail: detail}
	}
	if int64(len(m.Functions)) != p.codes {
		return fail(ErrMalformed, "code", "number of functions and of bodies differ")
	}
	if m.DataCount != nil && int64(*m.DataCount) != p.data {
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
