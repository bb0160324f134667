package egress

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Kinds of bytes, as bits.
const (
	plain       = 0
	space       = 1
	percentSign = 2 // this kind and those below begin escapes
	backslash   = 4
	ampersand   = 8
)

var kinds = [256]uint8{' ': space, '\n': space, '\r': space, '\t': space, '%': percentSign, '\\': backslash, '&': ampersand}

// follows maps a byte to the kinds of bytes with which it can begin an escape.
var follows = func() (kinds [256]uint8) {
	for c := range kinds {
		if hexDigits[c] >= 0 {
			kinds[c] |= percentSign
		}
		if short[c] != 0 || c|0x20 == 'x' || c|0x20 == 'u' {
			kinds[c] |= backslash
		}
		if alphanumeric(byte(c)) || c == '#' {
			kinds[c] |= ampersand
		}
	}
	return kinds
}()

// maxEscape is longer than any escape, in bytes.
const maxEscape = 24

// beginsEscape matches texts that further bytes could turn into an escape, or into another
// one.
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

// unescape decodes the escape that a text begins with: a URL's %XX, a backslash escape of
// JSON or a programming language, or an HTML reference. It returns a character, or -b for
// a byte b of UTF-8 or Latin-1, and the size of the escape, or 0 if there is none.
func unescape(text []byte) (r rune, size int) {
	if len(text) < 2 {
		return 0, 0
	}

	switch text[0] {
	case '%':
		if len(text) > 2 {
			if b := hexByte(text[1], text[2]); b >= 0 {
				return -b, 3
			}
		}
	case '\\':
		if c := short[text[1]]; c != 0 {
			return rune(c), 2
		}
		return hexEscape(text)
	case '&':
		if text[1] == '#' {
			return number(text)
		}
		return reference(text)
	}
	return 0, 0
}

// percentEncoded returns the byte of a %XX, or 0.
func percentEncoded(text []byte) byte {
	if len(text) < 3 || text[0] != '%' {
		return 0
	}
	return byte(max(0, hexByte(text[1], text[2])))
}

// hexByte returns the number that two hexadecimal digits form, or a negative one.
func hexByte(high, low byte) rune { return rune(hexDigits[high])<<4 | rune(hexDigits[low]) }

// short maps the second byte of two-byte backslash escapes to its character:
// and the like, and any byte that is not a letter or digit.
var short = func() (chars [256]byte) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		if !alphanumeric(c) {
			chars[c] = c
		}
	}
	for i, c := range []byte("bfnrt") {
		chars[c] = "\b\f\n\r\t"[i]
	}
	return chars
}()

// hexEscape decodes \uXXXX, or two of them for a surrogate pair, and \xXX for a byte.
func hexEscape(text []byte) (r rune, size int) {
	switch text[1] | 0x20 {
	case 'x':
		if len(text) > 3 {
			if b := hexByte(text[2], text[3]); b >= 0 {
				return -b, 4
			}
		}
	case 'u':
		if r = utf16Unit(text); utf16.IsSurrogate(r) {
			if low := utf16Unit(text[6:]); low >= 0 {
				return utf16.DecodeRune(r, low), 12
			}
		}
		if r >= 0 {
			return r, 6
		}
	}
	return 0, 0
}

// utf16Unit decodes the \uXXXX that a text begins with, or returns a negative number.
func utf16Unit(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1]|0x20 != 'u' {
		return -1
	}
	return hexByte(text[2], text[3])<<8 | hexByte(text[4], text[5])
}

// reference decodes &NAME; if a secret may contain the character.
func reference(text []byte) (r rune, size int) {
	name := uint64(0)
	for n, c := range text[1:min(len(text), maxName+2)] {
		if c == ';' {
			i, _ := slices.BinarySearch(references, name<<8)
			if i < len(references) && references[i]>>8 == name {
				return rune(references[i] & 0xff), n + 2
			}
			break
		}
		if n == maxName || !alphanumeric(c) {
			break
		}
		name = name<<8 | uint64(c|0x20) // digits do not change
	}
	return 0, 0
}

// number decodes &#N; and &#xN;, of at most 16 digits. It needs no semicolon.
func number(text []byte) (r rune, size int) {
	base, at := rune(10), 2
	if len(text) > 2 && text[2]|0x20 == 'x' {
		base, at = 16, 3
	}

	from := at
	for at < len(text) && at < from+16 {
		digit := rune(hexDigits[text[at]])
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

// maxName is the longest name of a reference, in bytes.
const maxName = 7

// references lists the HTML names of ASCII and Latin-1 characters, in lower case
// and sorted. The last byte of each entry is the character.
var references = func() (all []uint64) {
	for _, name := range strings.Fields(`excl quot num dollar percnt amp apos lpar rpar ast plus comma period sol colon semi lt equals gt quest
		commat lsqb lbrack bsol rsqb rbrack Hat lowbar grave lcub lbrace verbar vert rcub rbrace
		nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro para middot
		cedil sup1 ordm raquo frac14 frac12 frac34 iquest times szlig
		agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml
		eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml`) {
		packed := uint64(0)
		for _, c := range []byte(strings.ToLower(name)) {
			packed = packed<<8 | uint64(c)
		}
		char, _ := utf8.DecodeRuneInString(html.UnescapeString("&" + name + ";"))
		all = append(all, packed<<8|uint64(char))
	}
	slices.Sort(all)
	return all
}()
