package schema

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// HasSecrets reports whether the schema marks any value as secret.
func (s *Schema) HasSecrets() bool { return s.secrets }

// Public returns a document without the values that the schema marks as secret, by
// writeOnly or x-secret. It also reports whether there were any. Secret members of
// objects are left out and secret items of arrays become null. A document without secrets
// is returned as it is.
//
// A value is secret if any subschema that could apply to it marks it as secret, whether
// or not the value fits that subschema. If a document is invalid or takes too much work,
// the whole document counts as secret.
func (s *Schema) Public(document json.RawMessage) (public json.RawMessage, secret bool) {
	nothing := json.RawMessage("{}")
	if !s.secrets {
		return document, false
	}

	defer acquire(document)()
	doc, _, err := decode(document)
	if err != nil {
		return nothing, true
	}

	c := s.checker()
	defer func() { s.idle <- c }()
	w := &walker{left: maxSteps}
	var all bool
	done := c.bounded(func() { doc, all = w.value([]*jsonschema.Schema{c.root}, doc) })

	switch {
	case !done || all || w.left < 0:
		return nothing, true
	case !w.found:
		return document, false
	}
	if public, err = json.Marshal(doc); err != nil {
		return nothing, true
	}
	return public, true
}

// secretKeyword marks a value that must not be stored or shown. It is for values for
// which JSON Schema's writeOnly would be wrong.
const secretKeyword = "x-secret"

// marked reports whether a schema object says that its value is secret.
func marked(schema map[string]any) bool {
	return schema["writeOnly"] == true || schema[secretKeyword] == true
}

// secretAt reports whether the value at a location is secret, or is part of a secret
// value. It also counts as secret if finding out takes too long.
func (s *checker) secretAt(location []string) (secret bool) {
	if !s.secrets || s.root == nil {
		return false
	}
	return !s.bounded(func() { secret = s.leadsToSecret(location) }) || secret
}

func (s *checker) leadsToSecret(location []string) bool {
	w := &walker{left: maxSteps}
	schemas := w.inPlace([]*jsonschema.Schema{s.root})
	for _, token := range location {
		if slices.ContainsFunc(schemas, isSecret) {
			return true
		}
		schemas = w.inPlace(below(schemas, func(s *jsonschema.Schema) []*jsonschema.Schema {
			found := ofMember(s, token)
			if i, err := strconv.Atoi(token); err == nil {
				found = append(found, ofItem(s, i)...)
			}
			return found
		}))
	}

	return slices.ContainsFunc(schemas, isSecret) || w.left < 0
}

// walker removes the secret values from a document.
type walker struct {
	left  int // number of schemas that it may still visit
	found bool
}

// value returns v without its secret parts, or true if v itself is secret.
func (w *walker) value(schemas []*jsonschema.Schema, v any) (any, bool) {
	schemas = w.inPlace(schemas)
	if slices.ContainsFunc(schemas, isSecret) {
		w.found = true
		return nil, true
	}

	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			member, secret := w.value(below(schemas, func(s *jsonschema.Schema) []*jsonschema.Schema { return ofMember(s, name) }), member)
			if v[name] = member; secret {
				delete(v, name)
			}
		}
	case []any:
		for i, item := range v {
			v[i], _ = w.value(below(schemas, func(s *jsonschema.Schema) []*jsonschema.Schema { return ofItem(s, i) }), item)
		}
	}

	return v, false
}

// isSecret reports whether the values of a schema are or may be secret: the target of a
// dynamic reference is not known until a value is checked.
func isSecret(s *jsonschema.Schema) bool {
	marked := slices.ContainsFunc(s.Extensions, func(e jsonschema.SchemaExt) bool {
		k, ok := e.(keywords)
		return ok && k.secret
	})
	return marked || s.DynamicRef != nil && s.DynamicRef.Anchor != ""
}

// inPlace returns the schemas, together with all others that they apply to the same
// value.
func (w *walker) inPlace(schemas []*jsonschema.Schema) []*jsonschema.Schema {
	seen := map[*jsonschema.Schema]bool{}
	var all []*jsonschema.Schema
	for len(schemas) > 0 && w.left >= 0 {
		s := schemas[len(schemas)-1]
		schemas = schemas[:len(schemas)-1]
		if s == nil || seen[s] {
			continue
		}

		w.left--
		seen[s] = true
		all = append(all, s)
		schemas = append(schemas, s.Ref, s.Not, s.If, s.Then, s.Else)
		schemas = append(append(append(schemas, s.AllOf...), s.AnyOf...), s.OneOf...)
		if s.DynamicRef != nil {
			schemas = append(schemas, s.DynamicRef.Ref)
		}

		for _, dependent := range s.DependentSchemas {
			schemas = append(schemas, dependent)
		}
	}

	return all
}

func below(schemas []*jsonschema.Schema, of func(*jsonschema.Schema) []*jsonschema.Schema) []*jsonschema.Schema {
	var found []*jsonschema.Schema
	for _, s := range schemas {
		found = append(found, of(s)...)
	}
	return found
}

// ofMember returns the schemas for a member of an object.
func ofMember(s *jsonschema.Schema, name string) []*jsonschema.Schema {
	found := []*jsonschema.Schema{s.Properties[name], s.UnevaluatedProperties}
	for pattern, of := range s.PatternProperties {
		if pattern.MatchString(name) {
			found = append(found, of)
		}
	}
	if additional, ok := s.AdditionalProperties.(*jsonschema.Schema); ok && s.Properties[name] == nil && len(found) == 2 {
		found = append(found, additional)
	}
	return found
}

// ofItem returns the schemas for an item of an array.
func ofItem(s *jsonschema.Schema, i int) []*jsonschema.Schema {
	found := []*jsonschema.Schema{s.Contains, s.UnevaluatedItems}
	if i < len(s.PrefixItems) {
		return append(found, s.PrefixItems[i])
	}
	return append(found, s.Items2020)
}
