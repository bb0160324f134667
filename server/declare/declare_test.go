package declare

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeclaration(t *testing.T) {
	for name, c := range map[string]struct{ input, output, want string }{
		"nothing":      {``, ``, `run(args?: Record<string, unknown>): Promise<unknown>`},
		"any object":   {`{"type":"object"}`, `true`, `run(args?: Record<string, unknown>): Promise<unknown>`},
		"no arguments": {`{"type":"object","additionalProperties":false}`, `{"type":"null"}`, `run(): Promise<null>`},
		"usual": {
			`{"type":"object","required":["text"],"properties":{"text":{"type":"string"},"limit":{"type":"number"}}}`, `{"type":"array","items":{"type":"string"}}`,
			`run(args: { text: string; limit?: number }): Promise<string[]>`,
		},
		"optional": {`{"type":"object","properties":{"a":{"type":["string","null"]}}}`, `{"type":"boolean"}`, `run(args?: { a?: string | null }): Promise<boolean>`},
		"comments": {
			`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","minimum":1,"maximum":9,"default":3,"description":"How\nmany."},"s":{"type":"string","format":"date","maxLength":5,"default":"x"}}}`, ``,
			"run(args: {\n  /** How many. (integer, at least 1, at most 9, default 3) */\n  n: number\n  /** max length 5, format date, default \"x\" */\n  s?: string\n}): Promise<unknown>",
		},
		"enum and const": {
			`{"type":"object","properties":{"a":{"enum":["x",1,null,true]},"c":{"enum":[{"a":1},"x"]}}}`, `{"enum":[]}`,
			`run(args?: { a?: "x" | 1 | null | true; c?: Record<string, unknown> | string }): Promise<never>`,
		},
		"unions in arrays": {
			`{"properties":{"a":{"type":"array","items":{"type":["string","number"]}}}}`, `{"type":"array","items":{"enum":["a","b"]}}`,
			`run(args?: { a?: (string | number)[] }): Promise<("a" | "b")[]>`,
		},
		"tuples": {
			`{}`, `{"type":"array","minItems":1,"prefixItems":[{"type":"string"},{"type":["number","null"]}],"items":false}`,
			`run(args?: Record<string, unknown>): Promise<[string, (number | null)?]>`,
		},
		"open tuple": {`{}`, `{"prefixItems":[{"type":"string"}],"items":{"type":"number"}}`, `run(args?: Record<string, unknown>): Promise<[string?, ...number[]]>`},
		"maps": {
			`{"type":"object","additionalProperties":{"type":"integer"}}`, `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"number"}}`,
			`run(args?: Record<string, number>): Promise<{ a?: string } & Record<string, number>>`,
		},
		"other properties": {
			`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":true}`, `{"type":"object","properties":{"a":{"type":"string"}},"patternProperties":{"^x-":{"type":"string"}}}`,
			`run(args?: { a?: string } & Record<string, unknown>): Promise<{ a?: string } & Record<string, unknown>>`,
		},
		"combinations": {
			`{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}],"allOf":[{"properties":{"b":{"type":"number"}}}]}`,
			`{"oneOf":[{"type":"string"},{"type":"string","format":"date"},{"type":"object","required":["e"],"properties":{"e":{"type":"string"}}}]}`,
			`run(args?: { a?: string } & { b?: number }): Promise<string | { e: string }>`,
		},
		"references": {
			`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object","required":["x"],"properties":{"x":{"$ref":"#/$defs/b~1c"},"y":{"$ref":"https://example.com"}}},"b/c":{"type":"number"}}}`,
			`{"$ref":"#/$defs/missing"}`,
			`run(args: { x: number; y?: unknown }): Promise<unknown>`,
		},
		"odd names":     {`{"properties":{"a b":{"type":"string"},"1":true,"":true,"é":{},"a\"*/\n\u202e":{},"new":{}}}`, ``, "run(args?: {\n  \"a b\"?: string\n  \"1\"?: unknown\n  \"\"?: unknown\n  \"é\"?: unknown\n  \"a\\\"*/\\n\\u202e\"?: unknown\n  new?: unknown\n}): Promise<unknown>"},
		"not JSON":      {`{"type":`, `nope`, `run(args?: Record<string, unknown>): Promise<unknown>`},
		"unknown types": {`{"type":"object","properties":{"a":{"type":"date"}}}`, `{"type":"string","not":{"const":"x"}}`, `run(args?: { a?: unknown }): Promise<string>`},
	} {
		t.Run(name, func(t *testing.T) {
			got := Declaration(Tool{"run", json.RawMessage(c.input), json.RawMessage(c.output)})
			require.Equal(t, c.want, got)
			requireMethod(t, got)
		})
	}
	require.Equal(t, `"new"(args?: Record<string, unknown>): Promise<unknown>`, Declaration(Tool{Name: "new"}), "no constructor")
}

