package wasmbin

import (
	"fmt"
	"unicode/utf8"
)

// cursor reads the numbers, names and types of the format from a byte slice. The
// first error sticks: what follows it reads as zero, and err says where it was.
type cursor struct {
	b       []byte
	pos     int
	base    int // offset of b in the binary
	section string
	types   int // number of types that a block type may refer to
	err     *Error

	exceptions bool // whether exnref is a type
}

func (c *cursor) left() int { return len(c.b) - c.pos }

func (c *cursor) fail(reason error, at int, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{Err: reason, Section: c.section, Offset: c.base + at, Detail: fmt.Sprintf(format, args...)}
	}
	c.pos = len(c.b)
}

func (c *cursor) malformed(at int, format string, args ...any) {
	c.fail(ErrMalformed, at, format, args...)
}

// result returns the error, or nil.
func (c *cursor) result() error {
	if c.err == nil {
		return nil
	}
	return c.err
}

// complete refuses what follows the content of a section or an entry.
func (c *cursor) complete() {
	if c.left() > 0 {
		c.malformed(c.pos, "%d bytes more than the section's content", c.left())
	}
}

func (c *cursor) truncated(what string) {
	if c.err == nil {
		c.malformed(c.pos, "%v in %s", ErrTruncated, what)
		c.err.cause = ErrTruncated
	}
}

func (c *cursor) byte(what string) byte {
	if c.pos >= len(c.b) {
		c.truncated(what)
		return 0
	}
	v := c.b[c.pos]
	c.pos++
	return v
}

func (c *cursor) bytes(n int, what string) []byte {
	if n < 0 || n > c.left() {
		c.truncated(what)
		return nil
	}
	v := c.b[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return v
}

// u32 reads an unsigned LEB128 number of at most 32 bits.
func (c *cursor) u32(what string) uint32 {
	if c.pos < len(c.b) && c.b[c.pos] < 0x80 {
		v := c.b[c.pos]
		c.pos++
		return uint32(v)
	}

	start := c.pos
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		if c.pos >= len(c.b) {
			c.truncated(what)
			return 0
		}

		b := c.b[c.pos]
		c.pos++
		v |= uint32(b&0x7f) << shift

		if b < 0x80 {
			if shift == 28 && b > 0x0f {
				break
			}
			return v
		}
	}

	c.malformed(start, "%s: number does not fit 32 bits", what)
	return 0
}

// signed reads a signed LEB128 number of bits bits: 32, 33 or 64.
func (c *cursor) signed(bits int, what string) int64 {
	start := c.pos
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		if c.pos >= len(c.b) {
			c.truncated(what)
			return 0
		}

		b := c.b[c.pos]
		c.pos++
		v |= int64(b&0x7f) << shift
		if b >= 0x80 {
			continue
		}
		if shift+7 < 64 && b&0x40 != 0 {
			v |= -1 << (shift + 7)
		}
		if shift+7 > bits && !signExtends(b, bits-shift) {
			break
		}

		return v
	}

	c.malformed(start, "%s: number does not fit %d bits", what, bits)
	return 0
}

// signExtends reports whether the bits of the last byte b of a number above its
// used lowest ones repeat the sign.
func signExtends(b byte, used int) bool {
	top := int8(b<<1) >> used // bits 6.. down to the sign bit, arithmetically
	return top == 0 || top == -1
}

// count reads the length of a vector whose entries take at least min bytes each.
func (c *cursor) count(min int, what string) int {
	at := c.pos
	n := c.u32(what)
	if uint64(n)*uint64(min) > uint64(c.left()) {
		c.malformed(at, "%s: count %d is more than the %d bytes left can hold", what, n, c.left())
		return 0
	}
	return int(n)
}

// entries reads how many entries of at least min bytes each a list has.
func (c *cursor) entries(min int, what string) int {
	at := c.pos
	n := c.count(min, what)
	if n > maxEntries {
		c.fail(ErrUnsupported, at, "%d entries, more than %d", n, maxEntries)
	}
	return n
}

func (c *cursor) name(what string) string {
	at := c.pos
	b := c.bytes(c.count(1, what), what)
	if !utf8.Valid(b) {
		c.malformed(at, "%s is not UTF-8", what)
		return ""
	}
	return string(b)
}

func (c *cursor) valType(what string) ValType {
	at := c.pos
	b := c.byte(what)
	switch t := ValType(b); t {
	case I32, I64, F32, F64, V128, FuncRef, ExternRef:
		return t
	case ExnRef:
		if c.exceptions {
			return t
		}
	}
	c.badType(b, at, what)
	return 0
}

func (c *cursor) badType(b byte, at int, what string) {
	switch {
	case b == 0x63 || b == 0x64:
		c.fail(ErrUnsupported, at, "%s: typed function references are not supported", what)
	case b == 0x69 || b == 0x74:
		c.fail(ErrUnsupported, at, "%s: %s", what, unsupported[formExceptions])
	case b >= 0x5d && b <= 0x78:
		c.fail(ErrUnsupported, at, "%s: type %#x needs garbage-collected types, which are not supported", what, b)
	default:
		c.malformed(at, "%s: %#x is not a value type", what, b)
	}
}
