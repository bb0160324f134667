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
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// SpawnRequest describes a run to start in the background. The server's own SpawnRequest has
// the same fields, and documents them.
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

// A Spawn is a run, or a schedule of runs, that a session requests. The server passes it
// through stages, which call Find, Prepare, Plan, and then Hold or Submit.
type Spawn struct {
	Session
	SpawnRequest
	When *background.ScheduleRequest // when the schedule fires; nil for a run that starts at once
	User approval.User               // decides on the run if it is held

	Result   wire.Run      // answer, unless When is set
	Schedule wire.Schedule // plan of the schedule, and then the answer

	run background.SpawnRequest // request of the run; valid after Prepare
}

// Spawn starts a background run. The user decides on it if it is held.
func (v Session) Spawn(ctx context.Context, req SpawnRequest, user approval.User) (wire.Run, error) {
	s := &Spawn{Session: v, SpawnRequest: req, User: user}
	err := v.Pass(ctx, s)
	return s.Result, err
}

// spawnOrResume is like Spawn, but for a request whose user may have decided on the run of
// an earlier request.
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

// Find returns the tool of the run by its name.
func (s *Spawn) Find(ctx context.Context, name string) (*catalog.Tool, error) {
	switch {
	case name == "":
		return nil, &background.FieldError{Field: "tool", Problem: "required"}
	case slices.Contains(agent.Names, name):
		return nil, reason.Refuse("%s cannot be spawned: call it directly", name)
	}
	tool, err := s.Catalog.Find(ctx, name)
	if err == nil && !tool.Tool.Hints.SupportsBackground {
		err = reason.Refuse("%s does not support background runs: call it directly", name)
	}
	return tool, err
}

// Prepare prepares the run of a tool with admitted arguments. An error that matches
// [plugins.ErrReplaced] means that the tool was replaced by a new one.
func (s *Spawn) Prepare(ctx context.Context, tool *catalog.Tool, args json.RawMessage, timeout time.Duration) error {
	version, err := s.Version(tool)
	if err != nil {
		return err
	}
	silent, wake, err := s.wakes()
	if err != nil {
		return err
	}

	s.run = background.SpawnRequest{
		Tool: tool.Name, Version: version, Args: args, Title: cmp.Or(strings.TrimSpace(s.Title), Title(tool)),
		Silent: silent, Wake: wake, Timeout: timeout, IdempotencyKey: s.IdempotencyKey, By: s.By, Parent: s.Parent, Restartable: tool.Restartable(),
		Terms: Terms{Locale: s.Locale, Asks: true}.Traced(ctx),
	}
	if public, secret := tool.PublicArgs(args); secret {
		s.run.Stored = public
	}
	return nil
}

// Plan plans a schedule, without storing it, or, in a dry run, a run.
func (s *Spawn) Plan(ctx context.Context, tool *catalog.Tool, dryRun bool) error {
	if s.When != nil {
		return s.planSchedule(dryRun)
	}
	if !dryRun {
		return nil
	}

	verdict, _, err := s.Checker.Preview(ctx, tool, approval.Call{Session: s.Name})
	if err != nil {
		return err
	}
	held := ""
	if verdict == approval.Held {
		held = approval.HeldFor
		if s.run.Stored != nil {
			return errSecretHeld
		}
	}
	run, err := s.Manager.PlanRun(ctx, s.Name, s.run)
	if err == nil {
		s.Result = wire.Run{DryRun: true, Held: held, Tool: run.Tool, Title: run.Title, DeadlineSeconds: shape.Deadline(run.Timeout), SignalOnCompletion: run.SignalOnCompletion}
	}
	return err
}

// Hold stores a run that starts once it is approved, and lets the user decide. A schedule
// is stored as it is, because each of its firings is held.
func (s *Spawn) Hold(ctx context.Context) error {
	switch {
	case s.When != nil:
		return s.Submit(ctx)
	case s.run.Stored != nil:
		return errSecretHeld
	}
	run, err := s.Follower.spawnHeld(ctx, s.Name, s.run)
	if err == nil {
		s.Result, err = s.whenDecided(ctx, run, s.SpawnRequest, s.User)
	}
	return err
}

// Submit submits a run that starts now, or stores a schedule.
func (s *Spawn) Submit(ctx context.Context) error {
	if s.When != nil {
		return s.storeSchedule(ctx)
	}
	r, err := s.Manager.Spawn(ctx, s.Name, s.run)
	if err == nil {
		s.Result = shape.Run(r.Run, time.Now())
		s.Result.Reused = r.Reused
	}
	return err
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
