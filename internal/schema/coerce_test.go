package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/strictjson"
)

func TestCoerce(t *testing.T) {
	const schema = `{"type":"object","required":["id"],"properties":{
		"id":{"type":"integer"},"n":{"type":"number"},"on":{"type":"boolean"},"text":{"type":"string"},"any":{},
		"maybe":{"type":["integer","null"]},"tags":{"type":"array","items":{"type":"integer"}},"as":{"$ref":"#/$defs/point"},
		"either":{"anyOf":[{"type":"integer"}]},"const":{"enum":["1"]}},
		"additionalProperties":{"type":"object"},"$defs":{"point":{"type":"object","properties":{"x":{"type":"number"}}}}}`
	s, err := CompileArgs(json.RawMessage(schema))
	require.NoError(t, err)
	for _, test := range []struct {
		args, want string
		corrected  int
	}{
		{`{"id":"5"}`, `{"id":5}`, 1},
		{`{"id":"5","n":" -1.5e3 ","on":"false"}`, `{"id":5,"n":-1.5e3,"on":false}`, 3},
		{`{"text":null,"n":null,"any":null,"id":1}`, `{"any":null,"id":1}`, 2},
		{`{"id":null}`, "", 0}, // required: the caller has to say
		{`{"maybe":null,"id":1}`, "", 0},
		{`{"maybe":"null"}`, `{"maybe":null}`, 1},
		{`{"text":"5","any":"5","const":"1","either":"5"}`, "", 0},
		{`{"tags":"[1,\"2\"]"}`, `{"tags":[1,"2"]}`, 1},
		{`{"tags":["1",null,2]}`, `{"tags":[1,null,2]}`, 1},
		{`{"as":"{\"x\":1}"}`, `{"as":{"x":1}}`, 1},
		{`{"as":{"x":"1","y":"2"}}`, `{"as":{"x":1,"y":"2"}}`, 1},
		{`{"as":{"x":null}}`, `{"as":{}}`, 1},
		{`{"more/x":"{}"}`, `{"more/x":{}}`, 1},
		{`{"id":"five"}`, "", 0}, {`{"id":""}`, "", 0}, {`{"id":"[5]"}`, "", 0}, {`{"id":"\"5\""}`, "", 0}, {`{"on":"1"}`, "", 0}, {`{"on":"True"}`, "", 0},
		{`{"as":"{\"x\":1,\"x\":2}"}`, "", 0}, // given more than once
		{`{"id":"5 5"}`, "", 0},
	} {
		args, err := strictjson.Parse([]byte(test.args))
		require.NoError(t, err)
		got, corrected := s.Coerce(args)
		if test.want == "" {
			test.want = test.args
		}
		require.Equal(t, test.want, string(got.Raw()), test.args)
		require.Equal(t, test.corrected, corrected, test.args)
	}
}

// TestCoerceIsBounded: arguments that are deep or long stay as they are, at once.
func TestCoerceIsBounded(t *testing.T) {
	s, err := CompileArgs(json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":["array","integer"],"items":{"$ref":"#/$defs/a"}}}}`))
	require.NoError(t, err)
	for _, text := range []string{
		`{"a":` + strings.Repeat("[", 5000) + `"1"` + strings.Repeat("]", 5000) + `}`,
		`{"a":[` + strings.Repeat(`"1",`, 1<<20) + `1]}`,
	} {
		args, err := strictjson.Parse([]byte(text))
		require.NoError(t, err)
		_, corrected := s.Coerce(args)
		require.Zero(t, corrected)
	}
}

// FuzzCoerce: corrected arguments are valid, and correcting them again changes nothing
// more than their schema asks for.
func FuzzCoerce(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"array","items":{"type":"object"}}}}`, `{"a":"1","b":["{}",null]}`)
	f.Fuzz(func(t *testing.T, schema, document string) {
		s, err := CompileArgs(json.RawMessage(schema))
		if err != nil {
			return
		}
		args, err := strictjson.Parse([]byte(document))
		if err != nil {
			return
		}
		got, corrected := s.Coerce(args)
		require.NoError(t, strictjson.Check(got.Raw()))
		if corrected == 0 {
			require.Equal(t, args, got)
		}
	})
}
