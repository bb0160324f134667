package egress

import (
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEscape is more than the bytes of the longest escape.
const maxEscape = 24

// beginsEscape matches what more could make an escape, or another one.
var beginsEscape = regexp.MustCompile(`(?i)^(%[0-9a-f]?|&(#[0-9]*|#x[0-9a-f]*|[a-z][a-z0-9]{0,7})?|` +
	`\\(x[0-9a-f]?|u[0-9a-f]{0,3}|ud[89ab][0-9a-f]{2}(\\(u[0-9a-f]{0,3})?)?)?)$`)

// endsEscape reports whether a text ends with an escape.
func endsEscape(text []byte) bool {
	for n := 2; n <= min(len(text), maxEscape); n++ {
		if _, size := unescape(text[len(text)-n:]); size == n {
			return true
		}
	}
	return false
}

// unescape decodes the escape that a text begins with: %XX of URLs, a backslash of JSON
// and of programming languages, or a reference of HTML. It returns a character, or -b for
// a byte b of UTF-8 or Latin-1, and the size of the escape, which is 0 if there is none.
func unescape(text []byte) (r rune, size int) {
	switch text[0] {
	case '%':
		if len(text) < 3 || unhex(text[1]) < 0 || unhex(text[2]) < 0 {
			return 0, 0
		}
		return -rune(unhex(text[1])<<4 | unhex(text[2])), 3
	case '\\':
		return backslash(text)
	case '&':
		return reference(text)
	}
	return 0, 0
}

// hexNumber is the number of n digits at a place of a text, or -1.
func hexNumber(text []byte, at, n int) rune {
	if len(text) < at+n {
		return -1
	}
	var r rune
	for _, c := range text[at : at+n] {
		digit := unhex(c)
		if digit < 0 {
			return -1
		}
		r = r<<4 | rune(digit)
	}
	return r
}

// backslash decodes \uXXXX, two of them for one character, \xXX for a byte, \n and its
// like, and a backslash before any other character that is no letter or digit.
func backslash(text []byte) (r rune, size int) {
	switch {
	case len(text) < 2:
		return 0, 0
	case text[1]|0x20 == 'x':
		b := hexNumber(text, 2, 2)
		if b < 0 {
			return 0, 0
		}
		return -b, 4
	case text[1]|0x20 != 'u':
		if c := short(text[1]); c != 0 {
			return rune(c), 2
		}
		return 0, 0
	}

	if r = hexNumber(text, 2, 4); r < 0 {
		return 0, 0
	}
	if utf16.IsSurrogate(r) && len(text) > 7 && text[6] == '\\' && text[7]|0x20 == 'u' {
		if low := hexNumber(text, 8, 4); low >= 0 {
			return utf16.DecodeRune(r, low), 12
		}
	}
	return r, 6
}

// short is the character of a backslash and c, or 0.
func short(c byte) byte {
	switch {
	case c >= 0x80 || c < ' ':
		return 0
	case !alphanumeric(c):
		return c
	}
	if i := strings.IndexByte("bfnrt", c); i >= 0 {
		return "\b\f\n\r\t"[i]
	}
	return 0
}

// reference decodes &#N;, &#xN; and &NAME; of a character that a secret may have. Numbers
// need no semicolon.
func reference(text []byte) (r rune, size int) {
	if len(text) > 2 && text[1] == '#' {
		return number(text)
	}

	var name [8]byte
	for n, c := range text[1:min(len(text), len(name)+2)] {
		if c == ';' {
			if r := references[string(name[:n])]; r != 0 {
				return r, n + 2
			}
			break
		}
		if n == len(name) || !alphanumeric(c) {
			break
		}
		name[n] = c | 0x20 // it leaves digits as they are
	}
	return 0, 0
}

// number decodes a reference by number, of at most 16 digits.
func number(text []byte) (r rune, size int) {
	base, at := rune(10), 2
	if text[2]|0x20 == 'x' {
		base, at = 16, 3
	}

	from := at
	for at < len(text) && at < from+16 {
		digit := rune(unhex(text[at]))
		if digit < 0 || digit >= base {
			break
		}
		r = min(r*base+digit, utf8.MaxRune+1)
		at++
	}
	if at == from || r > utf8.MaxRune {
		return 0, 0
	}
	if at < len(text) && text[at] == ';' {
		at++
	}
	return r, at
}

// references are the names of HTML for the characters of ASCII and Latin-1, in lower case.
var references = func() map[string]rune {
	all := map[string]rune{"times": '×', "szlig": 'ß', "lbrack": '[', "rbrack": ']', "lbrace": '{', "rbrace": '}', "vert": '|'}
	ascii := strings.Fields(`! excl " quot # num $ dollar % percnt & amp ' apos ( lpar ) rpar * ast + plus , comma . period / sol : colon
		; semi < lt = equals > gt ? quest @ commat [ lsqb \ bsol ] rsqb ^ hat _ lowbar ` + "`" + ` grave { lcub | verbar } rcub`)
	for i := 0; i < len(ascii); i += 2 {
		all[ascii[i+1]] = rune(ascii[i][0])
	}

	signs := strings.Fields(`nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr
		deg plusmn sup2 sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest`)
	for i, name := range signs {
		all[name] = rune(0xa0 + i)
	}
	letters := strings.Fields(`agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml
		eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml`)
	for i, name := range letters {
		all[name] = rune(0xe0 + i)
	}
	return all
}()
