package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
)

// decider has the user of a caller decide on held calls. The zero value cannot.
type decider struct {
	ask DecideFunc
	how keeping
}

// decider returns how the user of the caller decides, if the operator lets users decide.
func (c toolCall) decider() decider {
	if c.req.Decide == nil || c.now().cfg.Approvals.By == ByOperator {
		return decider{}
	}
	return decider{c.req.Decide, keeping{session: !c.req.OneRequest, connected: c.req.Connected}}
}

var (
	// errOutdated means that a call cannot be approved any more, because its plugin or its
	// grants have changed: it has been withdrawn, and is to be held anew.
	errOutdated = fmt.Errorf("%w: it or its grants have changed since the call was held", plugins.ErrReplaced)
	// errDecided is why the user is not asked any longer: somebody else has decided.
	errDecided = errors.New("another person has decided")
)

// decided asks the user of a caller about a held run, and returns the run once somebody has
// decided. If the user does not, the run stays held. The error matches [ErrApproval] if the
// call was refused, errOutdated, or ErrAskAgain if the caller asks.
func (p Approvals) decided(ctx context.Context, run engine.Run, by decider) (engine.Run, error) {
	if by.ask == nil {
		return run, nil
	}
	tool, err := p.service.lookup(run.Tool)
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

// outdate refuses a held call whose plugin or grants have changed. That of an agent leaves no
// record, so that it can be held anew with the same key.
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

// answer decides on a held call as its user has answered.
func (p Approvals) answer(ctx context.Context, call HeldCall, answer abi.Answer, how keeping) error {
	in, err := decisionOf(call, answer)
	if err != nil || p.service.now().cfg.Approvals.By == ByOperator { // since it was asked
		return nil // it stays held
	}
	_, err = p.decide(ctx, call.Run, "user", in, how)
	return err
}

// outcome returns a run that was held as it is after a decision, which may have failed with
// err: because another one came first, or because the policy now denies the tool. That
// ends the call.
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

// refusedBy is the error of a call that was refused while it was held.
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
		if now, err := p.service.engine.Get(asking, run.ID); err == nil && !now.Undecided() {
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
	closing := context.AfterFunc(p.service.serving, func() { cancel(errShutdown) })
	return asking, func() {
		closing()
		cancel(nil)
		<-ended
	}
}

// callerOf is the tool that makes the call that a run holds; empty if an agent or an operator
// does.
func callerOf(run engine.Run) string {
	if run.Origin == engine.OriginParked {
		return run.By
	}
	return ""
}

// hold stores a call as a run that starts once a person has approved it. An agent's call
// follows that run, and the call of a tool waits for its end.
func (c toolCall) hold(ctx context.Context, a Approval) (abi.Result, error) {
	from := originOf(ctx)
	if c.req.Session == "" || c.req.DryRun {
		return explain(errNobody)
	}
	if from != nil {
		if err := liveOf(ctx).park(ctx); err != nil {
			return explain(err)
		}
	}
	held, err := c.heldRequest(ctx, from)
	if err != nil {
		return explain(err)
	}

	a.Tool = c.tool.Name
	run, err := ApprovalsOf(c.Service).hold(ctx, c.req.Session, held, a)
	if err != nil {
		return explain(err)
	}
	if from != nil {
		return c.awaitHeld(ctx, run.ID)
	}
	return c.follow(ctx, run, c.patience())
}

// errNobody is why a call that needs approval is refused where it cannot be held.
var errNobody = fmt.Errorf("%w, and nobody can be asked here", ErrApproval)

// heldRequest is the run that a held call becomes.
func (c toolCall) heldRequest(ctx context.Context, from *origin) (background.SpawnRequest, error) {
	version, err := c.version(c.tool)
	if err != nil {
		return background.SpawnRequest{}, err
	}

	limits := c.tool.rules.limits(c.req.Limits, c.tool.Tool)
	t := terms{Limits: c.req.Limits, Locale: c.req.Locale, Asks: from == nil && c.asksLater()}
	held := background.SpawnRequest{
		Tool: c.tool.Name, Title: titleOf(c.tool), Version: version, Args: c.req.Args, IdempotencyKey: c.req.Key, Parked: true, Anew: c.tool.anew(),
		Timeout: min(max(limits.Timeout, limits.Background), c.tool.rules.most.Background),
	}
	if from != nil {
		held.By, held.Silent = from.tool.Name, true
		t.Fuel = min(limits.Fuel, from.fuel)
		if c.req.Limits.Timeout > 0 {
			held.Timeout = min(held.Timeout, c.req.Limits.Timeout)
		}
	}
	held.Terms = t.traced(ctx)
	if public, secret := c.tool.PublicArgs(c.req.Args); secret {
		held.Stored = public
	}
	return held, nil
}

// awaitHeld waits for the end of the call of a tool that was held. If nobody waits for it
// any more, it is withdrawn.
func (c toolCall) awaitHeld(ctx context.Context, id string) (abi.Result, error) {
	defer background.GiveWay(ctx)()
	waits := suspension{service: c.Service, session: c.req.Session}
	r, err := waits.awaitChild(ctx, id)
	if ctx.Err() != nil {
		c.withdraw(ctx, id, "the call that made it does not wait for it any more")
	}
	return r, err
}

// withdraw stops a run that a call has become, because nobody waits for it any more.
func (c toolCall) withdraw(ctx context.Context, id, why string) {
	_, err := c.runs.Stop(context.WithoutCancel(ctx), c.req.Session, id, background.StopRequest{Force: true, Reason: why})
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		c.log.Warn("a run was not stopped with the call that has made it", "task_id", id, "error", err)
	}
}
