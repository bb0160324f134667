package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// maxRejected is how many refused firings in a row disable a schedule.
const maxRejected = 3

// A firing is one due time of a schedule, and the next one.
type firing struct {
	at     time.Time // the due time; zero: every due time was too long ago
	next   time.Time // the next due time; zero: none
	reason string    // why there is no next time
}

// fire starts the run of a due schedule, and plans its next time. If it fails halfway,
// or the process dies, it is repeated: the id of the run shows what was done. After an
// error it has to be called again.
func (s *scheduler) fire(ctx context.Context, id string, now time.Time) error {
	due, err := s.engine.GetSchedule(ctx, id)
	if err == nil && due.Enabled && !due.NextAt.After(now) {
		f := s.firingOf(due, now)
		var run engine.Run
		var fresh bool
		if run, fresh, err = s.startFiring(ctx, due, f); err == nil {
			_, err = s.change(ctx, id, func(d *engine.Schedule) error { return f.note(d, run.ID, fresh, now) })
		}
	}

	if ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, errUnchanged) || errors.Is(err, engine.ErrNotFound) {
		return nil // another worker or the next start handles it
	}
	return err
}

// note records in a schedule that it has fired, and its next time. run is the id of the
// run, or "" if none was started. fresh says that the run was not stored before.
func (f firing) note(d *engine.Schedule, run string, fresh bool, now time.Time) error {
	if d.Enabled && d.NextAt.After(now) { // another worker was faster
		return errUnchanged
	}

	fired := fresh || run != "" && f.at.After(d.LastAt) // otherwise it was recorded before the clock was set back
	if fired {
		d.LastAt, d.LastRun = f.at, run
		d.Fired++
	}

	switch {
	case !d.Enabled && !fired:
		return errUnchanged
	case !d.Enabled: // disabled in the meantime, by its session or because the run was refused
	case f.next.IsZero():
		return disable(d, f.reason)
	default:
		d.NextAt = f.next
	}

	return nil
}

// firingOf returns the firing of a due schedule: its latest due time up to now, unless
// that is too long ago. So one firing makes up for all missed times.
func (s *scheduler) firingOf(due engine.Schedule, now time.Time) firing {
	oldest := now.Add(-s.cfg().Misfire)
	if due.Cron == "" {
		if due.At.Before(oldest) {
			return firing{at: due.At, reason: engine.DisabledMissed}
		}
		return firing{at: due.At, reason: engine.DisabledFired}
	}
	spec, err := specOf(due)
	if err != nil {
		s.log.Error("background schedule disabled", "schedule_id", due.ID, "session", due.Session, "error", err)
		return firing{reason: engine.DisabledZone}
	}

	f := firing{reason: engine.DisabledOver}
	next, ok := due.NextAt, true
	if next.Before(oldest) {
		s.log.Warn("background schedule was missed", "schedule_id", due.ID, "session", due.Session, "due", next)
		next, ok = spec.Next(oldest.Add(-1))
	}

	for ok && !next.After(now) {
		f.at = next
		next, ok = spec.Next(next)
	}
	if ok {
		f.next = next
	}
	return f
}

// startFiring stores the run of a firing in the queue, unless a run of an earlier
// firing prevents that. It returns the stored run, without an id if there is none,
// and whether it is new.
func (s *scheduler) startFiring(ctx context.Context, due engine.Schedule, f firing) (run engine.Run, fresh bool, err error) {
	if f.at.IsZero() {
		return engine.Run{}, false, nil
	}
	run = s.firingRun(due, f.at)
	active, err := s.engine.List(ctx, engine.Query{Session: due.Session, Schedule: due.ID, Active: true})
	if err != nil {
		return engine.Run{}, false, fmt.Errorf("listing the runs of the schedule: %w", err)
	}
	if slices.ContainsFunc(active, func(r engine.Run) bool { return r.ID == run.ID }) {
		if f.reason == engine.DisabledMissed { // storing its end has failed before
			err = s.endMissed(ctx, run)
		}
		return run, false, err
	}

	if f.reason == engine.DisabledMissed {
		err = s.missFiring(ctx, run)
	} else {
		var free bool
		if run.After, free = s.makeWay(ctx, due, active); !free {
			s.log.Info("background schedule skipped a firing: a run of it is active", "schedule_id", due.ID, "session", due.Session, "due", f.at, "active", active[0].ID)
			return engine.Run{}, false, nil
		}
		if s.cfg().Hold != nil {
			s.cfg().Hold(ctx, &run)
		}
		err = s.admission.enqueue(ctx, run)
	}

	if errors.Is(err, engine.ErrExists) {
		return run, false, nil
	}
	return run, err == nil, err
}

