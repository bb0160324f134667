package background

import (
	"context"
	"fmt"
	"slices"
)

// PutSchedule implements [Engine].
func (e *MemoryEngine) PutSchedule(_ context.Context, s Schedule, max int) (Schedule, error) {
	s = s.clone()
	e.mu.Lock()
	defer e.mu.Unlock()
	at := slices.IndexFunc(e.schedules, func(o Schedule) bool { return o.ID == s.ID })
	switch {
	case at < 0 && s.Revision != 0:
		return Schedule{}, fmt.Errorf("%w: schedule %s", ErrNotFound, s.ID)
	case at >= 0 && s.Revision == 0:
		return Schedule{}, fmt.Errorf("%w: schedule %s", ErrExists, s.ID)
	case at >= 0 && s.Revision != e.schedules[at].Revision:
		return Schedule{}, fmt.Errorf("%w: schedule %s", ErrConflict, s.ID)
	}
	if err := e.roomFor(s, max); err != nil {
		return Schedule{}, err
	}
	s.Revision++
	if at < 0 {
		e.schedules = append(e.schedules, s)
	} else {
		e.schedules[at] = s
	}
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
			found = append(found, s.clone())
		}
	}
	return found, nil
}
