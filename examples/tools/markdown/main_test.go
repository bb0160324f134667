package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func call(t *testing.T, tool string, args any) string {
	t.Helper()
	out := guesttest.Call(&plugin, tool, args)
	require.True(t, out.IsSuccess(), out)
	var text string
	require.NoError(t, json.Unmarshal(out.Value, &text))
	return text
}

func TestToHTML(t *testing.T) {
	for markdown, want := range map[string]string{
		"":                       "",
		"# A":                    "<h1>A</h1>\n",
		"- [x] done":             "<input checked=\"\" disabled=\"\" type=\"checkbox\"> done",
		"~~no~~ https://a.b":     "<del>no</del> <a href=\"https://a.b\">https://a.b</a>",
		"```go\nx < 1\n```":      "<pre><code class=\"language-go\">x &lt; 1\n",
		"[a](javascript:alert)":  "<a href=\"\">a</a>",
		"a<img onerror=x src=y>": "a<!-- raw HTML omitted -->",
		"a[^1]\n\n[^1]: note":    "<div class=\"footnotes\"",
	} {
		require.Contains(t, call(t, "to_html", toHTMLArgs{Markdown: markdown}), want)
	}
	require.Equal(t, "<p><b>x</b></p>\n", call(t, "to_html", toHTMLArgs{Markdown: "<b>x</b>", RawHTML: true}))
	require.Contains(t, call(t, "to_html", toHTMLArgs{Markdown: "# A b", IDs: true}), `id="a-b"`)
}

// TestThereAndBack: what Markdown says is the same after a way over HTML.
func TestThereAndBack(t *testing.T) {
	for _, markdown := range []string{
		"# Tea\n\nGreen *tea* comes from **China**.", "- one\n- two\n  \n  - three", "1. one\n2. two", "> quoted",
		"[link](https://example.com)", "```go\nx := 1\n```", "| a | b |\n|---|---|\n| 1 | 2 |", "a ~~b~~ c", "`code`",
	} {
		require.Equal(t, markdown, call(t, "from_html", fromHTMLArgs{HTML: call(t, "to_html", toHTMLArgs{Markdown: markdown})}))
	}
}

func FuzzConvert(f *testing.F) {
	for _, seed := range []string{"", "# a\n\n|b|\n|-|\n", "<p>a<b>c", "<table><tr><td><ul><li>x", strings.Repeat("> ", 100), strings.Repeat("<i>", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 10_000 {
			t.Skip()
		}
		out := guesttest.Call(&plugin, "from_html", fromHTMLArgs{HTML: text})
		require.True(t, out.IsSuccess() || out.Error != "", out)

		if out = guesttest.Call(&plugin, "to_html", toHTMLArgs{Markdown: text}); !out.IsSuccess() {
			require.NotEmpty(t, out.Error)
			return
		}
		var page string
		require.NoError(t, json.Unmarshal(out.Value, &page))
		require.NotContains(t, strings.ToLower(page), "<script")
	})
}
