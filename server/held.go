package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// decider lets a caller's user decide on held calls. The zero value asks nobody.
type decider struct {
	ask DecideFunc
	how keeping
}

// decider returns how the user of the caller decides, if the operator lets users decide.
func (f follower) decider(req Request) decider {
	if req.Decide == nil || f.settings().cfg.Approvals.By == ByOperator {
		return decider{}
	}
	return decider{req.Decide, keeping{session: !req.OneRequest, connected: req.Connected}}
}

var (
	// errOutdated means that a held call can no longer be approved, because its plugin or
	// its grants have changed. It has been withdrawn, and is to be held again.
	errOutdated = fmt.Errorf("%w: it or its grants have changed since the call was held", plugins.ErrReplaced)
	// errDecided is why the user is no longer asked: somebody else has decided.
	errDecided = errors.New("another person has decided")
)

// decided asks a caller's user about a held run, and returns the run once anybody has
// decided. If the user does not decide, the run stays held. The error matches [ErrApproval]
// if the call was refused, errOutdated, or ErrAskAgain if the caller asks.
func (p Approvals) decided(ctx context.Context, run engine.Run, by decider) (engine.Run, error) {
	if by.ask == nil {
		return run, nil
	}
	tool, err := p.service.catalog.Lookup(run.Tool)
	if err != nil || unchanged(tool, run, "") != nil {
		return run, p.outdate(ctx, run)
	}
	call, err := p.heldCall(ctx, tool, run, by.how)
	if err != nil {
		return run, err
	}

	asking, stop := p.whileHeld(ctx, run)
	answer, err := by.ask(asking, call)
	stop()
	switch {
	case errors.Is(err, ErrAskAgain), ctx.Err() != nil:
		return run, errors.Join(err, ctx.Err())
	case err != nil && !errors.Is(context.Cause(asking), errDecided):
		p.service.log.Info("the user of a client was not asked about a held call", "task_id", run.ID, "tool", run.Tool, "session", run.Session, "error", err)
		return run, nil
	case err == nil:
		err = p.answer(ctx, call, answer, by.how)
	}
	if errors.Is(err, ErrApprovalChanged) {
		return p.decided(ctx, run, by)
	}
	return p.outcome(ctx, run, err)
}

// outdate refuses a held call whose plugin or grants have changed. An agent's call leaves
// no record, so that it can be held again with the same key.
func (p Approvals) outdate(ctx context.Context, run engine.Run) error {
	a := Approval{Session: run.Session, Tool: run.Tool, Caller: callerOf(run), run: run.ID}
	if _, err := p.refuse(ctx, a, "host", "the plugin or its grants have changed"); err != nil {
		return err
	}
	if a.Caller == "" {
		if err := p.service.runs.Remove(context.WithoutCancel(ctx), run.Session, run.ID); err != nil {
			return err
		}
	}
	return errOutdated
}

// answer applies the user's answer about a held call.
func (p Approvals) answer(ctx context.Context, call HeldCall, answer abi.Answer, how keeping) error {
	in, err := decisionOf(call, answer)
	if err != nil || p.service.now().cfg.Approvals.By == ByOperator { // since it was asked
		return nil // it stays held
	}
	_, err = p.decide(ctx, call.Run, "user", in, how)
	return err
}

// outcome returns a held run after a decision. The decision may have failed with err:
// another one came first, or the policy now denies the tool, which ends the call.
func (p Approvals) outcome(ctx context.Context, run engine.Run, err error) (engine.Run, error) {
	if errors.Is(err, ErrApproval) {
		a := Approval{Session: run.Session, Tool: run.Tool, Caller: callerOf(run), run: run.ID}
		if _, err := p.refuse(ctx, a, "policy", ""); err != nil {
			return run, err
		}
		return run, err
	}
	now, gone := p.service.engine.Get(ctx, run.ID)
	switch {
	case gone != nil:
		return run, gone
	case now.Held != "" && now.Status == engine.StatusCanceled:
		return now, refusedBy(now)
	case now.Undecided():
		return now, err
	}
	return now, nil
}

// refusedBy returns the error of a call that was refused while it was held.
func refusedBy(run engine.Run) error {
	why := "it was withdrawn"
	if run.Cancel != nil {
		why = strings.TrimPrefix(run.Cancel.Reason, notApproved+": ")
	}
	return fmt.Errorf("%w: %s", ErrApproval, why)
}

// whileHeld returns a context that ends once somebody has decided on a run, or the service
// closes.
func (p Approvals) whileHeld(ctx context.Context, run engine.Run) (asking context.Context, stop func()) {
	asking, cancel := context.WithCancelCause(ctx)
	events := p.service.engine.Watch(asking, run.Session)
	look := func() {
		if now, err := p.service.engine.Get(asking, run.ID); errors.Is(err, engine.ErrNotFound) || err == nil && !now.Undecided() {
			cancel(errDecided)
		}
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		look() // it may have been decided before the first event
		for e := range events {
			if e.Kind == engine.EventMissed || e.Run != nil && e.Run.ID == run.ID {
				look()
			}
		}
	}()
	closing := context.AfterFunc(p.service.serving, func() { cancel(reason.ErrShutdown) })
	return asking, func() {
		closing()
		cancel(nil)
		<-ended
	}
}

// callerOf returns the tool that made the call of a held run; empty if an agent or an
// operator made it.
func callerOf(run engine.Run) string {
	if run.Origin == engine.OriginParked {
		return run.By
	}
	return ""
}

