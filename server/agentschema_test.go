package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
)

// shownAgentTools are the agent tools as models see them.
func (s service) shownAgentTools() map[string]Definition {
	shown := map[string]Definition{}
	for _, d := range s.Definitions(alice) {
		if d.Plugin == "" {
			shown[d.Name] = d
		}
	}
	return shown
}

func (s service) properties(tool string) map[string]map[string]any {
	var in struct {
		Properties map[string]map[string]any
	}
	require.NoError(s.t, json.Unmarshal(s.shownAgentTools()[tool].InputSchema, &in))
	return in.Properties
}

// TestTokens bounds what a model pays for the agent tools in every call, and for their
// answers, in bytes: about four make a token. With the names of two tools; before models
// were shown less of the schemas, the first three took 2,876.
func TestTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "sleeper")
		all := 0
		size := func(what string, n, most int) {
			t.Logf("%-24s %5d bytes %4d tokens", what, n, n/4)
			require.LessOrEqual(t, n, most, what)
		}
		for name, most := range map[string]int{SpawnBackground: 900, CheckBackground: 780, StopBackground: 400} {
			d := s.shownAgentTools()[name]
			n := len(d.Name) + len(d.Description) + len(d.InputSchema)
			size(name, n, most)
			all += n
		}
		size("together", all, 2876*2/3)
		d := openListeners(t).shownAgentTools()[MessageBackground]
		size(d.Name, len(d.Name)+len(d.Description)+len(d.InputSchema), 400)

		spawned := s.call(alice, SpawnBackground, `{"tool":"echo","args":{"n":1}}`)
		size("answer of spawn", len(spawned.Value), 72)
		synctest.Wait()
		var answer struct {
			ID string `json:"task_id"`
		}
		require.NoError(t, json.Unmarshal(spawned.Value, &answer))
		size("of a check", len(s.call(alice, CheckBackground, fmt.Sprintf(`{"task_ids":[%q]}`, answer.ID)).Value), 200)
	})
}

// Models see less of the schemas than is accepted.
func TestShownSchemas(t *testing.T) {
	s := open(t, Config{}, "plain", "sleeper", "echo", "needy")
	names := func(tool string) (names []string) {
		for name := range s.properties(tool) {
			names = append(names, name)
		}
		return names
	}
	require.ElementsMatch(t, []string{"tool", "args", "title", "schedule", "timeout_seconds"}, names(SpawnBackground))
	require.ElementsMatch(t, []string{"task_ids", "wait_seconds", "until", "cursor", "max_chars"}, names(CheckBackground))
	require.ElementsMatch(t, []string{"task_id", "schedule_id", "force", "reason"}, names(StopBackground))
	require.Equal(t, map[string]any{"type": "integer", "default": 60.0, "description": "For the end of one, or of all.", "minimum": 0.0, "maximum": 540.0}, s.properties(CheckBackground)["wait_seconds"])
	require.Equal(t, []any{"echo", "sleeper"}, s.properties(SpawnBackground)["tool"]["enum"], "sorted, and only what can be spawned: needy lacks a grant")

	off := open(t, Config{Runs: RunsConfig{Schedules: -1}}, "echo")
	require.NotContains(t, off.properties(SpawnBackground), "schedule")
	require.NotContains(t, off.properties(StopBackground), "schedule_id")
	require.Contains(t, off.refused(alice, SpawnBackground, `{"tool":"echo","args":{},"schedule":{"cron_expression":"* * * * *"}}`), "this host has no schedules")
}

// The names follow a reload, and are left out if they are too many.
func TestShownNames(t *testing.T) {
	files := fstest.MapFS{}
	add := func(name string) {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints.SupportsBackground = true
		files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Invoke: plugintest.Do().Echo(), Manifest: m}.Wasm(), ModTime: time.Now()}
	}
	add("b")
	s := openFolder(t, Config{}, files)
	require.Equal(t, []any{"b"}, s.properties(SpawnBackground)["tool"]["enum"])
	add("a")
	_, err := s.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{"a", "b"}, s.properties(SpawnBackground)["tool"]["enum"])
	for i := range maxEnum {
		add(fmt.Sprintf("tool%d", i))
	}
	_, err = s.Reload(t.Context())
	require.NoError(t, err)
	require.NotContains(t, s.properties(SpawnBackground)["tool"], "enum")
}

