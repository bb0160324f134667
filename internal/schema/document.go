package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolhost/toolhost/internal/strictjson"
)

// decode checks a document, and returns its tree and its size: see [reader].
func decode(raw json.RawMessage) (doc any, size int, err error) {
	if err := strictjson.Check(raw); err != nil {
		return nil, 0, err
	}
	return tree(raw, true)
}

// tree returns the tree of a document that strictjson has checked, and its size. If
// texts is false, all string values in the tree are empty.
func tree(raw json.RawMessage, texts bool) (doc any, size int, err error) {
	r := &reader{rest: raw, texts: texts}
	doc, err = r.value()
	return doc, r.size, err
}

// reader builds the tree of a checked document, with exact numbers. It does not check
// the syntax again, so that long strings cost little. It refuses numbers with which
// exact arithmetic would take more than a moment.
type reader struct {
	rest  []byte
	texts bool
	size  int // number of values and names so far; a long number counts as several
}

// next returns the first byte of the next token. It skips commas and colons, which
// carry no information.
func (r *reader) next() byte {
	at := 0
	for r.rest[at] <= ' ' || r.rest[at] == ',' || r.rest[at] == ':' {
		at++
	}
	r.rest = r.rest[at:]
	return r.rest[0]
}

// take returns the next n bytes, and moves past them.
func (r *reader) take(n int) []byte {
	token := r.rest[:n]
	r.rest = r.rest[n:]
	return token
}

func (r *reader) value() (any, error) {
	r.size++
	switch r.next() {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		if text := r.text(); r.texts {
			return unquote(text), nil
		}
		return "", nil
	case 'n':
		r.take(len("null"))
		return nil, nil
	case 't':
		r.take(len("true"))
		return true, nil
	case 'f':
		r.take(len("false"))
		return false, nil
	}
	return r.number()
}

func (r *reader) array() (any, error) {
	r.take(len("["))
	items := []any{}
	for r.next() != ']' {
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}

	r.take(len("]"))
	return items, nil
}

func (r *reader) object() (any, error) {
	r.take(len("{"))
	members := map[string]any{}
	for r.next() != '}' {
		r.size++
		name := unquote(r.text())
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		members[name] = value
	}

	r.take(len("}"))
	return members, nil
}

// text returns the next token, which is a string, including its quotes.
func (r *reader) text() []byte {
	end := 1
	for {
		end += bytes.IndexByte(r.rest[end:], '"') + 1
		slashes := end - 1 - len(bytes.TrimRight(r.rest[:end-1], `\`))
		if slashes%2 == 0 { // the quote is not escaped
			return r.take(end)
		}
	}
}

// unquote returns the text of a string. An unpaired surrogate becomes U+FFFD, as in
// encoding/json.
func unquote(text []byte) string {
	if inner := text[1 : len(text)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	plain, _ := jsontext.AppendUnquote(nil, text) // the only error of a checked text is that half
	return string(plain)
}

func (r *reader) number() (any, error) {
	n := json.Number(r.word())
	if !moderate(n) {
		return nil, fmt.Errorf("the number %.20s… is out of range", n)
	}
	if long(n) {
		r.size += 9
	}
	return n, nil
}

// word returns the next token, which is a number, true, false or null.
func (r *reader) word() []byte {
	if end := bytes.IndexAny(r.rest, " \t\r\n,]}"); end >= 0 {
		return r.take(end)
	}
	return r.take(len(r.rest))
}

// raw returns the bytes of the next value, unchanged.
func (r *reader) raw() []byte {
	first := r.next()
	from, depth := r.rest, 0
	for ; ; first = r.next() {
		switch first {
		case '"':
			r.text()
		case '{', '[':
			r.take(1)
			depth++
		case '}', ']':
			r.take(1)
			depth--
		default:
			r.word()
		}
		if depth == 0 {
			return from[:len(from)-len(r.rest)]
		}
	}
}

// Member is a member of a JSON object: a name with its value.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members returns the members of a checked JSON object, in order. For any other
// value it returns nil.
func Members(object json.RawMessage) (all []Member) {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	r := &reader{rest: object}
	r.take(len("{"))
	for r.next() != '}' {
		name := unquote(r.text())
		all = append(all, Member{name, r.raw()})
	}
	return all
}

// itemsOf returns the items of a checked JSON array.
func itemsOf(array json.RawMessage) (all [][]byte) {
	r := &reader{rest: array}
	r.take(len("["))
	for r.next() != ']' {
		all = append(all, r.raw())
	}
	return all
}

func valueOf(all []Member, name string) json.RawMessage {
	if i := slices.IndexFunc(all, func(m Member) bool { return m.Name == name }); i >= 0 {
		return all[i].Value
	}
	return nil
}

// Join encodes members as a JSON object.
func Join(all []Member) json.RawMessage {
	texts := make([]string, len(all))
	for i, m := range all {
		texts[i] = encode(m.Name) + ":" + string(m.Value)
	}
	return json.RawMessage("{" + strings.Join(texts, ",") + "}")
}

// moderate reports whether exact arithmetic with a number is cheap enough.
func moderate(n json.Number) bool {
	mantissa, exponent := n.String(), "0"
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		mantissa, exponent = mantissa[:i], mantissa[i+1:]
	}

	e, err := strconv.Atoi(exponent)
	return len(mantissa) <= 400 && err == nil && -400 < e && e < 400
}

// long reports whether exact arithmetic with a number takes several times as long as
// with others.
func long(n json.Number) bool { return len(n) > 30 || strings.ContainsAny(n.String(), "eE") }
