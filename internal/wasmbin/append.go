package wasmbin

// AppendU32 appends v as an unsigned LEB128 number in its shortest form.
func AppendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendS64 appends v as a signed LEB128 number in its shortest form. Use it for numbers of 32
// and 33 bits too.
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

// AppendCustom returns the binary with a custom section added at its end. The
// binary itself is not changed.
func AppendCustom(wasm []byte, name string, data []byte) []byte {
	c := writer(append(make([]byte, 0, len(wasm)+len(name)+len(data)+16), wasm...))
	c.section(secCustom, func() { c.custom(&Custom{Name: name, Data: data}) })
	return c.out
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

	c := writer(append(make([]byte, 0, size), header...))
	c.customs(m, 0)
	for i := range sections {
		s := &sections[i]
		c.section(s.id, func() { s.entries(c, m) })
		c.customs(m, s.id)
	}
	return c.out
}

func writer(out []byte) *codec { return &codec{out: out, writes: true} }

// section writes a section, unless it has no content.
func (c *codec) section(id byte, content func()) {
	start := len(c.out)
	c.out = append(c.out, id)
	c.sized("section", content)
	if len(c.out) == start+2 {
		c.out = c.out[:start]
	}
}

// customs writes the custom sections that follow a section.
func (c *codec) customs(m *Module, after byte) {
	for i := range m.Customs {
		if m.Customs[i].after == after {
			c.section(secCustom, func() { c.custom(&m.Customs[i]) })
		}
	}
}
