// Package typed derives JSON Schemas from Go types and their tags, and reads and writes
// values of these types. The guest SDK uses it for plugins, and package gotool for a
// program's own tools; the documentation of package guest lists the tags. It imports
// only the standard library and abi, and keeps plugins small.
package typed

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// schema holds the part of JSON Schema 2020-12 that Go types and tags can express.
type schema struct {
	Type            any        `json:"type,omitempty"` // a string, or a list of a string and "null"
	Description     string     `json:"description,omitempty"`
	Properties      properties `json:"properties,omitempty"`
	Required        []string   `json:"required,omitempty"`
	Additional      any        `json:"additionalProperties,omitempty"` // false, or a *schema
	Items           *schema    `json:"items,omitempty"`
	MinItems        *int       `json:"minItems,omitempty"`
	MaxItems        *int       `json:"maxItems,omitempty"`
	Enum            []any      `json:"enum,omitempty"`
	Minimum         *float64   `json:"minimum,omitempty"`
	Maximum         *float64   `json:"maximum,omitempty"`
	MinLength       *int       `json:"minLength,omitempty"`
	MaxLength       *int       `json:"maxLength,omitempty"`
	Pattern         string     `json:"pattern,omitempty"`
	Format          string     `json:"format,omitempty"`
	ContentEncoding string     `json:"contentEncoding,omitempty"`
	Default         any        `json:"default,omitempty"`
	Examples        []any      `json:"examples,omitempty"`
	WriteOnly       bool       `json:"writeOnly,omitempty"`
}

type property struct {
	name   string
	schema *schema
}

// properties lists the properties in the order of the struct's fields.
type properties []property

// MarshalJSON writes the properties as a JSON object.
func (ps properties) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, p := range ps {
		if i > 0 {
			b = append(b, ',')
		}

		name, _ := Marshal(p.name) // a string
		value, err := Marshal(p.schema)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// Input returns the schema of the arguments that a tool with this struct type takes.
func Input(t reflect.Type) (json.RawMessage, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("expected a struct, found %s", t)
	}
	s, err := new(schemaBuilder).object(t, true)
	if err != nil {
		return nil, err
	}
	return Marshal(s)
}

// Output returns the schema of the results that have this type, or nil for a type that
// allows any value.
func Output(t reflect.Type) (json.RawMessage, error) {
	s, err := (&schemaBuilder{output: true}).of(t)
	if err != nil || s.Type == nil {
		return nil, err
	}
	return Marshal(s)
}

type schemaBuilder struct {
	output bool
	open   []reflect.Type // structs that contain the current one
}

// of returns the schema of a type in the form in which encoding/json reads or writes
// it.
func (b *schemaBuilder) of(t reflect.Type) (*schema, error) {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return &schema{}, nil
	case t.PkgPath() == "time" && t.Name() == "Time": // naming the type would put all its methods into every plugin
		return &schema{Type: "string", Format: "date-time"}, nil
	case b.converts(t, reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler]()):
		return &schema{}, nil
	case b.converts(t, reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()):
		return &schema{Type: "string"}, nil
	}

	switch t.Kind() {
	case reflect.Interface:
		return &schema{}, nil
	case reflect.Bool:
		return &schema{Type: "boolean"}, nil
	case reflect.String:
		return &schema{Type: "string"}, nil
	case reflect.Float32, reflect.Float64:
		return &schema{Type: "number"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &schema{Type: "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &schema{Type: "integer", Minimum: new(0.0)}, nil
	case reflect.Pointer:
		s, err := b.of(t.Elem())
		return b.nullable(s), err
	case reflect.Slice, reflect.Array:
		return b.list(t)
	case reflect.Map:
		return b.mapping(t)
	case reflect.Struct:
		return b.object(t, false)
	}
	return nil, fmt.Errorf("%s has no JSON", t)
}

// converts reports whether a method writes or reads the values of type t.
func (b *schemaBuilder) converts(t, writer, reader reflect.Type) bool {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return false
	}
	if b.output {
		return t.Implements(writer) || reflect.PointerTo(t).Implements(writer)
	}
	return reflect.PointerTo(t).Implements(reader)
}

// nullable makes null a valid value in a result, because nil slices, maps and pointers
// become null.
func (b *schemaBuilder) nullable(s *schema) *schema {
	if s != nil && s.Type != nil && b.output {
		s.Type = []string{s.typeName(), "null"}
	}
	return s
}

// typeName returns the type of all values except null, or "" if any type is allowed.
func (s *schema) typeName() string {
	if list, ok := s.Type.([]string); ok {
		return list[0]
	}
	name, _ := s.Type.(string)
	return name
}

func (b *schemaBuilder) list(t reflect.Type) (*schema, error) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return b.nullable(&schema{Type: "string", ContentEncoding: "base64"}), nil
	}
	items, err := b.of(t.Elem())
	if err != nil {
		return nil, err
	}
	if t.Kind() == reflect.Array {
		return &schema{Type: "array", Items: items, MinItems: new(t.Len()), MaxItems: new(t.Len())}, nil
	}
	return b.nullable(&schema{Type: "array", Items: items}), nil
}

func (b *schemaBuilder) mapping(t reflect.Type) (*schema, error) {
	if t.Key().Kind() != reflect.String {
		return nil, fmt.Errorf("%s: the keys of a JSON object are strings", t)
	}
	values, err := b.of(t.Elem())
	if err != nil {
		return nil, err
	}
	return b.nullable(&schema{Type: "object", Additional: values}), nil
}

func (b *schemaBuilder) object(t reflect.Type, root bool) (*schema, error) {
	if slices.Contains(b.open, t) {
		return nil, fmt.Errorf("%s contains itself: use json.RawMessage for the inner one", t)
	}
	b.open = append(b.open, t)
	defer func() { b.open = b.open[:len(b.open)-1] }()
	s := &schema{Type: "object", Additional: false}
	return s, b.fields(s, t, root)
}

// fields adds the fields of a struct, including those of the structs that it embeds.
func (b *schemaBuilder) fields(s *schema, t reflect.Type, root bool) error {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if err := b.checkTags(f); err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			if err := b.fields(s, f.Type, root); err != nil {
				return err
			}
			continue
		case f.Tag.Get("json") == "-" || !f.IsExported():
			continue
		case f.Anonymous && name == "":
			return fmt.Errorf("field %s: embed a struct, or give the field a json name", f.Name)
		case name == "":
			name = f.Name
		}

		if slices.ContainsFunc(s.Properties, func(p property) bool { return p.name == name }) {
			return fmt.Errorf("field %s: the name %q is taken", f.Name, name)
		}

		p, optional, err := b.field(f, strings.Split(options, ","), root)
		if err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}

		s.Properties = append(s.Properties, property{name, p})
		if !optional {
			s.Required = append(s.Required, name)
		}
	}

	return nil
}

// field returns the schema of a field, and reports whether the field is optional.
func (b *schemaBuilder) field(f reflect.StructField, options []string, root bool) (*schema, bool, error) {
	s, err := b.of(f.Type)
	if err != nil {
		return nil, false, err
	}

	omitted := slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero")
	if s.Type != nil && omitted {
		s.Type = s.typeName() // what would be null is left out
	}
	if slices.Contains(options, "string") {
		return nil, false, errors.New("the json option string is not supported")
	}
	if err := applyTags(s, f, b.output, root); err != nil {
		return nil, false, err
	}

	optional := omitted || s.Default != nil || !b.output && f.Type.Kind() == reflect.Pointer
	return s, optional, nil
}
