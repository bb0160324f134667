package question

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// TestForms: nobody is asked with a schema that MCP does not allow as a form, and the tool
// reads what to write.
func TestForms(t *testing.T) {
	for name, c := range map[string]struct{ schema, problem string }{
		"all types":         {`{"properties":{"a":{"type":"string","format":"date"},"b":{"type":"integer","default":1},"c":{"type":"number"},"d":{"type":"boolean"}}}`, ""},
		"enums":             {`{"type":"object","properties":{"a":{"type":"string","enum":["x"]},"b":{"type":"string","oneOf":[{"const":"x","title":"X"}]}}}`, ""},
		"several":           {`{"properties":{"a":{"type":"array","items":{"type":"string","enum":["x"]}},"b":{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]}}}}`, ""},
		"enum without type": {`{"properties":{"a":{"enum":["x"]}}}`, `/a: an enum in a form needs "type": "string"`},
		"nested":            {`{"properties":{"a":{"type":"object","properties":{"b":{"type":"string"}}}}}`, "/a: a form has no nested objects: ask for each value in a property of the form"},
		"array":             {`{"properties":{"a":{"type":"array","items":{"type":"number"}}}}`, `/a: an array in a form needs items with "type": "string" and an enum`},
		"no type":           {`{"properties":{"a":{"description":"x"}}}`, `/a: a property of a form needs a "type": "string", "number", "integer", "boolean" or "array"`},
		"two types":         {`{"properties":{"a":{"type":["string","null"]}}}`, `/a: a property of a form needs a "type": "string", "number", "integer", "boolean" or "array"`},
		"format":            {`{"properties":{"a":{"type":"string","format":"ipv4"}}}`, `/a: a form has no format "ipv4": use email, uri, date, date-time or none`},
		"choice":            {`{"properties":{"a":{"type":"string","oneOf":[{"const":"x"}]}}}`, `/a: each choice in a form needs a "const", a string that is not empty, and a "title"`},
		"no schema":         {`{"properties":{"a":true}}`, `/a: a property of a form needs a "type": "string", "number", "integer", "boolean" or "array"`},
		"no object":         {`{"type":"string"}`, `a form has the type "object", found string`},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			_, err := Checked(func(context.Context, abi.Questions) (abi.Answers, error) {
				asked = true
				return abi.Answers{Answers: map[string]abi.Answer{"key": {Action: abi.AnswerDecline}}}, nil
			})(t.Context(), abi.Questions{Questions: map[string]abi.Question{"key": {Message: "?", Schema: json.RawMessage(c.schema)}}})
			require.Equal(t, c.problem == "", asked)
			if c.problem != "" {
				require.EqualError(t, err, "not questions for the user: key: "+c.problem)
				require.ErrorIs(t, err, abi.ErrQuestions)
			}
		})
	}
}
