package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxRejected is how many refused firings in a row disable a schedule.
const maxRejected = 3

// A firing is one time a schedule is due, and what comes after it.
type firing struct {
	at     time.Time // zero: none that is not too late
	next   time.Time // zero: none
	reason string    // why there is no next one
}

// fireSchedule fires a schedule that is due, and plans when it is due next. If
// it fails, or the host does, in the middle, that comes to it again: the id of
// the run says what was done. Its error is why it is tried again.
func (m *Manager) fireSchedule(ctx context.Context, id string, now time.Time) error {
	s, err := m.engine.GetSchedule(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && !s.Enabled, ctx.Err() != nil:
		return nil
	case err == nil && s.NextAt.After(now):
		m.scheduler.plan(id, s.NextAt, now)
		return nil
	case err == nil:
		err = m.fireNow(ctx, s, now)
	}
	switch {
	case err == nil, errors.Is(err, errGone), errors.Is(err, ErrNotFound):
	case errors.Is(err, ErrClosed), ctx.Err() != nil: // the next manager's
	default:
		m.scheduler.plan(id, now.Add(fireAgain), now)
		return err
	}
	return nil
}

// fireNow starts the run of a schedule that is due, and stores that.
func (m *Manager) fireNow(ctx context.Context, s Schedule, now time.Time) error {
	f := m.firingOf(s, now)
	var id string
	var fresh bool
	if !f.at.IsZero() {
		var err error
		if id, fresh, err = m.startFiring(ctx, s, f); err != nil {
			return err
		}
	}
	_, err := m.change(ctx, s.ID, func(s *Schedule) error {
		if s.Enabled && s.NextAt.After(now) { // another host was faster
			m.scheduler.plan(s.ID, s.NextAt, now)
			return errGone
		}
		fired := fresh || id != "" && f.at.After(s.LastAt) // if not, it was noted before the clock was set back
		if fired {
			s.LastAt, s.LastRun = f.at, id
			s.Fired++
		}
		switch {
		case !s.Enabled && !fired:
			return errGone
		case !s.Enabled: // since it was fired: by its session, or by the run, which was refused
		case f.next.IsZero():
			return s.disable(f.reason)
		default:
			s.NextAt = f.next
		}
		return nil
	})
	return err
}

// firingOf returns which of its times a due schedule fires for: the latest by
// now, so that what was missed is caught up once, unless that is too long ago.
func (m *Manager) firingOf(s Schedule, now time.Time) firing {
	oldest := now.Add(-m.cfg.Misfire)
	if s.Cron == "" {
		if s.At.Before(oldest) {
			return firing{at: s.At, reason: DisabledMissed}
		}
		return firing{at: s.At, reason: DisabledFired}
	}
	spec, err := s.spec()
	if err != nil {
		m.log.Error("background schedule disabled", "schedule_id", s.ID, "session", s.Session, "error", err)
		return firing{reason: DisabledZone}
	}
	f := firing{reason: DisabledOver}
	next, ok := s.NextAt, true
	if next.Before(oldest) {
		m.log.Warn("background schedule was missed", "schedule_id", s.ID, "session", s.Session, "due", next)
		next, ok = spec.next(oldest.Add(-1))
	}
	for ok && !next.After(now) {
		f.at = next
		next, ok = spec.next(next)
	}
	if ok {
		f.next = next
	}
	return f
}

// startFiring stores the run of a firing, and queues it, if an earlier one's
// run does not keep it from that. It returns the id of the run, "" if there is
// none, and whether it is fresh: not stored before its host went down.
func (m *Manager) startFiring(ctx context.Context, s Schedule, f firing) (id string, fresh bool, err error) {
	run := m.firingRun(s, f.at)
	active, err := m.engine.List(ctx, Query{Session: s.Session, Schedule: s.ID, Active: true})
	if err != nil {
		return "", false, fmt.Errorf("listing the runs of the schedule: %w", err)
	}
	if slices.ContainsFunc(active, func(r Run) bool { return r.ID == run.ID }) {
		return run.ID, false, nil
	}
	if f.reason == DisabledMissed {
		err = m.missFiring(ctx, run)
	} else {
		after, free := m.makeWay(ctx, s, active)
		if !free {
			m.log.Info("background schedule left a firing out: a run of it is active", "schedule_id", s.ID, "session", s.Session, "due", f.at, "active", active[0].ID)
			return "", false, nil
		}
		err = m.fire(ctx, run, after)
	}
	if errors.Is(err, ErrExists) {
		return run.ID, false, nil
	}
	return run.ID, err == nil, err
}

