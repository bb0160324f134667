package output

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxEscape is the length of the longest recognized escape sequence, in bytes.
const maxEscape = 2048

// Clean returns raw output for display: without the escape sequences of ECMA-48
// (colors, cursor movement, titles), and without control characters other than
// newline and tab. A line that was overwritten after carriage returns appears in
// its last state. Invalid UTF-8 becomes U+FFFD.
func Clean(raw []byte) string {
	out := make([]byte, 0, len(raw))
	line := 0         // where the current line begins in out
	returned := false // a carriage return is pending: the next character overwrites the line

	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		switch {
		case r == '\x1b':
			size = escape(raw)
		case r == '\r':
			returned = true
		case r == '\n':
			out = append(out, '\n')
			line, returned = len(out), false
		case r < ' ' && r != '\t' || 0x7f <= r && r < 0xa0:
		default:
			if returned {
				out, returned = out[:line+tagLen(out[line:])], false
			}
			out = utf8.AppendRune(out, r)
		}
		raw = raw[size:]
	}

	return string(out)
}

// tagLen returns the length of the stderr tag at the beginning of a line.
func tagLen(line []byte) int {
	if bytes.HasPrefix(line, []byte(stderrTag)) {
		return len(stderrTag)
	}
	return 0
}

// The escape sequences of ECMA-48, fifth edition, sections 5.3 to 5.6; control strings
// may also end with BEL, as in xterm. A malformed sequence ends before the byte that
// does not fit; a control string without an end consists only of its introducer.
var (
	sequence = regexp.MustCompile(`^\x1b(\[[ -?]*[@-~]?|[\]PX^_]([^\x07\x1b\n]*(\x07|\x1b\\))?|[ -/]+[0-~]?|[0-~])?`)
	partial  = regexp.MustCompile(`^\x1b(\[[ -?]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)$`)
)

// escape returns the length of the escape sequence that p begins with.
func escape(p []byte) int { return len(sequence.Find(p[:min(len(p), maxEscape)])) }

// isPartial reports whether more bytes could change the escape sequence that p
// begins with.
func isPartial(p []byte) bool { return len(p) < maxEscape && partial.Match(p) }

// Partial returns how many bytes at the end of a piece of output are the beginning of
// an incomplete character or escape sequence.
func Partial(p []byte) int {
	for i := max(0, len(p)-maxEscape); i < len(p); i++ {
		if p[i] == '\x1b' && isPartial(p[i:]) {
			return len(p) - i
		}
	}
	return PartialRune(p)
}

// Shorten returns s cleaned, on one line, without surrounding space, and cut
// to limit characters. If it was longer, the last one is an ellipsis.
func Shorten(s string, limit int) string {
	if s == "" { // most often
		return ""
	}
	if len(s) > maxShorten {
		s = s[:maxShorten]
	}
	return Clip(strings.Join(strings.Fields(Clean([]byte(s))), " "), limit)
}

// maxShorten is how many bytes of a text Shorten looks at, which limits its work.
const maxShorten = 16 << 10

// Clip cuts s to limit characters. If it was longer, the last one is an ellipsis.
func Clip(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	for i := range s {
		if limit--; limit == 0 {
			return s[:i] + "…"
		}
	}
	return s
}
