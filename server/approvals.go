package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/wire"
)

// Decision is what a policy says of a call.
type Decision string

// The decisions.
const (
	DecideAllow Decision = "allow" // it is made
	DecideAsk   Decision = "ask"   // once a person has approved it
	DecideDeny  Decision = "deny"  // it is refused
)

// ApprovalPolicy says which calls a person has to approve. The zero policy is that of
// manifests: Config.Approve is asked about tools with approval: required.
type ApprovalPolicy struct {
	// Ask lets calls wait for an approval: as runs that start once somebody approves them
	// with [Service.Approvals], also after a restart. By default it asks about tools with
	// approval: required and about destructive ones, and not about readonly ones.
	Ask bool
	// Tools decides on tools by their names as agents see them, or by patterns such as
	// files_*, whatever their hints say. A name wins over patterns, and a longer pattern
	// over a shorter one.
	Tools map[string]Decision
	// Wait is how long a call waits for approval; then it is refused. 0 is
	// DefaultApprovalWait.
	Wait time.Duration
}

// Bounds of approvals.
const (
	DefaultApprovalWait = 7 * 24 * time.Hour
	maxWaiting          = 100      // calls of a session that wait for approval
	maxShownArgs        = 16 << 10 // bytes of arguments that an operator is shown
	maxAskedArgs        = 1000     // characters of them in a question to a user
)

// heldForApproval is what a run waits for.
const heldForApproval = "approval"

// check returns an error if a pattern or a decision is wrong.
func (p ApprovalPolicy) check() error {
	for name, d := range p.Tools {
		field := "Approvals.Tools." + name
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return &background.FieldError{Field: field, Problem: "expected the name of a tool, or a pattern such as files_*"}
		}
		if d != DecideAllow && d != DecideAsk && d != DecideDeny {
			return &background.FieldError{Field: field, Problem: fmt.Sprintf("expected allow, ask or deny, found %q", d)}
		}
	}
	if p.Wait < 0 {
		return &background.FieldError{Field: "Approvals.Wait", Problem: "must not be negative"}
	}
	return nil
}

// decide says whether a tool is called.
func (p ApprovalPolicy) decide(tool *callable) Decision {
	if d, ok := p.Tools[tool.Name]; ok {
		return d
	}
	longest := ""
	for pattern := range p.Tools {
		if ok, _ := path.Match(pattern, tool.Name); ok && (len(pattern) > len(longest) || len(pattern) == len(longest) && pattern < longest) {
			longest = pattern
		}
	}
	if longest != "" {
		return p.Tools[longest]
	}

	hints := tool.Tool.Hints
	if tool.Tool.Approval == abi.ApprovalRequired || p.Ask && !hints.Readonly && hints.IsDestructive() {
		return DecideAsk
	}
	return DecideAllow
}

// shown is whether a person has to approve calls of a tool, as callers see it.
func (p ApprovalPolicy) shown(tool *callable) abi.Approval {
	if p.decide(tool) == DecideAllow {
		return abi.ApprovalAuto
	}
	return abi.ApprovalRequired
}

// errWaits means that a person has to approve a call, and that it can wait for that.
var errWaits = fmt.Errorf("%w", ErrApproval)

// approve returns nil if a call may be made: no rule asks about it, somebody has approved
// it, or does so now. Otherwise its error matches [ErrApproval]; it is errWaits if the
// call may wait for an answer. It is the last check: nobody is asked about a call that
// would be refused anyway.
func (s *Service) approve(ctx context.Context, tool *callable, a Approval, approved bool) error {
	a.Tool = tool.Name
	decision := s.cfg.Approvals.decide(tool)
	switch {
	case approved || decision == DecideAllow:
		return nil
	case decision == DecideDeny:
		s.audit.decided(audit.Refused, a, "", "policy")
		return fmt.Errorf("%w: the operator's policy refuses %s", ErrApproval, tool.Name)
	case s.keptApproval(ctx, tool, a):
		s.audit.decided(audit.Approved, a, "", "kept")
		return nil
	case s.cfg.Approve != nil:
		if err := s.cfg.Approve(ctx, a); err != nil {
			s.audit.decided(audit.Refused, a, "", "")
			return fmt.Errorf("%w: %w", ErrApproval, err)
		}
		s.audit.decided(audit.Approved, a, "", "")
		return nil
	case s.cfg.Approvals.Ask && a.ask != nil:
		return s.askUser(ctx, tool, a)
	case !s.cfg.Approvals.Ask:
		return fmt.Errorf("%w, and nobody can be asked here", ErrApproval)
	}
	return errWaits
}

// The answers of a user.
const (
	answerOnce    = "once"
	answerSession = "session"
	answerNo      = "no"
)

// approvalKey is the key of the question. No plugin can use it.
const approvalKey = "toolhost/approval"

