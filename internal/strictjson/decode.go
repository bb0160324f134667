package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolhost/toolhost/abi"
)

// Decode reads one JSON object into a struct or a map, in one pass. Names are case-sensitive;
// unknown and repeated names are errors. A field of type [Object] is checked in full, and keeps
// a part of text, so the caller must not change text. The error is an *[Error].
func Decode(text []byte, into any) error {
	if !utf8.Valid(text) {
		return &Error{Problem: abi.Problem{Message: "expected UTF-8 text"}}
	}
	if start := bytes.TrimLeft(text, space); len(start) > 0 && start[0] != '{' {
		_, err := Parse(text)
		return err
	}
	if isLong(text) && decodeShort(text, into) {
		return nil
	}
	return Explain(unmarshal(text, into, nil))
}

// decodeShort is like Decode, for a valid text whose long strings are all in fields of
// type [Object]. It reads the text without those strings. For any other text it reports
// false, and sets nothing.
func decodeShort(text []byte, into any) bool {
	short, cuts, _ := shorten(text)
	if len(cuts) == 0 {
		return false
	}

	used := 0
	whole := func(at int) (before, offset int) {
		before = sort.Search(len(cuts), func(i int) bool { return cuts[i].at > at })
		if before > 0 {
			at += cuts[before-1].lacking
		}
		return before, at
	}
	objects := jsonv2.UnmarshalFromFunc(func(dec *jsontext.Decoder, o *Object) error {
		if err := o.UnmarshalJSONFrom(dec); err != nil {
			return err
		}
		end := int(dec.InputOffset())
		first, from := whole(end - len(o.raw))
		last, to := whole(end)
		o.raw, used = text[from:to], used+last-first
		return nil
	})

	to := reflect.ValueOf(into).Elem()
	decoded := reflect.New(to.Type())
	decoded.Elem().Set(to)
	if unmarshal(short, decoded.Interface(), objects) != nil || used != len(cuts) {
		return false
	}
	to.Set(decoded.Elem())
	return true
}

// unmarshal decodes a text strictly. types adds unmarshalers for further types.
func unmarshal(text []byte, into any, types *jsonv2.Unmarshalers) error {
	schemaTypes := asInSchemas
	if !bytes.Contains(text, []byte("null")) { // asking each value would take most of the time
		schemaTypes = asInSchemasWithoutNull
	}
	if types != nil {
		schemaTypes = jsonv2.JoinUnmarshalers(types, schemaTypes)
	}
	return jsonv2.Unmarshal(text, into, jsonv2.RejectUnknownMembers(true), utf8Checked, jsonv2.WithUnmarshalers(schemaTypes))
}

// asInSchemas decodes values by the types of JSON Schema: null does not fit any Go type,
// and a number without a fraction is an integer no matter how it is written.
var asInSchemas = jsonv2.JoinUnmarshalers(
	jsonv2.UnmarshalFromFunc(integer[int]), jsonv2.UnmarshalFromFunc(integer[int64]), jsonv2.UnmarshalFromFunc(notNull),
)

var asInSchemasWithoutNull = jsonv2.JoinUnmarshalers(
	jsonv2.UnmarshalFromFunc(integer[int]), jsonv2.UnmarshalFromFunc(integer[int64]),
)

func notNull(dec *jsontext.Decoder, into any) error {
	if _, raw := into.(*json.RawMessage); raw || dec.PeekKind() != 'n' {
		return errors.ErrUnsupported
	}

	t := reflect.TypeOf(into).Elem()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return fmt.Errorf("expected %s, found null", typeName(t))
}

func integer[T int | int64](dec *jsontext.Decoder, into *T) error {
	if dec.PeekKind() != '0' {
		return notNull(dec, into)
	}
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}

	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		const exact = 1 << 53 // larger numbers have digits that a float64 lacks
		f, _ := strconv.ParseFloat(string(value), 64)
		if f != math.Trunc(f) || math.Abs(f) > exact {
			return errors.New("expected a whole number, found a number")
		}
		n = int64(f)
	}
	*into = T(n)
	return nil
}

// Explain turns an error from encoding/json/v2 or its package jsontext into an *[Error].
// Nil stays nil.
func Explain(err error) error {
	var syntax *jsontext.SyntacticError
	var meaning *jsonv2.SemanticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{Problem: abi.Problem{Pointer: string(syntax.JSONPointer), Message: "given more than once"}}
	case errors.As(err, &syntax):
		return &Error{Problem: abi.Problem{Message: fmt.Sprintf("expected JSON: %v (byte %d)", syntax.Err, syntax.ByteOffset)}}
	case !errors.As(err, &meaning):
		return &Error{abi.Problem{Message: err.Error()}, err}
	}

	found := &Error{abi.Problem{Pointer: string(meaning.JSONPointer)}, meaning.Err}
	switch {
	case errors.Is(meaning.Err, jsonv2.ErrUnknownName):
		found.Message = unknownField(meaning.JSONPointer.LastToken(), meaning.GoType)
	case meaning.Err != nil && !errors.Is(meaning.Err, strconv.ErrSyntax) && !errors.Is(meaning.Err, strconv.ErrRange):
		found.Message = meaning.Err.Error()
	default:
		found.Message = fmt.Sprintf("expected %s, found %s", typeName(meaning.GoType), kind(meaning.JSONKind))
	}

	return found
}

// unknownField returns an error message about a name that a struct does not have. It
// suggests the field that is probably meant, or lists all fields.
func unknownField(name string, t reflect.Type) string {
	var known []string
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" && tag != "-" {
			known = append(known, tag)
		}
	}

	slices.Sort(known)
	if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
		return fmt.Sprintf("unknown field, did you mean %q?", known[i])
	}
	if near := abi.Nearest(name, known); near != "" {
		return fmt.Sprintf("unknown field, did you mean %q?", near)
	}
	return "unknown field, expected one of " + strings.Join(known, ", ")
}

// typeName returns what a Go type is called in JSON.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}

	return "another value"
}

// kind describes a kind of JSON value in words.
func kind(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}

	return k.String()
}
