package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/wire"
)

// errWaits means that a person has to approve a call, and that it can wait for that.
var errWaits = fmt.Errorf("%w", ErrApproval)

// approve returns nil if a call may be made: no rule asks about it, somebody has approved
// it, or does so now. Otherwise its error matches [ErrApproval]; it is errWaits if the
// call may wait for an answer. It is the last check: nobody is asked about a call that
// would be refused anyway.
func (p Approvals) approve(ctx context.Context, tool *callable, a Approval, approved bool) error {
	s := p.service
	a.Tool = tool.Name
	decision, why := tool.cfg.Approvals.rule(tool)
	switch {
	case approved || decision == DecideAllow:
		return nil
	case decision == DecideDeny:
		s.audit.decided(audit.Refused, a, "", "policy")
		return fmt.Errorf("%w: the operator's policy refuses %s (%s)", ErrApproval, tool.Name, why)
	case p.keptApproval(ctx, tool, a):
		s.audit.decided(audit.Approved, a, "", "kept")
		return nil
	case tool.cfg.Approve != nil:
		if err := tool.cfg.Approve(ctx, a); err != nil {
			s.audit.decided(audit.Refused, a, "", "")
			return fmt.Errorf("%w: %w", ErrApproval, err)
		}
		s.audit.decided(audit.Approved, a, "", "")
		return nil
	case tool.cfg.Approvals.Ask && a.ask != nil:
		return p.askUser(ctx, tool, a)
	case !tool.cfg.Approvals.Ask:
		return fmt.Errorf("%w, and nobody can be asked here", ErrApproval)
	}
	return errWaits
}

// foresee is approve for a dry run: nobody is asked. Asks says that a person would be, and
// text says so to the caller.
func (p Approvals) foresee(ctx context.Context, tool *callable, a Approval) (text string, asks bool, err error) {
	decision, why := tool.cfg.Approvals.rule(tool)
	switch {
	case decision == DecideAllow || decision == DecideAsk && p.keptApproval(ctx, tool, a):
		return "", false, nil
	case decision == DecideDeny:
		return "", false, fmt.Errorf("%w: the operator's policy refuses %s (%s)", ErrApproval, tool.Name, why)
	case tool.cfg.Approve == nil && !tool.cfg.Approvals.Ask:
		return "", false, fmt.Errorf("%w (%s), and nobody can be asked here", ErrApproval, why)
	}
	return "A person would be asked to approve it first: " + why + ".", true, nil
}

// hold stores a call as a run that starts once it is approved.
func (p Approvals) hold(ctx context.Context, session string, req background.SpawnRequest, a Approval) (engine.Run, error) {
	s := p.service
	req, err := p.held(ctx, session, req)
	if err != nil {
		return engine.Run{}, err
	}
	r, err := s.runs.Spawn(ctx, session, req)
	if err == nil && !r.Reused {
		a.run = r.ID
		s.audit.decided(audit.Asked, a, "", "")
		s.log.Warn("a call waits for approval: toolhost approve shows it", "task_id", r.ID, "tool", req.Tool, "session", session)
	}
	return r.Run, err
}

// held returns the request of a run that starts once it is approved.
func (p Approvals) held(ctx context.Context, session string, req background.SpawnRequest) (background.SpawnRequest, error) {
	s := p.service
	if req.Stored != nil {
		return req, fmt.Errorf("%w, and its arguments have a secret, which is not stored: it cannot wait for an answer", ErrApproval)
	}
	waiting, err := p.waiting(ctx, session)
	if err != nil {
		return req, err
	}
	if len(waiting) >= maxWaiting {
		return req, refuse("%d calls of this session wait for approval already: wait until somebody has decided on them", len(waiting))
	}

	tool, err := s.lookup(req.Tool)
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
	req.Held, req.Terms = heldForApproval, t.encode()
	return req, nil
}

// holdCall stores a call as a run that starts once it is approved, and answers with it.
func (p Approvals) holdCall(ctx context.Context, tool *callable, req Request, a Approval) (abi.Result, error) {
	s := p.service
	if req.Session == "" || req.DryRun {
		return explain(fmt.Errorf("%w, and nobody can be asked here", ErrApproval))
	}
	version, err := s.version(tool)
	if err != nil {
		return explain(err)
	}

	limits := tool.rules.limits(req.Limits, tool.Tool)
	held := background.SpawnRequest{
		Tool: tool.Name, Title: titleOf(tool), Version: version, Args: req.Args, IdempotencyKey: req.Key, Parked: true, Anew: tool.anew(), Terms: termsOf(ctx, req.Limits, req.Locale),
		Timeout: min(max(limits.Timeout, limits.Background), tool.rules.most.Background),
	}
	if public, secret := tool.PublicArgs(req.Args); secret {
		held.Stored = public
	}
	a.Tool = tool.Name
	run, err := p.hold(ctx, req.Session, held, a)
	if err != nil {
		return explain(err)
	}
	if req.admitted != nil {
		req.admitted(nil)
	}
	return toolCall{s, tool, req}.parked(run, 0)
}

