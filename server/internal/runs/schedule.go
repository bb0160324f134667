package runs

import (
	"context"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// Schedules manages the schedules of a session, or of all sessions.
type Schedules Session

// Schedules returns the schedules of the session.
func (v Session) Schedules() Schedules { return Schedules(v) }

// List returns the schedules, the newest first, without their arguments.
func (v Schedules) List(ctx context.Context) ([]wire.Schedule, error) {
	if Session(v).isNobody() {
		return []wire.Schedule{}, nil
	}
	found, err := v.Manager.Schedules(ctx, v.Name) // no name: all sessions
	out := make([]wire.Schedule, len(found))
	for i, s := range found {
		out[i] = shape.Schedule(s)
	}
	return out, err
}

// Get returns a schedule.
func (v Schedules) Get(ctx context.Context, id string) (wire.Schedule, error) {
	if v.All {
		s, err := v.Manager.FindSchedule(ctx, id)
		return shape.Schedule(s), err
	}
	s, err := v.Manager.GetSchedule(ctx, v.Name, id)
	return shape.Schedule(s), err
}

// New stores a schedule of runs.
func (v Schedules) New(ctx context.Context, req SpawnRequest, when background.ScheduleRequest) (wire.Schedule, error) {
	s := &Spawn{Session: Session(v), SpawnRequest: req, When: &when}
	err := v.Pass(ctx, s)
	return s.Schedule, err
}

// planSchedule plans a schedule of a prepared run.
func (s *Spawn) planSchedule(dryRun bool) error {
	switch {
	case s.run.Stored != nil:
		return reason.Refuse("%s cannot be scheduled with these arguments: they contain a secret, and secrets are not stored", s.run.Tool)
	case s.run.IdempotencyKey != "":
		return &background.FieldError{Field: "idempotency_key", Problem: "not allowed for a schedule"}
	case s.run.Parent != "":
		return &background.FieldError{Field: "parent", Problem: "not allowed for a schedule: its runs have no parent"}
	}

	s.When.SpawnRequest = s.run
	planned, err := s.Manager.Plan(s.Name, *s.When)
	s.Schedule = shape.Schedule(planned)
	s.Schedule.DryRun = dryRun
	return err
}

// storeSchedule stores a schedule that was planned.
func (s *Spawn) storeSchedule(ctx context.Context) (err error) {
	stored, err := s.Manager.Schedule(ctx, s.Name, *s.When)
	s.Schedule, err = Schedules(s.Session).audited("created", shape.Schedule(stored), s.By, err)
	return err
}

// of returns the Schedules of the session that owns a schedule.
func (v Schedules) of(ctx context.Context, id string) (Schedules, error) {
	if !v.All {
		return v, nil
	}
	s, err := v.Manager.FindSchedule(ctx, id)
	return Schedules{Sessions: v.Sessions, Name: s.Session}, err
}

// Disable disables a schedule.
func (v Schedules) Disable(ctx context.Context, id string) (wire.Schedule, error) {
	return v.change(ctx, "disabled", id, v.Manager.Unschedule)
}

// Remove removes a schedule, and returns its last state.
func (v Schedules) Remove(ctx context.Context, id string) (wire.Schedule, error) {
	return v.change(ctx, "removed", id, v.Manager.RemoveSchedule)
}

// Enable lets a disabled schedule fire again, from now on.
func (v Schedules) Enable(ctx context.Context, id string) (wire.Schedule, error) {
	return v.change(ctx, "enabled", id, v.Manager.Enable)
}

// change changes a schedule, unless this is a dry run.
func (v Schedules) change(ctx context.Context, action, id string, apply func(ctx context.Context, session, id string) (engine.Schedule, error)) (wire.Schedule, error) {
	v, err := v.of(ctx, id)
	if err != nil {
		return wire.Schedule{}, err
	}
	if dryrun.In(ctx) {
		return v.unchanged(ctx, id)
	}
	s, err := apply(ctx, v.Name, id)
	return v.audited(action, shape.Schedule(s), "", err)
}

// unchanged returns a schedule as it is, for a dry run.
func (v Schedules) unchanged(ctx context.Context, id string) (wire.Schedule, error) {
	s, err := v.Get(ctx, id)
	s.DryRun = true
	return s, err
}

// Fire queues a run of a schedule now.
func (v Schedules) Fire(ctx context.Context, id, by string) (wire.Run, error) {
	v, err := v.of(ctx, id)
	if err != nil {
		return wire.Run{}, err
	}
	if dryrun.In(ctx) {
		s, err := v.unchanged(ctx, id)
		return wire.Run{DryRun: true, Tool: s.Tool, Title: s.Title, ScheduleID: s.ScheduleID, DeadlineSeconds: s.DeadlineSeconds, SignalOnCompletion: s.SignalOnCompletion}, err
	}
	r, err := v.Manager.Fire(ctx, v.Name, id, by)
	if err != nil {
		return wire.Run{}, err
	}
	v.Audit.Schedule("fired", wire.Schedule{Session: v.Name, ScheduleID: id, Tool: r.Tool}, by)
	return shape.Run(r, time.Now()), nil
}

// audited records a successful change of a schedule in the audit log.
func (v Schedules) audited(action string, s wire.Schedule, by string, err error) (wire.Schedule, error) {
	if err == nil {
		v.Audit.Schedule(action, s, by)
	}
	return s, err
}
