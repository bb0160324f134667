package abi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTemplates: a template is text and names, and no brace is lost that belongs to none.
func TestTemplates(t *testing.T) {
	for template, want := range map[string]string{
		"":              "",
		"{a}":           "x y",
		"{a}{a}":        "x yx y",
		"<{a}|{n}>":     "<x y|1.50>",
		"{o} {l}":       `{"k": 1} [1,"b"]`,
		"{missing}{no}": "",
		"{{a}}":         "{a}",
		"{{{a}}}":       "{x y}",
		"{":             "{", "}": "}", "{}": "{}", "a}b{c": "a}b{c", "{a": "{a", "{ {a}": "{ x y",
		"awk '{{print $1}}'": "awk '{print $1}'",
		"{t}{f}":             "truefalse",
		"{ü}":                "\u0000",
	} {
		args := json.RawMessage(`{"a":"x y","n":1.50,"o":{"k": 1},"l":[1,"b"],"no":null,"t":true,"f":false,"ü":"\u0000"}`)
		got, err := ExpandTemplate(template, args)
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", template)
	}
}

// TestBombs: a few templates cannot become more than a command gets.
func TestBombs(t *testing.T) {
	args, err := json.Marshal(map[string]any{"a": strings.Repeat("x", 1<<20), "l": slices.Repeat([]string{strings.Repeat("x", 1<<10)}, 1000)})
	require.NoError(t, err)
	_, err = ExpandTemplate(strings.Repeat("{a}", 1000), args)
	require.ErrorIs(t, err, ErrExpanded)
	for _, word := range []string{strings.Repeat("{a}", 1000), "{l}", "{a}"} {
		c := Command{Args: slices.Repeat([]Word{{Templates: slices.Repeat([]string{word}, MaxWords), Group: true}}, MaxWords)}
		_, err = c.Line(args)
		require.ErrorIs(t, err, ErrExpanded)
	}
	got, err := ExpandTemplate("{a}", args)
	require.NoError(t, err)
	require.Len(t, got, 1<<20)
}

// FuzzCommand: whatever a command line is, what it is expanded to is bounded by the
// arguments, and it is read as it is written.
func FuzzCommand(f *testing.F) {
	f.Add([]byte(`{"args":["-c","{a}",["--b","{b}"],"{{x}}"]}`), `{"a":[1,"two",null],"b":true}`)
	f.Add([]byte(`{}`), `{"a":"x\u0000y","b":{}}`)
	f.Add([]byte(`{}`), `{"":}`)
	f.Fuzz(func(t *testing.T, manifest []byte, args string) {
		var c, again Command
		if json.Unmarshal(manifest, &c) != nil {
			return
		}
		line, err := c.Line(json.RawMessage(args))
		if err != nil {
			return
		}
		flags, err := c.Flags(json.RawMessage(args))
		require.NoError(t, err)
		require.False(t, slices.ContainsFunc(append(flags, line...), func(s string) bool { return strings.Contains(s, "\x00") }))

		data, err := json.Marshal(c)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &again))
		repeated, err := again.Line(json.RawMessage(args))
		require.NoError(t, err)
		require.Equal(t, line, repeated, "%s", data)
	})
}
