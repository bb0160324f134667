package background

import (
	"context"
	"errors"
	"fmt"
)

// What follows crosses sessions: it is for operators, who see everything. A
// door for agents must not use it: there, what belongs to another session is
// not found. To act on what was found use its own session.

// AllRuns returns the records of the runs of all sessions, or of q.Session, that
// q selects, as [Manager.Runs] does for one.
func (m *Manager) AllRuns(ctx context.Context, q Query) ([]Run, error) {
	runs, err := m.list(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("all runs: %w", err)
	}
	return runs, nil
}

// AnyRun returns the record of a run, whosever it is, or an error matching
// [ErrNotFound].
func (m *Manager) AnyRun(ctx context.Context, id string) (Run, error) {
	run, err := m.engine.Get(ctx, id)
	if err == nil {
		run, err = m.Get(ctx, run.Session, id)
	}
	if err != nil {
		return Run{}, fmt.Errorf("any run: %w", err)
	}
	return run, nil
}

// AllSchedules returns the schedules of all sessions, the newest first, without
// their arguments: enabled ones and those that fire no more.
func (m *Manager) AllSchedules(ctx context.Context) ([]Schedule, error) {
	found, err := m.engine.Schedules(ctx, "", false)
	if err != nil {
		return nil, fmt.Errorf("all schedules: %w", err)
	}
	return found, nil
}

// AnySchedule returns a schedule, whosever it is, or an error matching
// [ErrNoSchedule].
func (m *Manager) AnySchedule(ctx context.Context, id string) (Schedule, error) {
	s, err := m.engine.GetSchedule(ctx, id)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: %s", ErrNoSchedule, clip(id, maxKey))
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("any schedule: %w", err)
	}
	return s, nil
}
