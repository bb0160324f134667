package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/schedule"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A ScheduleRequest says what to run, and when. Tool and exactly one of Cron
// and At are required. Version and By are stored with each run.
//
// Args are stored in plain text for later runs, so they must not contain secrets.
// Stored and IdempotencyKey are not used.
type ScheduleRequest struct {
	SpawnRequest

	Cron     string         // cron expression of five fields, see [engine.Schedule]; "": none
	At       time.Time      // time of a one-shot, in the future and within 10 years; zero: none
	Timezone string         // IANA time zone of Cron, trimmed; "": UTC
	Overlap  engine.Overlap // policy for a firing while an earlier run is active; "": [engine.OverlapSkip]
}

// Plan checks a request as [Manager.Schedule] does, except for limits, and returns
// the resulting schedule, without an ID. It stores nothing.
func (m *Manager) Plan(session string, req ScheduleRequest) (engine.Schedule, error) {
	s, err := m.scheduler.newSchedule(context.Background(), session, req)
	if err != nil {
		return engine.Schedule{}, fmt.Errorf("schedule: %w", err)
	}
	s.ID = ""
	return s, nil
}

// newSchedule makes the record of a schedule, or returns what is wrong with
// the request.
func (s *scheduler) newSchedule(ctx context.Context, session string, req ScheduleRequest) (engine.Schedule, error) {
	now := s.now(ctx)
	req.Stored, req.IdempotencyKey = nil, ""
	run, err := s.newStoredRun(session, req.SpawnRequest)
	if err != nil {
		return engine.Schedule{}, err
	}

	made := engine.Schedule{
		ID: newID(schedulePrefix), Session: session, Tool: run.Tool, Version: run.Version, Args: run.Args, Terms: run.Terms,
		Title: run.Title, By: run.By, SignalOnCompletion: run.SignalOnCompletion, Wake: run.Wake, Timeout: run.Timeout, CreatedAt: now.UTC(),
		Cron: strings.Join(strings.Fields(req.Cron), " "), Timezone: cmp.Or(strings.TrimSpace(req.Timezone), "UTC"),
		Overlap: cmp.Or(req.Overlap, engine.OverlapSkip), Enabled: true,
	}
	switch {
	case made.Overlap != engine.OverlapSkip && made.Overlap != engine.OverlapQueue && made.Overlap != engine.OverlapCancel:
		return engine.Schedule{}, &FieldError{"overlap", fmt.Sprintf("must be %s, %s or %s", engine.OverlapSkip, engine.OverlapQueue, engine.OverlapCancel)}
	case len(req.Cron) > schedule.MaxLength:
		return engine.Schedule{}, &FieldError{"cron_expression", fmt.Sprintf("longer than %d bytes", schedule.MaxLength)}
	case made.Cron == "" && req.At.IsZero():
		return engine.Schedule{}, &FieldError{"schedule", "must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"}
	case made.Cron != "" && !req.At.IsZero():
		return engine.Schedule{}, &FieldError{"schedule", "must not include both cron_expression and scheduled_at; provide exactly one"}
	case made.Cron == "":
		err = once(&made, req.At.UTC().Round(0), now)
	default:
		err = recurring(&made, s.cfg().MinInterval, now)
	}

	return made, err
}

