package server

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/wire"
)

// notes is a plugin with tools that differ in everything that a definition contains.
func notes() *abi.Manifest {
	m := plugintest.Manifest("notes")
	m.Needs.Files = []abi.FileNeed{{Path: "/notes", Mode: abi.FileWrite}}
	search, remove, add := plugintest.Tool("search"), plugintest.Tool("delete"), plugintest.Tool("add")
	search.Title, search.Description = "Search notes", "Finds the notes with a text in them."
	search.InputSchema = json.RawMessage(`{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`)
	search.OutputSchema = json.RawMessage(`{"type":"array","items":{"type":"string"}}`)
	search.Hints = abi.Hints{Readonly: true, SupportsBackground: true}
	remove.Approval, remove.Deferrable = abi.ApprovalRequired, abi.DeferNever
	remove.Hints.Idempotent = true
	add.Hints.Destructive = new(false)
	m.Tools = []abi.Tool{search, remove, add}
	return m
}

func openNotes(t testing.TB, grant plugins.Grant) service {
	t.Helper()
	return openFolder(t, Config{Grants: map[string]plugins.Grant{"notes": grant}},
		fstest.MapFS{"n.wasm": {Data: plugintest.Plugin{Manifest: notes()}.Wasm()}})
}

// The definitions in the shapes of the model APIs are kept as files: a change
// to them is a change to what every agent sees.
func TestDefinitionShapes(t *testing.T) {
	s := openNotes(t, plugins.Grant{Files: []host.Mount{{Dir: t.TempDir(), Path: "/notes", Mode: abi.FileWrite}}})
	for name, shape := range map[string]func(Definition) json.RawMessage{
		"anthropic": Definition.Anthropic, "openai": Definition.OpenAI, "mcp": Definition.MCP,
	} {
		t.Run(name, func(t *testing.T) {
			tools := []json.RawMessage{}
			for _, d := range s.Definitions(alice) {
				tools = append(tools, shape(d))
			}
			got, err := json.MarshalIndent(tools, "", "  ")
			require.NoError(t, err)
			got = append(got, '\n')
			file := filepath.Join("testdata", "definitions", name+".json")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "go test ./server -update makes it")
			require.Equal(t, string(want), string(got))
		})
	}
}

func TestDefinitions(t *testing.T) {
	s := openNotes(t, plugins.Grant{Files: []host.Mount{{Dir: t.TempDir(), Path: "/notes", Mode: abi.FileWrite}}})
	ds := map[string]Definition{}
	var names []string
	for _, d := range s.Definitions(alice) {
		ds[d.Name] = d
		names = append(names, d.Name)
	}
	require.Equal(t, []string{"notes_add", "notes_delete", "notes_search", SpawnBackground, CheckBackground, StopBackground}, names)
	require.Equal(t, Definition{
		Name: "notes_delete", Description: "Made for a test.", InputSchema: []byte(`{"type":"object","properties":{}}`), Plugin: "notes",
		Approval: abi.ApprovalRequired, Deferrable: abi.DeferNever,
		Annotations: Annotations{Destructive: true, Idempotent: true},
		Limits:      wire.ToolLimits{TimeoutSeconds: 120, MemoryBytes: 64 << 20, OutputBytes: 8 << 20, ArgsBytes: MaxArgs},
	}, ds["notes_delete"])
	require.Equal(t, abi.ApprovalAuto, ds["notes_add"].Approval, "left out is auto")
	require.Equal(t, abi.DeferAutomatic, ds["notes_add"].Deferrable, "left out is automatic")
	require.True(t, ds["notes_search"].SupportsBackground)
	for _, name := range unread {
		require.Equal(t, abi.ApprovalAuto, ds[name].Approval)
		require.Equal(t, abi.DeferNever, ds[name].Deferrable)
		require.False(t, ds[name].SupportsBackground)
		require.NotEmpty(t, ds[name].Title)
		require.Empty(t, ds[name].Plugin)
		require.False(t, bytes.ContainsAny(ds[name].InputSchema, "\n\t"), "a model pays for spaces")
	}
}

// unread are the agent's tools while no tool reads messages.
var unread = []string{SpawnBackground, CheckBackground, StopBackground}

// The agent's tools are there only if there is something to spawn: a model pays
// for each definition.
func TestAgentToolsOnlyIfNeeded(t *testing.T) {
	names := func(s service) (names []string) {
		for _, d := range s.Definitions(alice) {
			names = append(names, d.Name)
		}
		return names
	}
	require.Equal(t, []string{"plain"}, names(open(t, Config{}, "plain")))
	require.Equal(t, append([]string{"echo", "plain"}, unread...), names(open(t, Config{}, "plain", "echo")))
	require.Equal(t, []string{"plain"}, names(open(t, Config{}, "plain", "needy")), "what was not granted cannot be spawned")
	require.Empty(t, names(openNotes(t, plugins.Grant{})), "and a model does not see it")

	s := open(t, Config{}, "plain")
	_, err := s.Call(t.Context(), Request{Session: alice, Tool: SpawnBackground, Args: []byte(`{"tool":"plain","args":{}}`)})
	require.ErrorIs(t, err, plugins.ErrNoTool)
}

// A plugin cannot take the place of one of the agent's tools, nor keep the
// others from loading by trying.
func TestAgentToolNamesAreReserved(t *testing.T) {
	files := fstest.MapFS{"echo.wasm": {Data: zoo()["echo"].Wasm()}}
	for _, name := range agent.Names {
		files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: plugintest.Manifest(name)}.Wasm()}
	}
	s := openFolder(t, Config{}, files)
	require.Len(t, s.Problems(), len(agent.Names))
	for _, p := range s.Problems() {
		require.Contains(t, p.String(), "is reserved for the host: rename it")
	}
	require.Len(t, s.Definitions(alice), 4)
	require.EqualValues(t, 0, s.agent(alice, CheckBackground, `{}`)["active"])
}
