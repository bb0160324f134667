package wasmbin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

const header = "\x00asm\x01\x00\x00\x00"

// Limits that keep the decoded module within a few times the size of its binary. No
// compiler comes near them; maxEntries is from the JavaScript embedding.
const (
	maxCustoms = 10_000
	maxEntries = 1_000_000 // entries of a section
	maxSize    = 1 << 30   // bytes of a binary
	maxU32     = 5         // bytes of a number of 32 bits
)

// Parse decodes a module. Its error is an [*Error] that wraps [ErrMalformed] or
// [ErrUnsupported].
//
// The module keeps views into wasm, which must not change while it is in use. Function
// bodies are not decoded; use a [Reader].
func Parse(wasm []byte) (*Module, error) {
	p := parser{size: len(wasm), window: wasm}
	return p.parse()
}

// Scan decodes a module of size bytes without its bulk: Elements, Codes and Data stay empty,
// and Customs contains only the named sections. Scan accepts every module that [Parse] accepts,
// and some with errors in the parts it skips. The error is the one that Parse would return, or
// an error from reading the file.
func Scan(file io.ReaderAt, size int64, customs ...string) (*Module, error) {
	if size > maxSize {
		return nil, &Error{Err: ErrUnsupported, Detail: fmt.Sprintf("a binary of more than %d bytes", maxSize)}
	}
	p := parser{size: int(size), file: file, wanted: customs}
	return p.parse()
}

// Sections yields the raw sections of a binary in order, beginning with the header. Custom
// sections come with their names. If a section does not parse, it is the last one, and contains
// the rest of the binary.
func Sections(wasm []byte) iter.Seq2[string, []byte] {
	return func(yield func(custom string, section []byte) bool) {
		at := min(len(header), len(wasm))
		if !yield("", wasm[:at]) {
			return
		}

		for at < len(wasm) {
			c := cursor{b: wasm, pos: at}
			id := c.byte("section id")
			size := int(c.u32("section size"))
			end := len(wasm)
			if c.err == nil && size <= c.left() {
				end = c.pos + size
			}
			custom := ""
			if n := int(c.u32("custom section name")); id == secCustom && c.err == nil && n <= end-c.pos {
				custom = string(wasm[c.pos : c.pos+n])
			}
			if !yield(custom, wasm[at:end]) {
				return
			}
			at = end
		}
	}
}

// parser fills a module section by section, from a binary in memory or a file.
type parser struct {
	size   int
	file   io.ReaderAt // nil if the window is all of the binary
	start  int         // start of the window
	window []byte      // never changed, so that views into it stay as they are
	wanted []string    // custom sections, if there is a file

	m             Module
	exports       map[string]bool
	rank, customs int
	last          byte   // id of the section before, custom ones aside
	codes, data   uint32 // number of entries in these sections
}

// windowSize is how much of a file is read at a time. The head of most modules,
// up to their code, is smaller.
const windowSize = 8 << 10

// bytes returns n bytes of the binary from pos, fewer where it ends. Its error
// is that of the file.
func (p *parser) bytes(pos, n int) ([]byte, error) {
	n = min(n, p.size-pos)
	if pos >= p.start && pos+n <= p.start+len(p.window) {
		at := pos - p.start
		return p.window[at : at+n : at+n], nil
	}

	window := make([]byte, min(max(n, windowSize), p.size-pos))
	read, err := p.file.ReadAt(window, int64(pos))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if read < len(window) {
		return nil, &Error{Err: ErrMalformed, Offset: pos + read, Detail: "the file ends before its size: is it being written?", cause: ErrTruncated}
	}

	p.start, p.window = pos, window
	return window[:n:n], nil
}

func (p *parser) parse() (*Module, error) {
	p.exports = make(map[string]bool)
	head, err := p.bytes(0, 512)
	if err == nil {
		err = checkHeader(head)
	}
	for pos := len(header); err == nil && pos < p.size; {
		pos, err = p.section(pos)
	}

	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, err
	}
	return &p.m, nil
}

