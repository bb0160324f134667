package egress

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// normalizePath returns the path to send and to compare, with percent-encoding in one
// form. It refuses paths that servers interpret in different ways.
func normalizePath(path string) (string, error) {
	if path == "" {
		return "/", nil
	}

	path, err := normalizeEscapes(path)
	if err != nil {
		return "", err
	}
	for segment := range strings.SplitSeq(path, "/") {
		if err := checkSegment(segment); err != nil {
			return "", err
		}
	}
	return path, nil
}

var (
	escapes       = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	invalidEscape = regexp.MustCompile(`%($|.$|[^0-9A-Fa-f].|.[^0-9A-Fa-f])`)
)

// normalizeEscapes decodes escapes that are not needed, encodes characters that
// must be, and writes escapes in upper case.
func normalizeEscapes(s string) (string, error) {
	if strings.Contains(s, `\`) {
		return "", errors.New(`a backslash in the path: write / or %5C`)
	}
	if bad := invalidEscape.FindString(s); bad != "" {
		return "", fmt.Errorf("invalid escape %q in the path", bad)
	}

	s = escapes.ReplaceAllStringFunc(s, func(escape string) string {
		if c := decodeOnce(escape); unreserved(c[0]) {
			return c
		}
		return strings.ToUpper(escape)
	})
	return encode(s, "%"), nil
}

// normalizeQuery encodes characters that must not be in a request line.
func normalizeQuery(q string) string { return encode(q, `%\?`) }

// encode encodes all characters except those that a path may contain, and those in others.
func encode(s, others string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; pathByte(c) || strings.IndexByte(others, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// decodeOnce decodes valid escapes and leaves others as they are.
func decodeOnce(s string) string {
	return escapes.ReplaceAllStringFunc(s, func(escape string) string {
		return string([]byte{byte(hexByte(escape[1], escape[2]))})
	})
}

// checkSegment refuses dot segments and control characters, including those that a server
// would find if it decoded once more, treated an encoded slash or a backslash as a
// separator, or removed a parameter.
func checkSegment(segment string) error {
	for range 4 {
		for _, part := range strings.FieldsFunc(segment, func(r rune) bool { return r == '/' || r == '\\' }) {
			name, _, _ := strings.Cut(part, ";")
			if name = strings.TrimRight(name, " "); name == "." || name == ".." {
				return errors.New("a dot segment in the path")
			}
		}
		if strings.ContainsFunc(segment, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			return errors.New("an encoded control character in the path")
		}
		if overlong(segment) {
			return errors.New("an overlong encoding in the path")
		}

		next := decodeOnce(segment)
		if next == segment {
			return nil
		}
		segment = next
	}
	return errors.New("the path is encoded too many times")
}

// overlong reports whether s contains an overlong UTF-8 sequence, which old decoders
// read as a dot or a slash.
func overlong(s string) bool {
	for i, c := range []byte(s) {
		next := s[min(i+1, len(s)-1)]
		if c == 0xc0 || c == 0xc1 || c == 0xe0 && 0x80 <= next && next < 0xa0 || c == 0xf0 && 0x80 <= next && next < 0x90 {
			return true
		}
	}
	return false
}

// matchPath reports whether a normalized path matches a pattern. If a pattern matches another
// pattern, it matches every path of that pattern.
func matchPath(pattern, path string) bool {
	prefix, tail := strings.CutSuffix(pattern, "/*")
	if !tail {
		prefix = pattern
	}

	for {
		want, restWant, moreWant := strings.Cut(prefix, "/")
		have, restHave, moreHave := strings.Cut(path, "/")
		if !matchSegment(want, have) {
			return false
		}
		if !moreWant {
			return moreHave == tail
		}
		if !moreHave {
			return false
		}
		prefix, path = restWant, restHave
	}
}

func matchSegment(pattern, segment string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == segment
	}
	if segment == "" || hidesSeparator(segment) {
		return false
	}
	matched, _ := path.Match(strings.ReplaceAll(pattern, "[", `\[`), segment) // a path pattern has no other syntax of path.Match
	return matched
}

// hidesSeparator reports whether a server could split the segment.
func hidesSeparator(segment string) bool {
	for strings.Contains(segment, "%") {
		next := decodeOnce(segment)
		if strings.ContainsAny(next, `/\`) {
			return true
		}
		if next == segment {
			return false
		}
		segment = next
	}
	return false
}

// hexDigits maps hexadecimal digits to their values, and other bytes to -1.
var hexDigits = func() (digits [256]int8) {
	for c := range digits {
		digits[c] = int8(max(strings.IndexByte("0123456789abcdef", byte(c)), strings.IndexByte("0123456789ABCDEF", byte(c))))
	}
	return digits
}()

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// unreserved reports whether c is an unreserved character of RFC 3986, whose encoding has
// the same meaning.
func unreserved(c byte) bool { return alphanumeric(c) || strings.IndexByte("-._~", c) >= 0 }

// pathByte reports whether c needs no encoding in a path or a query.
func pathByte(c byte) bool { return unreserved(c) || strings.IndexByte("!$&'()*+,;=:@/[]", c) >= 0 }