// askUser asks the user of a client, and keeps an approval for the session.
func (s *Service) askUser(ctx context.Context, tool *callable, a Approval) error {
	shown := clip(Clean(a.Args), maxAskedArgs)
	who := tool.Name
	if a.Caller != "" {
		who += ", called by " + a.Caller
	}
	text := fmt.Sprintf("Allow %s with the arguments %s?", who, shown)
	if grants := grantsOf(tool); len(grants) > 0 {
		text += " It may use: " + strings.Join(grants, ", ") + "."
	}
	schema := json.RawMessage(`{"type":"object","properties":{"decision":{"type":"string","title":"Decision","enum":["once","session","no"],"enumNames":["Allow once","Allow in this session","Do not allow"]}},"required":["decision"]}`)

	answers, err := a.ask(ctx, abi.Questions{Questions: map[string]abi.Question{approvalKey: {Message: text, Schema: schema}}})
	switch {
	case errors.Is(err, ErrDenied): // the client cannot ask
		return errWaits
	case err != nil:
		return err
	}
	s.audit.decided(audit.Asked, a, "user", "")
	var said struct{ Decision string }
	answer := answers.Answers[approvalKey]
	if answer.Action != abi.AnswerAccept || json.Unmarshal(answer.Content, &said) != nil || said.Decision != answerOnce && said.Decision != answerSession {
		s.audit.decided(audit.Refused, a, "user", "")
		return fmt.Errorf("%w: the user did not allow it", ErrApproval)
	}
	if said.Decision == answerSession {
		if err := s.keepApproval(ctx, tool, a.Session, "user"); err != nil {
			s.log.Warn("approval not kept", "tool", tool.Name, "session", a.Session, "error", err)
		}
	}
	s.audit.decided(audit.Approved, a, "user", said.Decision)
	return nil
}

// fingerprint is what an approval is for: the code of a tool, and what it may use. It is
// empty if the code is not known now.
func fingerprint(tool *callable) string {
	version, err := tool.Version()
	if err != nil {
		return ""
	}
	var granted []byte
	if tool.plugin != nil {
		if granted, err = json.Marshal(tool.plugin.Grant); err != nil {
			return ""
		}
	}
	sum := sha256.Sum256([]byte(tool.Name + "\x00" + version + "\x00" + string(granted)))
	return hex.EncodeToString(sum[:16])
}

// grantsOf are the grants of a tool's plugin.
func grantsOf(tool *callable) []string {
	if tool.plugin == nil {
		return nil
	}
	return tool.plugin.Grant.Names()
}

// approvalScope has the approvals that are kept: of a session, or of all.
func (s *store) approvalScope(session string) background.Values {
	return background.ValuesIn(s.engine, engine.Scope{Session: session, Name: "approvals"}, engine.ValueLimit{Count: 1000, Bytes: 1 << 20}, 4<<10)
}

// kept is an approval that is kept.
type kept struct {
	Fingerprint string `json:"fingerprint"`
	By          string `json:"by"`
}

func (s *Service) keepApproval(ctx context.Context, tool *callable, session, by string) error {
	print := fingerprint(tool)
	if print == "" {
		return replacing(tool)
	}
	data, err := json.Marshal(kept{print, by})
	if err == nil {
		_, err = s.approvalScope(session).Set(ctx, tool.Name, data, AnyVersion)
	}
	return err
}

// keptApproval reports whether an approval of the same code with the same grants is kept.
func (s *Service) keptApproval(ctx context.Context, tool *callable, a Approval) bool {
	for _, session := range []string{"", a.Session} {
		v, err := s.approvalScope(session).Get(ctx, tool.Name)
		var k kept
		if err == nil && json.Unmarshal(v.Data, &k) == nil && k.Fingerprint != "" && k.Fingerprint == fingerprint(tool) {
			return true
		}
	}
	return false
}

// shownArgs are arguments as a person sees them, and whether some are left out.
func shownArgs(args json.RawMessage) (string, bool) {
	if len(args) <= maxShownArgs {
		return Clean(args), false
	}
	return Clean(args[:maxShownArgs]) + "…", true
}

