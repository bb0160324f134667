package egress

import (
	"errors"
	"fmt"
	"strings"
)

// normalizePath returns the path as it is sent and compared: percent-encoding in one
// form, dot segments resolved. It refuses what servers read in different ways.
func normalizePath(path string) (string, error) {
	if path == "" {
		return "/", nil
	}

	path, err := normalizeEscapes(path)
	if err != nil {
		return "", err
	}

	in := strings.Split(path[1:], "/")
	out := make([]string, 0, len(in))
	for i, segment := range in {
		last := i == len(in)-1
		switch segment {
		case ".":
			if last {
				out = append(out, "")
			}
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			if err := checkSegment(segment); err != nil {
				return "", err
			}
			out = append(out, segment)
		}
	}
	return "/" + strings.Join(out, "/"), nil
}

// normalizeEscapes decodes what needs no encoding, encodes what does, and writes
// escapes in upper case.
func normalizeEscapes(s string) (string, error) {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == '%' || r == '\\' || !pathByte(byte(min(r, 0x7f))) }) {
		return s, nil
	}

	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\':
			return "", errors.New(`a backslash in the path: write / or %5C`)
		case c == '%':
			if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
				return "", fmt.Errorf("invalid escape %q in the path", s[i:min(i+3, len(s))])
			}
			d := byte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			i += 2
			if unreserved(d) {
				b.WriteByte(d)
			} else {
				writeEscape(&b, d)
			}
		case pathByte(c):
			b.WriteByte(c)
		default:
			writeEscape(&b, c)
		}
	}
	return b.String(), nil
}

// checkSegment refuses dot segments and control characters that a server would find if
// it decoded once more, took an encoded slash or a backslash for a separator, or
// removed a parameter.
func checkSegment(segment string) error {
	if !strings.ContainsAny(segment, "%;") {
		return nil
	}

	for range 4 {
		for _, part := range strings.FieldsFunc(segment, func(r rune) bool { return r == '/' || r == '\\' }) {
			name, _, _ := strings.Cut(part, ";")
			if name = strings.TrimRight(name, " "); name == "." || name == ".." {
				return errors.New("an encoded dot segment in the path")
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

// overlong reports whether s has a UTF-8 sequence that is longer than it needs to be,
// which old decoders read as a dot or a slash.
func overlong(s string) bool {
	for i := range len(s) {
		switch next := s[min(i+1, len(s)-1)]; s[i] {
		case 0xc0, 0xc1:
			return true
		case 0xe0:
			if 0x80 <= next && next < 0xa0 {
				return true
			}
		case 0xf0:
			if 0x80 <= next && next < 0x90 {
				return true
			}
		}
	}
	return false
}

// decodeOnce decodes valid escapes and leaves others as they are.
func decodeOnce(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0 {
			b.WriteByte(byte(unhex(s[i+1])<<4 | unhex(s[i+2])))
			i += 2
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// normalizeQuery encodes what must not be in a request line.
func normalizeQuery(q string) string {
	var b strings.Builder
	for i := 0; i < len(q); i++ {
		if c := q[i]; c == '%' || c == '\\' || c == '?' || pathByte(c) {
			b.WriteByte(c)
		} else {
			writeEscape(&b, c)
		}
	}
	return b.String()
}

// matchPath reports whether a normalized path matches a pattern. A pattern is a path too: if it
// matches, so does every path that it stands for.
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
	return glob(pattern, segment)
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

// glob matches * greedily, in time linear in the product of the lengths.
func glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

func writeEscape(b *strings.Builder, c byte) {
	const digits = "0123456789ABCDEF"
	b.WriteByte('%')
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&15])
}

func unhex(c byte) int { return int(hexDigits[c]) }

// hexDigits has the value of each digit, and -1.
var hexDigits = func() (digits [256]int8) {
	for c := range digits {
		digits[c] = int8(max(strings.IndexByte("0123456789abcdef", byte(c)), strings.IndexByte("0123456789ABCDEF", byte(c))))
	}
	return digits
}()

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// unreserved are the characters of RFC 3986 whose encoding means the same.
func unreserved(c byte) bool { return alphanumeric(c) || strings.IndexByte("-._~", c) >= 0 }

// pathByte are the characters that a path and a query may have as they are.
func pathByte(c byte) bool { return unreserved(c) || strings.IndexByte("!$&'()*+,;=:@/[]", c) >= 0 }
