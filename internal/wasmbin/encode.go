package wasmbin

// AppendU32 appends v as an unsigned LEB128 number in its shortest form.
func AppendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendS64 appends v as a signed LEB128 number in its shortest form; it serves
// for 32 and 33 bits too.
func AppendS64(b []byte, v int64) []byte {
	for v < -0x40 || v > 0x3f {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

// AppendOp appends an operation without immediates.
func AppendOp(b []byte, op Op) []byte {
	if op < 0x100 {
		return append(b, byte(op))
	}
	return AppendU32(append(b, byte(op>>8)), uint32(op&0xff))
}

// AppendOpX appends an operation and one index.
func AppendOpX(b []byte, op Op, x uint32) []byte { return AppendU32(AppendOp(b, op), x) }

// AppendValType appends a value type.
func AppendValType(b []byte, t ValType) []byte { return append(b, byte(t)) }

// AppendCustom returns the binary with a custom section added at its end. The
// binary itself is not changed.
func AppendCustom(wasm []byte, name string, data []byte) []byte {
	body := append(appendName(nil, name), data...)
	out := make([]byte, 0, len(wasm)+len(body)+6)
	return appendSection(append(out, wasm...), secCustom, body)
}

func appendSection(b []byte, id byte, body []byte) []byte {
	b = AppendU32(append(b, id), uint32(len(body)))
	return append(b, body...)
}

func appendName(b []byte, s string) []byte {
	return append(AppendU32(b, uint32(len(s))), s...)
}

// Encode writes the module as a binary. Sections without entries are left out
// and numbers are written in their shortest form; decoding and encoding again
// changes nothing.
func (m *Module) Encode() []byte {
	size := 64 << 10 // a guess that is rarely too small
	for i := range m.Codes {
		size += len(m.Codes[i].Body) + 16
	}
	for i := range m.Data {
		size += len(m.Data[i].Init) + 16
	}

	out := append(make([]byte, 0, size), header...)
	out = m.appendCustoms(out, 0)
	var body []byte
	for _, section := range sectionEncoders {
		if body = section.encode(body[:0], m); len(body) > 0 {
			out = appendSection(out, section.id, body)
		}
		out = m.appendCustoms(out, section.id)
	}
	return out
}

// appendCustoms appends the custom sections that follow a section.
func (m *Module) appendCustoms(b []byte, after byte) []byte {
	for _, c := range m.Customs {
		if c.after == after {
			b = appendSection(b, secCustom, append(appendName(nil, c.Name), c.Data...))
		}
	}
	return b
}

// sectionEncoders append the content of each section, in the order of the format.
var sectionEncoders = [...]struct {
	id     byte
	encode func(b []byte, m *Module) []byte
}{
	{secType, func(b []byte, m *Module) []byte { return vector(b, m.Types, appendFuncType) }},
	{secImport, func(b []byte, m *Module) []byte { return vector(b, m.Imports, appendImport) }},
	{secFunction, func(b []byte, m *Module) []byte { return vector(b, m.Functions, appendIndex) }},
	{secTable, func(b []byte, m *Module) []byte { return vector(b, m.Tables, appendTable) }},
	{secMemory, func(b []byte, m *Module) []byte { return vector(b, m.Memories, appendLimits) }},
	{secTag, func(b []byte, m *Module) []byte { return vector(b, m.Tags, appendTag) }},
	{secGlobal, func(b []byte, m *Module) []byte { return vector(b, m.Globals, appendGlobal) }},
	{secExport, func(b []byte, m *Module) []byte { return vector(b, m.Exports, appendExport) }},
	{secStart, func(b []byte, m *Module) []byte { return optional(b, m.Start) }},
	{secElement, func(b []byte, m *Module) []byte { return vector(b, m.Elements, appendElement) }},
	{secDataCount, func(b []byte, m *Module) []byte { return optional(b, m.DataCount) }},
	{secCode, func(b []byte, m *Module) []byte { return vector(b, m.Codes, appendCode) }},
	{secData, func(b []byte, m *Module) []byte { return vector(b, m.Data, appendData) }},
}

// vector appends the number of entries and the entries, nothing if there are none.
func vector[T any](b []byte, entries []T, one func([]byte, *T) []byte) []byte {
	if len(entries) == 0 {
		return b
	}
	b = AppendU32(b, uint32(len(entries)))
	for i := range entries {
		b = one(b, &entries[i])
	}
	return b
}

func optional(b []byte, n *uint32) []byte {
	if n == nil {
		return b
	}
	return AppendU32(b, *n)
}

func appendIndex(b []byte, i *uint32) []byte { return AppendU32(b, *i) }

func appendTag(b []byte, i *uint32) []byte { return AppendU32(append(b, 0), *i) }

func appendTable(b []byte, t *Table) []byte { return appendTableType(b, t.TableType) }

func appendGlobal(b []byte, g *Global) []byte {
	return append(appendGlobalType(b, g.GlobalType), g.Init...)
}

func appendExport(b []byte, e *Export) []byte {
	return AppendU32(append(appendName(b, e.Name), byte(e.Kind)), e.Index)
}

func appendFuncType(b []byte, t *FuncType) []byte {
	b = append(b, 0x60)
	for _, types := range [2][]ValType{t.Params, t.Results} {
		b = AppendU32(b, uint32(len(types)))
		for _, v := range types {
			b = AppendValType(b, v)
		}
	}
	return b
}

func appendImport(b []byte, i *Import) []byte {
	b = append(appendName(appendName(b, i.Module), i.Name), byte(i.Kind))
	switch i.Kind {
	case KindFunc:
		b = AppendU32(b, i.Type)
	case KindTag:
		b = AppendU32(append(b, 0), i.Type)
	case KindTable:
		b = appendTableType(b, i.Table)
	case KindMemory:
		b = appendLimits(b, &i.Memory)
	case KindGlobal:
		b = appendGlobalType(b, i.Global)
	}

	return b
}

func appendLimits(b []byte, l *Limits) []byte {
	if !l.HasMax {
		return AppendU32(append(b, 0), l.Min)
	}
	return AppendU32(AppendU32(append(b, 1), l.Min), l.Max)
}

func appendTableType(b []byte, t TableType) []byte {
	return appendLimits(AppendValType(b, t.Elem), &t.Limits)
}

func appendGlobalType(b []byte, g GlobalType) []byte {
	b = AppendValType(b, g.Type)
	if g.Mutable {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendElement(b []byte, e *Element) []byte {
	exprs := e.Exprs != nil
	explicit := e.Mode == Declarative || e.Mode == Active && (e.hasTable || e.Table != 0 || exprs && e.Type != FuncRef)
	var flags byte
	for i, set := range [...]bool{e.Mode != Active, explicit, exprs} {
		if set {
			flags |= 1 << i
		}
	}

	b = append(b, flags)
	if e.Mode == Active {
		if explicit {
			b = AppendU32(b, e.Table)
		}
		b = append(b, e.Offset...)
	}

	if flags&3 != 0 {
		if exprs {
			b = AppendValType(b, e.Type)
		} else {
			b = append(b, 0)
		}
	}

	if !exprs {
		b = AppendU32(b, uint32(len(e.Funcs)))
		for _, f := range e.Funcs {
			b = AppendU32(b, f)
		}
		return b
	}

	b = AppendU32(b, uint32(len(e.Exprs)))
	for _, x := range e.Exprs {
		b = append(b, x...)
	}

	return b
}

func appendCode(b []byte, c *Code) []byte {
	var head [16]byte
	locals := AppendU32(head[:0], uint32(len(c.Locals)))
	for _, g := range c.Locals {
		locals = AppendValType(AppendU32(locals, g.Count), g.Type)
	}
	b = AppendU32(b, uint32(len(locals)+len(c.Body)))
	return append(append(b, locals...), c.Body...)
}

func appendData(b []byte, d *Data) []byte {
	if d.Mode == Passive {
		b = append(b, 1)
	} else {
		b = append(append(b, 0), d.Offset...)
	}
	return append(AppendU32(b, uint32(len(d.Init))), d.Init...)
}
