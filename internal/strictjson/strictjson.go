// Package strictjson reads JSON as RFC 7493 (I-JSON) requires: UTF-8 only, no
// duplicate names in an object, case-sensitive names, no unknown names. encoding/json
// tolerates violations of all of these, so two readers of the same text could see
// different values.
//
// It is a thin layer over encoding/json/v2 (in its own module until Go 1.27). It
// accepts escapes of unpaired surrogates, because JSON.stringify writes them.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolhost/toolhost/abi"
)

// Error is a problem in a text, with its position. Err is the error of a type's own
// UnmarshalJSON method, or nil.
type Error struct {
	abi.Problem
	Err error
}

func (e *Error) Error() string { return e.String() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Path returns the location of the problem, as names and indices joined by dots; ""
// stands for the whole text.
func (e *Error) Path() string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(e.Pointer, "/"), "/", "."), "~1", "/"), "~0", "~")
}

// Object is a JSON object that has been checked in full, so that its recipients need
// not check it again. The zero value is not an object and has no bytes.
type Object struct{ raw json.RawMessage }

// Parse checks a text in one pass. It keeps the text, so the caller must not change
// it. The error is an *[Error].
func Parse(text []byte) (Object, error) {
	if err := Check(text); err != nil {
		return Object{}, err
	}
	text = bytes.TrimSpace(text)
	if text[0] != '{' {
		return Object{}, &Error{Problem: abi.Problem{Message: "expected an object, found " + kind(jsontext.Value(text).Kind())}}
	}
	return Object{text}, nil
}

// Raw returns the text of the object, or nil for the zero value.
func (o Object) Raw() json.RawMessage { return o.raw }

// MarshalJSON returns the text of the object, or null for the zero value.
func (o Object) MarshalJSON() ([]byte, error) { return o.raw.MarshalJSON() }

// UnmarshalJSONFrom lets [Decode] read a field of this type without a second pass. It
// keeps the decoder's bytes, so the decoder must not read from a stream.
func (o *Object) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if value.Kind() != '{' {
		return errors.New("expected an object, found " + kind(value.Kind()))
	}

	o.raw = json.RawMessage(value)
	if loose, _ := jsonv2.GetOption(dec.Options(), jsontext.AllowDuplicateNames); loose {
		*o, err = Parse(o.raw)
	}

	return err
}

const space = " \t\r\n"

// Check reports whether a text is one valid JSON value of any kind, in one pass.
// The error is an *[Error].
func Check(text []byte) error {
	if !utf8.Valid(text) {
		return &Error{Problem: abi.Problem{Message: "expected UTF-8 text"}}
	}
	short := text
	if isLong(text) {
		short, _, _ = shorten(text)
	}
	if jsontext.Value(short).IsValid(utf8Checked) {
		return nil
	}
	_, err := jsontext.AppendFormat(nil, text, utf8Checked) // once more, for the reason
	return Explain(err)
}

var utf8Checked = jsontext.AllowInvalidUTF8(true)
