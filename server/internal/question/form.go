package question

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A field is a property of a form, with the keywords that MCP restricts.
type field struct {
	Type       any                        `json:"type"`
	Enum       []any                      `json:"enum"`
	OneOf      []choice                   `json:"oneOf"`
	Format     string                     `json:"format"`
	Properties map[string]json.RawMessage `json:"properties"`
	Items      *struct {
		Type  any      `json:"type"`
		Enum  []any    `json:"enum"`
		AnyOf []choice `json:"anyOf"`
	} `json:"items"`
}

// A choice is a value of an enum, with its title.
type choice struct {
	Const any    `json:"const"`
	Title string `json:"title"`
}

var errField = errors.New(`a property of a form needs a "type": "string", "number", "integer", "boolean" or "array"`)

// checkForm returns an error for a schema that MCP does not allow as a form. Clients of
// some revisions would show it, and their answer would be lost.
func checkForm(raw json.RawMessage) error {
	var form struct {
		Type       any                        `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(raw, &form) != nil {
		return errors.New("a form is a JSON Schema with properties")
	}
	if form.Type != nil && form.Type != "object" {
		return fmt.Errorf(`a form has the type "object", found %v`, form.Type)
	}

	for _, name := range slices.Sorted(maps.Keys(form.Properties)) {
		var f field
		err := errField
		if json.Unmarshal(form.Properties[name], &f) == nil {
			err = f.check()
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	return nil
}

func (f field) check() error {
	switch {
	case f.Type == nil && f.Enum != nil:
		return errors.New(`an enum in a form needs "type": "string"`)
	case f.Type == "object" || len(f.Properties) > 0:
		return errors.New("a form has no nested objects: ask for each value in a property of the form")
	case f.Type == "string" && f.Format != "" && !slices.Contains([]string{"email", "uri", "date", "date-time"}, f.Format):
		return fmt.Errorf("a form has no format %.80q: use email, uri, date, date-time or none", f.Format)
	case f.Type == "string":
		return checkChoices(f.OneOf)
	case f.Type == "array" && f.Items != nil && f.Items.Type == "string" && f.Items.Enum != nil:
		return nil
	case f.Type == "array" && f.Items != nil && f.Items.Type == nil && len(f.Items.AnyOf) > 0:
		return checkChoices(f.Items.AnyOf)
	case f.Type == "array":
		return errors.New(`an array in a form needs items with "type": "string" and an enum`)
	case f.Type == "number", f.Type == "integer", f.Type == "boolean":
		return nil
	}
	return errField
}

func checkChoices(all []choice) error {
	for _, c := range all {
		if text, _ := c.Const.(string); text == "" || c.Title == "" {
			return errors.New(`each choice in a form needs a "const", a string that is not empty, and a "title"`)
		}
	}
	return nil
}
