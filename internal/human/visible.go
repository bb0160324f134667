package human

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
)

// Visible makes every character of a text visible. Control characters become
// their Unicode pictures. Other invisible characters (direction overrides,
// zero-width characters, tags) become their code points, as in ⟨U+202E⟩. Newlines
// and tabs stay as they are. The replacements have no special meaning in HTML or
// in terminals.
func Visible(text []byte) []byte {
	if plain(text) {
		return text
	}

	out := bytes.NewBuffer(make([]byte, 0, len(text)+len(text)/8))
	marks, prev := 0, rune(0) // combining marks in a row

	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		if !unicode.Is(unicode.Mn, r) && !unicode.Is(unicode.Me, r) {
			marks = 0
		} else if marks++; marks > maxMarks {
			if marks == maxMarks+1 {
				out.WriteString("⟨more marks⟩")
			}
			continue
		}

		switch {
		case r == '\n' || r == '\t':
			out.WriteRune(r)
		case r < ' ':
			out.WriteRune('␀' + r)
		case r == 0x7f:
			out.WriteRune('␡')
		case abi.IsHidden(r, prev):
			fmt.Fprintf(out, "⟨U+%04X⟩", r)
		default:
			out.WriteRune(r)
		}

		prev = r
	}

	return out.Bytes()
}

// maxMarks is how many combining marks one character may have: enough for every
// language, too few to paint over other lines.
const maxMarks = 4

// plain reports whether a text contains only printable ASCII characters, newlines
// and tabs.
func plain(p []byte) bool {
	for _, c := range p {
		if c >= 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}
