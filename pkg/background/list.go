package background

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	defaultListLimit = 20
	maxListTitle     = 40
)

// A ListRequest says what to list. Its zero value lists everything, 20 rows.
type ListRequest struct {
	ActiveOnly bool // leave out runs that have ended
	Limit      int  // at most so many rows; not positive: 20
}

// A Listing is a session's runs: active ones first, then the newest first.
// The counts are of all of them, whatever the rows show.
type Listing struct {
	Active   int   `json:"active"`
	Finished int   `json:"finished"`
	Tasks    []Row `json:"tasks"`
	More     int   `json:"more,omitempty"` // runs asked for that the limit left out

	Schedules []ScheduleRow `json:"schedules,omitempty"` // those that are enabled, newest first
}

// A ScheduleRow is one schedule in a [Listing].
type ScheduleRow struct {
	ScheduleID    string    `json:"schedule_id"`
	Title         string    `json:"title"` // cut to 40 characters
	NextTriggerAt time.Time `json:"next_trigger_at,omitzero"`
}

// A Row is one run in a [Listing].
type Row struct {
	TaskID         string  `json:"task_id"`
	Tool           string  `json:"tool"`
	Title          string  `json:"title"` // cut to 40 characters
	Status         Status  `json:"status"`
	Unsaved        bool    `json:"unsaved,omitempty"` // its end is not stored yet: see Run.Unsaved
	ElapsedSeconds float64 `json:"elapsed_seconds"`
}

// List returns the runs of a session. A session without any has an empty list.
func (m *Manager) List(ctx context.Context, session string, req ListRequest) (Listing, error) {
	if session == "" {
		return Listing{}, fmt.Errorf("list: %w", &FieldError{"session", "required"})
	}
	runs, err := m.list(ctx, Query{Session: session})
	if err != nil {
		return Listing{}, fmt.Errorf("list: %w", err)
	}
	schedules, err := m.engine.Schedules(ctx, session, true)
	if err != nil {
		return Listing{}, fmt.Errorf("list: listing schedules: %w", err)
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultListLimit
	}
	active := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Status.Terminal() })
	finished := slices.DeleteFunc(runs, func(r Run) bool { return !r.Status.Terminal() })
	listing := Listing{Active: len(active), Finished: len(finished), Tasks: []Row{}}
	rows := active
	if !req.ActiveOnly {
		rows = append(rows, finished...)
	}
	listing.More = max(0, len(rows)-limit)
	now := time.Now()
	for _, run := range rows[:len(rows)-listing.More] {
		listing.Tasks = append(listing.Tasks, Row{
			TaskID: run.ID, Tool: run.Tool, Title: clip(run.Title, maxListTitle),
			Status: run.Status, Unsaved: run.Unsaved, ElapsedSeconds: tenths(run.Elapsed(now)),
		})
	}
	for _, s := range schedules {
		listing.Schedules = append(listing.Schedules, ScheduleRow{s.ID, clip(s.Title, maxListTitle), s.NextAt})
	}
	return listing, nil
}

// list returns stored runs with what their tasks know better.
func (m *Manager) list(ctx context.Context, q Query) ([]Run, error) {
	tasks := make(map[string]*task) // taken first, as in lookup
	for _, t := range m.allTasks() {
		tasks[t.run.ID] = t
	}
	runs, err := m.engine.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	for i := range runs {
		runs[i] = view(runs[i], tasks[runs[i].ID])
	}
	return runs, nil
}
