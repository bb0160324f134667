package typed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/abi"
)

// ownTags lists the tags of this package. meantTags maps other tags to those that are
// probably meant.
var (
	ownTags   = []string{"desc", "enum", "min", "max", "pattern", "format", "default", "example", "secret"}
	meantTags = map[string]string{
		"description": "desc", "doc": "desc", "help": "desc", "title": "desc", "usage": "desc",
		"minimum": "min", "minLength": "min", "minItems": "min", "maximum": "max", "maxLength": "max", "maxItems": "max",
		"examples": "example", "writeOnly": "secret", "oneof": "enum", "choices": "enum", "regexp": "pattern",
	}
	// encoderTags lists the tags of other encoders, which a struct may have as well.
	encoderTags = []string{"json", "yaml", "toml", "xml", "csv", "bson", "msgpack", "cbor", "protobuf", "mapstructure", "db", "url", "form", "env"}
)

// checkTags returns an error if a field has tags that are wrong and would have no
// effect: an unknown key, an invalid value of secret, or a tag on a field that JSON
// leaves out. A result may have a type from another package, so in results an unknown
// key is an error only if it resembles one of ours.
func (b *schemaBuilder) checkTags(f reflect.StructField) error {
	for tag := string(f.Tag); strings.TrimSpace(tag) != ""; {
		key, rest, ok := strings.Cut(strings.TrimLeft(tag, " "), ":")
		quoted, err := strconv.QuotedPrefix(rest)
		if !ok || err != nil || key == "" || strings.ContainsAny(key, " \"") {
			return fmt.Errorf("bad struct tag %q: expected key:\"value\" pairs with a space between them", f.Tag)
		}
		tag = rest[len(quoted):]

		own := slices.Contains(ownTags, key)
		if !f.IsExported() && (own || key == "json" && quoted != `"-"`) && !(f.Anonymous && key != "json") {
			return fmt.Errorf("it has the tag %s and is not exported, so JSON leaves it out: begin its name with a capital letter, or remove the tag", key)
		}
		if own || slices.Contains(encoderTags, key) {
			continue
		}

		near := cmp.Or(meantTags[key], abi.Nearest(key, ownTags))
		switch {
		case near != "":
			return fmt.Errorf("unknown tag %s, did you mean %q?", key, near)
		case !b.output:
			return fmt.Errorf("unknown tag %s, expected one of json, %s", key, strings.Join(ownTags, ", "))
		}
	}

	if secret, ok := f.Tag.Lookup("secret"); ok && secret != "true" && secret != "false" {
		return fmt.Errorf("tag secret: expected \"true\" or \"false\", found %q", secret)
	}
	return nil
}

// applyTags adds to the schema of a field's type what the field's tags say: see the
// package's documentation. In a result, a default has no effect.
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

// applyBounds adds the tags min and max, whose meaning depends on the type.
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

	kind := s.typeName()
	if (kind == "string" || kind == "array") && (n < 0 || n != float64(int(n))) {
		return fmt.Errorf("tag %s: expected a whole number that is not negative, found %q", key, text)
	}
	switch kind {
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

// tagValue converts the text of a tag to a value of a type. The text is JSON, unless the
// type is a string.
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

// setDefaults sets those fields of an arguments struct that have a default.
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
