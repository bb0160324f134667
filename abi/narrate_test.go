package abi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

func TestNarrate(t *testing.T) {
	args, err := json.Marshal(map[string]any{"city": "Bern", "n": 3, "list": []int{1, 2}, "text": "line one\n\x1b[31m\u202ered", "long": strings.Repeat("é", 200)})
	require.NoError(t, err)
	for template, want := range map[string]string{
		"":                          "",
		"Looking around":            "Looking around",
		"Looking at {city}":         "Looking at Bern",
		"{city}{n}":                 "Bern3",
		"{list} of {city}":          "[1,2] of Bern",
		"{missing} in {city}":       "… in Bern",
		"{text}":                    "line one [31mred",
		"{long}":                    strings.Repeat("é", 59) + "…",
		strings.Repeat("{long}", 9): strings.Repeat(strings.Repeat("é", 59)+"…", 4) + strings.Repeat("é", 59) + "…",
	} {
		tool := abi.Tool{Narration: abi.Narration{Started: abi.Text{Default: template}}}
		require.Equal(t, want, tool.Narrate(abi.PhaseStarted, "", args), template)
	}
}

func TestNarratePhases(t *testing.T) {
	tool := abi.Tool{Narration: abi.Narration{
		Started:  abi.Text{Default: "a"},
		Finished: abi.Text{Default: "b"},
		Failed:   abi.Text{Default: "c {x}"},
	}}
	require.Equal(t, "a", tool.Narrate(abi.PhaseStarted, "", nil))
	require.Equal(t, "b", tool.Narrate(abi.PhaseFinished, "", json.RawMessage(`not JSON`)))
	require.Equal(t, "c …", tool.Narrate(abi.PhaseFailed, "", json.RawMessage(`[1]`)))
	require.Empty(t, tool.Narrate("resting", "", nil))
}

func TestTextIn(t *testing.T) {
	text := abi.Text{ByLocale: map[string]string{"en": "hello", "de": "hallo", "de-CH": "grüezi"}}
	for locale, want := range map[string]string{"de-CH": "grüezi", "de-AT": "hallo", "fr": "hello", "": "hello"} {
		require.Equal(t, want, text.In(locale), locale)
	}
	require.Equal(t, "x", abi.Text{Default: "x"}.In("de"))
	require.Empty(t, abi.Text{ByLocale: map[string]string{"de": "hallo"}}.In("fr"))
}

func TestTextJSON(t *testing.T) {
	for _, doc := range []string{`"hello"`, `""`, `{"de":"hallo","en":"hello"}`, `{}`} {
		var text abi.Text
		require.NoError(t, json.Unmarshal([]byte(doc), &text))
		out, err := json.Marshal(text)
		require.NoError(t, err)
		require.Equal(t, doc, string(out))
	}
	require.Error(t, json.Unmarshal([]byte(`7`), new(abi.Text)))
}
