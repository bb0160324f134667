// Package jsontext looks at JSON as it is written. encoding/json takes the name of a
// field in any case, and of two members of one name the last: who reads the
// other one would see something else.
package jsontext

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Members returns the names and the values of an object of valid JSON, in their
// order. Of any other value there are none.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		rest, ok := bytes.CutPrefix(bytes.TrimSpace(object), []byte("{"))
		for ok {
			var key, value []byte
			if key, rest = cut(rest); len(key) == 0 { // it is empty
				return
			}
			value, rest = cut(rest[1:])
			var name string
			_ = json.Unmarshal(key, &name) // it is valid
			if !yield(name, value) {
				return
			}
			ok = rest[0] == ','
			rest = rest[1:]
		}
	}
}

// cut cuts the first value from what follows a bracket, a comma or a colon in
// valid JSON. What is left begins with what ended it.
func cut(data []byte) (value, rest []byte) {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == ':' || c == '}'):
			return bytes.TrimSpace(data[:i]), data[i:]
		case c == '}' || c == ']':
			depth--
		}
	}
	return bytes.TrimSpace(data), nil
}

// Names counts the members of all objects in valid JSON.
func Names(data []byte) (n int) {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ':' && !quoted:
			n++
		}
	}
	return n
}
