package server

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/wire"
)

// SpawnRequest describes a run to start in the background. Only Tool is required.
type SpawnRequest struct {
	Tool           string          // name of the tool, as in Definitions; it must support background runs
	Args           json.RawMessage // a JSON object; nil means {}
	Parsed         Args            // parsed arguments, instead of Args
	Title          string          // title of the run, at most 120 characters; empty means the tool's own
	Silent         bool            // the session is not notified when the run ends
	Wake           wire.Wake       // which ends the session is notified of; empty means wire.WakeEnd, or wire.WakeNone if Silent
	Timeout        time.Duration   // hard deadline; 0 means the tool's
	IdempotencyKey string          // key of at most 128 characters; the same key, tool and arguments return the existing run
	By             string          // the requester, if it is not the session's agent
	Locale         string          // BCP 47 tag of the language for the sentences for people in the record, at most MaxLocale bytes; empty if unknown
	Parent         string          // id of an active run of the session; empty means the run, if any, whose Go tool was passed the context
	DryRun         bool            // only make the checks: nothing is started or stored, and nobody is asked for approval
}

// Spawn starts a background run and returns at once. It makes the checks of [Service.Call],
// and also checks that the tool supports background runs. In the result, Reused is set if the
// run is an earlier one with the same idempotency key.
func (v Session) Spawn(ctx context.Context, req SpawnRequest) (wire.Run, error) {
	return v.in.Spawn(ctx, runs.SpawnRequest(req), approval.User{})
}

// passSpawn passes a run, or a schedule, that a session requests through its stages.
func (l *stages) passSpawn(ctx context.Context, s *runs.Spawn) error {
	c := call{spawn: s, note: &record.Note{}}
	c.Session, c.Tool, c.Args, c.Parsed, c.Locale, c.DryRun = s.Name, strings.TrimSpace(s.Tool), s.Args, s.Parsed, s.Locale, s.DryRun
	_, err := l.spawn(ctx, c)
	return err
}

// deadline decides the time limit of a run.
func deadline(_ context.Context, c call) (_ call, err error) {
	c.allowed.Background, err = c.tool.Deadline(c.spawn.Timeout)
	return c, err
}

// prepareRun makes the run that is to be submitted.
func prepareRun(ctx context.Context, c call) (call, error) {
	return c, c.spawn.Prepare(ctx, c.tool, c.Args, c.allowed.Background)
}

// plan is the stage that plans a schedule, and that ends a dry run.
func plan(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if err := c.spawn.Plan(ctx, c.tool, c.DryRun); err != nil || c.DryRun {
			return abi.Result{}, err
		}
		return next(ctx, c)
	}
}

// submit is the last stage of a run that a session requests.
func submit(callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) { return abi.Result{}, c.spawn.Submit(ctx) }
}

// MaxLocale is the maximum length of the locale of a call or a run, in bytes: 64.
const MaxLocale = runs.MaxLocale

// CheckLocale returns an error for an invalid locale. An empty one is valid.
func CheckLocale(locale string) error { return runs.CheckLocale(locale) }

// ScheduleRequest describes a run and when to start it: repeatedly, with Cron, or once, with
// At. Set exactly one of the two.
type ScheduleRequest struct {
	SpawnRequest
	Cron     string       // cron expression of five fields
	At       time.Time    // time in the future
	Timezone string       // name of an IANA time zone; empty means UTC
	Overlap  wire.Overlap // what to do if the previous run is still active; empty means to skip the firing
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
	return runs.Schedules(v.in).New(ctx, runs.SpawnRequest(req.SpawnRequest), background.ScheduleRequest{Cron: req.Cron, At: req.At, Timezone: req.Timezone, Overlap: req.Overlap})
}

// Disable disables a schedule. Its runs continue.
func (v Schedules) Disable(ctx context.Context, id string) (wire.Schedule, error) {
	return runs.Schedules(v.in).Disable(ctx, id)
}

// Remove removes a schedule permanently, and returns its last state. The schedule no longer
// fires; runs that it started continue, and are kept.
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
// active, the schedule's overlap applies: a skipped firing is an error with the reason
// wire.CodeConflict. The parameter by is recorded as the requester of the run; empty means
// the creator of the schedule.
func (v Schedules) Fire(ctx context.Context, id, by string) (wire.Run, error) {
	return runs.Schedules(v.in).Fire(ctx, id, by)
}
