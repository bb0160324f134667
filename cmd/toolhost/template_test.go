package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/document"
)

// TestTemplate: the command line that a template makes of arguments.
func TestTemplate(t *testing.T) {
	for _, c := range []struct {
		name     string
		words    string
		args     string
		want     []string
		required string
	}{
		{"constants", "-x --long", `{}`, []string{"-x", "--long"}, ""},
		{"an argument", "{a}", `{"a":"one two"}`, []string{"one two"}, "a"},
		{"within a word", "--a={a}.{b}", `{"a":"x","b":"y"}`, []string{"--a=x.y"}, "a,b"},
		{"a number", "-n {n:integer}", `{"n":7}`, []string{"-n", "7"}, "n"},
		{"a number with a point", "-n {n:integer}", `{"n":2.0}`, []string{"-n", "2"}, "n"},
		{"a fraction", "-n {n:number}", `{"n":2.50}`, []string{"-n", "2.50"}, "n"},
		{"an empty list with its option", "-e {e...} x", `{"e":[]}`, []string{"x"}, "e"},
		{"a list with its option", "-e {e...} x", `{"e":["a","b"]}`, []string{"-e", "a", "-e", "b", "x"}, "e"},
		{"a list within a word", "--in={in...?} x", `{"in":["a","b"]}`, []string{"--in=a", "--in=b", "x"}, ""},
		{"optional, given", "-n {n:integer?} x", `{"n":7}`, []string{"-n", "7", "x"}, ""},
		{"optional, absent", "-n {n:integer?} x", `{}`, []string{"x"}, ""},
		{"optional within a word, absent", "--n={n?} x", `{}`, []string{"x"}, ""},
		{"optional alone, absent", "x {n?}", `{}`, []string{"x"}, ""},
		{"not after --", "-- {n?}", `{}`, []string{"--"}, ""},
		{"a boolean, true", "-v {v:boolean} x", `{"v":true}`, []string{"-v", "x"}, ""},
		{"a boolean, false", "-v {v:boolean} x", `{"v":false}`, []string{"x"}, ""},
		{"a boolean, absent", "-v {v:boolean} x", `{}`, []string{"x"}, ""},
		{"a list", "{f...} end", `{"f":["a","b c"]}`, []string{"a", "b c", "end"}, "f"},
		{"a list of numbers", "{f:integer...?}", `{"f":[1,2]}`, []string{"1", "2"}, ""},
		{"twice", "{a:integer} {a}", `{"a":1}`, []string{"1", "1"}, "a"},
		{"braces", "{{a}} {{", `{}`, []string{"{a}", "{"}, ""},
		{"what is read is no word", "-q {text:stdin} x", `{"text":"t"}`, []string{"-q", "x"}, "text"},
		{"nothing", "", `{}`, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			parsed, err := parseWords(strings.Fields(c.words))
			require.NoError(t, err)
			command := abi.Command{Args: parsed.args}
			got, err := command.Line(json.RawMessage(c.args))
			require.NoError(t, err)
			require.Equal(t, c.want, got)

			var schema struct {
				Required []string
			}
			require.NoError(t, json.Unmarshal(parsed.schema(), &schema))
			require.Equal(t, c.required, strings.Join(schema.Required, ","))
		})
	}
}

// TestDescribedArguments: a model reads what an argument is.
func TestDescribedArguments(t *testing.T) {
	line, err := parseWords([]string{"-n", "{n:integer}", "{in...}", "{text:stdin}"})
	require.NoError(t, err)
	require.NoError(t, line.describe([]string{"n=at most, a=b <1>", "in=files"}))
	require.Equal(t, `{"type":"object","properties":{"n":{"type":"integer","description":"at most, a=b <1>"},"in":{"type":"array","items":{"type":"string"},"description":"files"},"text":{"type":"string"}},"required":["n","in","text"],"additionalProperties":false}`, string(line.schema()))

	require.EqualError(t, line.describe([]string{"x=files"}), `"x=files": the command line has no {x}`)
	for _, wrong := range []string{"n", "n=", "n=\xff"} {
		require.ErrorContains(t, line.describe([]string{wrong}), "expected ARGUMENT=TEXT", wrong)
	}
}

