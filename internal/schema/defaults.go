package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxFilled is the maximum size of the defaults that are added to a document, in bytes.
const maxFilled = 4 << 20

var errFilled = fmt.Errorf("the defaults of its schema add more than the %d bytes allowed", maxFilled)

// CompileArgs is like Compile, for the schema of a tool's arguments. Checks against
// such a schema treat a missing property that has a default as present: see
// [Schema.Fill].
func CompileArgs(raw json.RawMessage) (*Schema, error) {
	s, err := Compile(raw)
	if err != nil {
		return nil, err
	}
	c := s.checker()
	s.fills = c.fills != nil
	s.idle <- c
	return s, nil
}

// Fill returns a document with the defaults of its missing properties added. It finds
// defaults through properties, items, prefixItems, patternProperties,
// additionalProperties, $ref and allOf, because a schema in any other place may not
// apply. It adds each default unchanged, and keeps the rest of the document byte for
// byte. Only schemas from [CompileArgs] have defaults to fill in.
func (s *Schema) Fill(document json.RawMessage) (json.RawMessage, error) {
	if !s.fills {
		return document, nil
	}

	c := s.checker()
	defer func() { s.idle <- c }()
	f := &filler{Decoder: jsontext.NewDecoder(bytes.NewBuffer(document), checked), checker: c}
	var err error
	if !c.bounded(func() { err = f.value(c.always([]*jsonschema.Schema{c.root})) }) {
		err = errLong
	}
	if err != nil || f.added == nil {
		return document, err
	}
	return f.apply(document), nil
}

// checked holds the options for reading a document that strictjson has already checked.
var checked = jsonv2.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// filler finds the places in a document where defaults go.
type filler struct {
	*jsontext.Decoder
	checker *checker
	added   []addition
	bytes   int
}

// addition is a text to insert into a document.
type addition struct {
	at   int64
	text string
}

func (f *filler) apply(document []byte) []byte {
	filled := make([]byte, 0, len(document)+f.bytes)
	from := int64(0)
	for _, a := range f.added {
		filled = append(append(filled, document[from:a.at]...), a.text...)
		from = a.at
	}
	return append(filled, document[from:]...)
}

// value reads a value to which all these schemas apply.
func (f *filler) value(schemas []*jsonschema.Schema) error {
	schemas = slices.DeleteFunc(schemas, func(s *jsonschema.Schema) bool { return f.checker.fills[s] == nil })
	f.checker.spend(1 + len(schemas))
	switch kind := f.PeekKind(); {
	case len(schemas) == 0 || kind != '{' && kind != '[':
		return f.SkipValue()
	case kind == '{':
		return f.object(schemas)
	}

	if _, err := f.ReadToken(); err != nil {
		return err
	}
	for i := 0; f.PeekKind() != ']'; i++ {
		if err := f.value(f.checker.always(below(schemas, func(s *jsonschema.Schema) []*jsonschema.Schema { return itemOf(s, i) }))); err != nil {
			return err
		}
	}
	_, err := f.ReadToken()
	return err
}

func (f *filler) object(schemas []*jsonschema.Schema) error {
	if _, err := f.ReadToken(); err != nil {
		return err
	}
	given := map[string]bool{}
	for f.PeekKind() != '}' {
		name, err := f.ReadToken()
		if err != nil {
			return err
		}
		member := name.String()
		given[member] = true
		if err := f.value(f.checker.always(below(schemas, func(s *jsonschema.Schema) []*jsonschema.Schema { return memberOf(s, member) }))); err != nil {
			return err
		}
	}
	if _, err := f.ReadToken(); err != nil {
		return err
	}

	var text strings.Builder
	for _, s := range schemas {
		for _, d := range f.checker.fills[s].properties {
			if !given[d.name] {
				if len(given) > 0 {
					text.WriteByte(',')
				}
				text.WriteString(d.text)
				given[d.name] = true
			}
		}
	}

	if text.Len() > 0 {
		f.checker.spend(1 + text.Len()/64)
		if f.bytes += text.Len(); f.bytes > maxFilled {
			return errFilled
		}
		f.added = append(f.added, addition{f.InputOffset() - 1, text.String()})
	}
	return nil
}

// fill lists the defaults that one schema adds to an object.
type fill struct{ properties []property }

// property is a property with its default, as the text of an object's member.
type property struct{ name, text string }

