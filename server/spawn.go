package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/internal/shape"
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
	user           approval.User   // who is asked about the held run
}

// errSecretHeld is the error of a spawn that needs approval and has secret arguments.
var errSecretHeld = fmt.Errorf("%w, and its arguments have a secret, which is not stored: it cannot wait for an answer. Call the tool directly, and wait for the decision", ErrApproval)

// planned returns the run that a spawn would start.
func (v Session) planned(ctx context.Context, tool *catalog.Tool, checked background.SpawnRequest) (wire.Run, error) {
	verdict, _, err := v.service.checker.Foresee(ctx, tool, approval.Call{Session: v.name})
	if err != nil {
		return wire.Run{}, err
	}
	if verdict == approval.Held && checked.Stored != nil {
		return wire.Run{}, errSecretHeld
	}
	run, err := v.service.runs.PlanRun(ctx, v.name, checked)
	if err != nil {
		return wire.Run{}, err
	}
	held := ""
	if verdict == approval.Held {
		held = approval.HeldFor
	}
	return wire.Run{DryRun: true, Held: held, Tool: run.Tool, Title: run.Title, DeadlineSeconds: shape.Deadline(run.Timeout), SignalOnCompletion: run.SignalOnCompletion}, nil
}

// Spawn starts a background run and returns at once. The checks are those of
// [Service.Call], and that the tool supports background runs. Reused says that
// the run is an earlier one with the same idempotency key.
func (v Session) Spawn(ctx context.Context, req SpawnRequest) (wire.Run, error) {
	tool, checked, err := v.prepare(ctx, req)
	if err != nil {
		return wire.Run{}, err
	}
	if req.DryRun || InDryRun(ctx) {
		return v.planned(ctx, tool, checked)
	}
	switch err := v.service.checker.Check(ctx, tool, approval.Call{Session: v.name, Args: checked.Args}); {
	case errors.Is(err, approval.ErrHold) && checked.Stored != nil:
		return wire.Run{}, errSecretHeld
	case errors.Is(err, approval.ErrHold):
		run, err := v.service.executor.Follower.SpawnHeld(ctx, v.name, checked)
		if err != nil {
			return wire.Run{}, err
		}
		return v.whenDecided(ctx, run, req)
	case err != nil:
		return wire.Run{}, err
	}

	r, err := v.service.runs.Spawn(ctx, v.name, checked)
	if err != nil {
		return wire.Run{}, err
	}
	run := shape.Run(r.Run, time.Now())
	run.Reused = r.Reused
	return run, nil
}

// spawnOrResume is Spawn for a request whose user may have decided on the run of an
// earlier request, see [Request.Resumes].
func (v Session) spawnOrResume(ctx context.Context, req SpawnRequest, resumes string) (wire.Run, error) {
	run, err := v.service.runs.Get(ctx, v.name, resumes)
	if resumes == "" || err != nil || run.Tool != strings.TrimSpace(req.Tool) {
		return v.Spawn(ctx, req)
	}
	return v.whenDecided(ctx, run, req)
}

// whenDecided lets the caller's user decide on a held run.
func (v Session) whenDecided(ctx context.Context, run engine.Run, req SpawnRequest) (wire.Run, error) {
	var err error
	if run.Undecided() {
		run, err = v.service.approvals.Ask(ctx, run, req.user)
	}
	if errors.Is(err, approval.ErrOutdated) {
		return v.Spawn(ctx, req) // for the new plugin, or its new grants
	}
	return shape.Run(run, time.Now()), err
}

// prepare makes the checks of a spawn, except for a person's approval: nobody is
// asked about a run that would be refused anyway. Their order decides which error
// an agent sees first: what it named, before what it asked for.
func (v Session) prepare(ctx context.Context, req SpawnRequest) (tool *catalog.Tool, checked background.SpawnRequest, err error) {
	name := strings.TrimSpace(req.Tool)
	if tool, err = v.target(ctx, name); err != nil {
		return nil, checked, err
	}
	timeout, err := tool.Deadline(req.Timeout)
	if err != nil {
		return nil, checked, err
	}
	args, err := catalog.ParseArgs(tool.Name, req.Parsed, req.Args)
	if err == nil {
		args, _, err = tool.Admit(args)
	}
	if err != nil {
		return nil, checked, err
	}

	version, err := versionOf(tool)
	switch {
	case errors.Is(err, plugins.ErrReplaced):
		return v.prepare(ctx, req) // for the new plugin
	case err != nil:
		return nil, checked, err
	}

	silent, wake, err := req.wakes()
	if err != nil {
		return nil, checked, err
	}
	if err := CheckLocale(req.Locale); err != nil {
		return nil, checked, err
	}
	checked = background.SpawnRequest{
		Tool: name, Version: version, Args: args.Raw(), Title: cmp.Or(strings.TrimSpace(req.Title), runs.Title(tool)),
		Silent: silent, Wake: wake, Timeout: timeout, IdempotencyKey: req.IdempotencyKey, By: req.By, Parent: req.Parent, Anew: tool.Restartable(),
		Terms: runs.Terms{Locale: req.Locale, Asks: true}.Traced(ctx),
	}
	if public, secret := tool.PublicArgs(args.Raw()); secret {
		checked.Stored = public
	}
	return tool, checked, nil
}

var errNoTool = &background.FieldError{Field: "tool", Problem: "required"}

// target returns the tool to run in the background.
func (v Session) target(ctx context.Context, name string) (*catalog.Tool, error) {
	switch {
	case name == "":
		return nil, errNoTool
	case IsAgentTool(name):
		return nil, reason.Refuse("%s cannot be spawned: call it directly", name)
	}
	tool, err := v.service.catalog.Find(ctx, name)
	if err == nil && !tool.Tool.Hints.SupportsBackground {
		err = reason.Refuse("%s does not support background runs: call it directly", name)
	}
	return tool, err
}

// wakes returns which ends the session is notified of.
func (r SpawnRequest) wakes() (silent bool, wake engine.Wake, err error) {
	switch {
	case r.Wake == "":
		return r.Silent, engine.WakeEnd, nil
	case r.Wake == wire.WakeNone:
		return true, engine.WakeEnd, nil
	case r.Wake != wire.WakeEnd && r.Wake != wire.WakeFailure:
		return false, "", &background.FieldError{Field: "wake", Problem: fmt.Sprintf("expected end, failure or none, found %.20q", r.Wake)}
	case r.Silent:
		return false, "", &background.FieldError{Field: "wake", Problem: "contradicts signal_on_completion: set one of them"}
	case r.Wake == wire.WakeFailure:
		wake = engine.WakeFailure
	}
	return false, wake, nil
}

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
