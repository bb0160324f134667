package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{}`, ""},
		{" {\"a\":[1,{\"b\":\"}\"}]}\n", ""},
		{`{"a":"\ud800"}`, ""},
		{`{"a":{"a":1}}`, ""},
		{``, "expected JSON: unexpected EOF (byte 0)"},
		{`{"a":`, "expected JSON: unexpected EOF (byte 5)"},
		{`{"a":1} 2`, "expected JSON: invalid character '2' after top-level value (byte 8)"},
		{"{\"a\":\"\xff\"}", "expected UTF-8 text"},
		{`[1]`, "expected an object, found an array"},
		{` null`, "expected an object, found null"},
		{`{"a":1,"\u0061":2}`, "/a: given more than once"},
		{`{"a":[{"b/c":1,"b/c":2}]}`, "/a/0/b~1c: given more than once"},
		{strings.Repeat(`{"a":`, 20_000), "expected JSON: exceeded max depth (byte 50000)"},
	} {
		object, err := Parse([]byte(test.text))
		if test.want == "" {
			require.NoError(t, err, test.text)
			require.Equal(t, strings.TrimSpace(test.text), string(object.Raw()))
			continue
		}
		require.EqualError(t, err, test.want)
		require.Nil(t, object.Raw())
	}
}

type body struct {
	Tool   string  `json:"tool"`
	Args   Object  `json:"args"`
	Raw    any     `json:"raw"`
	Count  int64   `json:"count"`
	Score  float64 `json:"score"`
	On     bool    `json:"on"`
	Limits struct {
		Fuel int64 `json:"fuel"`
	} `json:"limits"`
	Answers map[string][]struct {
		Content json.RawMessage `json:"content"`
	} `json:"answers"`
	At time.Time `json:"at"`
}

func TestDecode(t *testing.T) {
	for _, test := range []struct{ text, path, want string }{
		{`{"tool":1}`, "tool", "expected a string, found a number"},
		{`{"Tool":"a"}`, "Tool", `unknown field, did you mean "tool"?`},
		{`{"tol":"a"}`, "tol", `unknown field, did you mean "tool"?`},
		{`{"whatever":"a"}`, "whatever", "unknown field, expected one of answers, args, at, count, limits, on, raw, score, tool"},
		{`{"tool":"a","tool":"a"}`, "tool", "given more than once"},
		{`{"limits":{"fuel":1.5}}`, "limits.fuel", "expected a whole number, found a number"},
		{`{"limits":{"fule":1}}`, "limits.fule", `unknown field, did you mean "fuel"?`},
		{`{"limits":[]}`, "limits", "expected an object, found an array"},
		{`{"answers":{"a.b":[{},{"Content":1}]}}`, "answers.a.b.1.Content", `unknown field, did you mean "content"?`},
		{`{"answers":{"a":1,"a":2}}`, "answers.a", "expected an array, found a number"},
		{`{"answers":{"a":[],"a":[]}}`, "answers.a", "given more than once"},
		{`{"args":1}`, "args", "expected an object, found a number"},
		{`{"args":{"a":1,"a":1}}`, "args.a", "given more than once"},
		{`{"score":"x"}`, "score", "expected a number, found a string"},
		{`{"on":1}`, "on", "expected true or false, found a number"},
		{`{"at":"x"}`, "at", `parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"`},
		{`null`, "", "expected an object, found null"},
		{` 1 2`, "", "expected JSON: invalid character '2' after top-level value (byte 3)"},
		{`{"on":tru}`, "", "expected JSON: invalid character '}' in literal true (expecting 'e') (byte 9)"},
		{`{} {}`, "", "expected JSON: invalid character '{' after top-level value (byte 3)"},
		{"{\"tool\":\"\xff\"}", "", "expected UTF-8 text"},
	} {
		var into body
		err := Decode([]byte(test.text), &into)
		var found *Error
		require.ErrorAs(t, err, &found, test.text)
		require.Equal(t, test.path, found.Path(), test.text)
		require.Equal(t, test.want, found.Message, test.text)
	}

	var into body
	require.NoError(t, Decode([]byte(`{"tool":"a","args": {"b": [1]},"count":3,"answers":{"a":[{"content":[{}]}]}}`), &into))
	require.Equal(t, `{"b": [1]}`, string(into.Args.Raw()))
	require.Equal(t, `[{}]`, string(into.Answers["a"][0].Content))
	require.EqualValues(t, 3, into.Count)

	text, err := json.Marshal(map[string]Object{"a": into.Args, "b": {}})
	require.NoError(t, err)
	require.Equal(t, `{"a":{"b":[1]},"b":null}`, string(text))
}

