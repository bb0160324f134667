package server

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// TestScriptsSearch: a script finds the tools that the agent can call, and calls what it
// has found, however models learn of them.
func TestScriptsSearch(t *testing.T) {
	for name, listing := range map[string]map[string]Listing{"listed": nil, "deferred": {"*": ListBySearch}} {
		t.Run(name, func(t *testing.T) {
			s := openScripts(t, Config{Listing: listing})
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: Exec, Args: code(`
				const [found] = await search("count the words");
				const none = await search("zebra");
				const own = await search("spawn_background");
				return { found, none, own: own.length, words: await tools[found.name]({ text: "a b c" }) };`)})
			require.NoError(t, err)
			require.JSONEq(t, `{
				"found": {"name": "count", "declaration": "count(args: { text: string }): Promise<{ words: number }>", "description": "Counts words."},
				"none": [], "own": 0, "words": {"words": 3}
			}`, string(r.Value), r.Error)
		})
	}
}

// TestScriptTokens bounds what a model pays in every call that is given scripts and nothing
// else, in bytes, however many tools there are. Of 350 tokens of o200k it were 311 when
// this was written: exec 134, check_background 100, tools_search 77.
func TestScriptTokens(t *testing.T) {
	s := openScripts(t, Config{Listing: map[string]Listing{"*": ListBySearch}})
	given := s.Definitions(alice)
	require.Equal(t, []string{Exec, CheckBackground, ToolsSearch}, namesOf(given))

	all := 0
	for i, most := range []int{600, 440, 350} {
		d := given[i]
		n := len(d.Name) + len(d.Description) + len(d.InputSchema)
		t.Logf("%s %d\n%s\n%s", d.Name, n, d.Description, d.InputSchema)
		require.LessOrEqual(t, n, most, d.Name)
		all += n
	}
	require.LessOrEqual(t, all, 1350, "together")
}

// Next to scripts the agent's other tools are deferred too: they are found, and what
// models are not shown of them is understood.
func TestScriptsDeferAgentTools(t *testing.T) {
	s := openScripts(t, Config{Listing: map[string]Listing{"*": ListBySearch}})
	require.Equal(t, SpawnBackground, s.search("run later in the background schedule", "").Tools[0].Name)
	require.Equal(t, StopBackground, s.search("stop a run", "").Tools[0].Name)
	require.Contains(t, s.search("spawn_background", "").Tools[0].Declaration, "spawn_background(args: {\n  tool: string")
	require.NotContains(t, string(s.shownAgentTools()[CheckBackground].InputSchema), "cursor")
	require.EqualValues(t, 0, s.agent(alice, CheckBackground, `{"max_chars":5}`)["active"])

	var spawned struct {
		ID string `json:"task_id"`
	}
	r := s.call(alice, SpawnBackground, `{"tool":"exec","args":{"code":"return 1"}}`)
	require.Equal(t, abi.Success, r.Kind)
	require.NoError(t, json.Unmarshal(r.Value, &spawned))
	require.EqualValues(t, 1, s.check(alice, spawned.ID, "")["result"])
}
