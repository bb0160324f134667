package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/httpapi"
)

// schemas are the schemas of Go types. Those of structs and enumerations are
// components of the document, and elsewhere references to them.
type schemas struct {
	source     *source
	components map[string]*jsonschema.Schema
	named      map[reflect.Type]string // the names of components
	sent       map[reflect.Type]bool   // whether a type is sent to the server, or answered by it
	constants  map[string]string       // the values of enumerations by the names of their constants
}

func newSchemas(s *source) *schemas {
	return &schemas{
		source: s, components: map[string]*jsonschema.Schema{}, constants: map[string]string{},
		named: map[reflect.Type]string{}, sent: map[reflect.Type]bool{},
	}
}

// of returns the schema of a type. What is sent to the server has no fields
// beside those that are known, which it refuses. Answers may have more fields
// some day.
func (s *schemas) of(t reflect.Type, sent bool) (*jsonschema.Schema, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}, nil
	case reflect.TypeFor[json.RawMessage]():
		return &jsonschema.Schema{Description: "any JSON"}, nil // and not true, which some generators do not take
	case reflect.TypeFor[[]byte]():
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}, nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem(), sent)
	case reflect.Struct:
		return s.component(t, sent, s.object)
	case reflect.String:
		return s.text(t, sent)
	case reflect.Slice:
		items, err := s.of(t.Elem(), sent)
		return &jsonschema.Schema{Type: "array", Items: items}, err
	case reflect.Map:
		return s.dictionary(t, sent)
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}, nil
	case reflect.Float64:
		return &jsonschema.Schema{Type: "number", Format: "double"}, nil
	case reflect.Int:
		return &jsonschema.Schema{Type: "integer"}, nil
	case reflect.Int64:
		return &jsonschema.Schema{Type: "integer", Format: "int64"}, nil
	}
	return nil, fmt.Errorf("no schema is known for %v", t)
}

// component returns a reference to the schema of a named type.
func (s *schemas) component(t reflect.Type, sent bool, build func(reflect.Type, bool) (*jsonschema.Schema, error)) (*jsonschema.Schema, error) {
	name, known := s.named[t]
	if !known {
		name = s.name(t)
		s.named[t], s.sent[t] = name, sent
		s.components[name] = nil // it may refer to itself
		schema, err := build(t, sent)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", t, err)
		}
		s.components[name] = schema
	}
	if t.Kind() == reflect.Struct && s.sent[t] != sent {
		return nil, fmt.Errorf("%v is both sent and answered: make a type of its own for requests", t)
	}
	return &jsonschema.Schema{Ref: "#/components/schemas/" + name}, nil
}

// name is the name of a type in the document. Where another package has a type
// of the same name the package is in it.
func (s *schemas) name(t reflect.Type) string {
	if _, taken := s.components[t.Name()]; !taken || t.PkgPath() == reflect.TypeFor[httpapi.Route]().PkgPath() {
		return t.Name()
	}
	pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
	return strings.ToUpper(pkg[:1]) + pkg[1:] + t.Name()
}

// text is the schema of a string: an enumeration, if its type has constants.
func (s *schemas) text(t reflect.Type, sent bool) (*jsonschema.Schema, error) {
	p, err := s.source.of(t)
	if err != nil {
		return nil, err
	}
	if p == nil || len(p.values[t.Name()]) == 0 {
		return &jsonschema.Schema{Type: "string"}, nil
	}
	return s.component(t, sent, func(t reflect.Type, _ bool) (*jsonschema.Schema, error) {
		schema := &jsonschema.Schema{Type: "string"}
		if doc := p.types[t.Name()]; doc != nil {
			schema.Description = doc.doc
		}
		schema.Description += describeValues(p.values[t.Name()])
		for _, v := range p.values[t.Name()] {
			s.constants[v.name] = v.text
			if v.text != "" { // which is left out in JSON
				schema.Enum = append(schema.Enum, v.text)
			}
		}
		return schema, nil
	})
}

func (s *schemas) dictionary(t reflect.Type, sent bool) (*jsonschema.Schema, error) {
	keys, err1 := s.of(t.Key(), sent)
	values, err2 := s.of(t.Elem(), sent)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if keys.Ref == "" {
		keys = nil // any string
	}
	return &jsonschema.Schema{Type: "object", PropertyNames: keys, AdditionalProperties: values}, nil
}