// Null fits no field but raw JSON. Decode asks for it only if the text may have one, which
// changes nothing about a valid text.
func TestDecodeNull(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"tool":null}`, "/tool: expected a string, found null"},
		{`{"count":null}`, "/count: expected a whole number, found null"},
		{`{"score":null}`, "/score: expected a number, found null"},
		{`{"on":null}`, "/on: expected true or false, found null"},
		{`{"args":null}`, "/args: expected an object, found null"},
		{`{"limits":null}`, "/limits: expected an object, found null"},
		{`{"limits":{"fuel": null }}`, "/limits/fuel: expected a whole number, found null"},
		{`{"answers":{"null":null}}`, "/answers/null: expected an array, found null"},
		{`{"answers":{"a":[null]}}`, "/answers/a/0: expected an object, found null"},
		{`{"answers":{"a":[{"content":null}]}}`, ""},
		{`{"args":{"a":null}}`, ""},
		{`{"tool":"null"}`, ""},
		{`{"tool":"\u006eull"}`, ""},
		{`{"tool":"nul\u006c"}`, ""},
		{`{"\u0074ool":null}`, "/tool: expected a string, found null"},
		{`{"null":1}`, "/null: unknown field, expected one of answers, args, at, count, limits, on, raw, score, tool"},
		{`{"nul\u006c":1}`, "/null: unknown field, expected one of answers, args, at, count, limits, on, raw, score, tool"},
		{`{"tool":n`, "expected JSON: unexpected EOF (byte 9)"},
		{`{"tool":nul`, "expected JSON: unexpected EOF (byte 11)"},
		{`{"tool":nul}`, "expected JSON: invalid character '}' in literal null (expecting 'l') (byte 11)"},
		{`{"tool":\u006eull}`, `expected JSON: invalid character '\\' at start of value (byte 8)`},
		{`{"tool":Null}`, "expected JSON: invalid character 'N' at start of value (byte 8)"},
		{`{"tool":nulL}`, "expected JSON: invalid character 'L' in literal null (expecting 'l') (byte 11)"},
	} {
		var fast, slow body
		err := Decode([]byte(test.text), &fast)
		asked := Explain(jsonv2.Unmarshal([]byte(test.text), &slow, jsonv2.RejectUnknownMembers(true), utf8Checked, jsonv2.WithUnmarshalers(asInSchemas)))
		if test.want == "" {
			require.NoError(t, err, test.text)
			require.NoError(t, asked, test.text)
			require.Equal(t, slow, fast, test.text)
			continue
		}
		require.EqualError(t, err, test.want, test.text)
		require.Error(t, asked, test.text)
		if json.Valid([]byte(test.text)) {
			require.EqualError(t, asked, test.want, test.text)
		}
	}
}

// sameAsWhole: a text is decoded in the same way if it is shortened.
func sameAsWhole(t *testing.T, text string) {
	t.Helper()
	var got, want body
	err, asked := Decode([]byte(text), &got), Explain(unmarshal([]byte(text), &want, nil))
	if !utf8.ValidString(text) {
		require.EqualError(t, err, "expected UTF-8 text")
		return
	}
	require.Equal(t, asked, err, "%.200q", text)
	if err == nil {
		require.Equal(t, want, got, "%.200q", text)
	}
	require.Equal(t, jsontext.Value(text).IsValid(utf8Checked), Check([]byte(text)) == nil, "%.200q", text)
}

func TestDecodeLong(t *testing.T) {
	plain := strings.Repeat("lorem <ipsum> ", 1000)
	for _, test := range []struct {
		text  string
		short bool // it is decoded without its long strings
	}{
		{`{"tool":"t","args":{"a":"@"}}`, true},
		{` { "args" : { "a" : [ "@" , {"b":"@"} ] , "c" : null } , "count" : 1e3 } `, true},
		{`{"args":{"a":"@\n@\u00e9@é漢字@\ud800@"},"tool":"漢字"}`, true},
		{`{"args":{"a":"@","@":1,"@x":2}}`, true},
		{`{"args":{"a":"@"},"answers":{"x":[{"content":{"@":1}}]}}`, true},
		{`{"args":{"a":"@","@":1,"@":2}}`, false},
		{`{"args":{"a":"@","\u0061":2}}`, false},
		{`{"args":{"a":"@"},"args":{}}`, false},
		{`{"args":{"a":"@"},"tool":"@"}`, false},
		{`{"args":{"a":"@"},"raw":"@"}`, false},
		{`{"args":{"a":"@"},"answers":{"x":[{"content":"@"}]}}`, false},
		{`{"args":{"a":"@"},"tol":1}`, false},
		{`{"args":{"a":"@"},"tool":null}`, false},
		{`{"args":"@"}`, false},
		{`{"args":["@"]}`, false},
		{`{"args":{"a":"@\x"}}`, false},
		{`{"args":{"a":"@\u12"}}`, false},
		{"{\"args\":{\"a\":\"@\x1f\"}}", false},
		{`{"args":{"a":"@}`, false},
		{`{"args":{"a":"@"}} 1`, false},
		{`{"args":{"a":"@"},"raw":{{0}`, false},
	} {
		text := strings.ReplaceAll(test.text, "@", plain)
		sameAsWhole(t, text)
		require.True(t, isLong([]byte(text)))
		require.Equal(t, test.short, decodeShort([]byte(text), new(body)), test.text)
	}
	require.False(t, isLong([]byte(`{"args":{"a":[`+strings.Repeat(`"a name",1,`, 1000)+`"`+plain+`"]}}`)))
}

func FuzzDecodeLong(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add(text, text)
	}
	f.Add(`"@","@":1`, `{"a":"@"}`)
	f.Fuzz(func(t *testing.T, within, raw string) {
		within, raw = strings.ReplaceAll(within, "@", strings.Repeat("x", 99)), strings.ReplaceAll(raw, "@", strings.Repeat("y", 99))
		sameAsWhole(t, `{"tool":"t","args":{"a":"`+strings.Repeat("lorem ", 1000)+`","b":`+within+`},"raw":`+raw+`}`)
	})
}

// FuzzParse: it accepts nothing that encoding/json refuses, and no repeated name.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"}"}],"c":"\""}`, `{}`, ` {"a" : {} , "b":[[]]} `, `{"a":1,"a":2}`, `[]`, `{"\ud800":"\udc00x"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		object, err := Parse(data)
		if err != nil {
			return
		}
		require.True(t, utf8.Valid(data) && json.Valid(data))

		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &want))
		members := 0
		dec := json.NewDecoder(bytes.NewReader(object.Raw()))
		_, _ = dec.Token() // the brace
		for dec.More() {
			_, err = dec.Token()
			require.NoError(t, err)
			require.NoError(t, dec.Decode(new(json.RawMessage)))
			members++
		}
		require.Len(t, want, members, "a repeated name is refused")
	})
}

// BenchmarkParse compares the full check with json.Valid, which checks less.
func BenchmarkParse(b *testing.B) {
	row := `{"id":123456,"name":"a name","tags":["a","b"],"ok":true,"score":-1.5e3}`
	for name, text := range map[string]string{
		"16B":  `{"text":"123456"}`,
		"text": `{"text":"` + strings.Repeat("lorem ipsum ", 1<<20/12) + `"}`,
		"rows": `{"rows":[` + strings.Repeat(row+",", 1<<20/len(row)) + row + `]}`,
	} {
		data := []byte(text)
		for _, check := range []struct {
			name  string
			valid func([]byte) bool
		}{
			{"parse", func(b []byte) bool { _, err := Parse(b); return err == nil }},
			{"valid", json.Valid},
		} {
			b.Run(fmt.Sprintf("%s/%s", name, check.name), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if !check.valid(bytes.TrimSpace(data)) {
						b.Fatal("refused")
					}
				}
			})
		}
	}
}
