package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkCheck measures the check of a megabyte of arguments, and beside it
// what encoding/json takes to decode them.
func BenchmarkCheck(b *testing.B) {
	row := `{"id":123456,"name":"a name","tags":["a","b"],"ok":true,"score":-1.5e3}`
	rows := strings.Repeat(row+",", 1<<20/len(row))
	for _, c := range []struct{ name, schema, document string }{
		{"text", `{"type":"object","additionalProperties":false,"required":["text"],"properties":{"text":{"type":"string"}}}`, `{"text":"` + strings.Repeat("lorem ipsum ", 1<<20/12) + `"}`},
		{"bounded", `{"type":"object","properties":{"text":{"type":"string","maxLength":2000000}}}`, `{"text":"` + strings.Repeat("lorem ipsum ", 1<<20/12) + `"}`},
		{"pattern", `{"type":"object","properties":{"text":{"type":"string","pattern":"^[a-z ]*$"}}}`, `{"text":"` + strings.Repeat("lorem ipsum ", 1<<20/12) + `"}`},
		{"rows", `{"type":"array","items":{"type":"object","additionalProperties":false,"required":["id"],"properties":{
			"id":{"type":"integer","minimum":0},"name":{"type":"string","minLength":1},"tags":{"type":"array","items":{"enum":["a","b"]}},"ok":{"type":"boolean"},"score":{"type":"number"}}}}`, `[` + rows + row + `]`},
		{"numbers", `{"type":"array","items":{"type":"integer"}}`, `[` + strings.Repeat("12345,", 1<<20/6) + `1]`},
		{"small", `{"type":"object","properties":{"text":{"type":"string"}}}`, `{"text":"12345"}`},
	} {
		s, err := Compile(json.RawMessage(c.schema))
		require.NoError(b, err)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.document)))
			for b.Loop() {
				if p := s.Check(json.RawMessage(c.document)); p != nil {
					b.Fatal(p)
				}
			}
		})
		b.Run(c.name+"/decode", func(b *testing.B) {
			b.SetBytes(int64(len(c.document)))
			for b.Loop() {
				var v any
				if json.Unmarshal([]byte(c.document), &v) != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}
