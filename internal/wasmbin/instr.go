package wasmbin

// Instr is one decoded instruction.
type Instr struct {
	Op       Op
	Pos, End int       // its bytes are Body[Pos:End]
	X, Y     uint32    // indices, as many as the instruction has, in the order of the format
	Const    int64     // value of i32.const and i64.const
	Block    BlockType // type of block, loop, if, try and try_table
	Labels   []uint32  // labels of br_table, the default last; valid until the next call of Next
	Type     ValType   // type of ref.null, and of select if it has one
	Catches  []Catch   // clauses of try_table; valid until the next call of Next
}

// Catch is a clause of try_table: which exceptions it catches, and where they go.
type Catch struct {
	Kind  byte   // 0 catch, 1 catch_ref, 2 catch_all, 3 catch_all_ref
	Tag   uint32 // tag for the first two kinds
	Label uint32
}

// Ref reports whether the clause passes on the exception itself.
func (c Catch) Ref() bool { return c.Kind&1 != 0 }

// All reports whether the clause catches exceptions of every tag.
func (c Catch) All() bool { return c.Kind >= 2 }

// BlockType is the type of a block: a function type by its index, or no
// parameter and at most one result.
type BlockType struct {
	Index  uint32 // index of the function type; valid only if Typed
	Typed  bool
	Result ValType // type of the result; 0 if there is none
}

// Reader reads the instructions of one function body or constant expression in
// order. It does not track nesting or types.
type Reader struct {
	// Exceptions enables the instructions for exceptions, which [Features] does not include.
	Exceptions bool
	// Atomics enables the atomic instructions that do not wait. For these, Instr.X is
	// the binary logarithm of the alignment, and Instr.Y is the offset.
	Atomics bool

	c       cursor
	labels  []uint32
	catches []Catch
}

// Reset starts reading the body of a function, in a module with the given
// number of types. It reuses its buffers.
func (r *Reader) Reset(code *Code, types int) {
	r.c = cursor{b: code.Body, base: code.Offset, section: "code", types: types, exceptions: r.Exceptions}
}

// Err returns the error that stopped Next, nil at the end of the body.
func (r *Reader) Err() error { return r.c.result() }

// Errorf returns an error that matches [ErrMalformed] for an instruction of the body.
func (r *Reader) Errorf(in *Instr, format string, args ...any) error {
	c := cursor{base: r.c.base, section: r.c.section}
	c.malformed(in.Pos, format, args...)
	return c.err
}

// Next decodes the next instruction into in. It returns false at the end of the
// body and on an error.
func (r *Reader) Next(in *Instr) bool {
	c := &r.c
	if c.pos >= len(c.b) {
		return false
	}

	in.Pos = c.pos
	b := c.b[c.pos]
	c.pos++
	in.Op = Op(b)

	switch f := oneByteForms[b]; f {
	case formNone:
	case formIndex:
		in.X = c.u32("index")
	case formMemArg:
		r.memArg()
	case formI32:
		in.Const = c.signed(32, "i32.const")
	case formI64:
		in.Const = c.signed(64, "i64.const")
	case formBlock:
		in.Block = r.blockType()
	case formPrefix:
		r.prefixed(b, in)
	default:
		r.immediates(f, in)
	}

	in.End = c.pos
	return c.err == nil
}

// prefixed decodes what follows a prefix byte.
func (r *Reader) prefixed(prefix byte, in *Instr) {
	c := &r.c
	n := c.u32("instruction")
	// The runtime reads one byte of a vector instruction's number and takes the
	// 1 that ends the larger ones for a nop; in the shortest form that comes to
	// the same, in others it is another program.
	size := 2
	if n >= 0x80 {
		size = 3
	}
	if c.err == nil && prefix == 0xfd && c.pos != in.Pos+size && n <= 0xff {
		c.malformed(in.Pos, "instruction %#x %#x is not written in its shortest form", prefix, n)
		return
	}

	forms, f := miscForms, formBad
	switch prefix {
	case 0xfd:
		forms = vectorForms
	case 0xfe:
		r.atomic(n, in)
		return
	}
	if uint64(n) < uint64(len(forms)) {
		f = forms[n]
	}

	in.Op = Op(prefix)<<8 | Op(n&0xff)
	switch {
	case f != formBad:
		r.immediates(f, in)
	case prefix == 0xfd && n >= 0x100:
		c.fail(ErrUnsupported, in.Pos, "relaxed vector instruction %#x is not supported", n)
	default:
		c.malformed(in.Pos, "unknown instruction %#x %#x", prefix, n)
	}
}

