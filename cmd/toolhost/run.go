package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/httpapi"
)

// runEnded is the end of a background run that did not succeed.
type runEnded struct{ run httpapi.Run }

func (e *runEnded) Error() string {
	switch {
	case e.run.Error != nil:
		return fmt.Sprintf("%s failed (%s): %s", e.run.TaskID, e.run.Error.Kind, oneLine(e.run.Error.Message))
	case e.run.Stopping != nil && e.run.Stopping.Reason != "":
		return fmt.Sprintf("%s was canceled by %s: %s", e.run.TaskID, e.run.Stopping.By, oneLine(e.run.Stopping.Reason))
	}
	return fmt.Sprintf("%s was canceled", e.run.TaskID)
}

// code is what a script sees of it.
func (e *runEnded) code() (exit int, code string) {
	if e.run.Error == nil {
		return exitToolError, string(e.run.Status)
	}
	code = string(e.run.Error.Kind)
	switch e.run.Error.Kind {
	case background.KindFuelExhausted, background.KindMemoryLimit, background.KindOutputLimit, background.KindTimeout, background.KindLimit:
		return exitLimit, code
	case background.KindRejected:
		return exitDenied, code
	}
	return exitToolError, code
}

// outcome is the error of runs that have not all succeeded: the first one's.
func outcome(runs ...httpapi.Run) error {
	for _, run := range runs {
		if run.Done && run.Status != background.StatusSucceeded {
			return &runEnded{run}
		}
	}
	return nil
}

// finish prints how a run ended that was waited for: its result on stdout, its
// failure as the command's error.
func (a *app) finish(run httpapi.Run) error {
	err := outcome(run)
	if a.json {
		a.printJSON(run)
		if err != nil {
			return &reportedError{err}
		}
		return nil
	}
	a.printResult(run.Result, run.Content)
	return err
}

// icon stands for a status in a table.
func icon(s background.Status) string {
	switch s {
	case background.StatusQueued:
		return "○"
	case background.StatusRunning:
		return "●"
	case background.StatusSucceeded:
		return "✓"
	case background.StatusFailed:
		return "✗"
	case background.StatusCanceled:
		return "■"
	}
	return "?"
}

// elapsed is a time for people: 12.3s, and 2.1m from a minute on.
func elapsed(seconds float64) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%.1fs", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%.1fm", seconds/60)
	}
	return fmt.Sprintf("%.1fh", seconds/3600)
}

// state is a run's status in a few words.
func state(run httpapi.Run) string {
	if run.Unsaved {
		run.Unsaved = false
		return state(run) + ", not stored yet"
	}
	switch {
	case run.Error != nil:
		return fmt.Sprintf("%s (%s)", run.Status, run.Error.Kind)
	case run.Stopping != nil && !run.Done:
		return fmt.Sprintf("%s, stopping", run.Status)
	}
	return string(run.Status)
}

// doing is what an active run says of itself.
func doing(run httpapi.Run) string {
	var parts []string
	if p := run.Progress; p != nil && p.Total > 0 {
		parts = append(parts, fmt.Sprintf("%.0f%%", 100*min(p.Done/p.Total, 1)))
	} else if p != nil && p.Done > 0 {
		parts = append(parts, fmt.Sprintf("%g", p.Done))
	}
	if run.Progress != nil && run.Progress.Message != "" {
		parts = append(parts, run.Progress.Message)
	}
	said := strings.Join(parts, " ")
	if said != "" && run.Detail != "" {
		said += " · "
	}
	return oneLine(said + run.Detail)
}

// when is a moment for people, in their own time zone.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// checkRun refuses what cannot be the id of a run before anybody is asked.
func checkRun(id string) error {
	if !background.IsRunID(id) {
		return &usageError{fmt.Errorf("%q is no id of a run", id), "toolhost tasks shows the ids"}
	}
	return nil
}
