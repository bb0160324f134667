package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// errWaits means that a person has to approve a call, and that the call can be held until then.
var errWaits = fmt.Errorf("%w", ErrApproval)

// approve returns nil if a call may be made: no rule asks about it, a kept approval
// covers it, or the program approves it. Otherwise its error matches [ErrApproval];
// errWaits means that the call is to be held. This is the last check, so nobody is asked
// about a call that would be refused anyway.
func (p Approvals) approve(ctx context.Context, tool *catalog.Tool, a Approval) error {
	s := p.service
	a.Tool = tool.Name
	decision, why := configOf(tool).Approvals.rule(tool)
	switch {
	case decision == DecideAllow:
		return nil
	case decision == DecideDeny:
		s.audit.Decided(audit.Refused, a.held(), "", "policy")
		return refusedByPolicy(tool, why)
	case p.kept(ctx, tool, a):
		s.audit.Decided(audit.Approved, a.held(), "", "kept")
		return nil
	case configOf(tool).Approve != nil:
		return p.askProgram(ctx, tool, a)
	case !configOf(tool).Approvals.Ask:
		return fmt.Errorf("%w, and nobody can be asked here", ErrApproval)
	}
	return errWaits
}

func refusedByPolicy(tool *catalog.Tool, why string) error {
	return fmt.Errorf("%w: the operator's policy refuses %s (%s)", ErrApproval, tool.Name, why)
}

// askProgram lets the program decide, which may take time. The decision counts for the
// code and the grants in force when it was asked.
func (p Approvals) askProgram(ctx context.Context, tool *catalog.Tool, a Approval) error {
	before := fingerprint(tool)
	err := configOf(tool).Approve(ctx, a)
	if now, gone := p.service.catalog.Lookup(tool.Name); err == nil && (gone != nil || before == "" || fingerprint(now) != before) {
		err = ErrApprovalChanged
	}
	if err != nil {
		p.service.audit.Decided(audit.Refused, a.held(), "", "")
		return fmt.Errorf("%w: %w", ErrApproval, err)
	}
	p.service.audit.Decided(audit.Approved, a.held(), "", "")
	return nil
}

// foresee is approve for a dry run, which asks nobody. Asks reports whether a person
// would be asked; text tells the caller so.
func (p Approvals) foresee(ctx context.Context, tool *catalog.Tool, a Approval) (text string, asks bool, err error) {
	decision, why := configOf(tool).Approvals.rule(tool)
	switch {
	case decision == DecideAllow || decision == DecideAsk && p.kept(ctx, tool, a):
		return "", false, nil
	case decision == DecideDeny:
		return "", false, refusedByPolicy(tool, why)
	case configOf(tool).Approve == nil && !configOf(tool).Approvals.Ask:
		return "", false, fmt.Errorf("%w (%s), and nobody can be asked here", ErrApproval, why)
	}
	return "A person would be asked to approve it first: " + why + ".", true, nil
}

// hold stores a call as a run that starts once it is approved.
func (p Approvals) hold(ctx context.Context, session string, req background.SpawnRequest, a Approval) (engine.Run, error) {
	s := p.service
	s.holding.Lock() // so that the count of held calls stays right
	defer s.holding.Unlock()
	req, err := p.held(ctx, session, req)
	if err != nil {
		return engine.Run{}, err
	}
	r, err := s.runs.Spawn(ctx, session, req)
	if err == nil && !r.Reused {
		a.run = r.ID
		s.audit.Decided(audit.Asked, a.held(), "", "")
		s.log.Warn("a call waits for approval: toolhost approve shows it", "task_id", r.ID, "tool", req.Tool, "session", session)
	}
	return r.Run, err
}

// held returns the request of a run that starts once it is approved.
func (p Approvals) held(ctx context.Context, session string, req background.SpawnRequest) (background.SpawnRequest, error) {
	s := p.service
	waiting, err := p.waiting(ctx, session)
	if err != nil {
		return req, err
	}
	if len(waiting) >= maxWaiting {
		return req, reason.Refuse("%d calls of this session wait for approval already: wait until somebody has decided on them", len(waiting))
	}

	tool, err := s.catalog.Lookup(req.Tool)
	if err != nil {
		return req, err
	}
	var t terms
	if req.Terms != nil {
		if err := json.Unmarshal(req.Terms, &t); err != nil {
			return req, err
		}
	}
	if t.Approval = fingerprint(tool); t.Approval == "" {
		return req, replacing(tool)
	}
	if req.Stored != nil {
		t.Host = s.process
	}
	req.Held, req.Terms = heldForApproval, t.encode()
	return req, nil
}

// waiting returns the runs of a session, or of all, that wait for approval, newest first.
func (p Approvals) waiting(ctx context.Context, session string) ([]engine.Run, error) {
	s := p.service
	active, err := s.engine.List(ctx, engine.Query{Session: session, Active: true})
	var held []engine.Run
	for _, r := range active {
		if r.Held == heldForApproval && r.Undecided() {
			held = append(held, r)
		}
	}
	return held, err
}

// Approvals manages the calls that wait for approval, and the kept approvals. It is for
// operators: never let an agent use it.
type Approvals struct{ service *Service }

// Approvals returns the approvals of the service.
func (s *Service) Approvals() Approvals { return Approvals{s} }

