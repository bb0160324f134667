package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPublic(t *testing.T) {
	for _, test := range []struct{ name, schema, document, want string }{
		{"nothing is marked", `{"properties":{"key":{"type":"string"}}}`, ` {"key":"x"} `, ` {"key":"x"} `},
		{"marked, and not there", `{"properties":{"key":{"writeOnly":true}}}`, ` {"n":1}`, ` {"n":1}`},
		{"marked as false", `{"properties":{"key":{"writeOnly":false,"x-secret":false}}}`, `{"key":"x"}`, `{"key":"x"}`},
		{"writeOnly", `{"properties":{"key":{"writeOnly":true}}}`, `{"key":"x","n":1}`, `{"n":1}`},
		{"x-secret", `{"properties":{"key":{"x-secret":true}}}`, `{"key":{"a":1},"n":1}`, `{"n":1}`},
		{"all of it", `{"x-secret":true}`, `{"n":1}`, `{}`},
		{"nested", `{"properties":{"a":{"properties":{"b":{"properties":{"key":{"x-secret":true}}}}}}}`, `{"a":{"b":{"key":"x","n":1}}}`, `{"a":{"b":{"n":1}}}`},
		{"items", `{"properties":{"keys":{"items":{"x-secret":true}}}}`, `{"keys":["x","y"]}`, `{"keys":[null,null]}`},
		{"objects in a list", `{"properties":{"l":{"items":{"properties":{"key":{"x-secret":true}}}}}}`, `{"l":[{"key":"x"},{"n":1}]}`, `{"l":[{},{"n":1}]}`},
		{"one item", `{"properties":{"l":{"prefixItems":[{},{"x-secret":true}],"items":{}}}}`, `{"l":[1,2,3]}`, `{"l":[1,null,3]}`},
		{"contained", `{"properties":{"l":{"contains":{"x-secret":true}}}}`, `{"l":[1]}`, `{"l":[null]}`},
		{"by pattern", `{"patternProperties":{"^key":{"x-secret":true}}}`, `{"key1":"x","n":1}`, `{"n":1}`},
		{"any other", `{"properties":{"n":{}},"additionalProperties":{"x-secret":true}}`, `{"key":"x","n":1}`, `{"n":1}`},
		{"unevaluated", `{"properties":{"n":{}},"unevaluatedProperties":{"x-secret":true}}`, `{"key":"x"}`, `{}`},
		{"by reference", `{"properties":{"key":{"$ref":"#/$defs/secret"}},"$defs":{"secret":{"x-secret":true}}}`, `{"key":"x","n":1}`, `{"n":1}`},
		{"in one of several forms", `{"anyOf":[{"properties":{"key":{"type":"integer","x-secret":true}}},{}]}`, `{"key":"x"}`, `{}`},
		{"in a condition", `{"if":{"properties":{"n":{"const":1}}},"then":{"properties":{"key":{"x-secret":true}}}}`, `{"key":"x","n":2}`, `{"n":2}`},
		{"of a dependent", `{"dependentSchemas":{"n":{"properties":{"key":{"x-secret":true}}}}}`, `{"key":"x"}`, `{}`},
		{"recursive", `{"properties":{"next":{"$ref":"#"},"key":{"x-secret":true}}}`, `{"next":{"next":{"key":"x","n":1}}}`, `{"next":{"next":{"n":1}}}`},
		{"a loop", `{"allOf":[{"$ref":"#"}],"properties":{"key":{"x-secret":true}}}`, `{"key":"x","n":1}`, `{"n":1}`},
		{"who knows where", `{"properties":{"a":{"$dynamicRef":"#x"},"key":{"x-secret":true}},"$defs":{"x":{"$dynamicAnchor":"x"}}}`, `{"a":1}`, `{}`},
		{"exact numbers", `{"properties":{"key":{"x-secret":true}}}`, `{"key":"x","n":12345678901234567890}`, `{"n":12345678901234567890}`},
		{"no JSON", `{"properties":{"key":{"x-secret":true}}}`, `{"key":`, `{}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Compile(json.RawMessage(test.schema))
			require.NoError(t, err)
			public, secret := s.Public(json.RawMessage(test.document))
			require.Equal(t, test.want, string(public))
			require.Equal(t, test.want != test.document, secret)
		})
	}
}

// A secret that does not fit is not quoted: the error may be logged.
func TestSecretsAreNotQuoted(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"properties":{
		"key":{"x-secret":true,"type":"string","pattern":"^k-","maxLength":9},"mail":{"writeOnly":true,"format":"email"},
		"pin":{"x-secret":true,"minimum":1000,"multipleOf":2},"keys":{"items":{"x-secret":true,"properties":{"a":{"const":1}}}},"name":{"pattern":"^n-"}}}`))

	require.NoError(t, err)
	for _, test := range []struct{ document, want string }{
		{`{"key":"hunter2"}`, "/key: does not match pattern '^k-'"},
		{`{"key":7}`, "/key: expected string, found number"},
		{`{"key":"k-234567890"}`, "/key: maxLength: got 11, want 9"},
		{`{"mail":"hunter2"}`, "/mail: is not valid email"},
		{`{"pin":7777}`, "/pin: does not fit its schema"},
		{`{"pin":77}`, "/pin: does not fit its schema"},
		{`{"keys":[{"a":1},{"a":7}]}`, "/keys/1/a: does not fit its schema"},
		{`{"name":"Ada"}`, "/name: 'Ada' does not match pattern '^n-'"},
	} {
		found := s.Check(json.RawMessage(test.document))
		require.NotEmpty(t, found, test.document)
		require.Equal(t, test.want, found[0].String())
	}
}

// What is too much work counts as secret.
func TestPublicIsBounded(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"properties":{"key":{"x-secret":true},"l":{"items":{"type":"integer"}}}}`))
	require.NoError(t, err)
	document := func(n int) json.RawMessage {
		return json.RawMessage(`{"l":[` + strings.Repeat("1,", n-1) + `1]}`)
	}
	public, secret := s.Public(document(maxSteps / 2))
	require.False(t, secret)
	require.Equal(t, string(document(maxSteps/2)), string(public))
	public, secret = s.Public(document(maxSteps + 1))
	require.True(t, secret)
	require.Equal(t, `{}`, string(public))
}

// Whatever the document, nothing that was marked is left in what is public.
func FuzzPublic(f *testing.F) {
	s, err := Compile(json.RawMessage(`{"properties":{"key":{"x-secret":true}},"additionalProperties":{"$ref":"#"},"items":{"$ref":"#"}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"a":[{"key":"hunter2"}]}`)
	f.Add(`[{"key":1,"key":"x"},{"b":{"key":null}}]`)
	f.Fuzz(func(t *testing.T, document string) {
		public, secret := s.Public(json.RawMessage(document))
		if !json.Valid([]byte(document)) {
			require.True(t, secret)
			require.Equal(t, "{}", string(public))
			return
		}
		left, _, err := decode(public)
		if err == nil { // else a number nobody can hold
			require.False(t, hasKey(left), "%s", public)
		}
	})
}

func hasKey(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if name == "key" || hasKey(member) {
				return true
			}
		}
	case []any:
		for _, item := range v {
			if hasKey(item) {
				return true
			}
		}
	}

	return false
}
