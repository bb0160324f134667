package wasmbin

func funcType(c *cursor) FuncType {
	at := c.pos
	switch form := c.byte("type"); form {
	case 0x60:
	case 0x5f, 0x5e, 0x50, 0x4f, 0x4e:
		c.fail(ErrUnsupported, at, "type %#x needs garbage-collected types, which are not supported", form)
	default:
		c.malformed(at, "%#x is not a function type", form)
	}
	return FuncType{Params: c.valTypes("parameters"), Results: c.valTypes("results")}
}

func (p *parser) typeIndex(c *cursor) uint32 {
	at := c.pos
	i := c.u32("type index")
	if uint64(i) >= uint64(len(p.m.Types)) {
		c.malformed(at, "no type %d", i)
	}
	return i
}

func (p *parser) tag(c *cursor) uint32 {
	at := c.pos
	if b := c.byte("tag attribute"); b != 0 {
		c.malformed(at, "unknown tag attribute %#x", b)
	}
	return p.typeIndex(c)
}

func (p *parser) importEntry(c *cursor) Import {
	i := Import{Module: c.name("import module"), Name: c.name("import name")}
	at := c.pos
	i.Kind = Kind(c.byte("import kind"))

	switch i.Kind {
	case KindFunc:
		i.Type = p.typeIndex(c)
	case KindTable:
		i.Table = tableType(c)
	case KindMemory:
		i.Memory = memory(c)
	case KindGlobal:
		i.Global = globalType(c)
	case KindTag:
		i.Type = p.tag(c)
	default:
		c.malformed(at, "unknown kind %#x of import %q %q", byte(i.Kind), i.Module, i.Name)
	}

	return i
}

func (p *parser) export(c *cursor) Export {
	at := c.pos
	e := Export{Name: c.name("export name")}
	if p.names[e.Name] && c.err == nil {
		c.malformed(at, "export %q is repeated", e.Name)
	}

	p.names[e.Name] = true
	at = c.pos
	e.Kind = Kind(c.byte("export kind"))
	if e.Kind > KindTag {
		c.malformed(at, "unknown kind %#x of export %q", byte(e.Kind), e.Name)
	}

	e.Index = c.u32("export index")
	return e
}

// limits reads limits with their flag. What says whose they are.
func limits(c *cursor, what string) Limits {
	at := c.pos
	flag := c.byte(what)
	switch {
	case flag <= 1:
	case flag == 2 || flag == 3:
		c.fail(ErrUnsupported, at, "a shared %s needs threads, which are not supported", what)
	case flag < 8:
		c.fail(ErrUnsupported, at, "a 64-bit %s is not supported", what)
	case flag < 16:
		c.fail(ErrUnsupported, at, "a custom page size is not supported")
	default:
		c.malformed(at, "%s: unknown limits %#x", what, flag)
	}

	l := Limits{Min: c.u32(what), HasMax: flag == 1}
	if l.HasMax {
		l.Max = c.u32(what)
		if l.Max < l.Min {
			c.malformed(at, "%s: its minimum %d is above its maximum %d", what, l.Min, l.Max)
		}
	}

	return l
}

func memory(c *cursor) Limits {
	at := c.pos
	l := limits(c, "memory")
	if l.Min > MaxPages || l.HasMax && l.Max > MaxPages {
		c.malformed(at, "memory of more than %d pages", MaxPages)
	}
	return l
}

func tableType(c *cursor) TableType {
	if c.left() > 0 && c.b[c.pos] == 0x40 {
		c.fail(ErrUnsupported, c.pos, "a table with an initializer is not supported")
	}
	return TableType{Elem: c.refType("table type"), Limits: limits(c, "table")}
}

func globalType(c *cursor) GlobalType {
	t := c.valType("global type")
	at := c.pos
	mut := c.byte("mutability")
	if mut > 1 {
		c.malformed(at, "unknown mutability %#x", mut)
	}
	return GlobalType{Type: t, Mutable: mut == 1}
}

func element(c *cursor) Element {
	at := c.pos
	flags := c.u32("element segment")
	if flags > 7 {
		c.malformed(at, "unknown form %d of element segment", flags)
		return Element{}
	}

	e := Element{Type: FuncRef}
	explicit := flags&2 != 0
	switch {
	case flags&1 == 0:
		if e.hasTable = explicit; explicit {
			e.Table = c.u32("table index")
		}
		e.Offset = constExpr(c)
	case explicit:
		e.Mode = Declarative
	default:
		e.Mode = Passive
	}

	exprs := flags&4 != 0
	if flags&3 != 0 {
		at := c.pos
		if exprs {
			e.Type = c.refType("element type")
		} else if kind := c.byte("element kind"); kind != 0 {
			c.malformed(at, "unknown element kind %#x", kind)
		}
	}

	if exprs {
		e.Exprs = [][]byte{}
		repeat(c, 2, func() { e.Exprs = append(e.Exprs, constExpr(c)) })
		return e
	}

	repeat(c, 1, func() { e.Funcs = append(e.Funcs, c.u32("function index")) })
	return e
}

func data(c *cursor) Data {
	at := c.pos
	var d Data
	switch flags := c.u32("data segment"); flags {
	case 0:
	case 1:
		d.Mode = Passive
	case 2:
		if m := c.u32("memory index"); m != 0 {
			c.fail(ErrUnsupported, at, "more than one memory is not supported")
		}
	default:
		c.malformed(at, "unknown form %d of data segment", flags)
	}

	if d.Mode == Active {
		d.Offset = constExpr(c)
	}

	d.Init = c.bytes(c.count(1, "data"), "data")
	return d
}

func code(c *cursor) Code {
	size := c.count(1, "function body")
	end := c.pos + size
	body := cursor{b: c.b[:end], pos: c.pos, base: c.base, section: c.section}
	c.pos = end
	var f Code
	total := uint64(0)
	repeat(&body, 2, func() {
		at := body.pos
		g := LocalGroup{Count: body.u32("number of locals"), Type: body.valType("local type")}
		if total += uint64(g.Count); total > MaxLocals {
			body.fail(ErrUnsupported, at, "a function has more than %d locals", MaxLocals)
		}
		f.Locals = append(f.Locals, g)
	})
	f.Offset = body.base + body.pos
	f.Body = body.bytes(body.left(), "function body")
	if body.err == nil && (len(f.Body) == 0 || f.Body[len(f.Body)-1] != byte(OpEnd)) {
		body.malformed(end, "function body does not end with the end instruction")
	}
	if body.err != nil {
		c.inherit(&body)
	}
	return f
}

// constExpr reads a constant expression, its end included.
func constExpr(c *cursor) []byte {
	start := c.pos
	r := Reader{c: *c}
	var in Instr

	for in.Op != OpEnd && r.c.err == nil {
		switch {
		case !r.Next(&in):
			r.c.truncated("constant expression") // unless there was another error
		case in.Op != OpEnd && !in.Op.constant():
			r.c.malformed(in.Pos, "%s in a constant expression", in.Op)
		}
	}

	if c.pos = r.c.pos; r.c.err == nil {
		return c.b[start:c.pos:c.pos]
	}
	c.inherit(&r.c)
	return nil
}
