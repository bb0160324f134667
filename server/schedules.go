package server

import (
	"context"
	"errors"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// ScheduleRequest says what to run and when: repeatedly, with Cron, or once, with At. Set
// exactly one of the two.
type ScheduleRequest struct {
	SpawnRequest
	Cron     string       // five fields
	At       time.Time    // in the future
	Timezone string       // an IANA name; empty is UTC
	Overlap  wire.Overlap // what to do while the last run is still active; empty skips the firing
}

// Schedules manages the schedules of a session, or of all sessions.
type Schedules Session

// Schedules returns the schedules of the session.
func (v Session) Schedules() Schedules { return Schedules(v) }

// List returns the schedules, the newest first, without their arguments.
func (v Schedules) List(ctx context.Context) ([]wire.Schedule, error) {
	if Session(v).isNobody() {
		return []wire.Schedule{}, nil
	}
	found, err := v.service.runs.Schedules(ctx, v.name) // no name: all sessions
	out := make([]wire.Schedule, len(found))
	for i, s := range found {
		out[i] = shape.Schedule(s)
	}
	return out, err
}

// Get returns a schedule.
func (v Schedules) Get(ctx context.Context, id string) (wire.Schedule, error) {
	if v.all {
		s, err := v.service.runs.FindSchedule(ctx, id)
		return shape.Schedule(s), err
	}
	s, err := v.service.runs.GetSchedule(ctx, v.name, id)
	return shape.Schedule(s), err
}

// New stores a schedule, after the checks of [Session.Spawn]. They are
// repeated at each firing, and a person is asked again where the tool requires
// approval. Arguments that contain a secret (writeOnly or x-secret in the tool's
// schema) are refused, because they would have to be stored.
func (v Schedules) New(ctx context.Context, req ScheduleRequest) (wire.Schedule, error) {
	tool, run, err := Session(v).prepare(ctx, req.SpawnRequest)
	switch {
	case err != nil:
		return wire.Schedule{}, err
	case run.Stored != nil:
		return wire.Schedule{}, reason.Refuse("%s cannot be scheduled with these arguments: they contain a secret, and secrets are not stored", run.Tool)
	case run.IdempotencyKey != "":
		return wire.Schedule{}, &background.FieldError{Field: "idempotency_key", Problem: "not allowed for a schedule"}
	case run.Parent != "":
		return wire.Schedule{}, &background.FieldError{Field: "parent", Problem: "not allowed for a schedule: its runs have no parent"}
	}

	checked := background.ScheduleRequest{SpawnRequest: run, Cron: req.Cron, At: req.At, Timezone: req.Timezone, Overlap: engine.Overlap(req.Overlap)}
	planned, err := v.service.runs.Plan(v.name, checked)
	plan := shape.Schedule(planned)
	if plan.DryRun = req.DryRun || InDryRun(ctx); err != nil || plan.DryRun {
		return plan, err
	}

	asked := approval.Call{Session: v.name, Args: checked.Args, Schedule: &plan}
	if err := v.service.checker.Check(ctx, tool, asked); err != nil && !errors.Is(err, approval.ErrHold) { // each firing is held then
		return wire.Schedule{}, err
	}
	stored, err := v.service.runs.Schedule(ctx, v.name, checked)
	return v.audited("created", shape.Schedule(stored), req.By, err)
}

// of returns the Schedules of the session that owns a schedule.
func (v Schedules) of(ctx context.Context, id string) (Schedules, error) {
	if !v.all {
		return v, nil
	}
	s, err := v.service.runs.FindSchedule(ctx, id)
	return v.service.Session(s.Session).Schedules(), err
}

// Disable disables a schedule. Its runs continue.
func (v Schedules) Disable(ctx context.Context, id string) (wire.Schedule, error) {
	v, err := v.of(ctx, id)
	if err != nil {
		return wire.Schedule{}, err
	}
	if InDryRun(ctx) {
		return v.unchanged(ctx, id)
	}
	s, err := v.service.runs.Unschedule(ctx, v.name, id)
	return v.audited("disabled", shape.Schedule(s), "", err)
}

// Remove removes a schedule for good, and returns its last state. It no longer fires;
// runs that it started continue, and stay.
func (v Schedules) Remove(ctx context.Context, id string) (wire.Schedule, error) {
	v, err := v.of(ctx, id)
	if err != nil {
		return wire.Schedule{}, err
	}
	if InDryRun(ctx) {
		return v.unchanged(ctx, id)
	}
	s, err := v.service.runs.RemoveSchedule(ctx, v.name, id)
	return v.audited("removed", shape.Schedule(s), "", err)
}

// unchanged returns a schedule as it is, for a dry run.
func (v Schedules) unchanged(ctx context.Context, id string) (wire.Schedule, error) {
	s, err := v.Get(ctx, id)
	s.DryRun = true
	return s, err
}

// Enable lets a disabled schedule fire again, from now on. It refuses a one-time schedule
// whose time has passed.
func (v Schedules) Enable(ctx context.Context, id string) (wire.Schedule, error) {
	v, err := v.of(ctx, id)
	if err != nil {
		return wire.Schedule{}, err
	}
	if InDryRun(ctx) {
		return v.unchanged(ctx, id)
	}
	s, err := v.service.runs.Enable(ctx, v.name, id)
	return v.audited("enabled", shape.Schedule(s), "", err)
}

// Fire queues a run of a schedule now, even of a disabled one. As at each firing, the checks
// of [Session.Spawn] are made when the run starts. While an earlier run of the schedule is
// active, its overlap applies: a skipped firing is an error with the reason wire.CodeConflict.
// The run keeps by as the requester; empty means the creator of the schedule.
func (v Schedules) Fire(ctx context.Context, id, by string) (wire.Run, error) {
	v, err := v.of(ctx, id)
	if err != nil {
		return wire.Run{}, err
	}
	if InDryRun(ctx) {
		s, err := v.unchanged(ctx, id)
		return wire.Run{DryRun: true, Tool: s.Tool, Title: s.Title, ScheduleID: s.ScheduleID, DeadlineSeconds: s.DeadlineSeconds, SignalOnCompletion: s.SignalOnCompletion}, err
	}
	r, err := v.service.runs.Fire(ctx, v.name, id, by)
	if err != nil {
		return wire.Run{}, err
	}
	v.service.audit.Schedule("fired", wire.Schedule{Session: v.name, ScheduleID: id, Tool: r.Tool}, by)
	return shape.Run(r, time.Now()), nil
}

// audited records a successful change of a schedule in the audit log.
func (v Schedules) audited(action string, s wire.Schedule, by string, err error) (wire.Schedule, error) {
	if err == nil {
		v.service.audit.Schedule(action, s, by)
	}
	return s, err
}
