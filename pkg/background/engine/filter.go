package engine

import (
	"slices"
	"strings"
	"time"
)

// A Filter selects runs by their properties. Its zero value selects all.
type Filter struct {
	Statuses     []Status    // states of the runs; nil: any state
	Errors       []ErrorKind // reasons why the runs failed; nil: all runs, failed or not
	Tool         string      // tool of the runs; "": any
	Kind         string      // kind of that tool; "": any
	Plugin       string      // plugin of that tool; "": any
	Since, Until time.Time   // bounds of the time of submission, Since included and Until excluded; zero: no bound
	StartedSince time.Time   // earliest time of the last start; zero: any time, or none
	StartedUntil time.Time   // time before which the runs last started; zero: any time, or none
	Text         string      // text that the tool's name, the title or the error contains, ignoring case; "": any
}

// IsZero reports whether f selects all runs.
func (f Filter) IsZero() bool {
	return len(f.Statuses)+len(f.Errors) == 0 && f.Tool+f.Kind+f.Plugin+f.Text == "" &&
		f.Since.IsZero() && f.Until.IsZero() && f.StartedSince.IsZero() && f.StartedUntil.IsZero()
}

// Matches reports whether f selects the run.
func (f Filter) Matches(r Run) bool {
	switch {
	case f.IsZero():
		return true
	case len(f.Statuses) > 0 && !slices.Contains(f.Statuses, r.Status),
		len(f.Errors) > 0 && (r.Error == nil || !slices.Contains(f.Errors, r.Error.Kind)),
		f.Tool != "" && f.Tool != r.Tool, f.Kind != "" && f.Kind != r.Kind, f.Plugin != "" && f.Plugin != r.Plugin,
		!within(r.CreatedAt, f.Since, f.Until):
		return false
	case (!f.StartedSince.IsZero() || !f.StartedUntil.IsZero()) && (r.StartedAt.IsZero() || !within(r.StartedAt, f.StartedSince, f.StartedUntil)):
		return false
	}
	return f.Text == "" || strings.Contains(r.SearchText(), strings.ToLower(f.Text))
}

func within(t, since, until time.Time) bool {
	return !t.Before(since) && (until.IsZero() || t.Before(until))
}

// maxSearched is the number of bytes of an error that are searched.
const maxSearched = 512

// SearchText returns the text that [Filter].Text is matched against: the tool, the
// title and the beginning of the error, in lower case.
func (r Run) SearchText() string {
	text := r.Tool + "\n" + r.Title
	if r.Error != nil {
		text += "\n" + r.Error.Message[:min(len(r.Error.Message), maxSearched)]
	}
	return strings.ToLower(strings.ToValidUTF8(text, ""))
}