// once makes s a one-shot schedule.
func once(s *engine.Schedule, at, now time.Time) error {
	if _, err := schedule.Zone(s.Timezone); err != nil {
		return &FieldError{"timezone", err.Error()}
	}
	switch {
	case !at.After(now):
		return &FieldError{"scheduled_at", fmt.Sprintf("%s is in the past; it is %s now", at.Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	case at.After(now.AddDate(schedule.Years, 0, 0)):
		return &FieldError{"scheduled_at", fmt.Sprintf("%s is more than %d years from now", at.Format(time.RFC3339), schedule.Years)}
	}
	s.At, s.NextAt = at, at
	return nil
}

// recurring checks the cron expression of s, and sets its first time.
func recurring(s *engine.Schedule, least time.Duration, now time.Time) error {
	spec, err := specOf(*s)
	if err != nil {
		return err
	}
	first, ok := spec.Next(now)
	if !ok {
		return &FieldError{"cron_expression", fmt.Sprintf("%q does not fire within %d years", s.Cron, schedule.Years)}
	}
	if closest := spec.Closest(now, least); closest < least {
		return &FieldError{"cron_expression", fmt.Sprintf("%q fires again after %v at times; the minimum is %v", s.Cron, closest, least)}
	}

	s.NextAt = first
	return nil
}

// Schedule stores a schedule. From then on the manager starts its runs, at most one per
// due time, even after a restart.
//
// For a bad request the error is a *[FieldError]. If the session has reached its limit
// of schedules, or the record quota is full, the error is an *[engine.LimitError] that
// matches [engine.ErrScheduleLimit] or [engine.ErrRecordLimit], and nothing is stored.
// After Close the error is [ErrClosed].
func (m *Manager) Schedule(ctx context.Context, session string, req ScheduleRequest) (engine.Schedule, error) {
	s, err := m.scheduler.newSchedule(ctx, session, req)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case m.runs.isClosing():
		err = ErrClosed
	default:
		s, err = m.engine.PutSchedule(context.WithoutCancel(ctx), s, max(0, m.cfg().Schedules))
		err = m.admission.refused(err)
	}
	if err != nil {
		return engine.Schedule{}, fmt.Errorf("schedule: %w", err)
	}

	m.scheduler.look()
	m.log.Info("background schedule made", "schedule_id", s.ID, "session", session, "tool", s.Tool, "cron", s.Cron, "next", s.NextAt, "args", loggedArgs(s.Args))
	return s, nil
}

// Schedules returns the schedules of a session, newest first and without their
// arguments: both the enabled ones and those that will not fire again. An empty session
// selects all sessions, which is for operators; a front end for agents must name the
// session.
func (m *Manager) Schedules(ctx context.Context, session string) ([]engine.Schedule, error) {
	return m.engine.Schedules(ctx, session, false)
}

// FindSchedule returns a schedule of any session, or an error matching
// [ErrNoSchedule]. It is for operators; a front end for agents must not use it.
func (m *Manager) FindSchedule(ctx context.Context, id string) (engine.Schedule, error) {
	s, err := m.engine.GetSchedule(ctx, id)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return engine.Schedule{}, noSchedule(id)
	case err != nil:
		return engine.Schedule{}, fmt.Errorf("reading the schedule: %w", err)
	}
	return s, nil
}

func noSchedule(id string) error { return fmt.Errorf("%w: %s", ErrNoSchedule, output.Clip(id, maxKey)) }

// GetSchedule returns a schedule of a session. If the session does not have
// it, the error matches [ErrNoSchedule].
func (m *Manager) GetSchedule(ctx context.Context, session, id string) (engine.Schedule, error) {
	if session == "" {
		return engine.Schedule{}, &FieldError{"session", "required"}
	}
	s, err := m.FindSchedule(ctx, id)
	if err == nil && !m.has(session, s.Session) {
		return engine.Schedule{}, noSchedule(id)
	}
	return s, err
}

// Unschedule disables a schedule of a session, and returns it. Its active runs
// continue, even one that is being fired at the moment. If the schedule is already
// disabled, nothing changes. If the session does not have the schedule, the error
// matches [ErrNoSchedule].
func (m *Manager) Unschedule(ctx context.Context, session, id string) (engine.Schedule, error) {
	s, err := m.GetSchedule(ctx, session, id)
	if err != nil || !s.Enabled {
		return s, err
	}

	s, err = m.scheduler.change(context.WithoutCancel(ctx), id, func(s *engine.Schedule) error { return disable(s, engine.DisabledStopped) })
	switch {
	case errors.Is(err, errUnchanged), errors.Is(err, engine.ErrNotFound):
		return m.GetSchedule(ctx, session, id)
	case err != nil:
		return engine.Schedule{}, fmt.Errorf("unschedule: %w", err)
	}
	m.log.Info("background schedule stopped", "schedule_id", id, "session", session)
	return s, nil
}

