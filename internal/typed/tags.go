package typed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// applyTags adds what the tags of a field say to the schema of its type, see the
// package's documentation. A default has no meaning in a result.
func applyTags(s *schema, f reflect.StructField, output, root bool) error {
	s.Description = f.Tag.Get("desc")
	s.Format = cmp.Or(f.Tag.Get("format"), s.Format)
	s.Pattern = f.Tag.Get("pattern")
	s.WriteOnly = f.Tag.Get("secret") == "true"

	if text, ok := f.Tag.Lookup("enum"); ok {
		one, of := s, f.Type
		if s.Items != nil {
			one, of = s.Items, f.Type.Elem()
		}
		for word := range strings.SplitSeq(text, ",") {
			v, err := tagValue(of, word)
			if err != nil {
				return fmt.Errorf("tag enum: %w", err)
			}
			one.Enum = append(one.Enum, v)
		}
	}

	if text, ok := f.Tag.Lookup("example"); ok {
		v, err := tagValue(f.Type, text)
		if err != nil {
			return fmt.Errorf("tag example: %w", err)
		}
		s.Examples = []any{v}
	}

	if text, ok := f.Tag.Lookup("default"); ok && !output {
		if !root || !isScalar(f.Type.Kind()) {
			return errors.New("tag default: only for strings, numbers and booleans of the arguments' own struct")
		}

		v, err := tagValue(f.Type, text)
		if err != nil {
			return fmt.Errorf("tag default: %w", err)
		}

		s.Default = v
	}

	return applyBounds(s, f.Tag)
}

// applyBounds adds the tags min and max, whose meaning is the type's.
func applyBounds(s *schema, tag reflect.StructTag) error {
	if err := applyBound(s, tag, "min", &s.Minimum, &s.MinLength, &s.MinItems); err != nil {
		return err
	}
	return applyBound(s, tag, "max", &s.Maximum, &s.MaxLength, &s.MaxItems)
}

func applyBound(s *schema, tag reflect.StructTag, key string, number **float64, length, items **int) error {
	text, ok := tag.Lookup(key)
	if !ok {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("tag %s: expected a number, found %q", key, text)
	}

	switch s.typeName() {
	case "number", "integer":
		*number = &n
	case "string":
		*length = new(int(n))
	case "array":
		*items = new(int(n))
	default:
		return fmt.Errorf("tag %s: only for numbers, strings and slices", key)
	}

	return nil
}

func isScalar(k reflect.Kind) bool {
	return k == reflect.Bool || k == reflect.String || k >= reflect.Int && k <= reflect.Float64 && k != reflect.Uintptr
}

// tagValue reads the text of a tag as a value of a type: as JSON, unless it is a string.
func tagValue(t reflect.Type, text string) (any, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := reflect.New(t)
	if t.Kind() == reflect.String {
		v.Elem().SetString(text)
		return v.Elem().Interface(), nil
	}
	if err := json.Unmarshal([]byte(text), v.Interface()); err != nil {
		return nil, fmt.Errorf("%q is not of type %s", text, t)
	}
	return v.Elem().Interface(), nil
}

// setDefaults sets the fields of an arguments struct that have a default.
func setDefaults(v reflect.Value) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") == "" {
			if err := setDefaults(v.Field(i)); err != nil {
				return err
			}
			continue
		}

		text, ok := f.Tag.Lookup("default")
		if !ok || !f.IsExported() || !isScalar(f.Type.Kind()) {
			continue
		}
		value, err := tagValue(f.Type, text)
		if err != nil {
			return fmt.Errorf("field %s: tag default: %w", f.Name, err)
		}

		v.Field(i).Set(reflect.ValueOf(value))
	}

	return nil
}
