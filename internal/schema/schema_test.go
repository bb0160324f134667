package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/strictjson"
)

func TestCheck(t *testing.T) {
	const person = `{"type":"object","additionalProperties":false,"required":["name"],"properties":{
		"name":{"type":"string","minLength":2},"age":{"type":"integer","minimum":0,"maximum":150},
		"mail":{"type":"string","format":"email"},"tags":{"type":"array","items":{"enum":["a","b"]}}}}`
	for _, tt := range []struct{ name, document, want string }{
		{"fits", `{"name":"Ada","age":36,"tags":["a"]}`, ""},
		{"integral float", `{"name":"Ada","age":36.0}`, ""},
		{"missing", `{}`, `missing: name`},
		{"two problems", `{"name":"A","age":-1}`, `/age: expected at least 0, found -1; /name: minLength: got 1, want 2`},
		{"unknown field", `{"name":"Ada","nam":1}`, `unknown field: nam`},
		{"unknown fields", `{"name":"Ada","f":1,"e":1,"d":1,"c":1,"b":1,"a":1}`, `unknown field: a, b, c, d, e, f`},
		{"wrong type", `{"name":1}`, `/name: expected string, found number`},
		{"nested", `{"name":"Ada","tags":["a","c"]}`, `/tags/1: value must be one of 'a', 'b'`},
		{"format", `{"name":"Ada","mail":"x"}`, `/mail: 'x' is not valid email: missing @`},
		{"a name twice", `{"name":"A","name":"Ada"}`, `/name: given more than once`},
		{"a name twice, escaped", `{"name":"Ada","n\u0061me":"Ada"}`, `/name: given more than once`},
		{"a name twice, deep", `{"name":"Ada","tags":[{},[],{"a":{"b:":":","c":{}}},{"a":{"x":{"c":1},"c/":{"c":[1]},"c/":2}}]}`, `/tags/3/a/c~1: given more than once`},
		{"names in other objects", `{"name":"Ada","tags":["a","a"]}`, ``},
		{"not json", `{`, `expected JSON: unexpected EOF (byte 1)`},
		{"two documents", `{"name":"Ada"} 1`, `expected JSON: invalid character '1' after top-level value (byte 15)`},
		{"huge exponent", `{"name":"Ada","age":1e999999999}`, `the number 1e999999999… is out of range`},
		{"huge negative exponent", `{"name":"Ada","age":1e-999999999}`, `the number 1e-999999999… is out of range`},
		{"huge mantissa", `{"name":"Ada","age":` + strings.Repeat("9", 500) + `}`, `the number 99999999999999999999… is out of range`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Compile(json.RawMessage(person))
			require.NoError(t, err)
			var got []string
			for _, p := range s.Check(json.RawMessage(tt.document)) {
				got = append(got, p.String())
			}
			require.Equal(t, tt.want, strings.Join(got, "; "))
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, tt := range []struct{ name, schema, want string }{
		{"wrong keyword type", `{"type":"object","properties":[]}`, `/properties: expected object, found array`},
		{"unknown type", `{"type":"objekt"}`, `/type`},
		{"bad pattern", `{"type":"object","properties":{"a":{"pattern":"("}}}`, `/properties/a/pattern`},
		{"remote reference", `{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}`, `remote schemas are never fetched`},
		{"relative reference", `{"type":"object","properties":{"enum":{"$ref":"a.json"}}}`, `remote schemas are never fetched`},
		{"remote dynamic reference", `{"type":"object","items":{"$dynamicRef":"other.json#a"}}`, `remote schemas are never fetched`},
		{"file reference", `{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`, `remote schemas are never fetched`},
		{"dangling reference", `{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}}`, `$defs/b`},
		{"a name twice", `{"type":"object","properties":{"a":{"type":"string"},"a":true}}`, `/properties/a: given more than once`},
		{"not json", `{`, `expected JSON`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(json.RawMessage(tt.schema))
			require.ErrorIs(t, err, ErrSchema)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"multipleOf":0.1}}}`, `{"a":1e300}`)
	f.Add(`{"type":"object","$defs":{"t":{"items":{"$ref":"#/$defs/t"}}},"properties":{"a":{"$ref":"#/$defs/t"}}}`, `{"a":[[[]]]}`)
	f.Fuzz(func(t *testing.T, schema, document string) {
		s, err := Compile(json.RawMessage(schema))
		if err != nil {
			require.ErrorIs(t, err, ErrSchema)
			return
		}
		s.Check(json.RawMessage(document))
	})
}

// FuzzTree: the reader of checked documents sees what encoding/json sees, with exact
// numbers.
func FuzzTree(f *testing.F) {
	for _, text := range []string{
		`{"a":"x\"y\\","b\u00e9\"":[1,-2.5e3,true,false,null,{}," "],"c":{"d":[]}}`, " { \"a\" : [ 1 , 2 ] } ", `"\\\\"`, `""`, `0`, `[[[]]]`, `"\ud800"`,
		`["\\\"","\\\\\"\\",",:]}"]`, "{\"a,:\":\t-0\n,\"\\\\\":1e5 }", "[\r\ntrue ,false,\tnull ]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strictjson.Check([]byte(text)) != nil {
			return
		}
		got, _, err := tree(json.RawMessage(text), true)
		if err != nil { // a number that nobody can hold
			return
		}

		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		var want any
		require.NoError(t, dec.Decode(&want))
		require.Equal(t, want, got)
	})
}

// TestTreeWithoutTexts: texts can be left out, and many escapes are read in one pass.
func TestTreeWithoutTexts(t *testing.T) {
	got, _, err := tree(json.RawMessage(`{"a\"":"x\"y","b":["z",1]}`), false)
	require.NoError(t, err)
	require.Equal(t, map[string]any{`a"`: "", "b": []any{"", json.Number("1")}}, got)

	escapes := `"` + strings.Repeat(`\\`, 4<<20) + `"` // takes ages unless it is read in one pass
	_, _, err = tree(json.RawMessage(escapes), false)
	require.NoError(t, err)
}
