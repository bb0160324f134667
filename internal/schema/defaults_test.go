package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFill(t *testing.T) {
	const unit = `"unit":{"enum":["C","F"],"default":"C"}`
	for _, tt := range []struct{ name, schema, document, want string }{
		{"a missing one", `{"properties":{` + unit + `,"n":{"type":"integer","default":3}}}`, `{}`, `{"n":3,"unit":"C"}`},
		{"next to others", `{"properties":{` + unit + `}}`, "{ \"a\" : \"\\u00e9\",\n\"b\":1.0 }", "{ \"a\" : \"\\u00e9\",\n\"b\":1.0 ,\"unit\":\"C\"}"},
		{"given", `{"properties":{` + unit + `}}`, `{"unit":"F"}`, `{"unit":"F"}`},
		{"given, escaped", `{"properties":{` + unit + `}}`, `{"u\u006eit":"F"}`, `{"u\u006eit":"F"}`},
		{"null is given", `{"properties":{"n":{"type":["null","integer"],"default":1}}}`, `{"n":null}`, `{"n":null}`},
		{"null is a default", `{"properties":{"n":{"type":["null","integer"],"default":null}}}`, `{}`, `{"n":null}`},
		{"exact numbers", `{"properties":{"n":{"default":12345678901234567890.10}}}`, `{}`, `{"n":12345678901234567890.10}`},
		{"a name with quotes", `{"properties":{"a\"b":{"default":"<&>"}}}`, `{}`, `{"a\"b":"<&>"}`},
		{"required", `{"required":["unit"],"properties":{` + unit + `}}`, `{}`, `{"unit":"C"}`},
		{"deep", `{"properties":{"to":{"properties":{"at":{"properties":{` + unit + `}}}}}}`, `{"to":{"at":{}}}`, `{"to":{"at":{"unit":"C"}}}`},
		{"not below what is missing", `{"properties":{"to":{"properties":{` + unit + `}}}}`, `{}`, `{}`},
		{"a default as it stands", `{"properties":{"to":{"default":{},"properties":{` + unit + `}}}}`, `{}`, `{"to":{}}`},
		{"items", `{"properties":{"all":{"items":{"properties":{` + unit + `}}}}}`, `{"all":[{},1,{"unit":"F"},{"a":[]}]}`, `{"all":[{"unit":"C"},1,{"unit":"F"},{"a":[],"unit":"C"}]}`},
		{"first items", `{"properties":{"all":{"prefixItems":[true,{"properties":{` + unit + `}}]}}}`, `{"all":[{},{},{}]}`, `{"all":[{},{"unit":"C"},{}]}`},
		{"any member", `{"additionalProperties":{"properties":{` + unit + `}},"properties":{"a":true}}`, `{"a":{},"b":{}}`, `{"a":{},"b":{"unit":"C"}}`},
		{"members by pattern", `{"patternProperties":{"^x":{"properties":{` + unit + `}}}}`, `{"a":{},"xb":{}}`, `{"a":{},"xb":{"unit":"C"}}`},
		{"a reference", `{"$defs":{"u":{"type":"string","default":"C"}},"properties":{"unit":{"$ref":"#/$defs/u"}}}`, `{}`, `{"unit":"C"}`},
		{"the default next to it first", `{"$defs":{"u":{"type":"string","default":"C"}},"properties":{"unit":{"$ref":"#/$defs/u","default":"F"}}}`, `{}`, `{"unit":"F"}`},
		{"an object by reference", `{"$defs":{"o":{"properties":{` + unit + `}}},"properties":{"a":{"$ref":"#/$defs/o"}}}`, `{"a":{}}`, `{"a":{"unit":"C"}}`},
		{"all of", `{"allOf":[{"properties":{` + unit + `}},{"properties":{"n":{"default":1},"unit":{"default":"F"}}}]}`, `{}`, `{"unit":"C","n":1}`},
		{"a recursive schema", `{"properties":{` + unit + `,"next":{"$ref":"#"}}}`, `{"next":{"next":{}}}`, `{"next":{"next":{"unit":"C"},"unit":"C"},"unit":"C"}`},
		{"not where a schema may not apply", `{"anyOf":[{"properties":{` + unit + `}}],"if":{"properties":{"a":{"default":1}}},"then":true,"not":{"properties":{"b":{"default":1},"c":false},"required":["c"]}}`, `{}`, `{}`},
		{"other types", `{"properties":{` + unit + `}}`, `[]`, `[]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := CompileArgs(json.RawMessage(tt.schema))
			require.NoError(t, err)
			got, err := s.Fill(json.RawMessage(tt.document))
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
			require.Empty(t, s.Check(json.RawMessage(tt.document)))

			plain, err := Compile(json.RawMessage(tt.schema))
			require.NoError(t, err)
			got, err = plain.Fill(json.RawMessage(tt.document))
			require.NoError(t, err)
			require.Equal(t, tt.document, string(got), "a result is not filled in")
		})
	}
}

// TestFillIsBounded: neither a schema nor a document makes filling in take long, or
// the outcome large.
func TestFillIsBounded(t *testing.T) {
	large := fmt.Sprintf(`{"items":{"properties":{"a":{"default":%q}}}}`, strings.Repeat("x", 60_000))
	s, err := CompileArgs(json.RawMessage(large))
	require.NoError(t, err)
	_, err = s.Fill(json.RawMessage("[" + strings.Repeat("{},", 100) + "{}]"))
	require.ErrorIs(t, err, errFilled)
	require.Contains(t, s.Check(json.RawMessage("[" + strings.Repeat("{},", 100) + "{}]"))[0].Message, "the defaults of its schema add more than")

	s, err = CompileArgs(json.RawMessage(`{"items":{"properties":{"a":{"default":1}}}}`))
	require.NoError(t, err)
	_, err = s.Fill(json.RawMessage("[" + strings.Repeat("{},", 300_000) + "{}]"))
	require.ErrorIs(t, err, errLong)

	many := `{"properties":{` + strings.TrimSuffix(strings.Repeat(`"%d":{"$ref":"#/$defs/a"},`, 1000), ",") + `},"$defs":{"a":{"allOf":[` + strings.TrimSuffix(strings.Repeat("{},", 5000), ",") + `]}}}`
	names := make([]any, 1000)
	for i := range names {
		names[i] = i
	}
	_, err = CompileArgs(json.RawMessage(fmt.Sprintf(many, names...)))
	require.ErrorContains(t, err, "its defaults are referred to in too many ways")
}

func TestKeywords(t *testing.T) {
	for _, tt := range []struct{ name, schema, want string }{
		{"misspelt", `{"type":"object","additionalPropertys":false}`, `/additionalPropertys: unknown keyword, did you mean "additionalProperties"?`},
		{"within", `{"properties":{"a/b":{"items":{"oneOf":[true,{"minimun":1}]}}}}`, `/properties/a~1b/items/oneOf/1/minimun: unknown keyword, did you mean "minimum"?`},
		{"in definitions that nothing uses", `{"$defs":{"a":{"tpye":"string"}}}`, `/$defs/a/tpye: unknown keyword, did you mean "type"?`},
		{"unlike any", `{"properties":{"a":{"secretive":true}}}`, `/properties/a/secretive: unknown keyword: JSON Schema 2020-12 does not have it, and the names of other keywords begin with x-`},
		{"of OpenAPI 3.0", `{"properties":{"a":{"type":"string","nullable":true}}}`, `/properties/a/nullable: JSON Schema 2020-12 has no such keyword: add "null" to type`},
		{"of an older draft", `{"dependencies":{}}`, `/dependencies: JSON Schema 2020-12 has no such keyword: use dependentRequired or dependentSchemas`},
		{"a misspelt type", `{"properties":{"text":{"type":"strng"}}}`, `/properties/text/type: unknown type "strng", did you mean "string"?`},
		{"an unknown type", `{"properties":{"at":{"type":["null","date"]}}}`, `/properties/at/type/1: unknown type "date", expected one of array, boolean, integer, null, number, object, string`},
		{"a default of another type", `{"properties":{"n":{"type":"integer","default":"3"}}}`, `/properties/n/default: does not fit its own schema: expected integer, found string`},
		{"a default too large", `{"properties":{"to":{"properties":{"n":{"type":"integer","maximum":2}},"default":{"n":3}}}}`, `/properties/to/default: does not fit its own schema: /n: expected at most 2, found 3`},
		{"a default that a reference refuses", `{"$defs":{"a":{"enum":["x"]}},"properties":{"a b":{"$ref":"#/$defs/a","default":"y"}}}`, `/properties/a b/default: does not fit its own schema: value must be 'x'`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(json.RawMessage(tt.schema))
			require.ErrorIs(t, err, ErrSchema)
			require.EqualError(t, err, "bad schema: "+tt.want)
		})
	}
}

// TestGeneratedSchemas: what generators write is accepted.
func TestGeneratedSchemas(t *testing.T) {
	for name, schema := range map[string]string{
		"the whole vocabulary": `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://example.com/a","$anchor":"a","$dynamicAnchor":"b","$comment":"c",
			"$defs":{"d":{"type":"string"}},"definitions":{"e":true},"type":"object","title":"t","description":"d","deprecated":true,"readOnly":false,"writeOnly":false,"examples":[{}],
			"allOf":[{}],"anyOf":[{}],"oneOf":[{}],"not":false,"if":{},"then":{},"else":{},"dependentSchemas":{"a":{}},"dependentRequired":{"a":["b"]},
			"properties":{"p":{"$ref":"#/$defs/d"},"q":{"$dynamicRef":"#b"},
				"s":{"type":"string","minLength":0,"maxLength":9,"pattern":"^a","format":"uri","contentEncoding":"base64","contentMediaType":"application/json","contentSchema":{}},
				"n":{"type":"number","multipleOf":2,"minimum":0,"maximum":8,"exclusiveMinimum":-1,"exclusiveMaximum":9,"default":2},
				"l":{"type":"array","prefixItems":[{}],"items":{},"contains":{},"minContains":0,"maxContains":2,"minItems":0,"maxItems":2,"uniqueItems":true,"unevaluatedItems":false},
				"e":{"enum":["a"]},"c":{"const":{"any":"keyword","type":"strng"}}},
			"patternProperties":{"^x":{}},"additionalProperties":false,"propertyNames":{},"minProperties":0,"maxProperties":9,"required":[],"unevaluatedProperties":false,"x-own":{"any":1}}`,
		"zod":      `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"to":{"type":"string","format":"email"},"n":{"default":10,"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991}},"required":["to","n"],"additionalProperties":false}`,
		"pydantic": `{"title":"Args","type":"object","properties":{"city":{"title":"City","type":"string"},"n":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null,"title":"N"},"pet":{"discriminator":{"propertyName":"kind"},"oneOf":[{"$ref":"#/$defs/Cat"}]}},"required":["city"],"$defs":{"Cat":{"properties":{"kind":{"const":"cat","default":"cat","type":"string"}},"type":"object"}}}`,
		"schemars": `{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"Args","type":"object","properties":{"count":{"type":"integer","format":"uint32","minimum":0,"default":1},"mode":{"$ref":"#/$defs/Mode","default":"Fast"}},"$defs":{"Mode":{"oneOf":[{"description":"d","type":"string","const":"Fast"}]}}}`,
		"a form":   `{"type":"object","properties":{"color":{"type":"string","enum":["r","g"],"enumNames":["Red","Green"]}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := CompileArgs(json.RawMessage(schema))
			require.NoError(t, err)
		})
	}
}

func FuzzFill(f *testing.F) {
	f.Add(`{"properties":{"a":{"default":1},"b":{"$ref":"#"}},"items":{"$ref":"#"}}`, `{"b":[{},{"a":2}]}`)
	f.Add(`{"additionalProperties":{"properties":{"\"":{"default":{"c":[]}}}}}`, `{"x": { } }`)
	f.Fuzz(func(t *testing.T, schema, document string) {
		s, err := CompileArgs(json.RawMessage(schema))
		if err != nil || !json.Valid([]byte(document)) {
			return
		}
		filled, err := s.Fill(json.RawMessage(document))
		require.True(t, err != nil || json.Valid(filled), "%s", filled)
	})
}
