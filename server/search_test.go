package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server/wire"
)

// office are plugins whose tools are found by different words.
func office() fstest.MapFS {
	tool := func(name, description, input, output string) abi.Tool {
		t := plugintest.Tool(name)
		t.Description, t.InputSchema = description, json.RawMessage(input)
		if output != "" {
			t.OutputSchema = json.RawMessage(output)
		}
		return t
	}
	plugin := func(name string, tools ...abi.Tool) *fstest.MapFile {
		m := plugintest.Manifest(name)
		m.Tools = tools
		return &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()}
	}

	return fstest.MapFS{
		"mail.wasm": plugin("mail",
			tool("send", "Sends a message to people.", `{"type":"object","required":["to"],"properties":{"to":{"type":"array","items":{"type":"string"}},"subjectLine":{"type":"string"}}}`, `{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}`),
			tool("list", "Lists the newest messages of a folder.", `{"type":"object","properties":{"folder":{"enum":["inbox","drafts"]}}}`, ``)),
		"files.wasm": plugin("files",
			tool("read", "Returns the text of a file.", `{"type":"object","required":["path"],"properties":{"path":{"type":"string"},"encoding":{"type":"string","description":"such as latin1"}}}`, `{"type":"string"}`),
			tool("write", "Stores a text in a file.", `{"type":"object","required":["path","text"],"properties":{"path":{"type":"string"},"text":{"type":"string"}}}`, ``)),
		"calendar.wasm": plugin("calendar", tool("calendar", "Finds appointments, and categories of them.", `{"type":"object","properties":{"from":{"type":"string","format":"date"}}}`, ``)),
	}
}

// scriptTool is a plugin with a tool that runs scripts.
func scriptTool() *fstest.MapFile {
	m := plugintest.Manifest(Exec)
	m.Tools[0].Hints.SupportsBackground = true
	return &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()}
}

func namesOf(ds []Definition) (names []string) {
	for _, d := range ds {
		names = append(names, d.Name)
	}
	return names
}

// search calls tools_search.
func (s service) search(query string, more string) wire.Declarations {
	s.t.Helper()
	args, err := json.Marshal(query)
	require.NoError(s.t, err)
	var found wire.Declarations
	require.NoError(s.t, json.Unmarshal(s.call("", ToolsSearch, `{"query":`+string(args)+more+`}`).Value, &found))
	return found
}

func TestSearch(t *testing.T) {
	s := openFolder(t, Config{Listing: map[string]Listing{"*": ListBySearch}}, office())
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
		for _, found := range s.search(query, "").Tools {
			got = append(got, found.Name)
		}
		require.Equal(t, want, got, "%.40q", query)
	}
}

