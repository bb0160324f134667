package wasmbin

// Section ids of the format that the code has to tell apart.
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

// A sectionKind is a list of entries of one kind, or a number.
type sectionKind struct {
	id      byte
	name    string
	bulk    bool // whether Scan skips it
	entries func(c *codec, m *Module)
}

// sections lists the sections of the format, except custom ones, in their order.
var sections = [...]sectionKind{
	{id: secType, name: "type", entries: func(c *codec, m *Module) { entries(c, &m.Types, 3, c.funcType) }},
	{id: secImport, name: "import", entries: func(c *codec, m *Module) { entries(c, &m.Imports, 4, c.importEntry) }},
	{id: secFunction, name: "function", entries: func(c *codec, m *Module) { entries(c, &m.Functions, 1, c.typeIndex) }},
	{id: secTable, name: "table", entries: func(c *codec, m *Module) { entries(c, &m.Tables, 3, c.table) }},
	{id: secMemory, name: "memory", entries: func(c *codec, m *Module) { entries(c, &m.Memories, 2, c.memory) }},
	{id: secTag, name: "tag", entries: func(c *codec, m *Module) { entries(c, &m.Tags, 2, c.tag) }},
	{id: secGlobal, name: "global", entries: func(c *codec, m *Module) { entries(c, &m.Globals, 3, c.global) }},
	{id: secExport, name: "export", entries: func(c *codec, m *Module) { entries(c, &m.Exports, 3, c.export) }},
	{id: secStart, name: "start", entries: func(c *codec, m *Module) { c.optional(&m.Start, "start function") }},
	{id: secElement, name: "element", bulk: true, entries: func(c *codec, m *Module) { entries(c, &m.Elements, 2, c.element) }},
	{id: secDataCount, name: "data count", entries: func(c *codec, m *Module) { c.optional(&m.DataCount, "data count") }},
	{id: secCode, name: "code", bulk: true, entries: func(c *codec, m *Module) { entries(c, &m.Codes, 3, c.code) }},
	{id: secData, name: "data", bulk: true, entries: func(c *codec, m *Module) { entries(c, &m.Data, 2, c.data) }},
}

// entries reads or writes the list that a section consists of.
func entries[T any](c *codec, all *[]T, min int, entry func(*T)) {
	if !c.writes || len(*all) > 0 {
		list(c, all, min, "number of entries", entry)
	}
}

func (c *codec) optional(v **uint32, what string) {
	if !c.writes {
		*v = new(uint32)
	}
	if *v != nil {
		c.u32(*v, what)
	}
}

func (c *codec) custom(s *Custom) {
	c.name(&s.Name, "custom section name")
	c.rest(&s.Data, s.Name)
}

func (c *codec) funcType(t *FuncType) {
	at, form := c.in.pos, byte(0x60)
	switch c.byte(&form, "type"); form {
	case 0x60:
	case 0x5f, 0x5e, 0x50, 0x4f, 0x4e:
		c.in.fail(ErrUnsupported, at, "type %#x needs garbage-collected types, which are not supported", form)
	default:
		c.in.malformed(at, "%#x is not a function type", form)
	}

	c.valTypes(&t.Params, "parameters")
	c.valTypes(&t.Results, "results")
}

func (c *codec) typeIndex(i *uint32) {
	at := c.in.pos
	c.u32(i, "type index")
	c.check(c.writes || uint64(*i) < uint64(len(c.m.Types)), at, "no type %d", *i)
}

// tag reads or writes the type of a tag, after a zero byte.
func (c *codec) tag(t *uint32) {
	at, attribute := c.in.pos, byte(0)
	c.byte(&attribute, "tag")
	c.check(attribute == 0, at, "unknown attribute %#x of a tag", attribute)
	c.typeIndex(t)
}

func (c *codec) importEntry(i *Import) {
	c.name(&i.Module, "import module")
	c.name(&i.Name, "import name")
	c.kind(&i.Kind, "import", i.Name)

	switch i.Kind {
	case KindFunc:
		c.typeIndex(&i.Type)
	case KindTable:
		c.tableType(&i.Table)
	case KindMemory:
		c.memory(&i.Memory)
	case KindGlobal:
		c.globalType(&i.Global)
	}
}

func (c *codec) export(e *Export) {
	at := c.in.pos
	c.name(&e.Name, "export name")
	if !c.writes {
		c.check(!c.exports[e.Name], at, "export %q is repeated", e.Name)
		c.exports[e.Name] = true
	}
	c.kind(&e.Kind, "export", e.Name)
	c.u32(&e.Index, "export index")
}

// kind reads or writes the kind of the import or export of that name.
func (c *codec) kind(k *Kind, what, name string) {
	at := c.in.pos
	c.byte((*byte)(k), what+" kind")
	if *k == KindTag && what == "import" {
		c.in.fail(ErrUnsupported, at, "import %q: the tags of exceptions cannot be imported", name)
	}
	c.check(*k <= KindTag, at, "unknown kind %#x of %s %q", byte(*k), what, name)
}