// section reads the section at pos and returns where the next one is.
func (p *parser) section(pos int) (int, error) {
	b, err := p.bytes(pos, 1+maxU32)
	if err != nil {
		return 0, err
	}

	c := cursor{b: b, base: pos, section: "custom"}
	id, rank := c.byte("section id"), -1
	if id != secCustom {
		rank = slices.IndexFunc(sections[:], func(s sectionKind) bool { return s.id == id })
		switch {
		case rank >= 0:
			c.section = sections[rank].name
		default:
			c.malformed(0, "unknown section id %d", id)
		}
	}

	size := int(c.u32("section size"))
	start := pos + c.pos
	if c.err == nil && size > p.size-start {
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
		return start + size, p.custom(start, size)
	}

	if rank < p.rank {
		c.malformed(0, "section out of order or repeated")
		return 0, c.err
	}
	p.rank, p.last = rank+1, id
	return start + size, p.entries(&sections[rank], start, size)
}

// entries reads the entries of a section, or only their number if that is enough.
func (p *parser) entries(s *sectionKind, start, size int) error {
	skip := s.bulk && p.file != nil
	want := size
	if skip {
		want = min(size, maxU32)
	}
	b, err := p.bytes(start, want)
	if err != nil {
		return err
	}

	c := codec{in: cursor{b: b, base: start, section: s.name, exceptions: true}, m: &p.m, exports: p.exports}
	count := c.in
	switch n := count.u32("number of entries"); s.id {
	case secCode:
		p.codes = n
	case secData:
		p.data = n
	}
	if skip {
		c.in.err = count.err
	} else {
		s.entries(&c, &p.m)
		c.in.complete()
	}
	return c.in.result()
}

// custom reads a custom section, or as much as shows that it is not wanted.
func (p *parser) custom(start, size int) error {
	b, err := p.bytes(start, min(size, windowSize))
	if err != nil {
		return err
	}

	c := codec{in: cursor{b: b, base: start, section: "custom"}}
	if p.file != nil {
		head := c.in
		n := int(head.u32("custom section name"))
		if head.err == nil && n > size-head.pos {
			head.malformed(0, "custom section name: count %d is more than the %d bytes left can hold", n, size-head.pos)
		}
		if head.err != nil || n > head.left() || !slices.Contains(p.wanted, string(head.b[head.pos:head.pos+n])) {
			return head.result()
		}
	}

	if c.in.b, err = p.bytes(start, size); err != nil {
		return err
	}
	s := Custom{after: p.last}
	c.custom(&s)
	p.m.Customs = append(p.m.Customs, s)
	return c.in.result()
}

// IsComponent reports whether a binary begins like a component.
func IsComponent(wasm []byte) bool {
	return bytes.HasPrefix(wasm, []byte("\x00asm")) && len(wasm) >= 8 && wasm[6] == 1
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
	case IsComponent(wasm):
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
	if bytes.IndexByte(wasm[:min(len(wasm), 512)], 0) < 0 {
		return refuse(ErrMalformed, "this is a text file, not a WebAssembly binary")
	}

	for _, magic := range []string{"\x7fELF", "\xcf\xfa\xed\xfe", "MZ"} { // ELF, Mach-O, PE
		if bytes.HasPrefix(wasm, []byte(magic)) {
			return refuse(ErrMalformed, "this is a native program, not a WebAssembly binary: build it for wasm32-wasip1, in Go with GOOS=wasip1 GOARCH=wasm")
		}
	}

	return refuse(ErrMalformed, `not a WebAssembly binary: it does not start with "\0asm"`)
}

// finish checks what must hold between sections.
func (p *parser) finish() error {
	m := &p.m
	fail := func(reason error, section, detail string) error {
		return &Error{Err: reason, Section: section, Detail: detail}
	}
	if uint64(len(m.Functions)) != uint64(p.codes) {
		return fail(ErrMalformed, "code", "number of functions and of bodies differ")
	}
	if m.DataCount != nil && *m.DataCount != p.data {
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
		if len(m.Types[m.Functions[i]].Params)+code.NumLocals() > MaxLocals {
			return &Error{Err: ErrUnsupported, Section: "code", Offset: code.Offset, Detail: fmt.Sprintf("a function has more than %d locals", MaxLocals)}
		}
	}

	return nil
}
