package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/wire"
)

// SpawnRequest says what to run in the background. Only Tool is required.
type SpawnRequest struct {
	Tool           string          // as in Definitions; must support background runs
	Args           json.RawMessage // an object; nil is {}
	Parsed         Args            // parsed arguments, instead of Args
	Title          string          // at most 120 characters; empty is the tool's own
	Silent         bool            // the session is not notified of the end
	Wake           wire.Wake       // which ends the session is notified of; empty is wire.WakeEnd, or wire.WakeNone if Silent
	Timeout        time.Duration   // hard deadline; 0 is the tool's
	IdempotencyKey string          // at most 128 characters; the same key, tool and arguments return the run that exists
	By             string          // the requester, if it is not the session's agent
	Locale         string          // BCP 47, at most MaxLocale bytes, for the sentences for people in the record; empty if unknown
	Parent         string          // active run of the session that becomes the parent; empty is the run whose Go tool was passed the context, if any
	DryRun         bool            // only make the checks: nothing is started or stored, and nobody is asked for approval
}

// Spawn starts a background run and returns at once. The checks are those of
// [Service.Call], and that the tool supports background runs. Reused says that
// the run is an earlier one with the same idempotency key.
func (v Session) Spawn(ctx context.Context, req SpawnRequest) (wire.Run, error) {
	return v.in.Spawn(ctx, runs.SpawnRequest(req), approval.User{})
}

// MaxLocale bounds the locale of a call or a run, in bytes: 64.
const MaxLocale = runs.MaxLocale

// CheckLocale returns an error for an invalid locale. An empty one is valid.
func CheckLocale(locale string) error { return runs.CheckLocale(locale) }

// caller describes who waits for the run that a call becomes.
func (c call) caller() runs.Caller {
	return runs.Caller{
		Session: c.Session, Keyed: c.Key != "", Patience: c.patience(), Note: c.note, User: c.user(),
		Ask: c.Ask, AskLater: c.AskLater, OnPark: c.OnPark, Ends: c.endsHow(),
	}
}

// patience is how long the caller waits for a run.
func (c call) patience() time.Duration {
	if b, ok := c.parkBudget(); ok {
		return min(background.MaxWait, b.Park)
	}
	return background.MaxWait
}

// callOf makes the call of a run.
func (s *Service) callOf(ctx context.Context, x *runs.Execution) (abi.Result, error) {
	asked := Request{Session: x.Session, Tool: x.Tool, Args: x.Args, Limits: x.Requested.Limits, Locale: x.Requested.Locale}
	return s.stages.run(ctx, call{Request: asked, run: x, note: &record.Note{}})
}

// childOf returns the run of a call that a tool makes.
func childOf(ctx context.Context, child runs.ChildCall) (background.SpawnRequest, error) {
	version, err := versionOf(child.Tool)
	if err != nil {
		return background.SpawnRequest{}, err
	}
	c := call{tool: child.Tool, outer: &origin{tool: child.Caller, fuel: child.Fuel}}
	c.Args, c.Limits.Timeout, c.Locale = child.Args.Raw(), child.Timeout, child.Locale
	return c.limited().asLaterRun(ctx, version), nil
}
