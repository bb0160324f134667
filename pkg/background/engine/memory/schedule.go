package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A schedule is a stored [engine.Schedule] with the time of its last change.
type schedule struct {
	engine.Schedule
	changed time.Time
	recordShare
}

// aged is like [record.aged]. A schedule is over when it is disabled.
func (s *schedule) aged() (session string, since time.Time, over bool) {
	return s.Session, s.changed, !s.Enabled
}

// findSchedule returns the schedule with an id, or nil.
func (st *store) findSchedule(id string) *schedule {
	for _, s := range st.schedules {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// A scheduleStore implements [engine.Schedules].
type scheduleStore struct{ *store }

var _ engine.Schedules = scheduleStore{}

// PutSchedule implements [engine.Schedules].
func (ss scheduleStore) PutSchedule(_ context.Context, s engine.Schedule, max int) (engine.Schedule, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	stored := ss.findSchedule(s.ID)
	switch {
	case stored == nil && s.Revision != 0:
		return engine.Schedule{}, fmt.Errorf("%w: schedule %s", engine.ErrNotFound, s.ID)
	case stored != nil && s.Revision == 0:
		return engine.Schedule{}, fmt.Errorf("%w: schedule %s", engine.ErrExists, s.ID)
	case stored != nil && s.Revision != stored.Revision:
		return engine.Schedule{}, fmt.Errorf("%w: schedule %s", engine.ErrConflict, s.ID)
	}
	if s.Enabled && (stored == nil || !stored.Enabled) {
		if err := ss.permitSchedule(s.Session, max); err != nil {
			return engine.Schedule{}, err
		}
	}

	if stored == nil {
		if err := ss.makeRoom(s.Session, s.Size()); err != nil {
			return engine.Schedule{}, err
		}
		stored = &schedule{}
		ss.schedules = append(ss.schedules, stored)
	}
	s.Revision++
	stored.Schedule, stored.changed = s, time.Now()
	ss.countSchedule(stored)
	ss.feed.Publish(engine.Event{Kind: engine.EventScheduled, Session: s.Session, Schedule: &s})
	return s, nil
}

// permitSchedule returns an error if the session already has max enabled
// schedules.
func (ss scheduleStore) permitSchedule(session string, max int) error {
	var active []string
	for _, s := range ss.schedules {
		if s.Session == session && s.Enabled {
			active = append(active, s.ID)
		}
	}
	if len(active) < max {
		return nil
	}
	slices.Sort(active)
	return &engine.LimitError{Err: engine.ErrScheduleLimit, Max: max, Active: active}
}

// GetSchedule implements [engine.Schedules].
func (ss scheduleStore) GetSchedule(_ context.Context, id string) (engine.Schedule, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if s := ss.findSchedule(id); s != nil {
		return s.Schedule, nil
	}
	return engine.Schedule{}, fmt.Errorf("%w: schedule %s", engine.ErrNotFound, id)
}

// RemoveSchedule implements [engine.Schedules].
func (ss scheduleStore) RemoveSchedule(_ context.Context, id string) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	s := ss.findSchedule(id)
	if s == nil {
		return fmt.Errorf("%w: schedule %s", engine.ErrNotFound, id)
	}
	ss.removeSchedule(s)
	return nil
}

// Schedules implements [engine.Schedules].
func (ss scheduleStore) Schedules(_ context.Context, session string, enabled bool) (found []engine.Schedule, err error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	for _, s := range slices.Backward(ss.schedules) {
		if (session == "" || s.Session == session) && (s.Enabled || !enabled) {
			light := s.Schedule
			light.Args = nil
			found = append(found, light)
		}
	}
	return found, nil
}

func (st *store) removeSchedule(s *schedule) {
	st.schedules = without(st.schedules, s)
	st.recount(s.Session, &s.recordShare, 0, false)
	st.feed.Publish(engine.Event{Kind: engine.EventPurged, Session: s.Session, Schedule: &s.Schedule})
}

// Due implements [engine.Schedules].
func (ss scheduleStore) Due(ctx context.Context, now time.Time, max int) (due []engine.Schedule, next time.Time, err error) {
	enabled, err := ss.Schedules(ctx, "", true)
	slices.Reverse(enabled)
	slices.SortStableFunc(enabled, func(a, b engine.Schedule) int { return a.NextAt.Compare(b.NextAt) })

	for _, s := range enabled {
		switch {
		case s.NextAt.IsZero():
		case s.NextAt.After(now) || len(due) == max:
			return due, s.NextAt, err
		default:
			due = append(due, s)
		}
	}
	return due, time.Time{}, err
}
