package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A schedule is a schedule and when it was stored last.
type schedule struct {
	engine.Schedule
	changed time.Time
	counted
}

// PutSchedule implements [engine.Engine].
func (e *Engine) PutSchedule(_ context.Context, s engine.Schedule, max int) (engine.Schedule, error) {
	s = s.Clone()
	e.mu.Lock()
	defer e.mu.Unlock()

	at := slices.IndexFunc(e.schedules, func(o schedule) bool { return o.ID == s.ID })
	switch {
	case at < 0 && s.Revision != 0:
		return engine.Schedule{}, fmt.Errorf("%w: schedule %s", engine.ErrNotFound, s.ID)
	case at >= 0 && s.Revision == 0:
		return engine.Schedule{}, fmt.Errorf("%w: schedule %s", engine.ErrExists, s.ID)
	case at >= 0 && s.Revision != e.schedules[at].Revision:
		return engine.Schedule{}, fmt.Errorf("%w: schedule %s", engine.ErrConflict, s.ID)
	}
	if had := at >= 0 && e.schedules[at].Enabled; !had { // one that was enabled is counted already
		if err := e.permitSchedule(s, max); err != nil {
			return engine.Schedule{}, err
		}
	}

	s.Revision++
	put := schedule{Schedule: s, changed: time.Now()}
	if at < 0 {
		if err := e.makeRoom(s.Session, s.Size()); err != nil {
			return engine.Schedule{}, err
		}
		at = len(e.schedules)
		e.schedules = append(e.schedules, put)
	} else {
		e.uncount(e.schedules[at].Session, &e.schedules[at].counted)
		e.schedules[at] = put
	}
	e.countSchedule(&e.schedules[at])

	stored := s.Clone()
	e.feed.Publish(engine.Event{Kind: engine.EventScheduled, Session: s.Session, Schedule: &stored})
	e.hint(engine.HintSchedule)
	return s.Clone(), nil
}

// permitSchedule returns an error if s would be one enabled schedule too many of its
// session. The lock must be held.
func (e *Engine) permitSchedule(s engine.Schedule, max int) error {
	if !s.Enabled {
		return nil
	}

	var active []string
	for _, o := range e.schedules {
		if o.Session == s.Session && o.Enabled && o.ID != s.ID {
			active = append(active, o.ID)
		}
	}
	if len(active) < max {
		return nil
	}
	slices.Sort(active)
	return &engine.LimitError{Err: engine.ErrScheduleLimit, Max: max, Active: active}
}

// GetSchedule implements [engine.Engine].
func (e *Engine) GetSchedule(_ context.Context, id string) (engine.Schedule, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, s := range e.schedules {
		if s.ID == id {
			return s.Clone(), nil
		}
	}
	return engine.Schedule{}, fmt.Errorf("%w: schedule %s", engine.ErrNotFound, id)
}

// Schedules implements [engine.Engine].
func (e *Engine) Schedules(_ context.Context, session string, enabled bool) ([]engine.Schedule, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	var found []engine.Schedule
	for _, s := range slices.Backward(e.schedules) {
		if (session == "" || s.Session == session) && (s.Enabled || !enabled) {
			s.Args = nil
			found = append(found, s.Schedule)
		}
	}
	return found, nil
}

// pruneSchedules removes the disabled schedules that ret does not keep. The
// lock must be held.
func (e *Engine) pruneSchedules(ret engine.Retention) {
	disabled := make(map[string][]schedule)
	for _, s := range slices.Backward(e.schedules) {
		if !s.Enabled && (ret.Session == "" || s.Session == ret.Session) {
			disabled[s.Session] = append(disabled[s.Session], s)
		}
	}

	gone := make(map[string]bool)
	for _, of := range disabled {
		slices.SortStableFunc(of, func(a, b schedule) int { return b.changed.Compare(a.changed) })
		for i, s := range of {
			if i >= ret.Keep || s.changed.Before(ret.Before) {
				gone[s.ID] = true
			}
		}
	}
	e.removeSchedules(gone)
}

// removeSchedules removes the schedules with these ids. The lock must be held.
func (e *Engine) removeSchedules(gone map[string]bool) {
	e.schedules = slices.DeleteFunc(e.schedules, func(s schedule) bool {
		if !gone[s.ID] {
			return false
		}
		e.uncount(s.Session, &s.counted)
		purged := s.Schedule.Clone()
		e.feed.Publish(engine.Event{Kind: engine.EventPurged, Session: s.Session, Schedule: &purged})
		return true
	})
}

// Due implements [engine.Engine].
func (e *Engine) Due(_ context.Context, now time.Time, max int) (due []engine.Schedule, next time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	var enabled []engine.Schedule
	for _, s := range e.schedules {
		if s.Enabled && !s.NextAt.IsZero() {
			s.Args = nil
			enabled = append(enabled, s.Schedule)
		}
	}
	slices.SortStableFunc(enabled, func(a, b engine.Schedule) int { return a.NextAt.Compare(b.NextAt) })

	for _, s := range enabled {
		if s.NextAt.After(now) || len(due) == max {
			return due, s.NextAt, nil
		}
		due = append(due, s)
	}

	return due, time.Time{}, nil
}
