package strictjson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

// Valid reports whether a text is one JSON value in UTF-8, as json.Valid does, and whether
// there is white space between its tokens.
func Valid(text []byte) (spaced, ok bool) {
	if !utf8.Valid(text) {
		return false, false
	}
	short, _, spaced := shorten(text)
	return spaced, json.Valid(short)
}

// A cut is where a shortened text lacks a part of the whole one.
type cut struct {
	at      int // offset in the shortened text
	lacking int // bytes lacking up to there, in this cut and those before it
}

// shorten returns a text without the long runs of plain bytes in its string values, and
// whether there is white space between its tokens. Names stay whole. The text must be
// UTF-8. The shortened one is JSON, or has repeated names, exactly if the text is or has.
//
// Most of a large text is string values, which a parser reads byte by byte: for a megabyte
// that takes longer than the rest of a call.
func shorten(text []byte) (short []byte, cuts []cut, spaced bool) {
	kept := 0 // end of the text that was copied or cut
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\r', '\n':
			spaced = true
		case '"':
			before, beforeCuts, start := len(short), len(cuts), kept
			for i++; i < len(text); i = min(i+len(`\u00e9`), len(text)) {
				n := plain(text[i:])
				if n >= longRun {
					short = append(short, text[kept:i]...)
					kept = i + n
					cuts = append(cuts, cut{len(short), kept - len(short)})
				}
				if i += n; i == len(text) || text[i] != '\\' {
					break
				}
			}
			if len(cuts) > beforeCuts && isName(text[min(i+1, len(text)):]) {
				short, cuts, kept = short[:before], cuts[:beforeCuts], start
			}
		}
	}

	if len(cuts) == 0 {
		return text, nil, spaced
	}
	return append(short, text[kept:]...), cuts, spaced
}

// isLong reports whether a text is worth shortening: its first 4 KiB are mostly string
// values.
func isLong(text []byte) bool {
	const sample = 4 << 10
	if len(text) < sample {
		return false
	}
	short, _, _ := shorten(text[:sample])
	return len(short) < sample/2
}

// isName reports whether a string is a name, by what follows it.
func isName(after []byte) bool {
	after = bytes.TrimLeft(after, space)
	return len(after) > 0 && after[0] == ':'
}

// longRun is the number of string bytes worth cutting.
const longRun = 32

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

// Compact removes the white space between the tokens of a valid JSON text, in
// place.
func Compact(text []byte) []byte {
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
