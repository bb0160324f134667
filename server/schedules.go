package server

import (
	"context"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/runs"
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
	return runs.Schedules(v.in).List(ctx)
}

// Get returns a schedule.
func (v Schedules) Get(ctx context.Context, id string) (wire.Schedule, error) {
	return runs.Schedules(v.in).Get(ctx, id)
}

// New stores a schedule, after the checks of [Session.Spawn]. They are
// repeated at each firing, and a person is asked again where the tool requires
// approval. Arguments that contain a secret (writeOnly or x-secret in the tool's
// schema) are refused, because they would have to be stored.
func (v Schedules) New(ctx context.Context, req ScheduleRequest) (wire.Schedule, error) {
	return runs.Schedules(v.in).New(ctx, runs.SpawnRequest(req.SpawnRequest), background.ScheduleRequest{Cron: req.Cron, At: req.At, Timezone: req.Timezone, Overlap: engine.Overlap(req.Overlap)})
}

// Disable disables a schedule. Its runs continue.
func (v Schedules) Disable(ctx context.Context, id string) (wire.Schedule, error) {
	return runs.Schedules(v.in).Disable(ctx, id)
}

// Remove removes a schedule for good, and returns its last state. It no longer fires;
// runs that it started continue, and stay.
func (v Schedules) Remove(ctx context.Context, id string) (wire.Schedule, error) {
	return runs.Schedules(v.in).Remove(ctx, id)
}

// Enable lets a disabled schedule fire again, from now on. It refuses a one-time schedule
// whose time has passed.
func (v Schedules) Enable(ctx context.Context, id string) (wire.Schedule, error) {
	return runs.Schedules(v.in).Enable(ctx, id)
}

// Fire queues a run of a schedule now, even of a disabled one. As at each firing, the checks
// of [Session.Spawn] are made when the run starts. While an earlier run of the schedule is
// active, its overlap applies: a skipped firing is an error with the reason wire.CodeConflict.
// The run keeps by as the requester; empty means the creator of the schedule.
func (v Schedules) Fire(ctx context.Context, id, by string) (wire.Run, error) {
	return runs.Schedules(v.in).Fire(ctx, id, by)
}
