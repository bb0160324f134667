package webui

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// TestCallsOfARun: the page of a run has the tree of its calls, with bars of time.
func TestCallsOfARun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "planner", "helper", "echo", "fails", "sleeper")
		id := f.spawn("default", "planner")
		require.NotContains(t, f.get("/ui/runs/"+id), "Calls <span")
		time.Sleep(2 * time.Minute)
		golden(t, "calling", f.get("/ui/runs/"+id))
		_, err := f.service.Session("default").Stop(t.Context(), id, "", wire.Stop{Force: true})
		require.NoError(t, err)
		require.Contains(t, f.get("/ui/runs/"+id), "Calls <span class=\"count\">4 in 2 min</span>")
	})
}

// TestCallBars: bars are within their run, whatever the times are.
func TestCallBars(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	run := wire.Run{StartedAt: now.Add(-time.Minute), Status: wire.StatusRunning}
	for name, c := range map[string]struct {
		call     wire.InnerCall
		x, width int
		word     string
	}{
		"half of it":     {wire.InnerCall{At: now.Add(-30 * time.Second), ElapsedSeconds: 15, Outcome: abi.Success}, 500, 250, "succeeded"},
		"too short":      {wire.InnerCall{At: now.Add(-time.Minute), ElapsedSeconds: 0, Outcome: abi.ToolError}, 0, minBar, "failed: tool error"},
		"at the end":     {wire.InnerCall{At: now, Error: wire.CallLost}, treeWidth - minBar, minBar, "failed: lost"},
		"before its run": {wire.InnerCall{At: now.Add(-2 * time.Minute), ElapsedSeconds: 60, TaskID: "bg_1"}, 0, 500, "not ended"},
		"of the future":  {wire.InnerCall{At: now.Add(time.Hour), ElapsedSeconds: 1e9, Outcome: abi.CanceledKind}, treeWidth - minBar, minBar, "canceled"},
	} {
		row := newCallTree(run, wire.InnerCalls{Calls: []wire.InnerCall{c.call}}, now).Rows[0]
		require.Equal(t, []any{c.x, c.width, c.word}, []any{row.X, row.Width, row.State().Word}, name)
	}

	row := newCallTree(wire.Run{Status: wire.StatusFailed}, wire.InnerCalls{Calls: []wire.InnerCall{{At: now, Depth: 100}}}, now).Rows[0]
	require.Equal(t, abi.MaxToolDepth+1, row.Level())
	require.Contains(t, strings.Join(levels(t), " "), "level-9")
}

// levels are the classes of levels that the style sheet has.
func levels(t *testing.T) (found []string) {
	css, err := files.ReadFile("static/page.css")
	require.NoError(t, err)
	for _, word := range strings.FieldsFunc(string(css), func(r rune) bool { return strings.ContainsRune(" .,:()\n", r) }) {
		if strings.HasPrefix(word, "level-") {
			found = append(found, word)
		}
	}
	return found
}
