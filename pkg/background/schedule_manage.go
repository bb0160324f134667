package background

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// changesAtOnce is how many changes of one schedule another one gives way to.
const changesAtOnce = 100

// Schedule stores a schedule. Its runs are started by the manager from then
// on, at most one for each time it is due, and also after a restart.
//
// A bad request is a *[FieldError]. If the session has as many schedules as it
// may, or there is no room to keep its record, the error is a *[LimitError]
// that matches [ErrScheduleLimit] or [ErrRecordLimit], and nothing is stored.
// After Close it is [ErrClosed].
func (m *Manager) Schedule(ctx context.Context, session string, req ScheduleRequest) (Schedule, error) {
	s, err := m.newSchedule(session, req, m.wall())
	if err == nil {
		s, err = m.addSchedule(ctx, s)
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule: %w", err)
	}
	return s, nil
}

// addSchedule stores a new schedule, and plans it.
func (m *Manager) addSchedule(ctx context.Context, s Schedule) (Schedule, error) {
	if err := ctx.Err(); err != nil {
		return Schedule{}, err
	}
	m.mu.Lock()
	closing := m.closing
	m.mu.Unlock()
	if closing {
		return Schedule{}, ErrClosed
	}
	ctx = context.WithoutCancel(ctx) // what is stored must be planned
	stored, err := m.engine.PutSchedule(ctx, s, m.cfg.Schedules)
	switch {
	case errors.Is(err, ErrScheduleLimit), errors.Is(err, ErrRecordLimit):
		m.count(func(s *Stats) { s.Refused++ })
		return Schedule{}, err
	case err != nil:
		return Schedule{}, fmt.Errorf("storing the schedule: %w", err)
	}
	m.scheduler.plan(stored.ID, stored.NextAt, m.wall())
	m.log.Info("background schedule made", "schedule_id", s.ID, "session", s.Session, "tool", s.Tool, "cron", s.Cron, "next", s.NextAt, "args", loggedArgs(s.Args))
	return stored, nil
}

// Schedules returns the schedules of a session, the newest first, without their
// arguments: enabled ones and those that fire no more.
func (m *Manager) Schedules(ctx context.Context, session string) ([]Schedule, error) {
	if session == "" {
		return nil, fmt.Errorf("schedules: %w", &FieldError{"session", "required"})
	}
	found, err := m.engine.Schedules(ctx, session, false)
	if err != nil {
		return nil, fmt.Errorf("schedules: %w", err)
	}
	return found, nil
}

// GetSchedule returns a schedule of a session. If the session does not have
// it, the error matches [ErrNoSchedule].
func (m *Manager) GetSchedule(ctx context.Context, session, id string) (Schedule, error) {
	s, err := m.findSchedule(ctx, session, id)
	if err != nil {
		return Schedule{}, fmt.Errorf("get schedule: %w", err)
	}
	return s, nil
}

// findSchedule answers alike for unknown schedules and those of others.
func (m *Manager) findSchedule(ctx context.Context, session, id string) (Schedule, error) {
	if session == "" {
		return Schedule{}, &FieldError{"session", "required"}
	}
	s, err := m.engine.GetSchedule(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && s.Session != session:
		return Schedule{}, fmt.Errorf("%w: %s", ErrNoSchedule, clip(id, maxKey))
	case err != nil:
		return Schedule{}, fmt.Errorf("reading the schedule: %w", err)
	}
	return s, nil
}

// Unschedule disables a schedule of a session, and returns it. Its runs go on:
// one that is active, or being fired at this moment. It may be called again.
// If the session does not have the schedule, the error matches
// [ErrNoSchedule].
func (m *Manager) Unschedule(ctx context.Context, session, id string) (Schedule, error) {
	s, err := m.findSchedule(ctx, session, id)
	if err == nil && s.Enabled {
		s, err = m.change(context.WithoutCancel(ctx), id, func(s *Schedule) error { return s.disable(DisabledStopped) })
	}
	switch {
	case errors.Is(err, errGone):
		s, err = m.findSchedule(ctx, session, id)
	case errors.Is(err, ErrNotFound):
		err = fmt.Errorf("%w: %s", ErrNoSchedule, clip(id, maxKey))
	case err == nil:
		m.log.Info("background schedule stopped", "schedule_id", id, "session", session)
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("unschedule: %w", err)
	}
	return s, nil
}

// errGone says that a change of a schedule came too late.
var errGone = errors.New("schedule is not as it was")

// disable makes s fire no more. The error is errGone if it did not anyway.
func (s *Schedule) disable(why string) error {
	if !s.Enabled {
		return errGone
	}
	s.Enabled, s.Disabled, s.NextAt = false, why, time.Time{}
	return nil
}

// change stores what edit makes of a schedule. Of several changes at once each
// sees what the one before it made. It plans the schedule anew. An error of
// edit, and [ErrNotFound], come back as they are.
func (m *Manager) change(ctx context.Context, id string, edit func(*Schedule) error) (Schedule, error) {
	for try := 1; ; try++ {
		s, err := m.engine.GetSchedule(ctx, id)
		if err != nil {
			return Schedule{}, err
		}
		if err := edit(&s); err != nil {
			return Schedule{}, err
		}
		stored, err := m.engine.PutSchedule(ctx, s, math.MaxInt)
		if errors.Is(err, ErrConflict) && try < changesAtOnce {
			continue
		}
		if err != nil {
			return Schedule{}, fmt.Errorf("storing the schedule: %w", err)
		}
		m.scheduler.plan(id, stored.NextAt, m.wall())
		return stored, nil
	}
}
