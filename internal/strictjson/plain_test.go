package strictjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// sameAsStandard: a text is a result if encoding/json and unicode/utf8 take it,
// and is compacted as they do it.
func sameAsStandard(t *testing.T, text []byte) {
	t.Helper()
	spaced, ok := Valid(text)
	require.Equal(t, json.Valid(text) && utf8.Valid(text), ok, "%q", text)
	if !ok {
		return
	}
	var want bytes.Buffer
	require.NoError(t, json.Compact(&want, text))
	require.Equal(t, want.Len() != len(text), spaced, "%q", text)
	require.Equal(t, want.String(), string(Compact(slices.Clone(text))))
}

var jsonTexts = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `truex`, `True`, `"`, `""`, `"a"`, `"a" `, ` "a"`, "\xef\xbb\xbf1",
	`0`, `-0`, `-`, `00`, `01`, `1.`, `.5`, `1.5`, `1e`, `1e5`, `1E+05`, `1e-`, `-1.25e-7`, `+1`, `1 2`, `0x1`, `NaN`,
	`[]`, `[ ]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[[[]]]`, `[1, 2 , "x" ]`, `[`, `]`, `[}`, `{]`, `[1}`, `{"a":1]`,
	`{}`, `{ }`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{"a" : [ { } , null ] , "b":""}`, `{"a":1 "b":2}`, `{"a":1,"a":2}`, `{1:2}`,
	`"\n\t\"\\\/\b\f\r"`, `"\x"`, `"\`, `"\u"`, `"\u12"`, `"\u12G4"`, `"\u00e9\uD800"`, `"\U0041"`, "\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"a\nb\"",
	"\"caf\xc3\xa9\"", "\"caf\xc3\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xf0\x9f\x8e\x89 party\"", "\"\xc0\x80\"", "[\xc3\xa9]", "\xc3\xa9",
	"{\"a\":\"1234567\\\"890123456789012345678901234567890\"}", "\"0123456789abcdef0123456789abcde\x1f\"", "\"\xa1\xa1\"", "\"!\x01\"",
}

func TestValid(t *testing.T) {
	for _, text := range jsonTexts {
		sameAsStandard(t, []byte(text))
	}
	const maxNesting = 10_000 // of encoding/json
	for _, depth := range []int{1, 63, 64, 65, maxNesting - 1, maxNesting, maxNesting + 1, 3 * maxNesting} {
		sameAsStandard(t, []byte(strings.Repeat("[", depth)+strings.Repeat("]", depth)))
		sameAsStandard(t, []byte(strings.Repeat(`{"a":[`, depth)+strings.Repeat("]}", depth)))
		sameAsStandard(t, []byte(strings.Repeat(`[`, depth)))
	}
	// Each byte, at each place of the eight and thirty-two that are looked at together.
	for length := range 70 {
		for b := range 256 {
			text := bytes.Repeat([]byte("x"), length+2)
			text[0], text[length+1] = '"', '"'
			if length > 0 {
				text[1+b%length] = byte(b)
				text[length] = byte(b)
			}
			sameAsStandard(t, text)
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		sameAsStandard(t, text)
		quoted, _ := json.Marshal(string(text))
		sameAsStandard(t, quoted)
		sameAsStandard(t, slices.Concat([]byte(`"`), text, []byte(`"`)))
	})
}

// BenchmarkValid measures the check of a result, and for comparison what
// encoding/json and unicode/utf8 take for the same, together and the latter alone.
func BenchmarkValid(b *testing.B) {
	rows := strings.Repeat(`{"id":123456,"name":"a name","tags":["a","b"],"ok":true,"score":-1.5e3},`, 1<<20/73)
	for name, text := range map[string][]byte{
		"text":     []byte(`{"text":"` + strings.Repeat("lorem ipsum ", 1<<20/12) + `"}`),
		"lines":    []byte(`{"text":"` + strings.Repeat(`one line of a file, some sixty bytes of it in each line..\n`, 1<<20/59) + `"}`),
		"chinese":  []byte(`{"text":"` + strings.Repeat("漢字", 1<<20/6) + `"}`),
		"rows":     []byte(`[` + rows + `null]`),
		"16-bytes": []byte(`{"text":"12345"}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, ok := Valid(text); !ok {
					b.Fatal("refused")
				}
			}
		})
		b.Run(name+"/standard", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !json.Valid(text) || !utf8.Valid(text) {
					b.Fatal("refused")
				}
			}
		})
		b.Run(name+"/utf8", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !utf8.Valid(text) {
					b.Fatal("refused")
				}
			}
		})
	}
}
