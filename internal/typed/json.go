package typed

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Decode decodes arguments into the value that in points to. If that is a struct, its
// fields are first set to their defaults.
func Decode(data []byte, in any) error {
	if v := reflect.ValueOf(in).Elem(); v.Kind() == reflect.Struct {
		if err := setDefaults(v); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, in)
}

// ErrNotUTF8 means that Marshal was given a string that is not valid UTF-8.
var ErrNotUTF8 = errors.New("expected UTF-8: return other bytes as []byte, or use strings.ToValidUTF8")

// Marshal is like json.Marshal, but does not escape characters for HTML. A string
// that is not valid UTF-8 is an error; json.Marshal would replace bytes in it.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}

	data := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if bytes.Contains(data, replaced) {
		if at, found := notUTF8(reflect.ValueOf(v), ""); found {
			return nil, fmt.Errorf("%s: %w", at, ErrNotUTF8)
		}
	}
	return data, nil
}

// replaced is what encoding/json writes in place of a byte that is not valid UTF-8.
// It writes a U+FFFD in the text itself unescaped, but may copy the escape from a
// json.RawMessage.
var replaced = []byte(`\ufffd`)

// notUTF8 looks for a string that encoding/json has changed, and returns its JSON
// pointer.
func notUTF8(v reflect.Value, at string) (string, bool) {
	if !v.IsValid() || v.Type().Implements(reflect.TypeFor[json.Marshaler]()) || v.Type().Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "", false // it writes its own
	}

	switch v.Kind() {
	case reflect.String:
		return cmp.Or(at, "/"), !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return notUTF8(v.Elem(), at)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if at, found := notUTF8(v.Index(i), at+"/"+strconv.Itoa(i)); found {
				return at, true
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if _, found := notUTF8(key, at); found {
				return fmt.Sprintf("the name %q in %s", key, cmp.Or(at, "/")), true
			}
			if at, found := notUTF8(v.MapIndex(key), fmt.Sprintf("%s/%v", at, key)); found {
				return at, true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() && !f.Anonymous {
				continue
			}
			below := at + "/" + cmp.Or(name, f.Name)
			if f.Anonymous && name == "" {
				below = at
			}
			if at, found := notUTF8(v.Field(i), below); found {
				return at, true
			}
		}
	}
	return "", false
}