// The answer has what is needed to call a tool, and says if there is more.
func TestSearchAnswer(t *testing.T) {
	s := openFolder(t, Config{Listing: map[string]Listing{"*": ListBySearch}}, office())
	require.Equal(t, wire.Declarations{
		Tools: []wire.Declaration{{
			Name: "mail_send", Description: "Sends a message to people.",
			Declaration: "mail_send(args: { to: string[]; subjectLine?: string }): Promise<{ id: string }>",
		}},
		More: 1,
	}, s.search("send message", `,"limit":1`))

	none := s.search("zebra", "")
	require.Empty(t, none.Tools)
	require.Equal(t, "no tool has these words: try others, or an empty query, which finds all 5 tools", none.Hint)
	for args, problem := range map[string]string{
		`{}`: "query", `{"query":"a","limit":0}`: "limit", `{"query":"a","limit":21}`: "limit", `{"query":1}`: "query",
	} {
		require.Contains(t, s.refused(alice, ToolsSearch, args), problem, args)
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
	s := openFolder(t, Config{Listing: map[string]Listing{"*": ListBySearch}}, fstest.MapFS{"large.wasm": {Data: plugintest.Plugin{Manifest: m}.Wasm()}})

	found := s.search("word", `,"limit":20`)
	require.Len(t, found.Tools, 6, "each has 4,000 characters and more")
	require.Equal(t, 24, found.More)
	all := s.Declarations("", 1000)
	require.Len(t, all.Tools, 30)
	require.Zero(t, all.More)
	require.Len(t, s.Declarations("", 0).Tools, 1)
}

// What is deferred is neither listed nor lost: it is found, and called by its name.
func TestDeferred(t *testing.T) {
	for name, c := range map[string]struct {
		listing map[string]Listing
		listed  []string
	}{
		"nothing said":      {nil, []string{"calendar", "files_read", "files_write", "mail_list", "mail_send", "notes_add", "notes_delete", "notes_search"}},
		"all":               {map[string]Listing{"*": ListBySearch}, []string{"notes_delete", ToolsSearch}},
		"all but a pattern": {map[string]Listing{"*": ListBySearch, "files_*": ListDirectly}, []string{"files_read", "files_write", "notes_delete", ToolsSearch}},
		"all but a name":    {map[string]Listing{"*": ListBySearch, "mail_*": ListBySearch, "mail_send": ListDirectly}, []string{"mail_send", "notes_delete", ToolsSearch}},
		"never, but named":  {map[string]Listing{"notes_delete": ListBySearch}, []string{"calendar", "files_read", "files_write", "mail_list", "mail_send", "notes_add", "notes_search", ToolsSearch}},
		"nothing that is":   {map[string]Listing{"other_*": ListBySearch}, []string{"calendar", "files_read", "files_write", "mail_list", "mail_send", "notes_add", "notes_delete", "notes_search"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := office()
			m := notes()
			m.Needs, m.Tools[0].Hints.SupportsBackground = abi.Needs{}, false
			files["n.wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()}
			s := openFolder(t, Config{Listing: c.listing, Park: ParkNever}, files)

			require.Equal(t, c.listed, namesOf(s.Definitions(alice)))
			all := s.AllDefinitions(alice)
			for _, d := range all {
				require.Equal(t, !slices.Contains(c.listed, d.Name), d.Deferred, d.Name)
			}
			require.JSONEq(t, `{"path":"x","text":"y"}`, string(s.call(alice, "files_write", `{"path":"x","text":"y"}`).Value))
		})
	}
}

// A search is offered only if there is something to find.
func TestSearchOnlyIfNeeded(t *testing.T) {
	s := openFolder(t, Config{}, office())
	require.Contains(t, s.refused(alice, ToolsSearch, `{"query":"a"}`), `no such tool: "tools_search"`)

	files := office()
	files["exec.wasm"] = scriptTool()
	s = openFolder(t, Config{}, files)
	require.Equal(t, []string{"calendar", Exec, "files_read", "files_write", "mail_list", "mail_send", SpawnBackground, CheckBackground, StopBackground, ToolsSearch}, namesOf(s.Definitions(alice)))
	require.Len(t, s.search("files", "").Tools, 2, "scripts call tools that are listed too")
}

func TestBadListing(t *testing.T) {
	for problem, listing := range map[string]map[string]Listing{
		"Listing.[: expected the name of a tool, or a pattern such as files_*": {"[": ListBySearch},
		"Listing.: expected the name of a tool, or a pattern such as files_*":  {"": ListBySearch},
		`Listing.a: expected list or search, found "hide"`:                     {"a": "hide"},
	} {
		_, err := Open(t.Context(), Config{Listing: listing})
		require.ErrorContains(t, err, problem)
	}
}

// The index follows reloads, and keeps nothing of what is gone.
func TestSearchFollowsReloads(t *testing.T) {
	files := office()
	s := openFolder(t, Config{Listing: map[string]Listing{"*": ListBySearch}}, files)
	require.Len(t, s.search("", `,"limit":20`).Tools, 5)

	delete(files, "mail.wasm")
	delete(files, "files.wasm")
	files["zebra.wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: plugintest.Manifest("zebra")}.Wasm(), ModTime: time.Now()}
	_, err := s.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, "zebra", s.search("zebra", "").Tools[0].Name)
	require.Empty(t, s.search("mail", "").Tools)
	require.Len(t, s.index.docs, 2)
}

// BenchmarkSearch searches among a thousand tools.
func BenchmarkSearch(b *testing.B) {
	var all []searchable
	for i := range 1000 {
		tool := plugintest.Tool(fmt.Sprintf("tool%d", i))
		tool.Description = fmt.Sprintf("Reads page %d of a document, and returns the text of it with the words that were asked for.", i)
		tool.InputSchema = json.RawMessage(`{"type":"object","required":["page"],"properties":{"page":{"type":"integer","description":"which one"},"words":{"type":"array","items":{"type":"string"}}}}`)
		all = append(all, searchable{&tool, tool.Name, tool.Description})
	}
	var index searchIndex
	index.find("warm", all)
	for b.Loop() {
		if len(index.find("read the page with these words", all)) == 0 {
			b.Fatal("nothing was found")
		}
	}
}