// findFills finds the schemas that have defaults to add, and those that lead to such
// schemas.
func (s *checker) findFills() {
	leads := map[*jsonschema.Schema][]*jsonschema.Schema{} // to a schema from others
	var open []*jsonschema.Schema                          // from which the way back is not followed yet
	fills := map[*jsonschema.Schema]*fill{}
	walk(s.root, certain, func(one *jsonschema.Schema) {
		for _, next := range certain(one) {
			leads[next] = append(leads[next], one)
		}
		var own fill
		for name, of := range one.Properties {
			if value := s.defaultOf(of); value != nil {
				own.properties = append(own.properties, property{name, encode(name) + ":" + encode(*value)})
			}
		}
		if own.properties != nil {
			slices.SortFunc(own.properties, func(a, b property) int { return cmp.Compare(a.name, b.name) })
			fills[one] = &own
			open = append(open, one)
		}
	})

	for len(open) > 0 {
		one := open[len(open)-1]
		open = open[:len(open)-1]
		for _, from := range leads[one] {
			if fills[from] == nil {
				fills[from] = &fill{}
				open = append(open, from)
			}
		}
	}
	if len(fills) > 0 {
		s.fills = fills
	}
}

// encode encodes part of a JSON document, without escaping characters for HTML.
func encode(value any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value)
	return strings.TrimSuffix(b.String(), "\n")
}

// defaultOf returns the default of a schema or of a schema that it refers to, or nil.
func (s *checker) defaultOf(of *jsonschema.Schema) *any {
	for _, one := range s.always([]*jsonschema.Schema{of}) {
		if one.Default != nil {
			return one.Default
		}
	}
	return nil
}

// always returns the schemas, together with all others that apply to the same value in
// any case. It spends steps of the current check.
func (s *checker) always(schemas []*jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Clone(schemas)
	for i := 0; i < len(all); i++ {
		for _, next := range append([]*jsonschema.Schema{all[i].Ref}, all[i].AllOf...) {
			s.spend(1 + len(all)/64)
			if next != nil && !slices.Contains(all, next) {
				all = append(all, next)
			}
		}
	}
	return all
}

// memberOf returns the schemas that apply to a member of an object in any case.
func memberOf(s *jsonschema.Schema, name string) (found []*jsonschema.Schema) {
	if of := s.Properties[name]; of != nil {
		found = append(found, of)
	}
	for pattern, of := range s.PatternProperties {
		if pattern.MatchString(name) {
			found = append(found, of)
		}
	}
	if additional, ok := s.AdditionalProperties.(*jsonschema.Schema); ok && found == nil {
		found = append(found, additional)
	}
	return found
}

// itemOf returns the schemas that apply to an item of an array in any case.
func itemOf(s *jsonschema.Schema, i int) []*jsonschema.Schema {
	switch {
	case i < len(s.PrefixItems):
		return s.PrefixItems[i : i+1]
	case s.Items2020 != nil:
		return []*jsonschema.Schema{s.Items2020}
	}
	return nil
}

// certain returns the schemas directly below a schema that apply wherever there is a
// value for them.
func certain(s *jsonschema.Schema) []*jsonschema.Schema {
	all := append(slices.Clone(s.AllOf), s.PrefixItems...)
	all = append(all, s.Ref, s.Items2020)
	for _, of := range s.Properties {
		all = append(all, of)
	}
	for _, of := range s.PatternProperties {
		all = append(all, of)
	}
	additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
	return slices.DeleteFunc(append(all, additional), func(s *jsonschema.Schema) bool { return s == nil })
}

// everything returns all schemas directly below a schema.
func everything(s *jsonschema.Schema) []*jsonschema.Schema {
	all := append(append(certain(s), s.AnyOf...), s.OneOf...)
	all = append(all, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.UnevaluatedItems, s.ContentSchema)
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	for _, of := range s.DependentSchemas {
		all = append(all, of)
	}
	return slices.DeleteFunc(all, func(s *jsonschema.Schema) bool { return s == nil })
}

// walk visits every schema that can be reached from root, each one once.
func walk(root *jsonschema.Schema, next func(*jsonschema.Schema) []*jsonschema.Schema, visit func(*jsonschema.Schema)) {
	seen := map[*jsonschema.Schema]bool{root: true}
	for open := []*jsonschema.Schema{root}; len(open) > 0; {
		one := open[len(open)-1]
		open = open[:len(open)-1]
		visit(one)
		for _, s := range next(one) {
			if !seen[s] {
				seen[s] = true
				open = append(open, s)
			}
		}
	}
}

// checkDefaults returns an error for the first default that does not fit its own
// schema.
func (s *checker) checkDefaults() error {
	var all []*jsonschema.Schema
	walk(s.root, everything, func(one *jsonschema.Schema) {
		if one.Default != nil {
			all = append(all, one)
		}
	})
	slices.SortFunc(all, func(a, b *jsonschema.Schema) int { return strings.Compare(a.Location, b.Location) })

	var wrong error
	done := s.bounded(func() {
		for _, one := range all {
			if err := one.Validate(*one.Default); err != nil {
				_, at, _ := strings.Cut(one.Location, "#")
				if plain, err := url.PathUnescape(at); err == nil {
					at = plain
				}
				wrong = fmt.Errorf("%s/default: does not fit its own schema: %s", at, s.reason(err))
				return
			}
		}
	})
	if !done {
		return errors.New("its defaults take too long to check")
	}
	return wrong
}