// TestTemplateErrors: each wrong template says what to write.
func TestTemplateErrors(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"{", `"{": expected {NAME}, {NAME:TYPE}, {NAME?} or {NAME...}: write {{ and }} for braces`},
		{"a}", `"a}": expected {NAME}`},
		{"{}", `"{}": expected {NAME}`},
		{"{a b}", `"{a": expected {NAME}`},
		{"{a.b}", `"{a.b}": expected {NAME}`},
		{"{a:text}", `"{a:text}": text is no type: expected string, integer, number, boolean or stdin`},
		{"x{a:stdin}", `{a:stdin} is what the program reads: expected a word of its own`},
		{"{a:stdin...}", `expected a word of its own`},
		{"{a:stdin} {b:stdin}", `the program reads {a:stdin} already`},
		{"{a:integer} {a:string}", `{a} has another type before`},
		{"x{a...}{b...}", `{b...} is the second list: expected one in a word`},
		{"x{a:boolean}", `{a} is a boolean: expected a word of its own`},
		{"x {a:boolean}", `{a} is a boolean, which stands for the option before it, such as -v {a:boolean}`},
		{"-- {a:boolean}", `{a} is a boolean, which stands for the option before it`},
	} {
		_, err := parseWords(strings.Fields(c.words))
		require.ErrorContains(t, err, c.want, c.words)
	}
}

// TestProgramNames: the name of a file becomes one that a plugin may have.
func TestProgramNames(t *testing.T) {
	for file, want := range map[string]string{
		"/a/shfmt.wasm": "shfmt", "My-Tool.v2.wasm": "my_tool_v2", "7zip.wasm": "run_7zip", "___.wasm": "run_",
		strings.Repeat("a", 40) + ".wasm": strings.Repeat("a", 32),
	} {
		require.Equal(t, want, nameOf(file), file)
	}
}

// A manifest keeps the words and variables of a program unchanged, or is not made.
func TestProgramManifest(t *testing.T) {
	for _, text := range []string{"a\nb # c: d", "\x7f", "\u0085\u009b", "\ufeff", "\uffff", "\u2028", `"\u0000'`, "😀"} {
		f := programFlags{env: []string{"A=" + strings.ReplaceAll(text, "\x00", "")}}
		line, err := parseWords([]string{text})
		require.NoError(t, err)
		sidecar, err := f.manifest("p", line, "", nil)
		require.NoError(t, err)
		value, err := document.Decode(".yaml", sidecar)
		require.NoError(t, err, "%q", text)
		data, err := json.Marshal(value)
		require.NoError(t, err)
		var m abi.Manifest
		require.NoError(t, json.Unmarshal(data, &m))
		require.Equal(t, []abi.Word{{Templates: []string{text}}}, m.Tools[0].Command.Args)
		require.Equal(t, text, m.Tools[0].Command.Env["A"])
	}

	_, err := parseWords([]string{"a\xff"})
	require.ErrorIs(t, err, errNotUTF8)
	_, err = programFlags{env: []string{"A=\xff"}}.manifest("p", template{}, "", nil)
	require.ErrorIs(t, err, errNotUTF8)
}

// A result that YAML cannot keep does not become an example, which would fail.
func TestProgramExample(t *testing.T) {
	for result, want := range map[string]bool{
		`{"<<":{"a":1},"~":null,"yes":"no","n":0.5}`: true,
		`12345678901234567890123`:                    true,
		`1e400`:                                      false,
		`{"a":1,"a":2}`:                              false,
		`{"` + strings.Repeat("k", 1100) + `":"value"}`: false,
	} {
		sidecar, err := programFlags{}.manifest("p", template{}, "{}", json.RawMessage(result))
		require.NoError(t, err)
		require.Equal(t, want, isExample(sidecar, json.RawMessage(result)), result)
	}
}

// A file that never ends is not read.
func TestInspectDevice(t *testing.T) {
	name := filepath.Join(t.TempDir(), "device.wasm")
	if err := os.Symlink(os.DevNull, name); err != nil {
		t.Skip(err)
	}
	require.ErrorContains(t, inspectFile(t.Context(), nil, name), "expected a file")
	_, err := programFlags{}.read(t.Context(), nil, name, nil)
	require.ErrorContains(t, err, "expected a file")
}

// What cannot be written whole is not left behind.
func TestProgramWrittenInPart(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "p.wasm", "in the way"), 0o700))
	require.Error(t, program{name: "p", sidecar: []byte("abi: toolhost_v1\n")}.write(dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
