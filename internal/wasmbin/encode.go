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
func AppendValType(b []byte, t ValType) []byte {
	return append(b, byte(t))
}

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
	e := &encoder{m: m}
	e.out = append(make([]byte, 0, e.size()), header...)
	e.customs(0)
	for _, id := range [...]byte{secType, secImport, secFunction, secTable, secMemory, secTag, secGlobal,
		secExport, secStart, secElement, secDataCount, secCode, secData} {
		if n := e.entries(id); n > 0 {
			e.section(id, n)
		}
		e.customs(id)
	}
	return e.out
}

type encoder struct {
	m    *Module
	out  []byte
	body []byte
}

// size is a guess of the size of the binary that is rarely too small.
func (e *encoder) size() int {
	n := 64 * 1024
	for i := range e.m.Codes {
		n += len(e.m.Codes[i].Body) + 16
	}
	for i := range e.m.Data {
		n += len(e.m.Data[i].Init) + 16
	}
	return n
}

func (e *encoder) customs(after byte) {
	for _, c := range e.m.Customs {
		if c.after == after {
			e.out = appendSection(e.out, secCustom, append(appendName(nil, c.Name), c.Data...))
		}
	}
}

func (e *encoder) entries(id byte) int {
	m := e.m
	switch id {
	case secType:
		return len(m.Types)
	case secImport:
		return len(m.Imports)
	case secFunction:
		return len(m.Functions)
	case secTable:
		return len(m.Tables)
	case secMemory:
		return len(m.Memories)
	case secTag:
		return len(m.Tags)
	case secGlobal:
		return len(m.Globals)
	case secExport:
		return len(m.Exports)
	case secElement:
		return len(m.Elements)
	case secCode:
		return len(m.Codes)
	case secData:
		return len(m.Data)
	case secStart:
		if m.Start != nil {
			return 1
		}
	case secDataCount:
		if m.DataCount != nil {
			return 1
		}
	}

	return 0
}

func (e *encoder) section(id byte, n int) {
	m, b := e.m, e.body[:0]
	if id != secStart && id != secDataCount {
		b = AppendU32(b, uint32(n))
	}
	switch id {
	case secType:
		b = e.types(b)
	case secImport:
		for i := range m.Imports {
			b = appendImport(b, &m.Imports[i])
		}
	case secFunction:
		for _, t := range m.Functions {
			b = AppendU32(b, t)
		}
	case secTable:
		for i := range m.Tables {
			b = appendTableType(b, m.Tables[i].TableType)
		}
	case secMemory:
		b = appendLimits(b, m.Memories[0])
	case secTag:
		for _, t := range m.Tags {
			b = AppendU32(append(b, 0), t)
		}
	case secGlobal:
		for _, g := range m.Globals {
			b = append(appendGlobalType(b, g.GlobalType), g.Init...)
		}
	case secExport:
		for _, x := range m.Exports {
			b = AppendU32(append(appendName(b, x.Name), byte(x.Kind)), x.Index)
		}
	case secStart:
		b = AppendU32(b, *m.Start)
	case secElement:
		for i := range m.Elements {
			b = appendElement(b, &m.Elements[i])
		}
	case secDataCount:
		b = AppendU32(b, *m.DataCount)
	case secCode:
		for i := range m.Codes {
			b = appendCode(b, &m.Codes[i])
		}
	case secData:
		for i := range m.Data {
			b = appendData(b, &m.Data[i])
		}
	}

	e.out = appendSection(e.out, id, b)
	e.body = b
}

func (e *encoder) types(b []byte) []byte {
	for _, t := range e.m.Types {
		b = append(b, 0x60)
		for _, ts := range [2][]ValType{t.Params, t.Results} {
			b = AppendU32(b, uint32(len(ts)))
			for _, v := range ts {
				b = AppendValType(b, v)
			}
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
		b = appendLimits(b, i.Memory)
	case KindGlobal:
		b = appendGlobalType(b, i.Global)
	}

	return b
}

func appendLimits(b []byte, l Limits) []byte {
	if !l.HasMax {
		return AppendU32(append(b, 0), l.Min)
	}
	return AppendU32(AppendU32(append(b, 1), l.Min), l.Max)
}

func appendTableType(b []byte, t TableType) []byte {
	return appendLimits(AppendValType(b, t.Elem), t.Limits)
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
	if e.Mode != Active {
		flags |= 1
	}
	if explicit {
		flags |= 2
	}
	if exprs {
		flags |= 4
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
	if exprs {
		b = AppendU32(b, uint32(len(e.Exprs)))
		for _, x := range e.Exprs {
			b = append(b, x...)
		}
		return b
	}

	b = AppendU32(b, uint32(len(e.Funcs)))
	for _, f := range e.Funcs {
		b = AppendU32(b, f)
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
