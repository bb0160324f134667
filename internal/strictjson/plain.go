package strictjson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

// Valid reports whether a text is one JSON value in UTF-8, as json.Valid does. It also
// reports whether there is white space between the tokens.
func Valid(text []byte) (spaced, ok bool) {
	if !utf8.Valid(text) {
		return false, false
	}
	short, _, spaced := shorten(text)
	return spaced, json.Valid(short)
}

// A cut is a place where a part of the original text was removed.
type cut struct {
	at      int // offset in the shortened text
	lacking int // number of bytes removed up to that offset, by this cut and those before it
}

// shorten removes long runs of plain bytes from the string values in a text. It also
// reports whether there is white space between the tokens. Names stay whole. The text must
// be UTF-8. The shortened text is valid JSON if and only if the original is; the same goes
// for having repeated names.
//
// A large text usually consists mostly of string values, which a parser reads byte by
// byte. For a megabyte, that takes longer than the rest of a call.
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

// isLong reports whether a text is worth shortening, which it is if its first 4 KiB
// consist mostly of string values.
func isLong(text []byte) bool {
	const sample = 4 << 10
	if len(text) < sample {
		return false
	}
	short, _, _ := shorten(text[:sample])
	return len(short) < sample/2
}

// isName reports whether a string is a member's name, judging by what follows it.
func isName(after []byte) bool {
	after = bytes.TrimLeft(after, space)
	return len(after) > 0 && after[0] == ':'
}

// longRun is the shortest run of plain bytes that is worth cutting.
const longRun = 32

// plain returns how many bytes at the start of a text are valid inside a string: it stops
// at control characters, at quotes, and at escapes for more than one character.
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

// literal returns how many bytes at the start of a text stand for themselves in a string.
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

// special returns a word in which the highest bit is set for the first byte that is not
// plain, and for no byte before it. Subtracting from eight bytes at once borrows from the
// bytes that follow one that was too small, so their bits may be anything (Mycroft's test
// for a zero byte). Flipping the second bit moves the quote next to the control
// characters, and moves everything between them out of the way (Lemire).
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
