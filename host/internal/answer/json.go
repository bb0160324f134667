package answer

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

// CheckJSON reports whether a text is one JSON value in UTF-8, as json.Valid
// does, and whether there is white space between its tokens.
//
// Most of a large result is string text, which json.Valid reads byte by byte: for
// a megabyte that takes longer than the whole call. So checkJSON leaves long runs
// of plain string bytes out of json.Valid's input.
func CheckJSON(text []byte) (spaced, ok bool) {
	if !utf8.Valid(text) {
		return false, false
	}

	var room [128]byte
	short := room[:0]
	kept := 0 // end of the text that was copied or skipped
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\r', '\n':
			spaced = true
		case '"':
			for i++; i < len(text); i = min(i+len(`\u00e9`), len(text)) {
				n := plain(text[i:])
				if n >= longRun {
					short = append(short, text[kept:i]...)
					kept = i + n
				}
				if i += n; i == len(text) || text[i] != '\\' {
					break
				}
			}
		}
	}

	if kept == 0 {
		return spaced, json.Valid(text)
	}
	return spaced, json.Valid(append(short, text[kept:]...))
}

// longRun is the number of string bytes worth skipping.
const longRun = 8

// plain returns how many bytes at the start of a text are valid in a string: no
// control characters, no quote, and no escapes longer than one character.
func plain(text []byte) (at int) {
	for {
		at += literal(text[at:])
		if len(text)-at < 2 || text[at] != '\\' {
			return at
		}
		switch text[at+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			at += 2
		default:
			return at
		}
	}
}

// literal returns how many bytes at the start of a text mean themselves in a
// string.
func literal(text []byte) int {
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
	for at < len(text) && text[at] >= ' ' && text[at] != '"' && text[at] != '\\' {
		at++
	}
	return at
}

// special has the highest bit of the first byte that is not plain set, and of no
// byte before it. Subtracting from eight bytes at once borrows from the ones after
// a byte that was too small, so the rest may be anything (Mycroft's test for a
// zero byte). Flipping the second bit moves the quote next to the control
// characters, and everything between them out of the way (Lemire).
func special(x uint64) uint64 {
	const ones = 0x0101010101010101
	return (((x ^ ones*2) - ones*0x21) | ((x ^ ones*'\\') - ones)) &^ x & (ones * 0x80)
}

// CompactJSON removes the white space between the tokens of a valid JSON text, in
// place.
func CompactJSON(text []byte) []byte {
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