// hold stores a call as a run that starts once it is approved.
func (s *Service) hold(ctx context.Context, session string, req background.SpawnRequest, a Approval) (engine.Run, error) {
	if req.Stored != nil {
		return engine.Run{}, fmt.Errorf("%w, and its arguments have a secret, which is not stored: it cannot wait for an answer", ErrApproval)
	}
	waiting, err := s.waiting(ctx, session)
	if err != nil {
		return engine.Run{}, err
	}
	if len(waiting) >= maxWaiting {
		return engine.Run{}, refuse("%d calls of this session wait for approval already: wait until somebody has decided on them", len(waiting))
	}

	tool, err := s.lookup(req.Tool)
	if err != nil {
		return engine.Run{}, err
	}
	var t terms
	if req.Terms != nil {
		if err := json.Unmarshal(req.Terms, &t); err != nil {
			return engine.Run{}, err
		}
	}
	if t.Approval = fingerprint(tool); t.Approval == "" {
		return engine.Run{}, replacing(tool)
	}
	req.Held, req.Terms = heldForApproval, t.encode()
	r, err := s.runs.Spawn(ctx, session, req)
	if err == nil && !r.Reused {
		a.run = r.ID
		s.audit.decided(audit.Asked, a, "", "")
		s.log.Warn("a call waits for approval: toolhost approve shows it", "task_id", r.ID, "tool", req.Tool, "session", session)
	}
	return r.Run, err
}

// holdCall stores a call as a run that starts once it is approved, and answers with it.
func (s *Service) holdCall(ctx context.Context, tool *callable, req Request, a Approval) (abi.Result, error) {
	if req.Session == "" || req.DryRun {
		return explain(fmt.Errorf("%w, and nobody can be asked here", ErrApproval))
	}
	version, err := s.version(tool)
	if err != nil {
		return explain(err)
	}

	limits := s.rules.limits(req.Limits, tool.Tool)
	held := background.SpawnRequest{
		Tool: tool.Name, Title: titleOf(tool), Version: version, Args: req.Args, IdempotencyKey: req.Key, Parked: true, Terms: termsOf(req.Limits, req.Locale),
		Timeout: min(max(limits.Timeout, limits.Background), s.rules.most.Background),
	}
	if public, secret := tool.PublicArgs(req.Args); secret {
		held.Stored = public
	}
	a.Tool = tool.Name
	run, err := s.hold(ctx, req.Session, held, a)
	if err != nil {
		return explain(err)
	}
	if req.admitted != nil {
		req.admitted(nil)
	}
	return s.parked(run, 0, req)
}

// waiting returns the runs that wait for approval, of a session or of all, the newest
// first.
func (s *Service) waiting(ctx context.Context, session string) ([]engine.Run, error) {
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

// List returns the calls that wait, the oldest first.
func (p Approvals) List(ctx context.Context) (wire.Approvals, error) {
	waiting, err := p.service.waiting(ctx, "")
	out := wire.Approvals{Approvals: []wire.WaitingCall{}}
	for i := len(waiting) - 1; i >= 0; i-- {
		one, err := p.show(ctx, waiting[i])
		if err != nil {
			return out, err
		}
		out.Approvals = append(out.Approvals, one)
	}
	return out, err
}

// show describes a call that waits.
func (p Approvals) show(ctx context.Context, r engine.Run) (wire.WaitingCall, error) {
	args, err := p.service.engine.Payload(ctx, r.ID, engine.PartArgs)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return wire.WaitingCall{}, err
	}
	a := wire.WaitingCall{
		TaskID: r.ID, Session: r.Session, Tool: r.Tool, Plugin: r.Plugin, PluginVersion: r.PluginVersion, ToolVersion: r.Version,
		By: r.By, AskedAt: r.CreatedAt, ExpiresAt: r.CreatedAt.Add(p.service.approvalWait()), Grants: []string{},
	}
	a.Args, a.ArgsCut = shownArgs(args)
	if tool, err := p.service.lookup(r.Tool); err == nil {
		a.Description, a.Grants, a.Fingerprint = tool.Description, append(a.Grants, grantsOf(tool)...), fingerprint(tool)
		a.Changed = errors.Join(sameVersion(tool, r), sameApproval(tool, r)) != nil
	} else {
		a.Changed = true
	}
	return a, nil
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
		err = s.keepApproval(ctx, tool, run.Session, by)
	case wire.KeepAlways:
		err = s.keepApproval(ctx, tool, "", by)
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

func (s *Service) approvalWait() time.Duration {
	return cmp.Or(s.cfg.Approvals.Wait, DefaultApprovalWait)
}

// Asks reports whether calls wait for approval, so that nobody who calls tools can
// approve them on the way.
func (p Approvals) Asks() bool { return p.service.cfg.Approvals.Ask }

// expireApprovals refuses calls that have waited too long, until ctx is done.
func (s *Service) expireApprovals(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		waiting, err := s.waiting(ctx, "")
		if err != nil {
			s.log.Warn("calls that wait for approval not listed", "error", err)
		}
		for _, r := range waiting {
			if time.Since(r.CreatedAt) < s.approvalWait() {
				continue
			}
			in := wire.Decide{Reason: fmt.Sprintf("nobody has decided in %v", s.approvalWait())}
			if _, err := (Approvals{s}).Decide(ctx, r.ID, "host", in); err != nil {
				s.log.Warn("a call that waited too long for approval was not ended", "task_id", r.ID, "error", err)
			}
		}
	}
}
