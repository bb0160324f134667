package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// SpawnRequest says what to run in the background. The server has a request of the same
// fields, which documents them.
type SpawnRequest struct {
	Tool           string
	Args           json.RawMessage
	Parsed         catalog.Args
	Title          string
	Silent         bool
	Wake           wire.Wake
	Timeout        time.Duration
	IdempotencyKey string
	By             string
	Locale         string
	Parent         string
	DryRun         bool
}

// errSecretHeld is the error of a spawn that needs approval and has secret arguments.
var errSecretHeld = fmt.Errorf("%w, and its arguments have a secret, which is not stored: it cannot wait for an answer. Call the tool directly, and wait for the decision", reason.ErrApproval)

// planned returns the run that a spawn would start.
func (v Session) planned(ctx context.Context, tool *catalog.Tool, checked background.SpawnRequest) (wire.Run, error) {
	verdict, _, err := v.Checker.Foresee(ctx, tool, approval.Call{Session: v.Name})
	if err != nil {
		return wire.Run{}, err
	}
	if verdict == approval.Held && checked.Stored != nil {
		return wire.Run{}, errSecretHeld
	}
	run, err := v.Manager.PlanRun(ctx, v.Name, checked)
	if err != nil {
		return wire.Run{}, err
	}
	held := ""
	if verdict == approval.Held {
		held = approval.HeldFor
	}
	return wire.Run{DryRun: true, Held: held, Tool: run.Tool, Title: run.Title, DeadlineSeconds: shape.Deadline(run.Timeout), SignalOnCompletion: run.SignalOnCompletion}, nil
}

// Spawn starts a background run. The user decides on it if it is held.
func (v Session) Spawn(ctx context.Context, req SpawnRequest, user approval.User) (wire.Run, error) {
	tool, checked, err := v.prepare(ctx, req)
	if err != nil {
		return wire.Run{}, err
	}
	if req.DryRun || dryrun.In(ctx) {
		return v.planned(ctx, tool, checked)
	}
	switch err := v.Checker.Check(ctx, tool, approval.Call{Session: v.Name, Args: checked.Args}); {
	case errors.Is(err, approval.ErrHold) && checked.Stored != nil:
		return wire.Run{}, errSecretHeld
	case errors.Is(err, approval.ErrHold):
		run, err := v.Follower.spawnHeld(ctx, v.Name, checked)
		if err != nil {
			return wire.Run{}, err
		}
		return v.whenDecided(ctx, run, req, user)
	case err != nil:
		return wire.Run{}, err
	}

	r, err := v.Manager.Spawn(ctx, v.Name, checked)
	if err != nil {
		return wire.Run{}, err
	}
	run := shape.Run(r.Run, time.Now())
	run.Reused = r.Reused
	return run, nil
}

// spawnOrResume is Spawn for a request whose user may have decided on the run of an
// earlier request.
func (v Session) spawnOrResume(ctx context.Context, req SpawnRequest, user approval.User, resumes string) (wire.Run, error) {
	run, err := v.Manager.Get(ctx, v.Name, resumes)
	if resumes == "" || err != nil || run.Tool != strings.TrimSpace(req.Tool) {
		return v.Spawn(ctx, req, user)
	}
	return v.whenDecided(ctx, run, req, user)
}

// whenDecided lets the caller's user decide on a held run.
func (v Session) whenDecided(ctx context.Context, run engine.Run, req SpawnRequest, user approval.User) (wire.Run, error) {
	var err error
	if run.Undecided() {
		run, err = v.Follower.Approvals.Ask(ctx, run, user)
	}
	if errors.Is(err, approval.ErrOutdated) {
		return v.Spawn(ctx, req, user) // for the new plugin, or its new grants
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

	version, err := v.Version(tool)
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
		Tool: name, Version: version, Args: args.Raw(), Title: cmp.Or(strings.TrimSpace(req.Title), Title(tool)),
		Silent: silent, Wake: wake, Timeout: timeout, IdempotencyKey: req.IdempotencyKey, By: req.By, Parent: req.Parent, Anew: tool.Restartable(),
		Terms: Terms{Locale: req.Locale, Asks: true}.Traced(ctx),
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
	case slices.Contains(agent.Names, name):
		return nil, reason.Refuse("%s cannot be spawned: call it directly", name)
	}
	tool, err := v.Catalog.Find(ctx, name)
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

// Rerun starts a run with the tool, arguments, title, deadline and locale of an earlier
// run, in the session of that run.
func (v Session) Rerun(ctx context.Context, id, by string) (wire.Run, error) {
	old, err := v.Find(ctx, id)
	if err == nil {
		err = load(ctx, v.Manager, &old, engine.PartArgs)
	}
	switch {
	case err != nil:
		return wire.Run{}, err
	case old.Secret:
		return wire.Run{}, reason.Refuse("%s cannot be repeated: its arguments contain a secret, and secrets are not stored. Call %s with new arguments", id, old.Tool)
	}

	terms, _ := termsOf(old) // of another version, it may not say the locale
	return Session{Sessions: v.Sessions, Name: old.Session}.Spawn(ctx, SpawnRequest{
		Tool: old.Tool, Args: old.Args, Title: old.Title, Silent: !old.SignalOnCompletion, Wake: wire.Wake(old.Wake), Timeout: old.Timeout, By: by, Locale: terms.Locale,
	}, approval.User{})
}
