package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolhost/toolhost/internal/strictjson"
)

// reader builds the tree of a document in one pass, with exact numbers. It refuses
// a repeated name, because a plugin could read the member that is not checked here,
// and numbers that would take exact arithmetic more than a moment.
type reader struct {
	*jsontext.Decoder
	size int // values and names so far; a long number counts as several
}

// decode returns the tree of a document and its size. The error is a
// *strictjson.Error.
func decode(raw json.RawMessage) (doc any, size int, err error) {
	if !utf8.Valid(raw) {
		return nil, 0, strictjson.Check(raw)
	}
	r := &reader{Decoder: jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))}

	if doc, err = r.value(); err != nil {
		return nil, 0, strictjson.Explain(err)
	}
	if len(bytes.TrimSpace(raw[r.InputOffset():])) > 0 {
		return nil, 0, strictjson.Check(raw)
	}
	return doc, r.size, nil
}

func (r *reader) value() (any, error) {
	token, err := r.ReadToken()
	if err != nil {
		return nil, err
	}

	r.size++
	switch token.Kind() {
	case 't', 'f':
		return token.Bool(), nil
	case '"':
		return token.String(), nil
	case '0':
		return r.number(json.Number(token.String()))
	case '[':
		return r.array()
	case '{':
		return r.object()
	}

	return nil, nil
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
		name, err := r.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()

		r.size++
		if members[key], err = r.value(); err != nil {
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
