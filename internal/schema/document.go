package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolhost/toolhost/internal/strictjson"
)

// decode checks a document and returns its tree and its size: see [reader].
func decode(raw json.RawMessage) (doc any, size int, err error) {
	if err := strictjson.Check(raw); err != nil {
		return nil, 0, err
	}
	return tree(raw, true)
}

// tree returns the tree of a document that strictjson has checked, and its size.
// Without texts, texts that are values are empty in it.
func tree(raw json.RawMessage, texts bool) (doc any, size int, err error) {
	r := &reader{Decoder: jsontext.NewDecoder(bytes.NewBuffer(raw), checked), texts: texts}
	doc, err = r.value()
	return doc, r.size, err
}

var checked = jsonv2.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// reader builds the tree of a checked document, with exact numbers. It refuses numbers
// that would take exact arithmetic more than a moment.
type reader struct {
	*jsontext.Decoder
	texts bool
	size  int // values and names so far; a long number counts as several
}

func (r *reader) value() (any, error) {
	r.size++
	token, err := r.ReadToken()
	if err != nil {
		return nil, err
	}

	switch token.Kind() {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		if !r.texts {
			return "", nil
		}
		return token.String(), nil
	case '0':
		return r.number(json.Number(token.String()))
	case 'n':
		return nil, nil
	}
	return token.Bool(), nil
}

func (r *reader) array() (any, error) {
	items := []any{}
	for r.PeekKind() != ']' {
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}

	_, err := r.ReadToken()
	return items, err
}

func (r *reader) object() (any, error) {
	members := map[string]any{}
	for r.PeekKind() != '}' {
		r.size++
		token, err := r.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		if members[name], err = r.value(); err != nil {
			return nil, err
		}
	}

	_, err := r.ReadToken()
	return members, err
}

func (r *reader) number(n json.Number) (any, error) {
	if !moderate(n) {
		return nil, fmt.Errorf("the number %.20s… is out of range", n)
	}
	if long(n) {
		r.size += 9
	}
	return n, nil
}

// moderate reports whether a number is cheap enough for exact arithmetic.
func moderate(n json.Number) bool {
	mantissa, exponent := n.String(), "0"
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		mantissa, exponent = mantissa[:i], mantissa[i+1:]
	}

	e, err := strconv.Atoi(exponent)
	return len(mantissa) <= 400 && err == nil && -400 < e && e < 400
}

// long reports whether exact arithmetic takes several times as long with a number
// as with others.
func long(n json.Number) bool { return len(n) > 30 || strings.ContainsAny(n.String(), "eE") }
