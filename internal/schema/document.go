package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

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
	r := &reader{text: raw, texts: texts}
	doc, err = r.value()
	return doc, r.size, err
}

// reader builds the tree of a checked document in one pass, with exact numbers. It
// refuses numbers that would take exact arithmetic more than a moment.
type reader struct {
	text  []byte // valid JSON
	at    int    // the next byte
	texts bool
	size  int // values and names so far; a long number counts as several
}

// next skips white space and returns the byte after it.
func (r *reader) next() byte {
	for {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
}

func (r *reader) value() (any, error) {
	r.size++
	switch r.next() {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		return r.quoted(r.texts), nil
	case 't':
		r.at += len("true")
		return true, nil
	case 'f':
		r.at += len("false")
		return false, nil
	case 'n':
		r.at += len("null")
		return nil, nil
	}

	return r.number()
}

func (r *reader) array() (any, error) {
	items := []any{}
	for r.at++; r.next() != ']'; {
		item, err := r.value()
		if err != nil {
			return nil, err
		}

		items = append(items, item)
		if r.next() == ',' {
			r.at++
		}
	}

	r.at++
	return items, nil
}

func (r *reader) object() (_ any, err error) {
	members := map[string]any{}
	for r.at++; r.next() != '}'; {
		name := r.quoted(true)
		r.size++
		r.next()
		r.at++ // the colon
		if members[name], err = r.value(); err != nil {
			return nil, err
		}
		if r.next() == ',' {
			r.at++
		}
	}

	r.at++
	return members, nil
}

// quoted reads a text, and returns it if it is wanted.
func (r *reader) quoted(wanted bool) string {
	start, escaped := r.at, false
	r.at++
	end := r.at + bytes.IndexByte(r.text[r.at:], '"')
	for {
		slash := bytes.IndexByte(r.text[r.at:end], '\\')
		if slash < 0 {
			break
		}

		escaped = true
		if r.at += slash + 2; r.at > end { // the quote was escaped
			end = r.at + bytes.IndexByte(r.text[r.at:], '"')
		}
	}

	r.at = end + 1
	switch {
	case !wanted:
		return ""
	case !escaped:
		return string(r.text[start+1 : r.at-1])
	}

	text, _ := jsontext.AppendUnquote(nil, r.text[start:r.at]) // an error is half a surrogate pair, replaced
	return string(text)
}

func (r *reader) number() (any, error) {
	start := r.at
	for r.at < len(r.text) && strings.IndexByte("0123456789+-.eE", r.text[r.at]) >= 0 {
		r.at++
	}

	n := json.Number(r.text[start:r.at])
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
