package runs

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/shape"
)

// A HeldCall is a call that has to wait until a person has approved it.
type HeldCall struct {
	Waiter
	Tool     *catalog.Tool
	Approval approval.Call           // the call as approvers see it
	Nested   bool                    // a tool makes the call
	Resumes  string                  // run of the earlier request that this one resumes; empty if none
	Run      background.SpawnRequest // request for the run that the call becomes
	// Make makes the call, once it is approved.
	Make func(ctx context.Context) (abi.Result, error)
}

// Hold stores a call as a run that starts once a person has approved it. An agent's call
// follows that run, and a tool's call waits for its end. A call with secret arguments is not
// stored: see [Follower.holdSecret].
func (f *Follower) Hold(ctx context.Context, c HeldCall) (abi.Result, error) {
	if c.Run.Stored != nil {
		return f.holdSecret(ctx, c)
	}
	run, err := f.spawnHeld(ctx, c.Session, c.Run)
	switch {
	case err != nil:
		return abi.Result{}, err
	case c.Nested:
		return f.awaitHeld(ctx, c.Session, run.ID)
	}
	return f.Follow(ctx, c.Waiter, run, c.Patience)
}

// spawnHeld stores a run that starts once it is approved.
func (f *Follower) spawnHeld(ctx context.Context, session string, req background.SpawnRequest) (engine.Run, error) {
	return f.Approvals.Hold(ctx, session, req.Tool, req.Stored != nil, func(bound approval.Binding) (background.SpawnResult, error) {
		req, err := held(req, bound)
		if err != nil {
			return background.SpawnResult{}, err
		}
		return f.Runs.Spawn(ctx, session, req)
	})
}

// held returns the request of a run that starts once it is approved.
func held(req background.SpawnRequest, bound approval.Binding) (_ background.SpawnRequest, err error) {
	req.Held = approval.HeldFor
	req.Terms, err = bind(req.Terms, bound)
	return req, err
}

// holdSecret is like Hold, but for a call with secret arguments. They stay in memory while
// the caller waits for the decision on its ticket.
func (f *Follower) holdSecret(ctx context.Context, c HeldCall) (abi.Result, error) {
	ticket, err := f.ticket(ctx, c)
	if err != nil {
		return abi.Result{}, err
	}
	wait := c.Patience
	if c.Nested {
		wait = -1
	}
	err = f.Approvals.Await(ctx, ticket, c.User, wait)
	if err == nil && approval.Unchanged(c.Tool, ticket, "") != nil {
		err = approval.ErrOutdated
	}

	switch {
	case errors.Is(err, question.ErrAskAgain):
		return c.askedAgain(ticket, err)
	case err == nil:
		err = f.Approvals.Redeem(ctx, ticket)
	default:
		f.abandon(ctx, c.Session, ticket.ID)
	}
	if err != nil && ctx.Err() != nil {
		return Canceled(ctx, abi.Result{})
	}
	if err != nil {
		return abi.Result{}, err
	}
	return c.Make(ctx)
}

// ticket returns the ticket of a call: the one of the earlier request that it resumes, or a
// new one.
func (f *Follower) ticket(ctx context.Context, c HeldCall) (engine.Run, error) {
	if c.Resumes != "" {
		if run, asks := f.Approvals.Ticket(ctx, c.Resumes, c.Tool, c.Approval); asks {
			return run, nil
		}
	}
	req := c.Run
	req.IdempotencyKey, req.Silent = "", true // the call itself has them
	return f.spawnHeld(ctx, c.Session, req)
}

// awaitHeld waits for the end of a held call to a tool. It withdraws the call if nobody
// waits for it any longer.
func (f *Follower) awaitHeld(ctx context.Context, session, id string) (abi.Result, error) {
	defer background.GiveWay(ctx)()
	r, err := f.awaitChild(ctx, session, id)
	if ctx.Err() != nil {
		f.abandon(ctx, session, id)
	}
	return r, err
}

// withdrawEarlier withdraws the held calls that an earlier attempt of a run has made,
// because the run makes them again. Calls that belong to a stored state continue with it.
func (f *Follower) withdrawEarlier(ctx context.Context, run engine.Run) {
	children, err := f.Records.List(ctx, engine.Query{Session: run.Session, Parent: run.ID, Active: true})
	if err != nil {
		f.Log.Warn("held calls of an earlier attempt were not withdrawn", "task_id", run.ID, "error", err)
	}
	for _, child := range children {
		continues := background.StateOf(ctx) != nil && strings.HasPrefix(child.ID, run.ID+"-")
		if bound, err := approval.BindingOf(child); err == nil && bound.Fingerprint != "" && child.Status == engine.StatusQueued && child.Attempt == 0 && child.Origin == engine.OriginParked && !continues {
			f.withdraw(ctx, run.Session, child.ID, "parent", "the run that made the call has begun again, and makes it again")
		}
	}
}

// abandon withdraws a run that the call that made it no longer waits for.
func (f *Follower) abandon(ctx context.Context, session, id string) {
	by := ""
	if question.Withdrawn(ctx) {
		by = "parent"
	}
	f.withdraw(ctx, session, id, by, "the call that made it does not wait for it any more")
}

// awaitChild waits for the end of a run that a tool's call has become, and returns the
// result for that tool.
func (f *Follower) awaitChild(ctx context.Context, session, id string) (abi.Result, error) {
	for logged := false; ; {
		run, err := f.checkChild(ctx, session, id)
		switch {
		case ctx.Err() != nil:
			return Canceled(ctx, abi.Result{})
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
			f.Log.Warn("a call that a run waits for cannot be read; trying again", "task_id", id, "error", err)
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
func (f *Follower) checkChild(ctx context.Context, session, id string) (engine.Run, error) {
	checked, err := f.Runs.Check(ctx, session, background.CheckRequest{IDs: []string{id}, Wait: background.MaxWait, MaxChars: -1, Peek: true})
	if err != nil {
		return engine.Run{}, err
	}
	run := checked.Reports[0].Run
	if run.Status.Terminal() {
		err = load(ctx, f.Runs, &run, engine.PartResult, engine.PartContent)
	}
	return run, err
}

// withdraw stops a run that a call has become, because nobody waits for it any longer.
func (f *Follower) withdraw(ctx context.Context, session, id, by, why string) {
	_, err := f.Runs.Stop(context.WithoutCancel(ctx), session, id, background.StopRequest{Force: true, By: by, Reason: why})
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		f.Log.Warn("a run was not stopped with the call that has made it", "task_id", id, "error", err)
	}
}

// ofChild returns the result of a child to the run that waits for it.
func ofChild(run engine.Run) (abi.Result, error) {
	if run.Held != "" {
		return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: shape.Result(run).Error}
	}
	if run.Error != nil {
		switch run.Error.Kind {
		case engine.KindOrphaned, engine.KindInterrupted:
			return abi.Result{}, lost(run.Error.Message)
		case engine.KindRejected:
			return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: run.Error.Message}
		}
	}
	return shape.Result(run), nil
}

// lost returns the error of a call whose outcome was lost with its host.
func lost(why string) error {
	return &host.Refusal{Code: abi.CallLost, Message: "the call had begun when its host ended (" + why + ")" + shape.TextUnknown}
}