// object is the schema of a struct.
func (s *schemas) object(t reflect.Type, sent bool) (*jsonschema.Schema, error) {
	schema := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	if sent {
		schema.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	p, err := s.source.of(t)
	if err != nil || p == nil {
		return nil, errors.Join(err, errors.New("it is not of this module"))
	}
	if err := s.fields(schema, t, sent); err != nil {
		return nil, err
	}
	if doc := p.types[t.Name()]; doc != nil {
		schema.Description = inJSON(doc.doc, t, s.constants)
	}
	return schema, nil
}

// fields adds the fields of a struct, those of embedded ones among them.
func (s *schemas) fields(schema *jsonschema.Schema, t reflect.Type, sent bool) error {
	p, err := s.source.of(t)
	if err != nil || p == nil || p.types[t.Name()] == nil {
		return errors.Join(err, fmt.Errorf("the source of %v is not there", t))
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			if err := s.fields(schema, f.Type, sent); err != nil {
				return err
			}
			continue
		case !f.IsExported() || name == "-":
			continue
		case name == "":
			return fmt.Errorf("field %s has no name in JSON", f.Name)
		}
		property, err := s.of(f.Type, sent)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if doc := p.types[t.Name()].fields[f.Name]; doc != "" {
			property.Description = inJSON(doc, t, s.constants)
		}
		if err := refine(property, f.Tag.Get("schema")); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		schema.Properties[name] = property
		schema.PropertyOrder = append(schema.PropertyOrder, name)
		if !slices.Contains(strings.Split(options, ","), "omitempty") && !slices.Contains(strings.Split(options, ","), "omitzero") {
			schema.Required = append(schema.Required, name)
		}
	}
	return nil
}

// forms are those that tags name.
var forms = map[string]string{"run_id": background.RunIDForm}

// refine adds what a tag says: keywords of JSON Schema, such as minLength=1, and
// the form of the strings of a list. An object may have any fields, which some
// generators have to be told: without it they make a type that has none.
func refine(schema *jsonschema.Schema, tag string) error {
	if tag == "" {
		return nil
	}
	for part := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		switch key {
		case "type":
			schema.Type, err = value, nil
			if value == "object" {
				schema.AdditionalProperties = &jsonschema.Schema{}
			}
		case "format":
			schema.Format, err = value, nil
		case "form":
			form, known := forms[value]
			if !known || schema.Items == nil {
				return fmt.Errorf("no form, or not of a list: %q", part)
			}
			schema.Items.Pattern, err = form, nil
		case "default":
			schema.Default, err = literal(value), nil
		case "minimum":
			schema.Minimum = jsonschema.Ptr(float64(n))
		case "maximum":
			schema.Maximum = jsonschema.Ptr(float64(n))
		case "minLength":
			schema.MinLength = &n
		case "maxLength":
			schema.MaxLength = &n
		case "minItems":
			schema.MinItems = &n
		case "maxItems":
			schema.MaxItems = &n
		default:
			return fmt.Errorf("unknown keyword in the tag: %q", part)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

// literal is a value of a tag as JSON: a word is a string.
func literal(value string) json.RawMessage {
	if !json.Valid([]byte(value)) {
		value = strconv.Quote(value)
	}
	return json.RawMessage(value)
}

// ofParam is the schema of a parameter or a header.
func ofParam(p httpapi.Param) *jsonschema.Schema {
	one := &jsonschema.Schema{Type: p.Type}
	if p.Pattern != nil {
		one.Pattern = p.Pattern.String()
	}
	for _, v := range p.Enum {
		one.Enum = append(one.Enum, v)
	}
	if p.MaxLength > 0 {
		one.MaxLength = &p.MaxLength
	}
	if p.Max > 0 {
		one.Minimum, one.Maximum = jsonschema.Ptr(float64(p.Min)), jsonschema.Ptr(float64(p.Max))
	}
	if p.Default != nil {
		one.Default, _ = json.Marshal(p.Default) // a number, a string or a bool
	}
	if p.Many == 0 {
		return one
	}
	return &jsonschema.Schema{Type: "array", Items: one, MaxItems: &p.Many}
}
