package webui

import (
	"cmp"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

// A runView is a run as pages show it.
type runView struct {
	background.Run
	State    state
	Bar      *bar
	Took     time.Duration // so far, or in all; 0 if it never started
	Created  *moment
	Started  *moment
	Finished *moment
	Due      *moment // of a scheduled run
}

func newRunView(r background.Run, now time.Time) runView {
	return runView{
		Run: r, State: stateOf(r), Bar: barOf(r), Took: r.Elapsed(now),
		Created: at(r.CreatedAt, now), Started: at(r.StartedAt, now), Finished: at(r.FinishedAt, now), Due: at(r.ScheduledFor, now),
	}
}

// runRows renders rows of runs.
func runRows(template string, runs []background.Run, now time.Time) ([]row, error) {
	return newRows(template, runs, func(r background.Run) (string, any) { return "run-" + r.ID, newRunView(r, now) })
}

// beat takes what one of the runs says of itself from an event, and reports
// whether it could: many runs that tell of progress are not to have all of them
// read again and again.
func beat(runs []background.Run, e background.Event) bool {
	if e.Kind != background.EventBeat {
		return false
	}
	i := slices.IndexFunc(runs, func(r background.Run) bool {
		return r.ID == e.Run.ID && r.Attempt == e.Run.Attempt && r.Status == background.StatusRunning
	})
	if i < 0 {
		return false
	}
	runs[i].Beat = e.Run.Beat
	return true
}

// A state says in a word and a sign how a run is: never by its color alone.
type state struct{ Class, Sign, Word string }

func stateOf(r background.Run) state {
	if r.Unsaved {
		r.Unsaved = false
		return state{"warn", "◌", stateOf(r).Word + ", not stored yet"}
	}
	switch {
	case r.Status == background.StatusSucceeded:
		return state{"good", "✓", "succeeded"}
	case r.Status == background.StatusCanceled:
		return state{"off", "■", "canceled"}
	case r.Status == background.StatusFailed && r.Error != nil:
		return state{"bad", "✗", "failed: " + wordOf(r.Error.Kind)}
	case r.Status == background.StatusFailed:
		return state{"bad", "✗", "failed"}
	case r.Cancel != nil:
		return state{"warn", "◌", "stopping"}
	case r.Status == background.StatusRunning:
		return state{"live", "▶", "running"}
	}
	return state{"wait", "…", string(r.Status)}
}

// kinds are the reasons of failures in words.
var kinds = map[background.ErrorKind]string{
	background.KindToolError: "tool error", background.KindInternal: "internal", background.KindTimeout: "time limit",
	background.KindFuelExhausted: "out of fuel", background.KindMemoryLimit: "memory limit", background.KindOutputLimit: "output limit",
	background.KindTrap: "crashed", background.KindConnectionRequired: "connection required", background.KindLimit: "no place",
	background.KindRejected: "rejected", background.KindOrphaned: "orphaned", background.KindInterrupted: "interrupted",
}

func wordOf(k background.ErrorKind) string { return cmp.Or(kinds[k], string(k)) }

// A bar is the progress of a run.
type bar struct {
	Percent int // -1: how much there is to do is not known
	Counts  string
	Message string
}

// barOf returns nil for a run that says nothing of its progress.
func barOf(r background.Run) *bar {
	p := r.Progress
	switch {
	case p == nil:
		return nil
	case p.Total <= 0:
		counts := ""
		if p.Done > 0 {
			counts = number(p.Done)
		}
		return &bar{-1, counts, p.Message}
	}
	return &bar{int(100 * min(p.Done/p.Total, 1)), number(p.Done) + " of " + number(p.Total), p.Message}
}
