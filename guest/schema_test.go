package guest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

// pluginOf is a plugin with one tool of those types.
func pluginOf[In, Out any](f func(*guest.Call, In) (Out, error)) *guest.Plugin {
	if f == nil {
		f = func(*guest.Call, In) (out Out, _ error) { return out, nil }
	}
	return &guest.Plugin{
		Name: "p", Version: "1.0.0", Description: "For tests.",
		Tools: []guest.Tool{{Name: "t", Description: "For tests.", Handler: guest.Handle(f)}},
	}
}

type base struct {
	ID string `json:"id" desc:"Of whom" pattern:"^[a-z]+$"`
}

type everything struct {
	base
	Text     string            `json:"text" desc:"A text" min:"1" max:"9" example:"hello"`
	Optional string            `json:"optional,omitempty" format:"uri"`
	Choice   string            `json:"choice" enum:"red,green" default:"red"`
	Number   float64           `json:"number" min:"-1.5" max:"1e3"`
	Count    int               `json:"count" default:"3"`
	Sizes    []uint8           `json:"sizes,omitempty"`
	Levels   []string          `json:"levels" enum:"low,high" max:"2"`
	Flag     bool              `json:"flag" default:"false"`
	Pointer  *int              `json:"pointer" min:"0" example:"7"`
	Nested   []inner           `json:"nested,omitempty"`
	Labels   map[string]string `json:"labels,omitempty" example:"{\"a\":\"b\"}"`
	Any      any               `json:"any,omitempty"`
	Raw      json.RawMessage   `json:"raw,omitempty"`
	When     time.Time         `json:"when,omitzero"`
	Pair     [2]float32        `json:"pair,omitempty"`
	Password string            `json:"password,omitempty" secret:"true"`
	Named    int
	hidden   int
	Ignored  int `json:"-"`
}

type inner struct {
	X uint `json:"x"`
}

func TestInputSchema(t *testing.T) {
	_ = everything{hidden: 0}
	m, err := pluginOf[everything, guest.None](nil).Manifest()
	require.NoError(t, err)
	require.Nil(t, m.Tools[0].OutputSchema)
	require.Equal(t, compact(t, `{
		"type": "object",
		"properties": {
			"id": {"type": "string", "description": "Of whom", "pattern": "^[a-z]+$"},
			"text": {"type": "string", "description": "A text", "minLength": 1, "maxLength": 9, "examples": ["hello"]},
			"optional": {"type": "string", "format": "uri"},
			"choice": {"type": "string", "enum": ["red", "green"], "default": "red"},
			"number": {"type": "number", "minimum": -1.5, "maximum": 1000},
			"count": {"type": "integer", "default": 3},
			"sizes": {"type": "string", "contentEncoding": "base64"},
			"levels": {"type": "array", "items": {"type": "string", "enum": ["low", "high"]}, "maxItems": 2},
			"flag": {"type": "boolean", "default": false},
			"pointer": {"type": "integer", "minimum": 0, "examples": [7]},
			"nested": {"type": "array", "items": {
				"type": "object", "properties": {"x": {"type": "integer", "minimum": 0}}, "required": ["x"], "additionalProperties": false
			}},
			"labels": {"type": "object", "additionalProperties": {"type": "string"}, "examples": [{"a": "b"}]},
			"any": {},
			"raw": {},
			"when": {"type": "string", "format": "date-time"},
			"pair": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
			"password": {"type": "string", "writeOnly": true},
			"Named": {"type": "integer"}
		},
		"required": ["id", "text", "number", "levels", "Named"],
		"additionalProperties": false
	}`), string(m.Tools[0].InputSchema))
}

func compact(t *testing.T, doc string) string {
	t.Helper()
	var raw json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(doc), &raw))
	out, err := json.Marshal(raw)
	require.NoError(t, err)
	return string(out)
}

// The schema of a result says what encoding/json writes, also for zero values.
func TestOutputSchema(t *testing.T) {
	type result struct {
		List  []string       `json:"list"`
		Maybe []string       `json:"maybe,omitempty"`
		Map   map[string]int `json:"map"`
		To    *inner         `json:"to"`
		Bytes []byte         `json:"bytes"`
		Any   any            `json:"any"`
	}
	p := pluginOf[struct{}, result](nil)
	m, err := p.Manifest()
	require.NoError(t, err)
	require.Equal(t, compact(t, `{
		"type": "object",
		"properties": {
			"list": {"type": ["array", "null"], "items": {"type": "string"}},
			"maybe": {"type": "array", "items": {"type": "string"}},
			"map": {"type": ["object", "null"], "additionalProperties": {"type": "integer"}},
			"to": {"type": ["object", "null"], "properties": {"x": {"type": "integer", "minimum": 0}}, "required": ["x"], "additionalProperties": false},
			"bytes": {"type": ["string", "null"], "contentEncoding": "base64"},
			"any": {}
		},
		"required": ["list", "map", "to", "bytes", "any"],
		"additionalProperties": false
	}`), string(m.Tools[0].OutputSchema))
	p.Tools[0].Examples = []guest.Example{{Args: struct{}{}, Result: result{}}}

	guesttest.Check(t, p) // the zero result fits

	for name, c := range map[string]struct {
		p    *guest.Plugin
		want string
	}{
		"number":  {pluginOf[struct{}, int](nil), `{"type":"integer"}`},
		"text":    {pluginOf[struct{}, string](nil), `{"type":"string"}`},
		"pointer": {pluginOf[struct{}, *bool](nil), `{"type":["boolean","null"]}`},
		"any":     {pluginOf[struct{}, any](nil), ``},
		"raw":     {pluginOf[struct{}, json.RawMessage](nil), ``},
	} {
		m, err := c.p.Manifest()
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(m.Tools[0].OutputSchema), name)
	}
}

