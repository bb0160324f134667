package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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

// A host without schedules does not offer them.
func TestWithoutSchedules(t *testing.T) {
	s := open(t, Config{Runs: RunsConfig{Schedules: -1}}, "echo")
	require.NotContains(t, string(s.shownAgentTools()[SpawnBackground].InputSchema), "schedule")
	require.Contains(t, s.refused(alice, SpawnBackground, `{"tool":"echo","args":{},"schedule":{"cron_expression":"* * * * *"}}`), "this host has no schedules")
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