// ErrApprovalChanged is the error of a decision about a tool that has other code or other
// grants than the ones that were shown.
var ErrApprovalChanged = errors.New("the tool or what it may use has changed since it was shown: look at it again")

// conflict returns the error of a rejected decision.
func conflict(err error) error {
	return &reason.Error{Reason: Reason{Code: wire.CodeConflict, Text: err.Error()}, Err: err}
}

// Decide approves a held call, which starts it, or refuses it, which ends it. By names
// the person who decides. A call is decided once: later decisions are conflicts. The
// error matches [ErrApprovalChanged] if the tool is no longer what the decision is about,
// and engine.ErrNotFound if there is no such run.
//
// Decide does not check who decides. docs/approving.md lists its callers: never let an
// agent use it.
func (p Approvals) Decide(ctx context.Context, id, by string, in wire.Decide) (wire.Run, error) {
	run, err := p.decide(ctx, id, by, in, keeping{})
	return shape.Run(run, time.Now()), err
}

func (p Approvals) decide(ctx context.Context, id, by string, in wire.Decide, how keeping) (engine.Run, error) {
	s := p.service
	run, err := p.undecided(ctx, id)
	if err != nil {
		return run, err
	}
	a := Approval{Session: run.Session, Tool: run.Tool, Caller: callerOf(run), run: id}
	switch {
	case !in.Approve:
		return p.refuse(ctx, a, by, in.Reason)
	case in.Keep == wire.KeepArguments && run.Secret:
		return run, &background.FieldError{Field: "keep", Problem: "the call has secret arguments, which are not stored, so that later ones cannot be compared with them"}
	}

	tool, err := s.catalog.Lookup(run.Tool)
	if err == nil {
		err = unchanged(tool, run, in.Fingerprint)
	}
	if err != nil {
		return run, err
	}
	if decision, why := configOf(tool).Approvals.rule(tool); decision == DecideDeny {
		return run, refusedByPolicy(tool, why)
	}
	if InDryRun(ctx) {
		return run, nil
	}

	released, err := s.runs.Release(ctx, id)
	if errors.Is(err, engine.ErrConflict) {
		return run, notHeld(id)
	}
	if err != nil {
		return run, err
	}
	s.audit.Decided(audit.Approved, a.held(), by, string(in.Keep))
	if in.Keep != "" {
		if err := p.keepApproval(ctx, tool, run, in.Keep, by, how); err != nil {
			s.log.Warn("a call was approved, but the approval of later calls was not kept", "tool", run.Tool, "session", run.Session, "task_id", id, "error", err)
		}
	}
	return released, nil
}

// notApproved begins the reason for refusing a held call.
const notApproved = "not approved"

// refuse ends a held call.
func (p Approvals) refuse(ctx context.Context, a Approval, by, why string) (engine.Run, error) {
	if InDryRun(ctx) {
		return p.undecided(ctx, a.run)
	}
	reason := notApproved
	if why != "" {
		reason += ": " + why
	}
	run, err := p.service.runs.Refuse(ctx, a.run, by, reason)
	switch {
	case errors.Is(err, engine.ErrConflict):
		return run, notHeld(a.run)
	case err == nil:
		p.service.audit.Decided(audit.Refused, a.held(), by, why)
	}
	return run, err
}

// undecided returns a run whose held call nobody has decided on.
func (p Approvals) undecided(ctx context.Context, id string) (engine.Run, error) {
	run, err := p.service.engine.Get(ctx, id)
	if err == nil && (run.Held != heldForApproval || !run.Undecided()) {
		err = notHeld(id)
	}
	return run, err
}

func notHeld(id string) error {
	return conflict(fmt.Errorf("no call with the id %s waits for approval: it was decided on, stopped, or never waited", id))
}

// unchanged returns an error if the tool that would run has other code or other grants
// than the one the decision is about.
func unchanged(tool *catalog.Tool, run engine.Run, shown string) error {
	err := sameVersion(tool, run)
	if err == nil {
		err = sameApproval(tool, run)
	}
	switch {
	case err != nil:
		return &reason.Error{Reason: Reason{Code: wire.CodeConflict, Text: reason.Of(err).Text}, Err: ErrApprovalChanged}
	case shown != "" && shown != fingerprint(tool):
		return conflict(ErrApprovalChanged)
	}
	return nil
}

func (p Approvals) approvalWait() time.Duration {
	return cmp.Or(p.service.now().cfg.Approvals.Wait, DefaultApprovalWait)
}

// Asks reports whether calls are held until somebody approves them, so that no caller can
// approve its own.
func (p Approvals) Asks() bool { return p.service.now().cfg.Approvals.Ask }

// expireApprovals refuses calls that have waited too long, or whose arguments are lost,
// until ctx is done.
func (p Approvals) expireApprovals(ctx context.Context) {
	s := p.service
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()

	for {
		waiting, err := p.waiting(ctx, "")
		if err == nil {
			err = p.dropTickets(ctx, waiting)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("calls that wait for approval not checked", "error", err)
		}
		for _, r := range waiting {
			if time.Since(r.CreatedAt) < p.approvalWait() {
				continue
			}
			in := wire.Decide{Reason: fmt.Sprintf("nobody has decided in %v", p.approvalWait())}
			if _, err := p.Decide(ctx, r.ID, "host", in); err != nil {
				s.log.Warn("a call that waited too long for approval was not ended", "task_id", r.ID, "error", err)
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