// RemoveSchedule removes a schedule of a session, and returns it. It never fires again,
// even if it is being fired at the moment. Its runs are kept, and still name it. If the
// session does not have the schedule, or it was removed before, the error matches
// [ErrNoSchedule].
func (m *Manager) RemoveSchedule(ctx context.Context, session, id string) (engine.Schedule, error) {
	s, err := m.GetSchedule(ctx, session, id)
	if err != nil {
		return engine.Schedule{}, err
	}

	err = m.engine.RemoveSchedule(context.WithoutCancel(ctx), id)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return engine.Schedule{}, noSchedule(id)
	case err != nil:
		return engine.Schedule{}, fmt.Errorf("removing a schedule: %w", err)
	}
	m.log.Info("background schedule removed", "schedule_id", id, "session", session)
	return s, nil
}

// Enable lets a disabled schedule of a session fire again from now on, and returns it.
// If the schedule is already enabled, nothing changes. If the time of a one-shot has
// passed, the error is a *[FieldError]. If the session has too many enabled schedules,
// the error is an *[engine.LimitError] that matches [engine.ErrScheduleLimit]. If the
// session does not have the schedule, the error matches [ErrNoSchedule].
func (m *Manager) Enable(ctx context.Context, session, id string) (engine.Schedule, error) {
	s, err := m.GetSchedule(ctx, session, id)
	if err != nil || s.Enabled {
		return s, err
	}
	if m.runs.isClosing() {
		return engine.Schedule{}, fmt.Errorf("schedule: %w", ErrClosed)
	}

	now := m.scheduler.now(ctx)
	s, err = m.scheduler.changeWithin(context.WithoutCancel(ctx), id, max(0, m.cfg().Schedules), func(s *engine.Schedule) error {
		s.Enabled, s.Disabled, s.Rejected = true, "", 0
		if s.Cron == "" {
			return once(s, s.At, now)
		}
		return recurring(s, m.cfg().MinInterval, now)
	})
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return engine.Schedule{}, noSchedule(id)
	case err != nil:
		return engine.Schedule{}, fmt.Errorf("schedule: %w", m.admission.refused(err))
	}

	m.scheduler.look()
	m.log.Info("background schedule enabled", "schedule_id", id, "session", session, "next", s.NextAt)
	return s, nil
}

// Fire queues a run of one of the session's schedules now, whether the schedule is
// enabled or not, and returns the run. The schedule's next time does not change. by is
// stored with the run; "" means the creator of the schedule.
//
// While an earlier run of the schedule is active, the Overlap of the schedule applies;
// if the firing is skipped, the error matches [ErrOverlap]. If the session does not
// have the schedule, the error matches [ErrNoSchedule].
func (m *Manager) Fire(ctx context.Context, session, id, by string) (engine.Run, error) {
	due, err := m.GetSchedule(ctx, session, id)
	switch {
	case err != nil:
		return engine.Run{}, err
	case m.runs.isClosing():
		return engine.Run{}, fmt.Errorf("schedule: %w", ErrClosed)
	}

	ctx, now := context.WithoutCancel(ctx), m.scheduler.now(ctx)
	due.By = cmp.Or(output.Clip(by, maxKey), due.By)
	run, fresh, err := m.scheduler.startFiring(ctx, due, firing{at: now})
	switch {
	case errors.Is(err, engine.ErrNotFound): // it was removed in the meantime
		return engine.Run{}, noSchedule(id)
	case err != nil:
		return engine.Run{}, fmt.Errorf("schedule: %w", m.admission.refused(err))
	case run.ID == "":
		return engine.Run{}, fmt.Errorf("%w: %s", ErrOverlap, id)
	case !fresh: // the schedule is firing at this very moment
		return m.Get(ctx, session, run.ID)
	}

	_, err = m.scheduler.change(ctx, id, func(s *engine.Schedule) error {
		s.LastAt, s.LastRun = now, run.ID
		s.Fired++
		return nil
	})
	if err != nil && !errors.Is(err, engine.ErrNotFound) { // the run is stored and will start
		m.log.Error("firing not noted in its schedule", "schedule_id", id, "task_id", run.ID, "error", err)
	}
	run.Args = nil
	return run, nil
}
