package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/question"
)

// approve is the stage that gets approval for a call, or holds the call until a person
// approves it.
func (f follower) approve(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		err := f.approvals.Check(ctx, c.tool, c.asked())
		if err == nil {
			if _, asks := f.ticketOf(ctx, c); asks { // the answer to that question counts
				err = approval.ErrHold
			}
		}
		switch {
		case errors.Is(err, approval.ErrHold):
			return f.hold(ctx, c, next)
		case err != nil:
			return abi.Result{}, err
		}
		return next(ctx, c)
	}
}

// asked describes the call to those who approve it.
func (c call) asked() approval.Call {
	asked := approval.Call{Session: c.Session, Tool: c.tool.Name, Args: c.Args}
	if c.outer != nil {
		asked.Caller = c.outer.tool.Name
	}
	return asked
}

// hold stores a call as a run that starts once a person has approved it. An agent's call
// follows that run, and a tool's call waits for its end. A call with secret arguments is not
// stored: see [follower.holdSecret].
func (f follower) hold(ctx context.Context, c call, next callFunc) (abi.Result, error) {
	if c.Session == "" || c.DryRun {
		return abi.Result{}, approval.ErrNobody
	}
	if c.outer != nil {
		if err := liveOf(ctx).park(ctx); err != nil {
			return abi.Result{}, err
		}
	}
	if _, secret := c.tool.PublicArgs(c.Args); secret {
		return f.holdSecret(ctx, c, next)
	}

	version, err := versionOf(c.tool)
	if err != nil {
		return abi.Result{}, err
	}
	run, err := f.spawnHeld(ctx, c.Session, c.asLaterRun(ctx, version))
	if err != nil {
		return abi.Result{}, err
	}
	if c.outer != nil {
		return f.awaitHeld(ctx, c, run.ID)
	}
	return f.follow(ctx, c, run, c.patience())
}

// spawnHeld stores a run that starts once it is approved.
func (f follower) spawnHeld(ctx context.Context, session string, req background.SpawnRequest) (engine.Run, error) {
	return f.approvals.Hold(ctx, session, req.Tool, req.Stored != nil, func(bound approval.Binding) (background.SpawnResult, error) {
		req, err := held(req, bound)
		if err != nil {
			return background.SpawnResult{}, err
		}
		return f.runs.Spawn(ctx, session, req)
	})
}

// held returns the request of a run that starts once it is approved.
func held(req background.SpawnRequest, bound approval.Binding) (_ background.SpawnRequest, err error) {
	req.Held = approval.HeldFor
	req.Terms, err = bind(req.Terms, bound)
	return req, err
}

// holdSecret is hold for a call with secret arguments. They stay in memory while the caller
// waits for the decision on its ticket.
func (f follower) holdSecret(ctx context.Context, c call, next callFunc) (abi.Result, error) {
	ticket, err := f.ticket(ctx, c)
	if err != nil {
		return abi.Result{}, err
	}
	wait := c.patience()
	if c.outer != nil {
		wait = -1
	}
	err = f.approvals.Await(ctx, ticket, c.user(), wait)
	if err == nil && approval.Unchanged(c.tool, ticket, "") != nil {
		err = approval.ErrOutdated
	}

	switch {
	case errors.Is(err, ErrAskAgain):
		return c.askedAgain(ticket, err)
	case err == nil:
		err = f.approvals.Redeem(ctx, ticket)
	default:
		f.abandon(ctx, c.Session, ticket.ID)
	}
	if err != nil && ctx.Err() != nil {
		return canceled(ctx, abi.Result{})
	}
	if err != nil {
		return abi.Result{}, err
	}
	return next(ctx, c)
}

// ticket returns the ticket of a call: that of the earlier request which it resumes, or a
// new one.
func (f follower) ticket(ctx context.Context, c call) (engine.Run, error) {
	version, err := versionOf(c.tool)
	if err != nil {
		return engine.Run{}, err
	}
	if run, asks := f.ticketOf(ctx, c); asks {
		return run, nil
	}
	req := c.asLaterRun(ctx, version)
	req.IdempotencyKey, req.Silent = "", true // the call itself has them
	return f.spawnHeld(ctx, c.Session, req)
}

// ticketOf returns the ticket of the earlier request that a call resumes.
func (f follower) ticketOf(ctx context.Context, c call) (engine.Run, bool) {
	if c.Resumes == "" || c.DryRun {
		return engine.Run{}, false
	}
	return f.approvals.Ticket(ctx, c.Resumes, c.tool, c.asked())
}

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
		if bound, err := approval.BindingOf(child); err == nil && bound.Fingerprint != "" && child.Status == engine.StatusQueued && child.Attempt == 0 && child.Origin == engine.OriginParked && !continues {
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