type tree struct {
	Children []tree `json:"children"`
}

func TestBadTypes(t *testing.T) {
	for want, p := range map[string]*guest.Plugin{
		"arguments: expected a struct, found []string":                   pluginOf[[]string, int](nil),
		"field F: func() has no JSON":                                    pluginOf[struct{ F func() }, int](nil),
		"field M: map[int]string: the keys of a JSON object are strings": pluginOf[struct{ M map[int]string }, int](nil),
		"guest_test.tree contains itself":                                pluginOf[tree, int](nil),
		"result: field Children: guest_test.tree contains itself":        pluginOf[struct{}, tree](nil),
		`field B: the name "id" is taken`: pluginOf[struct {
			base
			B int `json:"id"`
		}, int](nil),
		"tag min: expected a number": pluginOf[struct {
			A int `min:"one"`
		}, int](nil),
		"tag max: only for numbers": pluginOf[struct {
			A bool `max:"1"`
		}, int](nil),
		`tag enum: "x" is not of type int`: pluginOf[struct {
			A int `enum:"1,x"`
		}, int](nil),
		`tag default: "x" is not of type int`: pluginOf[struct {
			A int `default:"x"`
		}, int](nil),
		"field B: field A: tag default: only for": pluginOf[struct {
			B struct {
				A int `default:"1"`
			}
		}, int](nil),
		"field A: tag default: only for strings, numbers and booleans": pluginOf[struct {
			A []int `default:"[1]"`
		}, int](nil),
		`field A: tag example: "x" is not of type []int`: pluginOf[struct {
			A []int `example:"x"`
		}, int](nil),
		"the json option string is not supported": pluginOf[struct {
			A int `json:",string"`
		}, int](nil),
		`field N: unknown tag minimum, did you mean "min"?`: pluginOf[struct {
			N int `json:"n" minimum:"1"`
		}, int](nil),
		`field N: unknown tag description, did you mean "desc"?`: pluginOf[struct {
			N int `description:"a number"`
		}, int](nil),
		`field N: unknown tag dsec, did you mean "desc"?`: pluginOf[struct {
			N int `dsec:"a number"`
		}, int](nil),
		"field B: field N: unknown tag validate, expected one of json, desc, enum, min, max, pattern, format, default, example, secret": pluginOf[struct {
			B []struct {
				N int `validate:"gte=1"`
			}
		}, int](nil),
		`result: field N: unknown tag description, did you mean "desc"?`: pluginOf[inner, struct {
			N int `json:"n" gorm:"primaryKey" description:"a number"`
		}](nil),
		`field Token: tag secret: expected "true" or "false", found "yes"`: pluginOf[struct {
			Token string `json:"token" secret:"yes"`
		}, int](nil),
		`tag min: expected a whole number that is not negative, found "1.5"`: pluginOf[struct {
			S string `min:"1.5"`
		}, int](nil),
		"tool t: it has no handler, make one with guest.Handle":                         {Tools: []guest.Tool{{Name: "t"}}},
		"tool t: arguments of example 0: json: unsupported type: chan int":              withExample(guest.Example{Args: make(chan int)}),
		"tool t: result of example 0: json: unsupported type: chan int":                 withExample(guest.Example{Args: inner{}, Result: make(chan int)}),
		`bad manifest: /version: expected a semantic version`:                           {Name: "p", Description: "x", Tools: pluginOf[inner, int](nil).Tools},
		`bad manifest: /tools/0/examples/0 (tool "t"): expected either result or error`: withExample(guest.Example{Args: inner{}}),
	} {
		_, err := p.Manifest()
		require.ErrorContains(t, err, want)
	}
}

func withExample(e guest.Example) *guest.Plugin {
	p := pluginOf[inner, int](nil)
	p.Tools[0].Examples = []guest.Example{e}
	return p
}

func TestDefaults(t *testing.T) {
	p := pluginOf(func(_ *guest.Call, in everything) (everything, error) { return in, nil })
	for args, want := range map[string][3]any{
		`{}`:                                     {"red", 3, false},
		`{"choice":"green","count":0}`:           {"green", 0, false},
		`{"flag":true,"choice":"red","count":5}`: {"red", 5, true},
	} {
		var in map[string]any
		require.NoError(t, json.Unmarshal([]byte(args), &in))
		for name, value := range map[string]any{"id": "a", "text": "t", "number": 1, "levels": []string{}, "Named": 1} {
			in[name] = value
		}
		out := guesttest.Call(p, "t", in)
		var got everything
		require.NoError(t, json.Unmarshal(out.Value, &got), out)
		require.Equal(t, want, [3]any{got.Choice, got.Count, got.Flag})
	}
}

// The settings of a plugin are described like the arguments of a tool.
func TestConfig(t *testing.T) {
	p := pluginOf[struct{}, int](nil)
	m, err := p.Manifest()
	require.NoError(t, err)
	require.Nil(t, m.ConfigSchema, "any settings")

	p.Config = struct {
		City string `json:"city" desc:"Where it is"`
		Days int    `json:"days,omitempty" min:"1"`
	}{}
	m, err = p.Manifest()
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"object","properties":{"city":{"type":"string","description":"Where it is"},"days":{"type":"integer","minimum":1}},"required":["city"],"additionalProperties":false}`, string(m.ConfigSchema))
	p.Config = 5
	_, err = p.Manifest()
	require.EqualError(t, err, "config: expected a struct, found int")
}