// No description ends the comment that it is in, or hides what follows.
func TestHostileTexts(t *testing.T) {
	for _, hostile := range []string{
		"*/ evil(): void; /*", "**//", "*\u200b/", "* /", "*", "/", "*\x00/ x", "\u2028*/", "*\n/", "// \r\n x: 1", "\u202e*/", "`${1}`", "\\*/", strings.Repeat("*/", 300),
	} {
		quoted, err := json.Marshal(hostile)
		require.NoError(t, err)
		schema := fmt.Sprintf(`{"type":"object","properties":{"a":{"type":"string","description":%[1]s,"default":%[1]s,"pattern":%[1]s},%[1]s:{"title":%[1]s,"const":%[1]s}}}`, quoted)
		tool := Tool{"run", json.RawMessage(schema), json.RawMessage(schema)}

		got := Declaration(tool)
		requireMethod(t, got)
		for _, r := range "\u202e\u200b\x00\r\u2028" {
			require.NotContains(t, got, string(r))
		}
	}
}

// However large a schema is, its declaration is small, and says as much as fits.
func TestBounds(t *testing.T) {
	many := func(n int, format string) string {
		var parts []string
		for i := range n {
			parts = append(parts, strings.ReplaceAll(format, "N", fmt.Sprint(i)))
		}
		return strings.Join(parts, ",")
	}
	deep := strings.Repeat(`{"type":"array","items":`, 500) + `{}` + strings.Repeat("}", 500)
	doubling := `{"$ref":"#/$defs/d0","$defs":{` + many(30, `"dN":{"type":"object","properties":{"a":{"$ref":"#/$defs/dX"},"b":{"$ref":"#/$defs/dX"}}}`) + `}}`
	for i := range 30 {
		doubling = strings.Replace(doubling, "dX", fmt.Sprintf("d%d", i+1), 2)
	}

	for name, c := range map[string]struct{ schema, contains string }{
		"many properties": {`{"type":"object","properties":{` + many(500, `"pN":{"type":"string"}`) + `}}`, "[key: string]: unknown // and 436 more"},
		"long names":      {`{"type":"object","properties":{"` + strings.Repeat("n", 5000) + `":{}, "a":{}}}`, "// and 1 more"},
		"many comments":   {`{"type":"object","properties":{` + many(60, `"pN":{"type":"string","description":"`+strings.Repeat("word ", 100)+`"}`) + `}}`, "p59?: string"},
		"large enum":      {`{"type":"object","properties":{"a":{"enum":[` + many(500, `"vN"`) + `]}}}`, "/** one of 500 values */\n  a?: string"},
		"long literals":   {`{"type":"object","properties":{"a":{"const":"` + strings.Repeat("x", 200) + `"},"b":{"const":` + strings.Repeat("1", 200) + `}}}`, "{ a?: string; b?: number }"},
		"large union":     {`{"type":"object","properties":{"a":{"anyOf":[` + many(100, `{"const":N}`) + `]}}}`, "a?: unknown"},
		"large tuple":     {`{"type":"object","properties":{"a":{"type":"array","prefixItems":[` + many(100, `{"const":N}`) + `]}}}`, "a?: unknown[]"},
		"deep":            {`{"type":"object","properties":{"a":` + deep + `}}`, "a?: unknown[][][][][][][][]"},
		"itself":          {`{"type":"object","properties":{"next":{"$ref":"#"},"v":{"type":"string"}}}`, "run(args?: { next?: { next?: unknown; v?: string }; v?: string }): Promise<"},
		"a cycle":         {`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, "args?: Record<string, unknown>"},
		"doubling":        {doubling, "a?: {"},
		"wide and deep":   {`{"type":"object","properties":{` + many(60, `"pN":{"type":"object","properties":{"`+strings.Repeat("q", 70)+`":{"type":"object","properties":{"`+strings.Repeat("r", 70)+`":{"enum":["`+strings.Repeat("s", 70)+`"]}}}}}`) + `}}`, "run(args?: "},
	} {
		t.Run(name, func(t *testing.T) {
			got := Declaration(Tool{"run", json.RawMessage(c.schema), json.RawMessage(c.schema)})
			require.LessOrEqual(t, len(got), MaxBytes)
			require.Contains(t, got, c.contains)
			requireMethod(t, got)
		})
	}
}

func FuzzDeclaration(f *testing.F) {
	f.Add("run", []byte(`{"type":"object","properties":{"a":{"description":"*/","enum":["\"",1,null]}},"$ref":"#"}`), []byte(`{"anyOf":[{"type":"array","items":{"$ref":"#/anyOf/0"}},true,{"const":"*/"}]}`))
	f.Add("new", []byte(`{"type":"object","required":["x"],"additionalProperties":{"type":["string","null"]},"patternProperties":{"a":{}}}`), []byte(`{"prefixItems":[{"title":"*\u202e/"}],"items":false}`))
	f.Fuzz(func(t *testing.T, name string, input, output []byte) {
		got := Declaration(Tool{name, input, output})
		require.LessOrEqual(t, len(got), MaxBytes)
		requireMethod(t, got)
	})
}

// requireMethod requires a declaration to be one method: outside of comments and texts,
// its brackets match, and nothing follows the type of its result.
func requireMethod(t *testing.T, declaration string) {
	t.Helper()
	skeleton := code(t, declaration)
	require.Regexp(t, `^("|[A-Za-z_$][A-Za-z0-9_$]*)\((args\??: .*|)\): Promise<.*>$`, strings.ReplaceAll(skeleton, "\n", " "))
	require.True(t, strings.Contains(skeleton, "): Promise<"))

	depth, ended := 0, 0
	for _, r := range skeleton {
		switch r {
		case '(', '{', '[', '<':
			depth++
		case ')', '}', ']', '>':
			depth--
			if depth == 0 {
				ended++
			}
		case ';':
			require.Positive(t, depth, declaration)
		}
	}
	require.Equal(t, 2, ended, "the arguments and the result: %s", declaration)
}

// code is a text in TypeScript without what is in comments, and with " for texts. All
// brackets match.
func code(t *testing.T, s string) string {
	t.Helper()
	var out, open []byte
	for i := 0; i < len(s); {
		switch rest := s[i:]; {
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			require.GreaterOrEqual(t, n, 0, "the comment does not end: %s", s)
			i += n + 4
			continue
		case strings.HasPrefix(rest, "//"):
			n := strings.IndexByte(rest, '\n')
			require.Positive(t, n, s)
			i += n
			continue
		case s[i] == '"':
			for i++; s[i] != '"'; i++ {
				require.GreaterOrEqual(t, s[i], byte(' '), "%q", s)
				if s[i] == '\\' {
					i++
				}
			}
		case strings.IndexByte("({[<", s[i]) >= 0:
			open = append(open, s[i])
		case strings.IndexByte(")}]>", s[i]) >= 0:
			require.NotEmpty(t, open, s)
			require.Equal(t, strings.IndexByte("({[<", open[len(open)-1]), strings.IndexByte(")}]>", s[i]), s)
			open = open[:len(open)-1]
		}
		out = append(out, s[i])
		i++
	}
	require.Empty(t, open, s)
	return string(out)
}
