package host

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// What a plugin answers is checked here rather than by encoding/json: eight bytes
// of a string at a time, which is what a result of a megabyte takes most of its
// time for. It accepts what json.Valid and utf8.Valid both accept (RFC 8259), as a
// fuzz test holds it to.

// maxNesting is how deep arrays and objects may nest, as in encoding/json.
const maxNesting = 10_000

// document is a JSON text that is being checked.
type document struct {
	text   []byte
	at     int
	depth  int
	object [maxNesting/64 + 1]uint64 // a bit for each level: an object, or else an array
	spaced bool                      // there is white space between its tokens
}

// checkJSON reports whether a text is one JSON value in UTF-8, and whether there
// is white space between its tokens.
func checkJSON(text []byte) (spaced, ok bool) {
	if !utf8.Valid(text) {
		return false, false
	}
	d := document{text: text}
	for ok = d.value(); ok && d.depth > 0; {
		ok = d.next()
	}
	d.space()
	return d.spaced, ok && d.at == len(text)
}

// peek is the next byte, 0 at the end.
func (d *document) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

// space skips white space.
func (d *document) space() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\t', '\r', '\n':
			d.at++
			d.spaced = true
		default:
			return
		}
	}
}

// value reads a value, or the beginning of one that contains others with the
// first of those.
func (d *document) value() bool {
	for {
		d.space()
		switch c := d.peek(); {
		case c == '"':
			return d.string()
		case c == '{':
			if !d.open(1) {
				return false
			}
			if d.peek() == '}' {
				return d.close()
			}
			if !d.key() {
				return false
			}
		case c == '[':
			if !d.open(0) {
				return false
			}
			if d.peek() == ']' {
				return d.close()
			}
		case c == '-' || '0' <= c && c <= '9':
			return d.number()
		default:
			return d.literal()
		}
	}
}

// next reads what comes after a value within another: its end, or one more.
func (d *document) next() bool {
	d.space()
	object := d.object[(d.depth-1)/64] >> ((d.depth - 1) % 64) & 1
	switch d.peek() {
	case ',':
		d.at++
		return (object == 0 || d.key()) && d.value()
	case '}':
		return object == 1 && d.close()
	case ']':
		return object == 0 && d.close()
	}
	return false
}

func (d *document) open(object uint64) bool {
	if d.depth == maxNesting {
		return false
	}
	word, bit := &d.object[d.depth/64], d.depth%64
	*word = *word&^(1<<bit) | object<<bit
	d.depth++
	d.at++
	d.space()
	return true
}

func (d *document) close() bool {
	d.depth--
	d.at++
	return true
}

// key reads the name of a member and its colon.
func (d *document) key() bool {
	d.space()
	if d.peek() != '"' || !d.string() {
		return false
	}
	d.space()
	if d.peek() != ':' {
		return false
	}
	d.at++
	return true
}

func (d *document) literal() bool {
	word := "null"
	switch d.peek() {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	}
	if rest := d.text[d.at:]; len(rest) < len(word) || string(rest[:len(word)]) != word {
		return false
	}
	d.at += len(word)
	return true
}

func (d *document) number() bool {
	if d.peek() == '-' {
		d.at++
	}
	if d.peek() == '0' {
		d.at++
	} else if !d.digits() {
		return false
	}
	if d.peek() == '.' {
		d.at++
		if !d.digits() {
			return false
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		d.at++
		if c := d.peek(); c == '+' || c == '-' {
			d.at++
		}
		return d.digits()
	}
	return true
}

func (d *document) digits() bool {
	first := d.at
	for d.at < len(d.text) && d.text[d.at]-'0' <= 9 {
		d.at++
	}
	return d.at > first
}

// string reads a string from its first quote to its last.
func (d *document) string() bool {
	d.at++
	for {
		d.at += plain(d.text[d.at:])
		switch d.peek() {
		case '"':
			d.at++
			return true
		case '\\':
			if !d.escape() {
				return false
			}
		default: // a control character, or the end
			return false
		}
	}
}

func (d *document) escape() bool {
	d.at++
	c := d.peek()
	d.at++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			c := d.peek()
			if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
				return false
			}
			d.at++
		}
		return true
	}
	return false
}

// plain is how many bytes at the start of a text mean themselves in a string: all
// but control characters, the quote and the backslash.
func plain(text []byte) int {
	at := 0
	for ; len(text)-at >= 32; at += 32 {
		b := text[at : at+32]
		if special(binary.LittleEndian.Uint64(b))|special(binary.LittleEndian.Uint64(b[8:]))|
			special(binary.LittleEndian.Uint64(b[16:]))|special(binary.LittleEndian.Uint64(b[24:])) != 0 {
			break
		}
	}
	for ; len(text)-at >= 8; at += 8 {
		if found := special(binary.LittleEndian.Uint64(text[at:])); found != 0 {
			return at + bits.TrailingZeros64(found)/8
		}
	}
	for at < len(text) && special(uint64(text[at])|ones*' '&^0xff) == 0 {
		at++
	}
	return at
}

// ones times a byte is eight of them.
const ones = 0x0101010101010101

// special has the highest bit of the first byte that is not plain set, and of
// no byte before it. Subtracting from eight bytes at once borrows from the ones
// after a byte that was too small, which is why the rest may be anything
// (Mycroft's test for a zero byte). Flipping the second bit puts the quote among
// the control characters, and out of the way what was between them (Lemire).
func special(x uint64) uint64 {
	return (((x ^ ones*2) - ones*0x21) | ((x ^ ones*'\\') - ones)) &^ x & (ones * 0x80)
}

// compactJSON takes the white space between the tokens out of a valid JSON text,
// in place.
func compactJSON(text []byte) []byte {
	out := text[:0]
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\r', '\n':
		case '"':
			first := i
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			out = append(out, text[first:i+1]...)
		default:
			out = append(out, text[i])
		}
	}
	return out
}
