package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
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
		{"x{a...}", `{a} is a list: expected a word of its own`},
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
