package output

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// maxEscape is the longest escape sequence recognized as one.
const maxEscape = 2048

// Clean returns raw output as it should be shown: without the escape sequences
// of ECMA-48 (colors, cursor movement, titles) and without control characters
// other than newline and tab. Of a line that was overwritten after carriage returns
// it shows the last state, and bytes that are not UTF-8 as U+FFFD.
func Clean(raw []byte) string {
	out := make([]byte, 0, len(raw))
	line := 0         // where the current line begins in out
	returned := false // a carriage return is pending: the next character overwrites the line

	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		switch {
		case r == '\x1b':
			size, _ = escape(raw)
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

// escape returns the length of the escape sequence that p begins with, and whether
// more bytes cannot change it. The forms are those of ECMA-48, fifth edition,
// sections 5.3 to 5.6; control strings may also end with BEL, as in xterm. A
// malformed sequence ends before the byte that does not fit.
func escape(p []byte) (n int, whole bool) {
	if len(p) < 2 {
		return len(p), false
	}

	switch c := p[1]; {
	case c == '[':
		return escapeFinal(p, 2, 0x40)
	case strings.IndexByte("]PX^_", c) >= 0:
		return escapeString(p)
	case 0x20 <= c && c <= 0x2f:
		return escapeFinal(p, 2, 0x30)
	case 0x30 <= c && c <= 0x7e:
		return 2, true
	}
	return 1, true
}

// escapeFinal finds the end of a sequence of bytes from 0x20 up to a final
// byte from low to 0x7e.
func escapeFinal(p []byte, i int, low byte) (n int, whole bool) {
	for ; i < min(len(p), maxEscape); i++ {
		switch c := p[i]; {
		case low <= c && c <= 0x7e:
			return i + 1, true
		case c < 0x20 || c > 0x7e:
			return i, true
		}
	}
	return i, i == maxEscape
}

// escapeString finds the end of a control string. Of one without an end, only the
// introducer counts.
func escapeString(p []byte) (n int, whole bool) {
	for i := 2; i < len(p); i++ {
		switch {
		case i == maxEscape || p[i] == '\n':
			return 2, true
		case p[i] == '\a':
			return i + 1, true
		case p[i] == '\x1b' && i+1 < len(p):
			if p[i+1] == '\\' {
				return i + 2, true
			}
			return 2, true
		}
	}
	return 2, false
}

// Shorten returns s cleaned, on one line, without space around it, and cut to
// limit characters, the last of them an ellipsis if it was longer.
func Shorten(s string, limit int) string {
	if len(s) > maxShorten {
		s = s[:maxShorten]
	}
	return Clip(strings.Join(strings.Fields(Clean([]byte(s))), " "), limit)
}

// maxShorten bounds the work of Shorten on text a tool made.
const maxShorten = 16 << 10

// Clip cuts s to limit characters, the last of them an ellipsis if it was longer.
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