// What a model writes as a string by mistake is read as what it must mean.
func TestSlipsOfModels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo")
		for _, spawn := range []string{
			`{"tool":"echo","args":"{\"n\":5}","timeout_seconds":"10"}`,
			`{"tool":"echo","args":" {\"n\":5} ","signal_on_completion":"true","title":"10"}`,
		} {
			r := s.call(alice, SpawnBackground, spawn)
			var answer struct {
				ID string `json:"task_id"`
			}
			require.NoError(t, json.Unmarshal(r.Value, &answer))
			for _, check := range []string{
				`{"task_ids":%q}`, `{"task_ids":"[\"%s\"]","wait_seconds":"10"}`, `{"task_id":%q,"max_chars":"100"}`, `{"task_ids":[%q],"wait_seconds":900}`,
			} {
				var report map[string]any
				require.NoError(t, json.Unmarshal(s.call(alice, CheckBackground, fmt.Sprintf(check, answer.ID)).Value, &report), check)
				require.Equal(t, map[string]any{"n": 5.0}, report["result"], check)
			}
		}
	})
}

// What a run wrote is part of its report if it failed, if it has no result, or if it is
// asked for.
func TestOutputOfEndedRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "chatty", "sleeper")
		echo, chatty, sleeper := s.spawn(alice, "echo", `{}`), s.spawn(alice, "chatty", `{}`), s.spawn(alice, "sleeper", `{}`)
		time.Sleep(time.Minute)
		s.stop(alice, sleeper, "")
		require.NotContains(t, s.check(alice, echo, ""), "output")
		require.Contains(t, s.check(alice, echo, `,"max_chars":100`), "output")
		require.Contains(t, s.check(alice, chatty, ""), "output")
		require.Contains(t, s.check(alice, sleeper, ""), "output")
	})
}

// The list shows what ended within the last hour.
func TestListIsOfTheLastHour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo")
		s.spawn(alice, "echo", `{}`)
		time.Sleep(50 * time.Minute)
		recent := s.spawn(alice, "echo", `{}`)
		time.Sleep(11 * time.Minute)
		var all listing
		require.NoError(t, json.Unmarshal(s.call(alice, CheckBackground, `{}`).Value, &all))
		require.Equal(t, 2, all.Finished)
		require.Len(t, all.Tasks, 1)
		require.Equal(t, recent, all.Tasks[0].TaskID)
		require.NoError(t, json.Unmarshal(s.call(alice, CheckBackground, `{"include_finished":true}`).Value, &all))
		require.Len(t, all.Tasks, 2)
	})
}

// Files are named as the caller's model can open them, or not at all.
func TestFileNames(t *testing.T) {
	for name, c := range map[string]struct {
		dir      string
		fileName func(task, file string) string
		want     any
	}{
		"in memory":          {"", nil, nil},
		"in a data folder":   {t.TempDir(), nil, "runs/TASK/result.json"},
		"as the caller says": {"", func(task, file string) string { return "demo://" + task + "/" + file }, "demo://TASK/result.json"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{DataDir: c.dir}, "huge")
			id := s.spawn(alice, "huge", `{}`)
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: CheckBackground, Args: json.RawMessage(fmt.Sprintf(`{"task_ids":[%q]}`, id)), FileName: c.fileName})
			require.NoError(t, err)
			var report map[string]any
			require.NoError(t, json.Unmarshal(r.Value, &report))
			want := c.want
			if text, ok := want.(string); ok {
				want = strings.ReplaceAll(text, "TASK", id)
			}
			require.Equal(t, want, report["result_path"])
		})
	}
}
