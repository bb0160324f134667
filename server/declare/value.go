package declare

import (
	"bytes"
	"encoding/json"
)

// kind is the kind of a JSON value; zero is invalid.
type kind byte

const (
	null kind = iota + 1
	boolean
	number
	text
	array
	object
)

// value is a parsed JSON value, whose members keep their order.
type value struct {
	kind    kind
	raw     string // text of a boolean or a number
	text    string
	items   []value
	members []member
}

type member struct {
	name  string
	value value
}

// maxNesting is the maximum depth to which values nest. Deeper values become null.
const maxNesting = 64

// parse returns the value of a document; the zero value if it is not JSON.
func parse(document json.RawMessage) value {
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	v, err := read(dec, 0)
	if err != nil {
		return value{}
	}
	return v
}

func read(dec *json.Decoder, depth int) (value, error) {
	if depth == maxNesting {
		var skipped json.RawMessage
		return value{kind: null}, dec.Decode(&skipped)
	}
	token, err := dec.Token()
	if err != nil {
		return value{}, err
	}

	switch t := token.(type) {
	case bool:
		if t {
			return value{kind: boolean, raw: "true"}, nil
		}
		return value{kind: boolean, raw: "false"}, nil
	case json.Number:
		return value{kind: number, raw: t.String()}, nil
	case string:
		return value{kind: text, text: t}, nil
	case json.Delim:
		return readInner(dec, t, depth)
	}
	return value{kind: null}, nil
}

// readInner reads an array or an object after its first delimiter.
func readInner(dec *json.Decoder, start json.Delim, depth int) (v value, err error) {
	v.kind = array
	if start == '{' {
		v.kind = object
	}
	for dec.More() {
		var m member
		if v.kind == object {
			key, err := dec.Token()
			if err != nil {
				return v, err
			}
			m.name, _ = key.(string)
		}
		if m.value, err = read(dec, depth+1); err != nil {
			return v, err
		}

		if v.kind == object {
			v.members = append(v.members, m)
		} else {
			v.items = append(v.items, m.value)
		}
	}
	_, err = dec.Token() // the closing delimiter
	return v, err
}

// member returns a member of an object; the zero value without one.
func (v value) member(name string) value {
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return value{}
}

// has reports whether an array contains a text.
func (v value) has(name string) bool {
	for _, item := range v.items {
		if item.kind == text && item.text == name {
			return true
		}
	}
	return false
}
