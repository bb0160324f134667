package abi

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// valuesOf returns the arguments of a call, a JSON object. For anything but an
// object, the map is empty. It is never nil.
func valuesOf(args json.RawMessage) values {
	if v, ok := split(args); ok {
		return v
	}
	v := values{}
	if err := json.Unmarshal(args, &v); err != nil || v == nil { // null makes it nil
		v = values{}
	}
	return v
}

// split splits a valid object with as few checks as possible: package json reads each
// byte several times, which for a large text takes longer than most calls. It reports
// false if it is unsure.
func split(object []byte) (values, bool) {
	v := values{}
	at := space(object, 0)
	if at == len(object) || object[at] != '{' {
		return nil, false
	}
	for at = space(object, at+1); at < len(object) && object[at] == '"'; at = space(object, at+1) {
		end := element(object, at)
		if end < 0 {
			return nil, false
		}
		name, plain := plainText(object[at:end])
		colon := space(object, end)
		if !plain || colon == len(object) || object[colon] != ':' {
			return nil, false
		}

		from := space(object, colon+1)
		end = element(object, from)
		if end <= from {
			return nil, false
		}
		v[name] = object[from:end]
		if at = space(object, end); at == len(object) || object[at] != ',' {
			break
		}
	}
	return v, at < len(object) && object[at] == '}' && space(object, at+1) == len(object)
}

// space returns where white space ends.
func space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return at
}

// element returns where the value that begins at an index ends, or -1.
func element(text []byte, at int) int {
	depth := 0
	for ; at < len(text); at++ {
		switch text[at] {
		case '"':
			if at = quote(text, at+1); at < 0 {
				return -1
			}
			if depth == 0 {
				return at + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return at
			}
			if depth == 0 {
				return at + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return at
			}
		}
	}
	return -1
}

// quote returns the index of the quote that ends the string around an index, or -1.
func quote(text []byte, at int) int {
	for {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return -1
		}
		escapes := 0
		for escapes < n && text[at+n-1-escapes] == '\\' {
			escapes++
		}
		if at += n; escapes%2 == 0 {
			return at
		}
		at++
	}
}

// plainText returns the text of a JSON string without escapes, or false if it may
// contain escapes.
func plainText(quoted []byte) (string, bool) {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
		return "", false
	}
	return string(text), true
}
