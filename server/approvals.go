package server

import (
	"context"
	"errors"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// Decision is the decision of a policy about a call: DecideAllow, DecideAsk or DecideDeny.
type Decision = approval.Decision

// The decisions.
const (
	DecideAllow Decision = approval.Allow // the call is made
	DecideAsk   Decision = approval.Ask   // the call is made once a person has approved it
	DecideDeny  Decision = approval.Deny  // the call is refused
)

// ApprovalPolicy says which calls a person has to approve. The zero policy follows the
// manifests: Config.Approve is asked about tools with approval: required.
type ApprovalPolicy struct {
	// Ask holds calls that need approval: each becomes a run that starts once a person
	// approves it with [Service.Approvals], even after a restart. If Tools does not decide on
	// a tool, approval is then needed for tools with approval: required, and for those that
	// are destructive and not readonly.
	Ask bool
	// Tools holds decisions by the names of tools as agents see them, or by patterns such as
	// files_*. They apply whatever the tools' hints say. A name takes precedence over
	// patterns, and a longer pattern over a shorter one.
	Tools map[string]Decision
	// Wait is how long a call waits for approval before it is refused. 0 means
	// DefaultApprovalWait.
	Wait time.Duration
	// By says who decides. The zero value is ByUser.
	By ApprovalBy
}

// ApprovalBy says who decides on calls that wait for approval: ByUser or ByOperator.
type ApprovalBy = approval.By

// Who decides on held calls. Operators always can, see [Approvals.Decide].
const (
	ByUser     ApprovalBy = approval.ByUser     // operators, and the client's user through [Request.Decide]
	ByOperator ApprovalBy = approval.ByOperator // operators only
)

// DefaultApprovalWait is how long a call waits for approval by default: a week.
const DefaultApprovalWait = approval.DefaultWait

// approvalRules returns the rules for calls.
func (c Config) approvalRules() approval.Rules {
	rules := approval.Rules{Policy: approval.Policy(c.Approvals)}
	if c.Approve != nil {
		rules.Program = func(ctx context.Context, a approval.Call) error { return c.Approve(ctx, Approval(a)) }
	}
	return rules
}

// A HeldCall describes, to the user of a client, a call that waits for approval. The answer
// is valid for that run only, and only while the tool's code and grants match Fingerprint.
type HeldCall struct {
	Run         string       // id of the run that holds the call
	Fingerprint string       // identifies the tool's code and grants
	Question    abi.Question // what the user is asked
	Note        string       // the user's secrets that the call lacks, and how to set them; the answer stays valid if this changes
}

// DecideFunc asks the user of a client about a held call, and returns the answer. It
// returns [ErrAskAgain] if the client answers with its next request, see
// [Request.Resumes]. Any other error leaves the call held.
type DecideFunc func(ctx context.Context, call HeldCall) (abi.Answer, error)

// user returns the user to ask about a request's held calls.
func (r Request) user() approval.User {
	u := approval.User{Keeps: !r.OneRequest, Connected: r.Connected}
	if r.Decide != nil {
		u.Ask = func(ctx context.Context, q approval.Question) (abi.Answer, error) { return r.Decide(ctx, HeldCall(q)) }
	}
	return u
}

// approval describes the call to the people who approve it.
func (c call) approval() approval.Call {
	a := approval.Call{Session: c.Session, Tool: c.tool.Name, Args: c.Args}
	if c.outer != nil {
		a.Caller = c.outer.tool.Name
	}
	if c.spawn != nil && c.spawn.When != nil {
		a.Schedule = &c.spawn.Schedule
	}
	return a
}

// approve is the stage that gets approval for a call, or holds the call until a person
// approves it.
func approve(follow *runs.Follower) stage {
	return func(next callFunc) callFunc {
		return func(ctx context.Context, c call) (abi.Result, error) {
			err := follow.Approvals.Check(ctx, c.tool, c.approval())
			if err == nil && c.Resumes != "" && !c.DryRun {
				if _, asks := follow.Approvals.Ticket(ctx, c.Resumes, c.tool, c.approval()); asks { // the answer to that question counts
					err = approval.ErrHold
				}
			}
			switch {
			case errors.Is(err, approval.ErrHold):
				return hold(ctx, follow, c, next)
			case err != nil:
				return abi.Result{}, err
			}
			return next(ctx, c)
		}
	}
}

// hold holds a call until a person approves it. Only a run can wait for that, so a direct
// call becomes a run when its tool makes a call that is held.
func hold(ctx context.Context, follow *runs.Follower, c call, next callFunc) (abi.Result, error) {
	if c.spawn != nil {
		return abi.Result{}, c.spawn.Hold(ctx)
	}
	if c.Session == "" || c.DryRun {
		return abi.Result{}, approval.ErrNobody
	}
	if c.outer != nil {
		if err := liveOf(ctx).Park(ctx); err != nil {
			return abi.Result{}, err
		}
	}
	version, err := versionOf(c.tool)
	if err != nil {
		return abi.Result{}, err
	}
	return follow.Hold(ctx, runs.HeldCall{
		Waiter: c.caller(), Tool: c.tool, Approval: c.approval(), Nested: c.outer != nil, Resumes: c.Resumes, Run: c.asLaterRun(ctx, version),
		Make: func(ctx context.Context) (abi.Result, error) { return next(ctx, c) },
	})
}

// ErrApprovalChanged means that the tool's code or grants have changed since they were shown
// to the person who decides.
var ErrApprovalChanged = approval.ErrChanged

// Approvals manages the calls that wait for approval, and the approvals that were kept for
// later calls. It is for operators: never let an agent use it.
type Approvals struct{ manager *approval.Manager }

// Approvals returns the approvals of the service.
func (s *Service) Approvals() Approvals { return Approvals{s.approvals} }

// Asks reports whether calls that need approval are held until a person approves them, so that
// no caller can approve its own calls.
func (p Approvals) Asks() bool { return p.manager.Policy().Ask }

// Decide approves a held call, which starts it, or refuses it, which ends it. The parameter by
// names the person who decides. A call is decided once: later decisions are conflicts. The
// error matches [ErrApprovalChanged] if the tool's code or grants have changed since they were
// shown, and engine.ErrNotFound if there is no such run.
//
// Decide does not check who decides. docs/approving.md lists its callers: never let an
// agent use it.
func (p Approvals) Decide(ctx context.Context, id, by string, in wire.Decide) (wire.Run, error) {
	run, err := p.manager.Decide(ctx, id, by, in)
	return shape.Run(run, time.Now()), err
}

// List returns up to limit waiting calls, in the order in which people were asked about them.
// It begins after the call whose id is the parameter after, even if that call has been decided
// since. If after is empty, it begins with the oldest call; a limit of 0 means no limit.
func (p Approvals) List(ctx context.Context, after string, limit int) (wire.Approvals, error) {
	return p.manager.List(ctx, after, limit)
}

// Get returns a waiting call, with all its arguments.
func (p Approvals) Get(ctx context.Context, id string) (wire.WaitingCall, error) {
	return p.manager.Show(ctx, id)
}

// Watch returns a channel with the events of waiting calls: wire.EventHeld when a call
// begins to wait, wire.EventQueued when it was approved, and wire.EventEnded when it was
// refused, withdrawn, or not decided in time. The channel is closed when ctx is done. A
// watcher that is too slow gets wire.EventMissed.
func (p Approvals) Watch(ctx context.Context) (<-chan wire.Event, error) {
	return p.manager.Watch(ctx)
}

// Kept returns the kept approvals, sorted by session and tool.
func (p Approvals) Kept(ctx context.Context) (wire.KeptApprovals, error) { return p.manager.Kept(ctx) }

// Revoke removes the kept approvals of a tool in a session; with "" as the session, those
// that hold for all sessions. It reports whether there were any.
func (p Approvals) Revoke(ctx context.Context, session, tool string) (found bool, err error) {
	return p.manager.Revoke(ctx, session, tool)
}
