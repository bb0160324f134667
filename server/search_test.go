package server

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server/wire"
)

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

// The answer has what is needed to call a tool, and says if there is more.
func TestSearchAnswer(t *testing.T) {
	s := openFolder(t, Config{Listing: map[string]Listing{"*": ListBySearch}}, plugintest.Office())
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
			files := plugintest.Office()
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
	s := openFolder(t, Config{}, plugintest.Office())
	require.Contains(t, s.refused(alice, ToolsSearch, `{"query":"a"}`), `no such tool: "tools_search"`)

	files := plugintest.Office()
	files["exec.wasm"] = scriptTool()
	s = openFolder(t, Config{}, files)
	require.Equal(t, []string{"calendar", Exec, "files_read", "files_write", "mail_list", "mail_send", SpawnBackground, CheckBackground, StopBackground, ToolsSearch}, namesOf(s.Definitions(alice)))
	require.Len(t, s.search("files", "").Tools, 2, "scripts call tools that are listed too")
}