// waiting returns the runs that wait for approval, of a session or of all, the newest
// first.
func (p Approvals) waiting(ctx context.Context, session string) ([]engine.Run, error) {
	s := p.service
	active, err := s.engine.List(ctx, engine.Query{Session: session, Active: true})
	var held []engine.Run
	for _, r := range active {
		if r.Held == heldForApproval {
			held = append(held, r)
		}
	}
	return held, err
}

// Approvals are the calls that wait for approval, and the approvals that are kept. They
// are for operators: never let an agent use them.
type Approvals struct{ service *Service }

// ApprovalsOf returns the calls of a service that wait for approval.
func ApprovalsOf(s *Service) Approvals { return Approvals{s} }

// ErrApprovalChanged is why a decision is not taken: the tool, its code or its grants are
// not those that were shown.
var ErrApprovalChanged = errors.New("the tool or what it may use has changed since it was shown: look at it again")

// conflict is a decision that is not taken.
func conflict(err error) error {
	return &refusal{Reason: Reason{Code: wire.CodeConflict, Text: err.Error()}, err: err}
}

// Decide approves a call, which starts, or refuses it, which ends it. By names who
// decides. The error matches [ErrApprovalChanged] if in.Fingerprint is set and the tool is
// another one now, and engine.ErrNotFound if there is no such run.
func (p Approvals) Decide(ctx context.Context, id, by string, in wire.Decide) (wire.Run, error) {
	s := p.service
	run, err := s.engine.Get(ctx, id)
	switch {
	case err != nil:
		return wire.Run{}, err
	case run.Held != heldForApproval || run.Status != engine.StatusQueued:
		return wire.Run{}, conflict(fmt.Errorf("no call with the id %s waits for approval: it was decided on, stopped, or never waited", id))
	}
	a := Approval{Session: run.Session, Tool: run.Tool, run: id}

	if !in.Approve {
		if InDryRun(ctx) {
			return newRun(run, time.Now()), nil
		}
		reason := "not approved"
		if in.Reason != "" {
			reason += ": " + in.Reason
		}
		h, err := s.runs.Stop(ctx, run.Session, id, background.StopRequest{By: by, Reason: reason, Force: true})
		if err == nil {
			s.audit.decided(audit.Refused, a, by, in.Reason)
		}
		return newRun(h, time.Now()), err
	}

	tool, err := s.lookup(run.Tool)
	if err == nil {
		err = sameVersion(tool, run)
	}
	if err == nil {
		err = sameApproval(tool, run)
	}
	switch {
	case err != nil:
		return wire.Run{}, err
	case in.Fingerprint != "" && in.Fingerprint != fingerprint(tool):
		return wire.Run{}, conflict(ErrApprovalChanged)
	case InDryRun(ctx):
		return newRun(run, time.Now()), nil
	}
	switch in.Keep {
	case wire.KeepSession:
		err = p.keepApproval(ctx, tool, run.Session, by)
	case wire.KeepAlways:
		err = p.keepApproval(ctx, tool, "", by)
	}
	if err != nil {
		return wire.Run{}, err
	}
	released, err := s.runs.Release(ctx, id)
	if err == nil {
		s.audit.decided(audit.Approved, a, by, string(in.Keep))
	}
	return newRun(released, time.Now()), err
}

// Kept returns the approvals that are kept, by session and tool.
func (p Approvals) Kept(ctx context.Context) (wire.KeptApprovals, error) {
	out := wire.KeptApprovals{Kept: []wire.KeptApproval{}}
	scopes, err := p.service.engine.Scopes(ctx, "", "approvals")
	if err != nil {
		return out, err
	}

	for _, scope := range scopes {
		values, err := p.service.engine.Values(ctx, scope.Scope, "", 0, true)
		if err != nil {
			return out, err
		}
		for _, v := range values {
			var k kept
			if json.Unmarshal(v.Data, &k) != nil {
				continue
			}
			one := wire.KeptApproval{Tool: v.Key, Session: scope.Session, By: k.By, At: v.At}
			if tool, err := p.service.lookup(v.Key); err == nil {
				one.InForce = k.Fingerprint == fingerprint(tool)
			}
			out.Kept = append(out.Kept, one)
		}
	}
	return out, nil
}

// Revoke removes a kept approval: of a session, or with "" that of all. It reports
// whether there was one.
func (p Approvals) Revoke(ctx context.Context, session, tool string) (bool, error) {
	scope := p.service.approvalScope(session)
	if InDryRun(ctx) {
		_, err := scope.Get(ctx, tool)
		return err == nil, nil
	}
	found, err := scope.Delete(ctx, tool, AnyVersion)
	if found {
		p.service.audit.admin("approval revoked", session, tool)
	}
	return found, err
}

func (p Approvals) approvalWait() time.Duration {
	return cmp.Or(p.service.now().cfg.Approvals.Wait, DefaultApprovalWait)
}

// Asks reports whether calls wait for approval, so that nobody who calls tools can
// approve them on the way.
func (p Approvals) Asks() bool { return p.service.now().cfg.Approvals.Ask }

// expireApprovals refuses calls that have waited too long, until ctx is done.
func (p Approvals) expireApprovals(ctx context.Context) {
	s := p.service
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()

	for asked := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if asked = asked || p.Asks(); !asked {
			continue
		}

		waiting, err := p.waiting(ctx, "")
		if err != nil {
			s.log.Warn("calls that wait for approval not listed", "error", err)
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
	}
}