// firingRun makes the record of the run for one time a schedule is due. Its id
// follows from the two, so that no time is fired for twice.
func (m *Manager) firingRun(s Schedule, at time.Time) Run {
	if m.cfg.Version != nil {
		s.Version = cmp.Or(m.cfg.Version(s.Tool), s.Version)
	}
	return Run{
		ID:      runPrefix + digest(s.ID+"@"+at.UTC().Format(time.RFC3339Nano)),
		Session: s.Session, Tool: s.Tool, Version: s.Version, Args: s.Args, Title: s.Title, By: s.By,
		Origin: OriginScheduled, Schedule: s.ID, ScheduledFor: at, SignalOnCompletion: s.SignalOnCompletion,
		Status: StatusQueued, Timeout: s.Timeout, OutputCap: m.cfg.OutputCap, CreatedAt: time.Now(),
	}
}

// makeWay does what the schedule says about its active runs, and reports
// whether it may fire, and after which of them.
func (m *Manager) makeWay(ctx context.Context, s Schedule, active []Run) (after string, free bool) {
	if len(active) == 0 {
		return "", true
	}
	waits := slices.ContainsFunc(active, func(r Run) bool { return r.Status == StatusQueued })
	switch {
	case s.Overlap == OverlapQueue && !waits:
		return active[0].ID, true
	case s.Overlap != OverlapCancel:
		return "", false
	}
	request := Cancellation{At: time.Now(), By: "schedule", Reason: "the schedule fires again"}
	for _, run := range active {
		t, err := m.askToStop(ctx, run.ID, request, m.cfg.Grace)
		if err != nil && !errors.Is(err, ErrNotFound) {
			m.log.Error("stop request not stored", "task_id", run.ID, "error", err)
		}
		if t != nil && !t.ended() {
			after = run.ID
		}
	}
	return after, true
}

// missFiring stores a run that was due while the host was down, or had no room
// for it, and is too late now, as failed: so its session is told.
func (m *Manager) missFiring(ctx context.Context, run Run) error {
	if err := m.submit(ctx, run); err != nil {
		return err
	}
	t := newTask(run)
	m.mu.Lock()
	m.tasks[run.ID] = t
	m.mu.Unlock()
	text := fmt.Sprintf("It was due at %s, when the host was down or had no room for its record, and is not caught up after more than %v", run.ScheduledFor.Format(time.RFC3339), m.cfg.Misfire)
	m.settle(t, &ending{status: StatusFailed, end: failure(&RunError{KindInterrupted, text})})
	return nil
}

// firingAsked counts what became of asking whether a schedule's run may start,
// and returns what the run is to say if not: the run that is refused when too
// many were before it says that it was the last.
func (m *Manager) firingAsked(ctx context.Context, run Run, refused *RunError) *RunError {
	if run.Schedule == "" || run.Attempt > 0 {
		return refused
	}
	s, err := m.change(ctx, run.Schedule, func(s *Schedule) error {
		if refused == nil && s.Rejected == 0 {
			return errGone
		}
		if refused == nil {
			s.Rejected = 0
			return nil
		}
		if s.Rejected++; s.Rejected >= maxRejected && s.Enabled {
			return s.disable(DisabledRejected)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, ErrNotFound) {
		m.log.Error("refused firing not counted", "schedule_id", run.Schedule, "error", err)
	}
	if refused == nil || s.Disabled != DisabledRejected {
		return refused
	}
	m.log.Warn("background schedule disabled: its runs were refused", "schedule_id", run.Schedule, "session", run.Session, "tool", run.Tool)
	return &RunError{refused.Kind, shorten(fmt.Sprintf("%s; schedule %s is disabled, as %s", refused.Message, run.Schedule, DisabledRejected), maxMessage)}
}
