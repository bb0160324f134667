package server

import (
	"context"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// Rerun starts a run of the same tool with the arguments, title and deadline of an
// earlier run, in the session of that run, after the checks of [Session.Spawn]. A run
// with secret arguments is refused, because they were not stored. By is kept with the
// new run; empty means the session's agent.
func (v Session) Rerun(ctx context.Context, id, by string) (wire.Run, error) {
	old, err := v.record(ctx, id)
	if err == nil {
		err = v.load(ctx, &old, engine.PartArgs)
	}
	switch {
	case err != nil:
		return wire.Run{}, err
	case old.Secret:
		return wire.Run{}, refuse("%s cannot be repeated: its arguments contain a secret, and secrets are not stored. Call %s with new arguments", id, old.Tool)
	}

	return v.service.Session(old.Session).Spawn(ctx, SpawnRequest{
		Tool: old.Tool, Args: old.Args, Title: old.Title, Silent: !old.SignalOnCompletion, Wake: wire.Wake(old.Wake), Timeout: old.Timeout, By: by,
	})
}

// ofSchedule returns what the session of a schedule has.
func ofSchedule(ctx context.Context, v Session, id string) (Session, error) {
	if !v.all {
		return v, nil
	}
	s, err := v.service.runs.FindSchedule(ctx, id)
	return v.service.Session(s.Session), err
}

// Unschedule disables a schedule. Its runs continue.
func (v Session) Unschedule(ctx context.Context, id string) (wire.Schedule, error) {
	v, err := ofSchedule(ctx, v, id)
	if err != nil {
		return wire.Schedule{}, err
	}
	if InDryRun(ctx) {
		return unchanged(ctx, v, id)
	}
	s, err := v.service.runs.Unschedule(ctx, v.name, id)
	return newSchedule(s), err
}

// RemoveSchedule removes a schedule for good, and returns it as it was. It fires no
// more from then on; runs that it has fired continue, and stay.
func (v Session) RemoveSchedule(ctx context.Context, id string) (wire.Schedule, error) {
	v, err := ofSchedule(ctx, v, id)
	if err != nil {
		return wire.Schedule{}, err
	}
	if InDryRun(ctx) {
		return unchanged(ctx, v, id)
	}
	s, err := v.service.runs.RemoveSchedule(ctx, v.name, id)
	return newSchedule(s), err
}

// unchanged returns a schedule that a dry run leaves as it is.
func unchanged(ctx context.Context, v Session, id string) (wire.Schedule, error) {
	s, err := v.Schedule(ctx, id)
	s.DryRun = true
	return s, err
}

// Enable lets a disabled schedule fire again, from now on. A schedule whose only time
// has passed is refused.
func (v Session) Enable(ctx context.Context, id string) (wire.Schedule, error) {
	v, err := ofSchedule(ctx, v, id)
	if err != nil {
		return wire.Schedule{}, err
	}
	if InDryRun(ctx) {
		return unchanged(ctx, v, id)
	}
	s, err := v.service.runs.Enable(ctx, v.name, id)
	return newSchedule(s), err
}

// Fire queues a run of a schedule now, also of a disabled one. The checks of
// [Session.Spawn] are made when the run starts, as at each firing. While an earlier run
// of the schedule is active, its overlap applies: if that skips the firing, the reason
// is wire.CodeConflict. By is kept with the run; empty means who made the schedule.
func (v Session) Fire(ctx context.Context, id, by string) (wire.Run, error) {
	v, err := ofSchedule(ctx, v, id)
	if err != nil {
		return wire.Run{}, err
	}
	if InDryRun(ctx) {
		s, err := unchanged(ctx, v, id)
		return wire.Run{DryRun: true, Tool: s.Tool, Title: s.Title, ScheduleID: s.ScheduleID, DeadlineSeconds: s.DeadlineSeconds, SignalOnCompletion: s.SignalOnCompletion}, err
	}
	r, err := v.service.runs.Fire(ctx, v.name, id, by)
	if err != nil {
		return wire.Run{}, err
	}
	return newRun(r, time.Now()), nil
}
