package answer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes a plugin's text fit for an agent: valid UTF-8, of limited length, and without
// white space around it.
func Clean(text []byte) string {
	return Clip(strings.TrimSpace(Valid(text, len(text))), maxError)
}

// Valid returns the first n bytes of a text, with U+FFFD in place of invalid UTF-8.
func Valid(text []byte, n int) string {
	return strings.ToValidUTF8(string(text[:min(len(text), n)]), "\uFFFD")
}

// Clip cuts a valid text after at most n bytes, and marks the cut with an ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// NotUTF8 describes where the first invalid UTF-8 in a text is. The result is empty for a
// valid text.
func NotUTF8(text []byte) string {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Sprintf(": byte %d of %d is not UTF-8", at, len(text))
		}
		at += size
	}
	return ""
}

// MaxMessage is the maximum length of a progress message, in bytes.
const MaxMessage = 512

// maxError is the longest error text shown to an agent, in bytes.
const maxError = 8 << 10

// OneLine returns a plugin's text on one line, without control characters or other
// invisible ones, cut to n bytes.
func OneLine(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text)
	return Clip(strings.Join(strings.Fields(text), " "), n)
}
