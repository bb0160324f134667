package document_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/document"
)

func TestDecode(t *testing.T) {
	want := map[string]any{"a": map[string]any{"b": []any{"x", true}}}
	for name, text := range map[string]string{
		"d.yaml": "a: {b: [x, true]}",
		"d.yml":  "# comment\na:\n  b: [&x x, true]\n",
		"d.toml": "[a]\nb = ['x', true]",
		"d.json": `{"a": {"b": ["x", true]}}`,
	} {
		got, err := document.Decode(name, []byte(text))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}

	got, err := document.Decode("empty.yaml", []byte("# nothing"))
	require.NoError(t, err)
	require.Nil(t, got)
}

// Every format has the same bounds, and errors name the line.
func TestBounds(t *testing.T) {
	const deep = "expected at most 100 levels of nesting"
	nested := func(open, close string, n int) string { return strings.Repeat(open, n) + strings.Repeat(close, n) }
	wide := "a: {"
	for i := range 300 {
		wide += fmt.Sprintf("k%d: 1, ", i)
	}

	for _, test := range []struct{ name, text, want string }{
		{"d.json", "\n\n" + nested("[", "]", 102), deep},
		{"d.json", strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101), deep},
		{"d.json", strings.Repeat("[", 100_000), "exceeded max depth (line 1, column 10001)"},
		{"d.json", nested("[", "]", 100), ""},
		{"d.yaml", "a: 1\nb: " + nested("[", "]", 101), deep + " (line 2)"},
		{"d.yaml", "a: &a " + nested("[", "]", 60) + "\nb: " + strings.Repeat("[", 60) + "*a" + strings.Repeat("]", 60), deep},
		{"d.yaml", "a: " + nested("[", "]", 99), ""},
		{"d.yaml", wide + "}", "line 1: a mapping has 300 keys, expected at most 256"},
		{"d.toml", "a = 1\n\n" + strings.Repeat("b.", 101) + "c = 1", deep},
		{"d.toml", "[" + strings.Repeat("b.", 60) + "c]\nd = 1\n" + strings.Repeat("e.", 60) + "f = 1", deep},
		{"d.toml", "[[" + strings.Repeat("b.", 101) + "c]]", deep},
		{"d.toml", "a = " + nested("[", "]", 101), deep},
		{"d.toml", "a = " + strings.Repeat("{b.c = ", 51) + "1" + strings.Repeat("}", 51), deep},
		{"d.toml", strings.Repeat("b.", 98) + "c = 1", ""},
		{"d.toml", "a = 1\nb = ", "(line 2, column "},
		{"d.json", "{\n\"a\" 1}", "invalid character '1' after object key (line 2, column 5)"},
		{"d.json", "{} {}", "invalid character '{' after top-level value (line 1, column 4)"},
		{"d.yaml", "a: 1\n---\nb: 1", "expected one YAML document, found another after ---"},
		{"d.yaml", "a:\n  b: 1\n\tc: 1\n", "yaml: line 3: tabs are not allowed in the indentation: use spaces"},
		{"d.yaml", "a:\n \t- 1\n", "yaml: line 2: tabs are not allowed in the indentation: use spaces"},
		{"d.yaml", "a:\n  b: @c\n", "yaml: line 2: found character that cannot start any token"},
		{"d.yaml", "a:\tb\n", ""},
		{"d.yaml", "1: x", "expected names as keys, found the key 1: put it in quotes"},
		{"d.yaml", "a: &a '" + strings.Repeat("x", 10_000) + "'\nb: {!x c: [" + strings.Repeat("*a, ", 1000) + "]}\n", "found a key with a tag, such as !x: remove the tag"},
		{"d.toml", "a = nan", "expected numbers, found NaN"},
		{"d.yaml", "#" + strings.Repeat("x", document.MaxWritten), "the file has 65537 bytes, expected at most 65536"},
		{"d.json", strings.Repeat(" ", document.MaxJSON+1), "the file has 1048577 bytes, expected at most 1048576"},
		{"d.yaml", "a: &a '" + strings.Repeat("x", 10_000) + "'\nb: [" + strings.Repeat("*a, ", 1000) + "]\n", "it expands to more than 1048576 bytes, the limit"},
		{"d.txt", "", "expected a file that ends in .yaml, .toml or .json"},
	} {
		_, err := document.Decode(test.name, []byte(test.text))
		if test.want == "" {
			require.NoError(t, err, "%s %.40q", test.name, test.text)
			continue
		}
		require.ErrorContains(t, err, test.want, "%s %.40q", test.name, test.text)
		require.NotContains(t, err.Error(), "\n")
	}
}

// FuzzDecode holds that nothing makes the decoders panic or hang, and that what
// comes of them is within the bounds.
func FuzzDecode(f *testing.F) {
	for _, ending := range []string{".yaml", ".toml", ".json"} {
		for _, seed := range []string{
			"", "a: &a [*a]", "a.b.c = 1", "[[a]]\n[[a]]", "? [x]\n: 1", "? !x a\n: 1", "<<: 1", "a = {b.c = [{}]}", `{"a": [1, {"b": null}]}`, "a = \"\"\"\n[\n\"\"\"",
			"[a.b]\n\"c.d\".e = [[1]] # x",
		} {
			f.Add(ending, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, ending string, data []byte) {
		if len(data) > 1<<14 {
			t.Skip("long documents are long in other ways too")
		}
		value, err := document.Decode("d"+ending, data)
		if err != nil {
			require.Nil(t, value)
			return
		}

		text, err := json.Marshal(value)
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), 32*document.MaxJSON)
		require.LessOrEqual(t, depth(value), document.MaxNesting)
	})
}

func depth(value any) int {
	deepest := -1
	switch v := value.(type) {
	case map[string]any:
		for _, item := range v {
			deepest = max(deepest, depth(item))
		}
	case []any:
		for _, item := range v {
			deepest = max(deepest, depth(item))
		}
	}
	return deepest + 1
}