// atomic decodes what follows the number of an atomic instruction.
func (r *Reader) atomic(n uint32, in *Instr) {
	c := &r.c
	in.Op = 0xfe00 | Op(n&0xff)
	switch {
	case c.err != nil:
	case !r.Atomics || n == 0x01 || n == 0x02:
		c.fail(ErrUnsupported, in.Pos, "%s", unsupported[formThreads])
	case n == 0x03:
		r.zero()
	case n == 0x00 || n >= 0x10 && n <= 0x4e:
		in.X, in.Y = c.u32("alignment"), c.u32("offset")
	default:
		c.malformed(in.Pos, "unknown instruction 0xfe %#x", n)
	}
}

// unsupported says why instructions of a form are refused.
var unsupported = map[form]string{
	formExceptions: "exceptions in a module without tags are not supported",
	formTyped:      "typed function references are not supported",
	formGC:         "garbage-collected types are not supported",
	formThreads:    "atomic instructions that wait need threads, which are not supported",
}

// immediates decodes the less frequent forms.
func (r *Reader) immediates(f form, in *Instr) {
	c := &r.c
	switch f {
	case formNone:
	case formIndex:
		in.X = c.u32("index")
	case formIndex2:
		in.X = c.u32("index")
		in.Y = c.u32("index")
	case formIndexZero:
		in.X = c.u32("index")
		r.zero()
	case formZero:
		r.zero()
	case formZero2:
		r.zero()
		r.zero()
	case formBytes4:
		c.bytes(4, "f32.const")
	case formBytes8:
		c.bytes(8, "f64.const")
	case formBytes16:
		c.bytes(16, "vector immediate")
	case formLane:
		c.byte("lane")
	case formMemArg:
		r.memArg()
	case formMemArgLane:
		r.memArg()
		c.byte("lane")
	case formSelect:
		in.Type = r.selectTypes()
	case formBrTable:
		in.Labels = r.brTable()
	case formHeap:
		in.Type = r.refType()
	case formExceptions:
		r.exception(in)
	default:
		if reason := unsupported[f]; reason != "" {
			c.fail(ErrUnsupported, in.Pos, "%s", reason)
			return
		}
		c.malformed(in.Pos, "unknown %s", in.Op)
	}
}

// exception decodes the instructions for exceptions, including those from before the standard.
func (r *Reader) exception(in *Instr) {
	c := &r.c
	if !r.Exceptions {
		c.fail(ErrUnsupported, in.Pos, "%s", unsupported[formExceptions])
		return
	}

	switch in.Op {
	case OpTry:
		in.Block = r.blockType()
	case OpCatch, OpThrow, OpRethrow, OpDelegate:
		in.X = c.u32("index")
	case OpTryTable:
		in.Block = r.blockType()
		in.Catches = r.catchClauses()
	}
}

func (r *Reader) catchClauses() []Catch {
	c := &r.c
	r.catches = r.catches[:0]
	for n := c.count(2, "try_table"); n > 0 && c.err == nil; n-- {
		at := c.pos
		clause := Catch{Kind: c.byte("catch")}
		if clause.Kind > 3 {
			c.malformed(at, "unknown catch clause %#x", clause.Kind)
		}
		if !clause.All() {
			clause.Tag = c.u32("tag")
		}
		clause.Label = c.u32("label")
		r.catches = append(r.catches, clause)
	}
	return r.catches
}

// zero reads a memory index of an instruction, which is a zero byte.
func (r *Reader) zero() {
	at := r.c.pos
	if b := r.c.byte("memory index"); b != 0 {
		r.c.fail(ErrUnsupported, at, "more than one memory is not supported")
	}
}

func (r *Reader) memArg() {
	at := r.c.pos
	if align := r.c.u32("alignment"); align >= 32 {
		r.c.fail(ErrUnsupported, at, "alignment 2^%d: more than one memory is not supported", align)
	}
	r.c.u32("offset")
}

func (r *Reader) blockType() BlockType {
	c := &r.c
	if c.pos < len(c.b) {
		switch b := c.b[c.pos]; {
		case b == 0x40:
			c.pos++
			return BlockType{}
		case b > 0x40 && b < 0x80: // a negative number of one byte
			return BlockType{Result: c.valType("block type")}
		}
	}

	at := c.pos
	i := c.signed(33, "block type")
	if i < 0 || i >= int64(c.types) {
		c.malformed(at, "no block type %d", i)
		return BlockType{}
	}
	return BlockType{Typed: true, Index: uint32(i)}
}

func (r *Reader) brTable() []uint32 {
	n := r.c.count(1, "br_table")
	r.labels = r.labels[:0]
	for i := 0; i <= n && r.c.err == nil; i++ {
		r.labels = append(r.labels, r.c.u32("label"))
	}
	return r.labels
}

func (r *Reader) refType() (t ValType) {
	c := codec{in: r.c}
	c.refType(&t, "ref.null")
	r.c = c.in
	return t
}

func (r *Reader) selectTypes() ValType {
	at := r.c.pos
	if n := r.c.u32("number of types"); n != 1 {
		r.c.malformed(at, "select with %d types", n)
		return 0
	}
	return r.c.valType("type")
}
