package engine

import (
	"slices"
	"strings"
	"time"
)

// A Filter selects runs by their properties. Its zero value selects all.
type Filter struct {
	Statuses     []Status    // in one of these states; nil: any
	Errors       []ErrorKind // failed for one of these reasons; nil: all runs, failed or not
	Tool         string      // of this tool; "": any
	Kind         string      // of this kind of tool; "": any
	Plugin       string      // of a tool of this plugin; "": any
	Since, Until time.Time   // submitted at or after Since and before Until; zero: no bound
	StartedSince time.Time   // last started at or after it; zero: at any time, or never
	StartedUntil time.Time   // last started before it; zero: at any time, or never
	Text         string      // part of the tool's name, the title or the error, ignoring case; "": any
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

// maxSearched is how many bytes of an error are searched.
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