// firingRun makes the record of the run for one due time of a schedule. Its id is
// derived from both, so that no due time fires twice.
func (s *scheduler) firingRun(due engine.Schedule, at time.Time) engine.Run {
	if s.cfg().Version != nil {
		due.Version = cmp.Or(s.cfg().Version(due.Tool), due.Version)
	}
	return engine.Run{
		ID:      digestID(runPrefix, due.ID+"@"+at.UTC().Format(time.RFC3339Nano)),
		Session: due.Session, Tool: due.Tool, Version: due.Version, Provider: s.provider(due.Tool), Args: due.Args, Terms: due.Terms, Title: due.Title, By: due.By,
		Origin: engine.OriginScheduled, Schedule: due.ID, ScheduledFor: at, SignalOnCompletion: due.SignalOnCompletion, Wake: due.Wake,
		Status: engine.StatusQueued, Timeout: due.Timeout, OutputCap: s.cfg().OutputCap, CreatedAt: time.Now(),
	}
}

// makeWay applies the overlap policy to the active runs of a schedule. It reports
// whether the schedule may fire, and which of these runs must end first.
func (s *scheduler) makeWay(ctx context.Context, due engine.Schedule, active []engine.Run) (after string, free bool) {
	if len(active) == 0 {
		return "", true
	}
	waits := slices.ContainsFunc(active, func(r engine.Run) bool { return r.Status == engine.StatusQueued })
	switch {
	case due.Overlap == engine.OverlapQueue && !waits:
		return active[0].ID, true
	case due.Overlap != engine.OverlapCancel:
		return "", false
	}

	for _, run := range active {
		h, err := s.worker.stop(ctx, run.ID, StopRequest{By: "schedule", Reason: "the schedule fires again"})
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			s.log.Error("stop request not stored", "task_id", run.ID, "error", err)
		}
		if err == nil && !h.run.Status.Terminal() {
			after = run.ID
		}
	}
	return after, true
}

// missFiring stores a run that was not started in time as failed, so that its
// session is notified.
func (s *scheduler) missFiring(ctx context.Context, run engine.Run) error {
	if err := s.admission.submit(ctx, s.worker.member.worker(), run, &engine.Permits{}); err != nil {
		return err
	}
	return s.endMissed(ctx, run)
}

// endMissed stores the end of a run that was not started in time, if this worker still
// has the run.
func (s *scheduler) endMissed(ctx context.Context, run engine.Run) error {
	text := fmt.Sprintf("It was due at %s, when the host was down or the record quota was full, and is not made up for after more than %v", run.ScheduledFor.Format(time.RFC3339), s.cfg().Misfire)
	ended, err := s.worker.member.worker().Abandon(ctx, run.ID, run.Attempt, engine.StatusFailed, engine.Beat{}, failure(&engine.RunError{Kind: engine.KindInterrupted, Message: text}))
	if fenced(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("storing the end of the run: %w", err)
	}
	s.counters.ended(ended)
	return nil
}

// asked counts in a schedule whether its run was refused, and returns why. Too many
// refusals in a row disable the schedule, and the last one says so.
func (s *scheduler) asked(ctx context.Context, run engine.Run, refused *engine.RunError) *engine.RunError {
	if run.Schedule == "" || run.Attempt > 0 {
		return refused
	}

	changed, err := s.change(ctx, run.Schedule, func(d *engine.Schedule) error {
		if refused == nil && d.Rejected == 0 {
			return errUnchanged
		}
		if refused == nil {
			d.Rejected = 0
			return nil
		}

		if d.Rejected++; d.Rejected >= maxRejected && d.Enabled {
			return disable(d, engine.DisabledRejected)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) && !errors.Is(err, engine.ErrNotFound) {
		s.log.Error("refused firing not counted", "schedule_id", run.Schedule, "error", err)
	}
	if refused == nil || changed.Disabled != engine.DisabledRejected {
		return refused
	}
	s.log.Warn("background schedule disabled: its runs were refused", "schedule_id", run.Schedule, "session", run.Session, "tool", run.Tool)
	text := fmt.Sprintf("%s; schedule %s is disabled, as %s", refused.Message, run.Schedule, engine.DisabledRejected)
	return &engine.RunError{Kind: refused.Kind, Message: output.Shorten(text, maxMessage)}
}

// errUnchanged means that a change of a schedule came too late.
var errUnchanged = errors.New("schedule is not as it was")

// change applies edit to a schedule and stores it. Concurrent changes are
// serialized. It returns [engine.ErrNotFound] and errors of edit unchanged.
func (s *scheduler) change(ctx context.Context, id string, edit func(*engine.Schedule) error) (engine.Schedule, error) {
	return s.changeWithin(ctx, id, math.MaxInt, edit)
}

// changeWithin is like change, with a limit on the session's enabled schedules, which
// applies if edit enables the schedule.
func (s *scheduler) changeWithin(ctx context.Context, id string, max int, edit func(*engine.Schedule) error) (engine.Schedule, error) {
	for {
		found, err := s.engine.GetSchedule(ctx, id)
		if err == nil {
			err = edit(&found)
		}
		if err != nil {
			return engine.Schedule{}, err
		}
		stored, err := s.engine.PutSchedule(ctx, found, max)
		if err == nil || !errors.Is(err, engine.ErrConflict) || ctx.Err() != nil {
			return stored, err
		}
	}
}

// disable stops a schedule from firing.
func disable(s *engine.Schedule, why string) error {
	if !s.Enabled {
		return errUnchanged
	}
	s.Enabled, s.Disabled, s.NextAt = false, why, time.Time{}
	return nil
}
