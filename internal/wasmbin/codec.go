package wasmbin

import "slices"

// codec reads entries of a module from in, or writes them to out. Each kind of
// entry is described once, by a method that does either.
type codec struct {
	in     cursor
	out    []byte
	writes bool

	m       *Module         // part of the module that has been read
	exports map[string]bool // names of exports that have been read
}

// check refuses what is read, unless ok.
func (c *codec) check(ok bool, at int, format string, args ...any) {
	if !ok && !c.writes {
		c.in.malformed(at, format, args...)
	}
}

func (c *codec) byte(v *byte, what string) {
	if c.writes {
		c.out = append(c.out, *v)
	} else {
		*v = c.in.byte(what)
	}
}

func (c *codec) u32(v *uint32, what string) {
	if c.writes {
		c.out = AppendU32(c.out, *v)
	} else {
		*v = c.in.u32(what)
	}
}

// bytes reads or writes a text or data, with its length before it.
func (c *codec) bytes(v *[]byte, what string) {
	if c.writes {
		c.out = append(AppendU32(c.out, uint32(len(*v))), *v...)
	} else {
		*v = c.in.bytes(c.in.count(1, what), what)
	}
}

// rest reads or writes the remaining bytes of an entry.
func (c *codec) rest(v *[]byte, what string) {
	if c.writes {
		c.out = append(c.out, *v...)
	} else {
		*v = c.in.bytes(c.in.left(), what)
	}
}

func (c *codec) name(v *string, what string) {
	if c.writes {
		c.out = append(AppendU32(c.out, uint32(len(*v))), *v...)
	} else {
		*v = c.in.name(what)
	}
}

func (c *codec) valType(v *ValType, what string) {
	if c.writes {
		c.out = append(c.out, byte(*v))
	} else {
		*v = c.in.valType(what)
	}
}

func (c *codec) refType(v *ValType, what string) {
	at := c.in.pos
	c.valType(v, what)
	c.check(v.IsRef(), at, "%s: %v is not a reference type", what, *v)
}

func (c *codec) valTypes(v *[]ValType, what string) {
	at := c.in.pos
	list(c, v, 1, what, func(t *ValType) { c.valType(t, what) })
	c.check(len(*v) <= maxValues, at, "%s: %d values, more than %d", what, len(*v), maxValues)
}

// expr reads or writes a constant expression, its end included.
func (c *codec) expr(v *[]byte) {
	if c.writes {
		c.out = append(c.out, *v...)
		return
	}

	start := c.in.pos
	r := Reader{c: c.in}
	var in Instr
	for in.Op != OpEnd && r.c.err == nil {
		switch {
		case !r.Next(&in):
			r.c.truncated("constant expression") // unless there was another error
		case in.Op != OpEnd && !in.Op.constant():
			r.c.malformed(in.Pos, "%s in a constant expression", in.Op)
		}
	}

	c.in = r.c
	*v = c.in.b[start:c.in.pos:c.in.pos]
}

// sized reads or writes content, with its size in bytes before it.
func (c *codec) sized(what string, content func()) {
	if c.writes {
		start := len(c.out)
		content()
		var size [5]byte
		c.out = slices.Insert(c.out, start, AppendU32(size[:0], uint32(len(c.out)-start))...)
		return
	}

	n := c.in.count(1, what)
	whole, end := c.in.b, c.in.pos+n
	c.in.b = whole[:end]
	content()
	c.in.complete()
	c.in.b = whole
	if c.in.err == nil {
		c.in.pos = end
	}
}

// list reads or writes a vector of entries that take at least min bytes each.
func list[T any](c *codec, entries *[]T, min int, what string, entry func(*T)) {
	if c.writes {
		c.out = AppendU32(c.out, uint32(len(*entries)))
		for i := range *entries {
			entry(&(*entries)[i])
		}
		return
	}

	for n := c.in.entries(min, what); n > 0 && c.in.err == nil; n-- {
		var zero T
		*entries = append(*entries, zero)
		entry(&(*entries)[len(*entries)-1])
	}
}
