package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/wire"
)

// A model pays for each definition in every call, so tools without a use are left out.
func TestNames(t *testing.T) {
	running := []engine.Run{{Tool: "old", Status: engine.StatusRunning}}
	for name, test := range map[string]struct {
		tools    map[string]abi.Hints
		settings settings
		records  records
		want     []string
	}{
		"nothing to spawn":      {tools: map[string]abi.Hints{"plain": plain}},
		"but there are runs":    {tools: map[string]abi.Hints{"plain": plain}, records: records{runs: running}, want: []string{CheckBackground, StopBackground}},
		"or schedules":          {records: records{schedules: make([]engine.Schedule, 1)}, want: []string{CheckBackground, StopBackground}},
		"or there may be":       {records: records{err: errors.New("it is away")}, want: []string{CheckBackground, StopBackground}},
		"something to spawn":    {tools: map[string]abi.Hints{"spawns": spawns}, want: []string{SpawnBackground, CheckBackground, StopBackground}},
		"it reads messages":     {tools: map[string]abi.Hints{"reads": reads}, want: []string{SpawnBackground, CheckBackground, StopBackground, MessageBackground}},
		"something to find":     {tools: map[string]abi.Hints{"plain": plain}, settings: settings{"*": catalog.ListBySearch}, want: []string{ToolsSearch}},
		"scripts":               {tools: map[string]abi.Hints{catalog.Exec: plain}, want: []string{ToolsSearch}},
		"what can be found ran": {tools: map[string]abi.Hints{"plain": plain}, settings: settings{"plain": catalog.ListBySearch}, records: records{runs: running}, want: []string{CheckBackground, StopBackground, ToolsSearch}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTools(t, test.settings, test.records, test.tools)
			require.Equal(t, test.want, a.Names())
			for _, name := range Names {
				require.Equal(t, a.Lookup(name) != nil, slices.Contains(test.want, name), name)
			}
			require.Nil(t, a.Lookup("plain"))
		})
	}
}

// definitions returns the definitions by name, and the properties that models see.
func definitions(t *testing.T, a *Tools, schedules bool) (map[string]wire.Definition, map[string]map[string]map[string]any) {
	t.Helper()
	all, properties := map[string]wire.Definition{}, map[string]map[string]map[string]any{}
	for _, d := range a.Definitions(a.catalog.Tools(), schedules) {
		var in struct{ Properties map[string]map[string]any }
		require.NoError(t, json.Unmarshal(d.InputSchema, &in))
		all[d.Name], properties[d.Name] = d, in.Properties
	}
	return all, properties
}

// Models see less of the schemas than is accepted.
func TestShownSchemas(t *testing.T) {
	a := newTools(t, nil, records{}, map[string]abi.Hints{"spawns": spawns, "reads": reads, "plain": plain})
	all, properties := definitions(t, a, true)
	require.ElementsMatch(t, []string{"tool", "args", "title", "schedule", "timeout_seconds"}, slices.Collect(maps.Keys(properties[SpawnBackground])))
	require.ElementsMatch(t, []string{"task_ids", "wait_seconds", "until", "cursor", "max_chars"}, slices.Collect(maps.Keys(properties[CheckBackground])))
	require.ElementsMatch(t, []string{"task_id", "schedule_id", "force", "reason"}, slices.Collect(maps.Keys(properties[StopBackground])))
	require.Equal(t, map[string]any{"type": "integer", "default": 60.0, "description": "For the end of one, or of all.", "minimum": 0.0, "maximum": 540.0}, properties[CheckBackground]["wait_seconds"])
	require.Equal(t, map[string]any{"type": "string", "description": "One of: reads, spawns."}, properties[SpawnBackground]["tool"], "sorted, only what can be spawned, and no enum: a client would refuse a misspelt name itself")
	require.Contains(t, all[MessageBackground].Description, "They are: reads.")

	_, properties = definitions(t, a, false)
	require.NotContains(t, properties[SpawnBackground], "schedule")
	require.NotContains(t, properties[StopBackground], "schedule_id")
}

// The names of tools are left out if they are too many, or if a deferred tool would be
// excluded.
func TestShownNames(t *testing.T) {
	many := map[string]abi.Hints{}
	for i := range maxNames {
		many[fmt.Sprint("tool", i)] = spawns
	}
	names := func(s settings) []string {
		_, properties := definitions(t, newTools(t, s, records{}, many), true)
		text, _ := properties[SpawnBackground]["tool"]["description"].(string)
		return strings.Split(text, ", ")
	}
	require.Len(t, names(nil), maxNames)
	require.Equal(t, []string{""}, names(settings{"tool7": catalog.ListBySearch}))
	many["one_more"] = spawns
	require.Equal(t, []string{""}, names(nil))
}

// With scripts, models are listed what scripts cannot do: to wait, and to search.
func TestDefinitionsWithScripts(t *testing.T) {
	tools := map[string]abi.Hints{catalog.Exec: spawns, "spawns": spawns}
	a := newTools(t, settings{"*": catalog.ListBySearch}, records{}, tools)
	all, properties := definitions(t, a, true)
	for name, deferred := range map[string]bool{SpawnBackground: true, StopBackground: true, CheckBackground: false, ToolsSearch: false} {
		require.Equal(t, deferred, all[name].Deferred, name)
	}
	require.ElementsMatch(t, []string{"task_ids", "wait_seconds"}, slices.Collect(maps.Keys(properties[CheckBackground])))
	require.Equal(t, textCheckShort, all[CheckBackground].Description)
	require.Equal(t, textSearchScripted, all[ToolsSearch].Description)

	var found []string
	for _, e := range a.entries() {
		found = append(found, e.Name)
	}
	require.Equal(t, []string{SpawnBackground, StopBackground}, found, "a search finds what is not listed")
}

// What a model writes as a string by mistake is read as what it must mean.
func TestRepairedArguments(t *testing.T) {
	const accepted = `{"type":"object","properties":{"n":{"type":"integer"},"on":{"type":"boolean"},"args":{"type":"object"},"ids":{"type":"array"},"text":{"type":"string"}}}`
	s, err := schema.CompileArgs(json.RawMessage(accepted))
	require.NoError(t, err)
	for args, want := range map[string]string{
		`{"n":"10","on":"true"}`:               `{"n":10,"on":true}`,
		`{"args":" {\"n\":5} ","text":"10"}`:   `{"args":{"n":5},"text":"10"}`,
		`{"ids":"a"}`:                          `{"ids":["a"]}`,
		`{"ids":"[\"a\",\"b\"]"}`:              `{"ids":["a","b"]}`,
		`{"n":"ten","on":"yes","args":"[1]"}`:  `{"n":"ten","on":"yes","args":"[1]"}`,
		`{"other":"1","n":"","ids":["a"]}`:     `{"other":"1","n":"","ids":["a"]}`,
		`{"n":"1","args":"{\"a\":1,\"a\":2}"}`: `{"n":1,"args":"{\"a\":1,\"a\":2}"}`,
		`{"n":null,"text":null,"ids":null}`:    `{}`,
	} {
		in, err := catalog.ParseArgs("", catalog.Args{}, json.RawMessage(args))
		require.NoError(t, err)
		got, _ := s.Coerce(listed(json.RawMessage(accepted), in))
		require.Equal(t, want, string(got.Raw()))
	}
}
