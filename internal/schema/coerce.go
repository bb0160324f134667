package schema

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/strictjson"
)

// Coerce corrects values that models and clients often write instead of the declared ones.
// It returns the corrected arguments and the number of corrected values:
//
//   - null is left out for a property that is not required and cannot be null;
//   - a string is replaced by the value whose JSON it contains, where the schema allows that
//     value but no string.
//
// It follows the same keywords as [Schema.Fill]. Arguments that contain no such values, or
// take too long to correct, are returned unchanged.
func (s *Schema) Coerce(args strictjson.Object) (_ strictjson.Object, corrected int) {
	if args.Raw() == nil {
		return args, 0
	}
	defer acquire(args.Raw())()
	c := s.checker()
	defer func() { s.idle <- c }()

	w := &coercer{checker: c}
	var text json.RawMessage
	if !c.bounded(func() { text = w.value(args.Raw(), []*jsonschema.Schema{c.root}) }) || w.corrected == 0 {
		return args, 0
	}
	coerced, err := strictjson.Parse(text) // strings may have had anything
	if err != nil {
		return args, 0
	}
	return coerced, w.corrected
}

// Fit checks arguments as [Schema.CheckObject] does. If they do not fit, it tries to correct
// them: see [Schema.Coerce]. It returns arguments that fit, and how many of their values it
// corrected. If even the corrected arguments do not fit, it returns the problems of the
// original arguments.
func (s *Schema) Fit(args strictjson.Object) (_ strictjson.Object, corrected int, problems []abi.Problem) {
	if problems = s.CheckObject(args); len(problems) == 0 {
		return args, 0, nil
	}
	better, corrected := s.Coerce(args)
	if corrected == 0 || len(s.CheckObject(better)) > 0 {
		return args, 0, problems
	}
	return better, corrected, nil
}

type coercer struct {
	*checker
	corrected int
	depth     int
}

// maxCoercedDepth is how deep in a document values are corrected.
const maxCoercedDepth = 16

// value corrects a value to which all these schemas apply, and returns it.
func (c *coercer) value(raw json.RawMessage, schemas []*jsonschema.Schema) json.RawMessage {
	schemas = c.always(schemas)
	c.spend(1 + len(schemas))
	c.depth++
	defer func() { c.depth-- }()
	if len(schemas) == 0 || c.depth > maxCoercedDepth {
		return raw
	}

	switch raw[0] {
	case '{':
		return c.object(raw, schemas)
	case '[':
		all := itemsOf(raw)
		for i, item := range all {
			all[i] = c.value(item, below(schemas, func(s *jsonschema.Schema) []*jsonschema.Schema { return itemOf(s, i) }))
		}
		return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]"))
	case '"':
		if value := parsed(raw, typesOf(schemas)); value != nil {
			c.corrected++
			return value
		}
	}
	return raw
}

func (c *coercer) object(raw json.RawMessage, schemas []*jsonschema.Schema) json.RawMessage {
	var all []Member
	for _, m := range Members(raw) {
		of := c.always(below(schemas, func(s *jsonschema.Schema) []*jsonschema.Schema { return memberOf(s, m.Name) }))
		types := typesOf(of)
		required := slices.ContainsFunc(schemas, func(s *jsonschema.Schema) bool { return slices.Contains(s.Required, m.Name) })
		if m.Value[0] == 'n' && types != nil && !slices.Contains(types, "null") && !required {
			c.corrected++
			continue
		}
		all = append(all, Member{m.Name, c.value(m.Value, of)})
	}
	return Join(all)
}

// typesOf returns the types that all these schemas allow; nil if none names a type.
func typesOf(schemas []*jsonschema.Schema) (types []string) {
	for _, s := range schemas {
		if s.Types == nil || s.Types.IsEmpty() {
			continue
		}
		allowed := s.Types.ToStrings()
		if types == nil {
			types = allowed
			continue
		}
		types = slices.DeleteFunc(types, func(t string) bool { return !slices.Contains(allowed, t) })
	}
	return types
}

// parsed returns the JSON value that a string contains, if it is of one of these types. It
// returns nil if it is not, or if a string may itself be a value of these types.
func parsed(raw json.RawMessage, types []string) json.RawMessage {
	if types == nil || slices.Contains(types, "string") {
		return nil
	}
	text := strings.TrimSpace(unquote(raw))
	if text == "" || strictjson.Check([]byte(text)) != nil {
		return nil
	}

	kinds := map[byte][]string{'{': {"object"}, '[': {"array"}, 't': {"boolean"}, 'f': {"boolean"}, 'n': {"null"}}[text[0]]
	if kinds == nil && text[0] != '"' {
		kinds = []string{"number", "integer"}
	}
	if !slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(types, kind) }) {
		return nil
	}
	return json.RawMessage(text)
}
