package plugins

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// aliases is a YAML document of nine levels, each of which has the one before
// it nine times.
func aliases() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		alias := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.Join(strings.Fields(strings.Repeat(alias+" ", 9)), ", "))
	}
	return b.String()
}

// keys are the keys of a mapping of YAML.
func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1, ", i)
	}
	return b.String()
}

func TestBadSidecar(t *testing.T) {
	replace := func(document, old, new string) string {
		require.Contains(t, document, old)
		return strings.Replace(document, old, new, 1)
	}
	for _, test := range []struct {
		name, ending, document string
		want                   string // the problem, after the name of the sidecar
	}{
		{"alias bomb", "yaml", aliases(), "document contains excessive aliasing"},
		{
			"one long text many times", "yaml", "a: &a '" + strings.Repeat("x", 10_000) + "'\nb: [" + strings.Repeat("*a, ", 1000) + "]\n",
			"it expands to more than 1048576 bytes, the limit",
		},
		{"deep flow", "yaml", "a: " + strings.Repeat("[", 50_000), "yaml: exceeded max depth"},
		{"deep", "yaml", "a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "expected at most 100 levels of nesting"},
		{"deep key", "toml", strings.Repeat("a.", 10_000) + "b = 1", "expected at most 100 levels of nesting"},
		{"deep table", "toml", "a = " + strings.Repeat("[", 50_000), "toml: arrays and inline tables are nested more than"},
		{"deep JSON", "json", strings.Repeat("[", 500_000), "expected at most 64 levels of nesting"},
		{"an alias of itself", "yaml", "a: &a [*a]", "yaml: anchor 'a' value contains itself"},
		{"empty", "yaml", "", "expected an object, found null"},
		{"empty", "yml", "# nothing but a comment\n", "expected an object, found null"},
		{"empty", "toml", "", `the field "abi" is missing`},
		{"empty", "json", "", "expected JSON: it ends too early"},
		{"syntax", "yaml", "a: [", "yaml: line 1: "},
		{"syntax", "toml", "a = 1\nb = \n", "(line 2, column "},
		{"syntax", "json", "{\n \"abi\" }", "(line 2, column "},
		{"a key twice", "yaml", sidecarYAML + "name: other\n", `mapping key "name" already defined`},
		{"a key twice", "toml", "name = 'other'\n" + sidecarTOML, "key name is already defined (line 3, column "},
		{"a key twice", "json", replace(sidecarJSON, `"name"`, `"name":"other","name"`), "/name: the field is given twice"},
		{"two documents", "yaml", sidecarYAML + "---\n" + sidecarYAML, "expected one YAML document, found another after ---"},
		{"a number for a key", "yaml", sidecarYAML + "1: x\n", "expected names as keys, found the key 1: put it in quotes"},
		{"not a number", "yaml", sidecarYAML + "homepage: .nan\n", "expected numbers, found NaN"},
		{"not a number", "toml", "homepage = inf\n" + sidecarTOML, "expected numbers, found +Inf"},
		{"wrong type", "yaml", replace(sidecarYAML, "version: 1.0.0", "version: 1.0"), "/version: expected a string, found a number"},
		{"wrong type", "toml", replace(sidecarTOML, "name = 'side'", "name = ['side']"), "/name: expected a string, found an array"},
		{"wrong type", "json", replace(sidecarJSON, `"tools":[`, `"needs":{"clock":"yes"},"tools":[`), "/needs/clock: expected true or false, found a string"},
		{
			"unknown field", "yaml", replace(sidecarYAML, "input_schema", "input_shema"),
			`/tools/0/input_shema (tool "side"): unknown field, did you mean "input_schema"?`,
		},
		{"unknown field", "toml", "colour = 'red'\n" + sidecarTOML, "/colour: unknown field, expected one of abi, name, "},
		{"no UTF-8", "json", "\xff\xfe", "expected UTF-8 text"},
		{"too long", "yaml", sidecarYAML + "#" + strings.Repeat("x", 64<<10), "bytes, expected at most 65536"},
		{"too long", "toml", sidecarTOML + "#" + strings.Repeat("x", 64<<10), "bytes, expected at most 65536"},
		{"too long", "json", sidecarJSON + strings.Repeat(" ", abi.MaxManifest), "bytes, expected at most 1048576"},
		{"wide", "yaml", "b: {a: &a {" + keys(1000) + "}, c: {<<: [*a" + strings.Repeat(",*a", 10_000) + "]}}", "line 1: a mapping has 1000 keys, expected at most 256"},
	} {
		t.Run(test.name+" "+test.ending, func(t *testing.T) {
			r := open(t, map[string][]byte{
				"p.wasm": unsealed(), "p.toolhost." + test.ending: []byte(test.document),
				"good.wasm": sealed(named("good")),
			})
			require.Len(t, problems(r), 1)
			require.True(t, strings.HasPrefix(problems(r)[0], "plugins/p.wasm: p.toolhost."+test.ending+": "), problems(r)[0])
			require.Contains(t, problems(r)[0], test.want)
			require.NotContains(t, problems(r)[0], "\n")
			require.Less(t, len(problems(r)[0]), 1000)
			require.Equal(t, []string{"good"}, toolNames(r))
		})
	}
}

// Aliases and merge keys are fine within reason: they save writing a schema
// twice.
func TestSidecarWithAliases(t *testing.T) {
	const document = `
abi: toolhost_v1
name: side
version: 1.0.0
description: Made for a test.
tools:
  - &first
    name: one
    description: Made for a test.
    input_schema: &schema {type: object, properties: {n: {type: integer}}}
    output_schema: *schema
  - <<: *first
    name: two
`
	r := open(t, map[string][]byte{"p.wasm": unsealed(), "p.toolhost.yaml": []byte(document)})
	require.Empty(t, problems(r))
	require.Equal(t, []string{"side_one", "side_two"}, toolNames(r))
	require.Len(t, r.Tools()[1].CheckArgs([]byte(`{"n":"x"}`)), 1)
}

// FuzzSidecar holds that no sidecar makes the loader panic, hang, or produce
// more than a few times what it may read.
func FuzzSidecar(f *testing.F) {
	for _, ending := range sidecars {
		for _, seed := range []string{sidecarYAML, sidecarJSON, sidecarTOML, aliases(), "", "a: &a [*a]", "a.b.c = 1", "[[a]]\n[[a]]", "? [x]\n: 1", "<<: 1"} {
			f.Add(ending, []byte(seed))
		}
	}

	f.Fuzz(func(t *testing.T, ending string, data []byte) {
		if len(data) > 1<<16 {
			t.Skip("long documents are long in other ways too")
		}
		document, err := toJSON("p"+ending, data)
		if err != nil {
			require.Nil(t, document)
			return
		}

		require.LessOrEqual(t, len(document), 32*abi.MaxManifest)
		m, err := abi.DecodeManifest(document)
		if err != nil {
			require.ErrorAs(t, err, new(*abi.ManifestError))
			return
		}

		require.NotEmpty(t, m.Tools)
	})
}
