package typed

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Decode decodes arguments into a pointer, over the defaults of its struct.
func Decode(data []byte, in any) error {
	if v := reflect.ValueOf(in).Elem(); v.Kind() == reflect.Struct {
		if err := setDefaults(v); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, in)
}

// Marshal is json.Marshal without the escapes that are for HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
