package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
)

func TestSearch(t *testing.T) {
	c := open(t, settings{}, plugintest.Office())
	for query, want := range map[string][]string{
		"read file":               {"files_read", "files_write"},
		"files_read":              {"files_read", "files_write"},
		"FILES":                   {"files_read", "files_write"},
		"send":                    {"mail_send"},
		"message":                 {"mail_list", "mail_send"},
		"send a message":          {"mail_send", "mail_list"},
		"a tool to read a file":   {"files_read", "files_write"},
		"of":                      {"calendar", "files_read", "mail_list"},
		"subject":                 {"mail_send"},
		"line":                    {"mail_send"},
		"subjectLine":             {"mail_send"},
		"drafts":                  {"mail_list"},
		"latin1":                  {"files_read"},
		"appointment category":    {"calendar"},
		"appoint":                 {"calendar"},
		"reading":                 {"files_read"},
		"":                        {"calendar", "files_read", "files_write", "mail_list", "mail_send"},
		" … / ":                   {"calendar", "files_read", "files_write", "mail_list", "mail_send"},
		"nothing-like-it":         nil,
		strings.Repeat("x ", 999): nil,
	} {
		var got []string
		for _, found := range c.Search(query, DefaultFound, nil).Tools {
			got = append(got, found.Name)
		}
		require.Equal(t, want, got, "%.40q", query)
	}
}

// However many and large the tools are, an answer is small: what does not fit is counted.
func TestSearchBounds(t *testing.T) {
	m := plugintest.Manifest("large")
	m.Tools = nil
	for i := range 30 {
		tool := plugintest.Tool(fmt.Sprintf("tool%d", i))
		tool.Description = strings.Repeat("word ", 800)
		m.Tools = append(m.Tools, tool)
	}
	c := open(t, settings{}, fstest.MapFS{"large.wasm": {Data: plugintest.Plugin{Manifest: m}.Wasm()}})

	found := c.Search("word", 20, nil)
	require.Len(t, found.Tools, 6, "each has 4,000 characters and more")
	require.Equal(t, 24, found.More)
	all := c.Declarations("", 1000)
	require.Len(t, all.Tools, 30)
	require.Zero(t, all.More)
	require.Len(t, c.Declarations("", 0).Tools, 1)
}

// The index follows reloads, and keeps nothing of what is gone.
func TestSearchFollowsReloads(t *testing.T) {
	files := plugintest.Office()
	c := open(t, settings{}, files)
	require.Len(t, c.Search("", 20, nil).Tools, 5)

	delete(files, "mail.wasm")
	delete(files, "files.wasm")
	files["zebra.wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: plugintest.Manifest("zebra")}.Wasm(), ModTime: time.Now()}
	_, err := c.registry.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, "zebra", c.Search("zebra", 1, nil).Tools[0].Name)
	require.Empty(t, c.Search("mail", 1, nil).Tools)
	require.Len(t, c.index.docs, 2)
}

// BenchmarkSearch searches among a thousand tools.
func BenchmarkSearch(b *testing.B) {
	var all []Entry
	for i := range 1000 {
		tool := plugintest.Tool(fmt.Sprintf("tool%d", i))
		tool.Description = fmt.Sprintf("Reads page %d of a document, and returns the text of it with the words that were asked for.", i)
		tool.InputSchema = json.RawMessage(`{"type":"object","required":["page"],"properties":{"page":{"type":"integer","description":"which one"},"words":{"type":"array","items":{"type":"string"}}}}`)
		all = append(all, Entry{&tool, tool.Name, tool.Description})
	}
	var x index
	x.find("warm", all)
	for b.Loop() {
		if len(x.find("read the page with these words", all)) == 0 {
			b.Fatal("nothing was found")
		}
	}
}
