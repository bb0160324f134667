package background

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A memorySchedule is a schedule and when it was stored last.
type memorySchedule struct {
	Schedule
	changed time.Time
	counted
}

// PutSchedule implements [Engine].
func (e *MemoryEngine) PutSchedule(_ context.Context, s Schedule, max int) (Schedule, error) {
	s = s.clone()
	e.mu.Lock()
	defer e.mu.Unlock()
	at := slices.IndexFunc(e.schedules, func(o memorySchedule) bool { return o.ID == s.ID })
	switch {
	case at < 0 && s.Revision != 0:
		return Schedule{}, fmt.Errorf("%w: schedule %s", ErrNotFound, s.ID)
	case at >= 0 && s.Revision == 0:
		return Schedule{}, fmt.Errorf("%w: schedule %s", ErrExists, s.ID)
	case at >= 0 && s.Revision != e.schedules[at].Revision:
		return Schedule{}, fmt.Errorf("%w: schedule %s", ErrConflict, s.ID)
	}
	if had := at >= 0 && e.schedules[at].Enabled; !had { // one that was enabled has its place
		if err := e.roomFor(s, max); err != nil {
			return Schedule{}, err
		}
	}
	s.Revision++
	put := memorySchedule{Schedule: s, changed: time.Now()}
	if at < 0 {
		if err := e.makeRoom(s.Session, s.Size()); err != nil {
			return Schedule{}, err
		}
		at = len(e.schedules)
		e.schedules = append(e.schedules, put)
	} else {
		e.uncount(e.schedules[at].Session, &e.schedules[at].counted)
		e.schedules[at] = put
	}
	e.countSchedule(&e.schedules[at])
	stored := s.clone()
	e.feed.Publish(Event{Kind: EventScheduled, Session: s.Session, Schedule: &stored})
	return s.clone(), nil
}

// roomFor returns an error if s would be one enabled schedule too many of its
// session. The lock must be held.
func (e *MemoryEngine) roomFor(s Schedule, max int) error {
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
	return &LimitError{Err: ErrScheduleLimit, Max: max, Active: active}
}

// GetSchedule implements [Engine].
func (e *MemoryEngine) GetSchedule(_ context.Context, id string) (Schedule, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.schedules {
		if s.ID == id {
			return s.clone(), nil
		}
	}
	return Schedule{}, fmt.Errorf("%w: schedule %s", ErrNotFound, id)
}

// Schedules implements [Engine].
func (e *MemoryEngine) Schedules(_ context.Context, session string, enabled bool) ([]Schedule, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []Schedule
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
func (e *MemoryEngine) pruneSchedules(ret Retention) {
	disabled := make(map[string][]memorySchedule)
	for _, s := range slices.Backward(e.schedules) {
		if !s.Enabled && (ret.Session == "" || s.Session == ret.Session) {
			disabled[s.Session] = append(disabled[s.Session], s)
		}
	}
	gone := make(map[string]bool)
	for _, of := range disabled {
		slices.SortStableFunc(of, func(a, b memorySchedule) int { return b.changed.Compare(a.changed) })
		for i, s := range of {
			if i >= ret.Keep || s.changed.Before(ret.Before) {
				gone[s.ID] = true
			}
		}
	}
	e.removeSchedules(gone)
}

// removeSchedules removes the schedules with these ids. The lock must be held.
func (e *MemoryEngine) removeSchedules(gone map[string]bool) {
	e.schedules = slices.DeleteFunc(e.schedules, func(s memorySchedule) bool {
		if !gone[s.ID] {
			return false
		}
		e.uncount(s.Session, &s.counted)
		purged := s.Schedule.clone()
		e.feed.Publish(Event{Kind: EventPurged, Session: s.Session, Schedule: &purged})
		return true
	})
}