// limits reads or writes limits with their flag. The text what says whose they are.
func (c *codec) limits(l *Limits, what string) {
	at, flag := c.in.pos, byte(0)
	if l.HasMax {
		flag = 1
	}
	c.byte(&flag, what)
	switch {
	case flag <= 1:
	case flag == 2 || flag == 3:
		c.in.fail(ErrUnsupported, at, "a shared %s needs threads, which are not supported", what)
	case flag < 8:
		c.in.fail(ErrUnsupported, at, "a 64-bit %s is not supported", what)
	case flag < 16:
		c.in.fail(ErrUnsupported, at, "a custom page size is not supported")
	default:
		c.in.malformed(at, "%s: unknown limits %#x", what, flag)
	}

	c.u32(&l.Min, what)
	if l.HasMax = flag == 1; l.HasMax {
		c.u32(&l.Max, what)
		c.check(l.Max >= l.Min, at, "%s: its minimum %d is above its maximum %d", what, l.Min, l.Max)
	}
}

func (c *codec) memory(l *Limits) {
	at := c.in.pos
	c.limits(l, "memory")
	c.check(l.Min <= MaxPages && l.Max <= MaxPages, at, "memory of more than %d pages", MaxPages)
}

func (c *codec) table(t *Table) { c.tableType(&t.TableType) }

func (c *codec) tableType(t *TableType) {
	if c.in.left() > 0 && c.in.b[c.in.pos] == 0x40 {
		c.in.fail(ErrUnsupported, c.in.pos, "a table with an initializer is not supported")
	}
	c.refType(&t.Elem, "table type")
	if t.Elem == ExnRef {
		c.in.fail(ErrUnsupported, c.in.pos, "a table of exceptions is not supported")
	}
	c.limits(&t.Limits, "table")
}

func (c *codec) globalType(t *GlobalType) {
	c.valType(&t.Type, "global type")
	at, mutable := c.in.pos, byte(0)
	if t.Mutable {
		mutable = 1
	}
	c.byte(&mutable, "mutability")
	c.check(mutable <= 1, at, "unknown mutability %#x", mutable)
	t.Mutable = mutable == 1
}

func (c *codec) global(g *Global) {
	c.globalType(&g.GlobalType)
	c.expr(&g.Init)
}

// Flags of an element segment.
const (
	elementPassive  = 1 // or declarative
	elementExplicit = 2 // has a table index, or is declarative
	elementExprs    = 4 // lists expressions
)

func (c *codec) element(e *Element) {
	at, flags := c.in.pos, e.flags()
	c.u32(&flags, "element segment")
	if flags > 7 {
		c.in.malformed(at, "unknown form %d of element segment", flags)
		return
	}

	explicit := flags&elementExplicit != 0
	switch {
	case flags&elementPassive == 0:
		if e.hasTable = explicit; explicit {
			c.u32(&e.Table, "table index")
		}
		c.expr(&e.Offset)
	case explicit:
		e.Mode = Declarative
	default:
		e.Mode = Passive
	}

	if !c.writes {
		e.Type = FuncRef
	}
	if flags&elementExprs == 0 {
		if flags != 0 {
			at, kind := c.in.pos, byte(0)
			c.byte(&kind, "element kind")
			c.check(kind == 0, at, "unknown element kind %#x", kind)
		}
		list(c, &e.Funcs, 1, "number of entries", func(f *uint32) { c.u32(f, "function index") })
		return
	}

	if flags != elementExprs {
		c.refType(&e.Type, "element type")
	}
	if !c.writes {
		e.Exprs = [][]byte{}
	}
	list(c, &e.Exprs, 2, "number of entries", c.expr)
}

func (e *Element) flags() (flags uint32) {
	if e.Mode != Active {
		flags |= elementPassive
	}
	if e.Mode == Declarative || e.Mode == Active && (e.hasTable || e.Table != 0 || e.Exprs != nil && e.Type != FuncRef) {
		flags |= elementExplicit
	}
	if e.Exprs != nil {
		flags |= elementExprs
	}
	return flags
}

func (c *codec) data(d *Data) {
	at, flags, memory := c.in.pos, uint32(0), uint32(0)
	if d.Mode == Passive {
		flags = 1
	}
	c.u32(&flags, "data segment")
	c.check(flags <= 2, at, "unknown form %d of data segment", flags)
	if flags == 2 {
		if c.u32(&memory, "memory index"); memory != 0 {
			c.in.fail(ErrUnsupported, at, "more than one memory is not supported")
		}
	}

	if d.Mode = Passive; flags != 1 {
		d.Mode = Active
		c.expr(&d.Offset)
	}
	c.bytes(&d.Init, "data")
}

func (c *codec) code(f *Code) {
	c.sized("function body", func() {
		list(c, &f.Locals, 2, "number of entries", func(g *LocalGroup) {
			c.u32(&g.Count, "number of locals")
			c.valType(&g.Type, "local type")
		})
		if !c.writes {
			f.Offset = c.in.base + c.in.pos
		}

		c.rest(&f.Body, "function body")
		c.check(len(f.Body) > 0 && f.Body[len(f.Body)-1] == byte(OpEnd), c.in.pos, "function body does not end with the end instruction")
	})
}