// approve is the stage that gets approval for a call, or holds the call until a person
// approves it.
func (f follower) approve(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		asked := Approval{Session: c.Session, Args: c.Args}
		if c.outer != nil {
			asked.Caller = c.outer.tool.Name
		}
		err := f.approvals.approve(ctx, c.tool, asked)
		if err == nil {
			if _, asks := f.ticketOf(ctx, c); asks { // the answer to that question counts
				err = errWaits
			}
		}
		switch {
		case errors.Is(err, errWaits):
			return f.hold(ctx, c, asked, next)
		case err != nil:
			return abi.Result{}, err
		}
		return next(ctx, c)
	}
}

// hold stores a call as a run that starts once a person has approved it. An agent's call
// follows that run, and a tool's call waits for its end. A call with secret arguments is not
// stored: see [follower.holdSecret].
func (f follower) hold(ctx context.Context, c call, a Approval, next callFunc) (abi.Result, error) {
	if c.Session == "" || c.DryRun {
		return abi.Result{}, errNobody
	}
	if c.outer != nil {
		if err := liveOf(ctx).park(ctx); err != nil {
			return abi.Result{}, err
		}
	}
	a.Tool = c.tool.Name
	if _, secret := c.tool.PublicArgs(c.Args); secret {
		return f.holdSecret(ctx, c, a, next)
	}

	version, err := versionOf(c.tool)
	if err != nil {
		return abi.Result{}, err
	}
	run, err := f.approvals.hold(ctx, c.Session, c.asLaterRun(ctx, version), a)
	if err != nil {
		return abi.Result{}, err
	}
	if c.outer != nil {
		return f.awaitHeld(ctx, c, run.ID)
	}
	return f.follow(ctx, c, run, c.patience())
}

// errNobody is the error of a call that needs approval where it cannot be held.
var errNobody = fmt.Errorf("%w, and nobody can be asked here", ErrApproval)

// awaitHeld waits for the end of a held call of a tool. It withdraws the call if nobody
// waits for it any longer.
func (f follower) awaitHeld(ctx context.Context, c call, id string) (abi.Result, error) {
	defer background.GiveWay(ctx)()
	r, err := f.awaitChild(ctx, c.Session, id)
	if ctx.Err() != nil {
		f.abandon(ctx, c.Session, id)
	}
	return r, err
}

// withdrawEarlier withdraws the held calls that an earlier attempt of a run has made, because
// the run makes them again. The calls of a state continue with it.
func (f follower) withdrawEarlier(ctx context.Context, run engine.Run) {
	children, err := f.engine.List(ctx, engine.Query{Session: run.Session, Parent: run.ID, Active: true})
	if err != nil {
		f.log.Warn("held calls of an earlier attempt were not withdrawn", "task_id", run.ID, "error", err)
	}
	for _, child := range children {
		continues := background.StateOf(ctx) != nil && strings.HasPrefix(child.ID, run.ID+"-")
		if t, err := termsIn(child); err == nil && t.Approval != "" && child.Status == engine.StatusQueued && child.Attempt == 0 && child.Origin == engine.OriginParked && !continues {
			f.withdraw(ctx, run.Session, child.ID, "parent", "the run that made the call has begun again, and makes it again")
		}
	}
}

// abandon withdraws a run that the call which made it does not wait for any more.
func (f follower) abandon(ctx context.Context, session, id string) {
	by := ""
	if question.Withdrawn(ctx) {
		by = "parent"
	}
	f.withdraw(ctx, session, id, by, "the call that made it does not wait for it any more")
}

// awaitChild waits for the end of a run that a tool's call has become, and returns the
// result for that tool.
func (f follower) awaitChild(ctx context.Context, session, id string) (abi.Result, error) {
	for logged := false; ; {
		run, err := f.checkChild(ctx, session, id)
		switch {
		case ctx.Err() != nil:
			return canceled(ctx, abi.Result{})
		case errors.Is(err, engine.ErrNotFound):
			return abi.Result{}, lost("its record was removed")
		case err == nil && run.Status.Terminal():
			return ofChild(run)
		case err == nil:
			continue
		case !errors.Is(err, engine.ErrUnavailable):
			return abi.Result{}, lost("its record cannot be read")
		case !logged: // it continues, and must not count as failed
			logged = true
			f.log.Warn("a call that a run waits for cannot be read; trying again", "task_id", id, "error", err)
		}

		select {
		case <-time.After(awaitAgain):
		case <-ctx.Done():
		}
	}
}

// awaitAgain is the pause before an unreadable child is read again.
const awaitAgain = time.Second

// checkChild waits for the end of a child, and returns it with its result.
func (f follower) checkChild(ctx context.Context, session, id string) (engine.Run, error) {
	checked, err := f.runs.Check(ctx, session, background.CheckRequest{IDs: []string{id}, Wait: background.MaxWait, MaxChars: -1, Peek: true})
	if err != nil {
		return engine.Run{}, err
	}
	run := checked.Reports[0].Run
	if run.Status.Terminal() {
		err = f.sessions(session).load(ctx, &run, engine.PartResult, engine.PartContent)
	}
	return run, err
}

// withdraw stops a run that a call has become, because nobody waits for it any longer.
func (f follower) withdraw(ctx context.Context, session, id, by, why string) {
	_, err := f.runs.Stop(context.WithoutCancel(ctx), session, id, background.StopRequest{Force: true, By: by, Reason: why})
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		f.log.Warn("a run was not stopped with the call that has made it", "task_id", id, "error", err)
	}
}
