package enginetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// search: each part of a filter selects, alone, combined and by pages; a run is found by
// its current state.
func search(t *testing.T, e *store) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for i := range 8 {
		run := newRun(fmt.Sprintf("bg_%d", i), []string{"s", "other"}[i%2])
		run.Tool, run.Title, run.CreatedAt = []string{"primes", "wordcount"}[i/4], fmt.Sprintf("Größe %d%%_", i), begin.Add(time.Duration(i)*time.Minute)
		run.Provider = engine.Provider{Kind: []string{"wasm", "go"}[i/4], Plugin: []string{"math", "text"}[i/4]}
		require.NoError(t, e.Submit(t.Context(), run))
	}
	before := time.Now()
	time.Sleep(time.Millisecond)
	complete(t, started(t, e, "bg_1"), engine.StatusSucceeded)
	for i, kind := range []engine.ErrorKind{engine.KindTimeout, engine.KindToolError} {
		_, err := started(t, e, fmt.Sprintf("bg_%d", 2+i)).Complete(t.Context(), engine.StatusFailed, engine.Beat{},
			engine.End{Error: &engine.RunError{Kind: kind, Message: "Kein PLATZ"}, FinishedAt: time.Now()})
		require.NoError(t, err)
	}
	started(t, e, "bg_4")

	for _, c := range []struct {
		f    engine.Filter
		want string
	}{
		{engine.Filter{Statuses: []engine.Status{engine.StatusFailed}}, "bg_3 bg_2"},
		{engine.Filter{Statuses: []engine.Status{engine.StatusRunning, engine.StatusSucceeded}}, "bg_4 bg_1"},
		{engine.Filter{Statuses: []engine.Status{engine.StatusQueued}}, "bg_7 bg_6 bg_5 bg_0"},
		{engine.Filter{Errors: []engine.ErrorKind{engine.KindTimeout, engine.KindInternal}}, "bg_2"},
		{engine.Filter{Tool: "primes"}, "bg_3 bg_2 bg_1 bg_0"},
		{engine.Filter{Kind: "go"}, "bg_7 bg_6 bg_5 bg_4"},
		{engine.Filter{Plugin: "math", Statuses: []engine.Status{engine.StatusQueued}}, "bg_0"},
		{engine.Filter{Since: begin.Add(5 * time.Minute)}, "bg_7 bg_6 bg_5"},
		{engine.Filter{Since: begin.Add(time.Minute), Until: begin.Add(3 * time.Minute)}, "bg_2 bg_1"},
		{engine.Filter{StartedSince: before}, "bg_4 bg_3 bg_2 bg_1"},
		{engine.Filter{StartedUntil: before}, ""},
		{engine.Filter{Text: "gRÖSSE"}, ""},
		{engine.Filter{Text: "gRÖßE 3%_"}, "bg_3"},
		{engine.Filter{Text: "platz"}, "bg_3 bg_2"},
		{engine.Filter{Text: "WORD", Statuses: []engine.Status{engine.StatusRunning}}, "bg_4"},
	} {
		runs, err := e.List(t.Context(), engine.Query{Filter: c.f})
		require.NoError(t, err)
		require.Equal(t, c.want, ids(runs), "%+v", c.f)

		paged := ""
		for q := (engine.Query{Filter: c.f, Limit: 1}); ; {
			page, err := e.List(t.Context(), q)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			q.Before = page[0].ID
			paged += " " + page[0].ID
		}
		require.Equal(t, c.want, strings.TrimSpace(paged), "%+v", c.f)
	}

	runs, err := e.List(t.Context(), engine.Query{Session: "other", Active: true, Filter: engine.Filter{Text: "größe"}})
	require.NoError(t, err)
	require.Equal(t, "bg_7 bg_5", ids(runs))
}

// removes: only an ended run can be removed, and nothing of it remains.
func removes(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	require.ErrorIs(t, e.Engine.Remove(t.Context(), "bg_a"), engine.ErrActive)
	lease := started(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("output")))
	require.ErrorIs(t, e.Engine.Remove(t.Context(), "bg_a"), engine.ErrActive)
	complete(t, lease, engine.StatusSucceeded)
	events := e.Watch(t.Context(), "s")
	require.NoError(t, e.Engine.Remove(t.Context(), "bg_a"))

	_, err := e.Get(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = e.Engine.Open(t.Context(), "bg_a", engine.OutputLog)
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.ErrorIs(t, e.Engine.Remove(t.Context(), "bg_a"), engine.ErrNotFound)
	require.Equal(t, engine.EventPurged, (<-events).Kind)
	for _, q := range []engine.Query{{}, {Filter: engine.Filter{Tool: "primes"}}} {
		runs, err := e.List(t.Context(), q)
		require.NoError(t, err)
		require.Empty(t, runs)
	}
	taken, err := e.worker.Notices(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, taken)
	require.Zero(t, e.Engine.Recorded())
}
