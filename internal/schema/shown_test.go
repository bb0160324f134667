package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

func TestShown(t *testing.T) {
	for _, test := range []struct{ name, schema, want string }{
		{"no arguments", `{"type":"object","additionalProperties":false}`, `{"type":"object","additionalProperties":false,"properties":{}}`},
		{"as it should be", `{"type": "object", "properties": {"a": {"type": "string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`},
		{"inner objects and arrays", `{"type":"object","properties":{"a":{"type":"array"},"b":{"type":["object","null"]},"c":{"anyOf":[{"type":"array"},true]}},"additionalProperties":{"type":"object"}}`,
			`{"type":"object","properties":{"a":{"type":"array","items":{}},"b":{"type":["object","null"],"properties":{}},"c":{"anyOf":[{"type":"array","items":{}},true]}},"additionalProperties":{"type":"object","properties":{}}}`},
		{"no schemas", `{"type":"object","properties":{"type":{"const":{"type":"array"}},"items":{"enum":[{"type":"object"}]}}}`,
			`{"type":"object","properties":{"type":{"const":{"type":"array"}},"items":{"enum":[{"type":"object"}]}}}`},
		{"references", `{"type":"object","properties":{"from":{"$ref":"#/$defs/point","description":"Where it begins."},"to":{"$ref":"#/$defs/point"}},"$defs":{"point":{"type":"object","description":"A point.","properties":{"x":{"$ref":"#/$defs/x"}}},"x":{"type":"number"}}}`,
			`{"type":"object","properties":{"from":{"description":"Where it begins.","type":"object","properties":{"x":{"type":"number"}}},"to":{"type":"object","description":"A point.","properties":{"x":{"type":"number"}}}}}`},
		{"a reference to itself", `{"type":"object","properties":{"tree":{"$ref":"#/$defs/node"},"x":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"array"},"node":{"type":"array","items":{"$ref":"#/$defs/node"}}}}`,
			`{"type":"object","properties":{"tree":{"type":"array","items":{"$ref":"#/$defs/node"}},"x":{"type":"array","items":{}}},"$defs":{"node":{"type":"array","items":{"$ref":"#/$defs/node"}}}}`},
		{"a keyword beside", `{"type":"object","properties":{"a":{"$ref":"#/$defs/a","additionalProperties":false}},"$defs":{"a":{"properties":{"x":{}}}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/a","additionalProperties":false}},"$defs":{"a":{"properties":{"x":{}}}}}`},
		{"a secret", `{"type":"object","properties":{"a":{"$ref":"#/$defs/a","x-secret":true}},"$defs":{"a":{"type":"string","writeOnly":true}}}`,
			`{"type":"object","properties":{"a":{"x-secret":true,"type":"string","writeOnly":true}}}`},
		{"named elsewhere", `{"type":"object","properties":{"a":{"oneOf":[{"$ref":"#/$defs/a"}],"discriminator":{"propertyName":"x","mapping":{"y":"#/$defs/a"}}}},"$defs":{"a":{"type":"array"}}}`,
			`{"type":"object","properties":{"a":{"oneOf":[{"$ref":"#/$defs/a"}],"discriminator":{"propertyName":"x","mapping":{"y":"#/$defs/a"}}}},"$defs":{"a":{"type":"array","items":{}}}}`},
		{"items that are counted", `{"type":"object","properties":{"a":{"allOf":[{"type":"array"}],"unevaluatedItems":false}}}`, `{"type":"object","properties":{"a":{"allOf":[{"type":"array"}],"unevaluatedItems":false}}}`},
		{"space before", ` {"type":"object"}`, `{"type":"object","properties":{}}`},
		{"a keyword on both sides", `{"type":"object","properties":{"a":{"$ref":"#/$defs/a","minimum":2}},"$defs":{"a":{"minimum":1},"b":{}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/a","minimum":2}},"$defs":{"a":{"minimum":1}}}`},
		{"another place", `{"type":"object","properties":{"a":{"type":"object"},"b":{"$ref":"#/properties/a"},"c":{"$ref":"#/$defs/a%20b"}},"$defs":{"a b":{"type":"array"}}}`,
			`{"type":"object","properties":{"a":{"type":"object","properties":{}},"b":{"$ref":"#/properties/a"},"c":{"$ref":"#/$defs/a%20b"}},"$defs":{"a b":{"type":"array","items":{}}}}`},
		{"a base", `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$anchor":"x","type":"array"}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$anchor":"x","type":"array","items":{}}}}`},
		{"always", `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":true}}`, `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":true}}`},
		{"older word", `{"type":"object","properties":{"a":{"$ref":"#/definitions/a"}},"definitions":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`},
		{"letters", `{"type":"object","description":"<\u00e9>"}`, `{"type":"object","description":"<\u00e9>","properties":{}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := CompileArgs(json.RawMessage(test.schema))
			require.NoError(t, err)
			require.Equal(t, test.want, string(s.Shown()))
			_, err = CompileArgs(s.Shown())
			require.NoError(t, err)
		})
	}
}

// TestShownIsBounded: references that double what they refer to, and deep schemas, cost
// no more than the size of a schema.
func TestShownIsBounded(t *testing.T) {
	bomb := `{"type":"object","properties":{"a":{"$ref":"#/$defs/a0"}},"$defs":{`
	for i := range 30 {
		next := string(rune('0'+(i+1)/10)) + string(rune('0'+(i+1)%10))
		this := string(rune('0'+i/10)) + string(rune('0'+i%10))
		bomb += `"a` + strings.TrimPrefix(this, "0") + `":{"properties":{"l":{"$ref":"#/$defs/a` + strings.TrimPrefix(next, "0") + `"},"r":{"$ref":"#/$defs/a` + strings.TrimPrefix(next, "0") + `"}}},`
	}
	bomb += `"a30":{"type":"array"}}}`
	s, err := CompileArgs(json.RawMessage(bomb))
	require.NoError(t, err)
	require.Less(t, len(s.Shown()), 4*abi.MaxSchema)
	_, err = CompileArgs(s.Shown())
	require.NoError(t, err)

	chain := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`
	for i := range 1300 {
		chain += fmt.Sprintf(`"d%d":{"type":"object","$ref":"#/$defs/d%d"},`, i, i+1)
	}
	s, err = CompileArgs(json.RawMessage(chain + `"d1300":{"type":"array"}}}`))
	require.NoError(t, err)
	_, err = CompileArgs(s.Shown())
	require.NoError(t, err)

	deep := `{"type":"object","properties":{"a":` + strings.Repeat(`{"items":`, 200) + `{}` + strings.Repeat(`}`, 200) + `}}`
	s, err = CompileArgs(json.RawMessage(deep))
	require.NoError(t, err)
	require.Equal(t, deep, string(s.Shown()))
}

// FuzzShown: what fits a schema fits its form for models, and nothing else does.
func FuzzShown(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"}}}}`, `{"a":[[1]]}`)
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/$defs/a","title":"A"}},"$defs":{"a":{"type":"array","maxItems":1}}}`, `{"a":[1,2]}`)
	f.Fuzz(func(t *testing.T, schema, document string) {
		if strings.Contains(schema, "unevaluatedItems") {
			return // it counts items that no keyword names
		}
		s, err := Compile(json.RawMessage(schema))
		if err != nil {
			return
		}
		shown, err := Compile(s.Shown())
		require.NoError(t, err, "%s", s.Shown())
		require.Equal(t, len(s.Check(json.RawMessage(document))) == 0, len(shown.Check(json.RawMessage(document))) == 0, "%s", s.Shown())
	})
}
