package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toolhost/toolhost/bench/internal/docs"
)

// TestMain serves the office over MCP on its standard streams if the benchmark has
// started this program again for that.
func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		if err := serve(context.Background(), dir); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// TestTasks holds that each task comes to the same both ways, that what cannot be undone
// is done once, and that the page has the figures.
func TestTasks(t *testing.T) {
	m, err := doAll(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	rows := slices.Concat(m.rows, m.twenty)
	for i, one := range slices.Concat(tasks(), twentyTasks()) {
		answer, effects := one.want()
		for way, got := range map[string]outcome{"in turns": rows[i].turns, "by script": rows[i].script} {
			if got.answer != encode(answer) || !slices.Equal(got.effects, effects) {
				t.Errorf("%s, %s: %s %q, expected %s %q", one.name, way, got.answer, got.effects, encode(answer), effects)
			}
		}
		if empty := []string{"[]", "{}", `""`, "0", "null"}; slices.Contains(empty, encode(answer)) {
			t.Errorf("%s: the answer says nothing: %s", one.name, encode(answer))
		}
	}

	const page = "../../docs/figures.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if tables := m.tables(); !strings.Contains(string(text), docs.Section("turns", tables)) {
		t.Errorf("%s has other figures: go run ./turns -docs ../docs/figures.md", page)
	}
}

// A conversation that the model could not have had is refused.
func TestConversationsAreChecked(t *testing.T) {
	w, err := open(t.Context(), true, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()

	for problem, how := range map[string]func(a *agent) any{
		"order_get was not found by a search":   func(a *agent) any { return a.exec(`return (await tools.order_get({ id: 1042 })).status`) },
		"the model does not know order_get":     func(a *agent) any { return a.turn(call{"order_get", args{"id": 1042}}) },
		"the script failed: order_get: ":        func(a *agent) any { return a.exec(`await tools.order_get({ id: 1 })`) },
		`the model has not read "a word"`:       func(a *agent) any { a.mentions("something", "a word"); return nil },
		`the script did not fail: {"result":1}`: func(a *agent) any { a.fails(`return 1`); return nil },
		"a call was answered: ":                 func(a *agent) any { return ask[int](a, call{"tools_search", args{}}) },
	} {
		if _, err := w.do(task{name: "a task", script: how}); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("expected %q, found %v", problem, err)
		}
	}
}
