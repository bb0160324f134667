package abi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

func TestNarrate(t *testing.T) {
	const args = `{"city":"Bern","n":3,"list":["a"],"text":"line\none\u001b[31m","long":"` + "%" + `","token":"hush","key":"hush"}`
	long := strings.Replace(args, "%", strings.Repeat("é", 80), 1)
	for template, want := range map[string]string{
		"":                          "",
		"Looking":                   "Looking",
		"Looking at {city}":         "Looking at Bern",
		"{n} of {list}":             `3 of ["a"]`,
		"{missing}!":                "!",
		"{}":                        "",
		"{{city}} is {city}":        "{city} is Bern",
		"open {city":                "open {city",
		"close city}":               "close city}",
		"}{city}{":                  "}Bern{",
		"{text}":                    "line one [31m",
		"{long}":                    strings.Repeat("é", 59) + "…",
		"{token} and {key} and {n}": "… and … and 3",
	} {
		tool := abi.Tool{
			InputSchema: json.RawMessage(`{"type":"object","properties":{"token":{"writeOnly":true},"key":{"x-secret":true}}}`),
			Narration:   abi.Narration{Started: abi.Text{Default: template}},
		}
		require.Equal(t, want, tool.Narrate(abi.PhaseStarted, "", json.RawMessage(long)), template)
	}
}

func TestNarratePhases(t *testing.T) {
	tool := abi.Tool{Narration: abi.Narration{
		Started:  abi.Text{Default: "a"},
		Finished: abi.Text{Default: "b"},
		Failed:   abi.Text{Default: "c {x}"},
	}}
	require.Equal(t, "a", tool.Narrate(abi.PhaseStarted, "", nil))
	require.Equal(t, "b", tool.Narrate(abi.PhaseFinished, "", json.RawMessage(`no JSON`)))
	require.Equal(t, "c ", tool.Narrate(abi.PhaseFailed, "", json.RawMessage(`[1]`)))
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
	require.True(t, abi.Text{}.IsZero())
	require.True(t, abi.Narration{}.IsZero())
	require.False(t, abi.Narration{Failed: abi.Text{Default: "x"}}.IsZero())
	require.True(t, abi.Text{ByLocale: map[string]string{}}.IsZero())
	require.False(t, abi.Text{ByLocale: map[string]string{"de": ""}}.IsZero())
	require.Error(t, json.Unmarshal([]byte(`7`), new(abi.Text)))
}
