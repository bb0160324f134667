package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// textLost tells a caller why a decision on its call came too late.
const textLost = "its arguments have a secret, which is only in the memory of its host while its caller waits: call again"

// errSecretHeld is the error of a spawn that needs approval and has secret arguments.
var errSecretHeld = fmt.Errorf("%w, and its arguments have a secret, which is not stored: it cannot wait for an answer. Call the tool directly, and wait for the decision", ErrApproval)

// isTicket reports whether a run is a ticket: a held run that only records the decision on
// a call with secret arguments. It has the other arguments, and never starts, because its
// caller makes the call once it is approved.
func isTicket(run engine.Run) bool {
	return run.Secret && run.Origin == engine.OriginParked && run.Attempt == 0
}

// holdSecret is hold for a call with secret arguments. They stay in memory while the caller
// waits for the decision.
func (f follower) holdSecret(ctx context.Context, c call, a Approval, next callFunc) (abi.Result, error) {
	ticket, err := f.ticket(ctx, c, a)
	if err != nil {
		return abi.Result{}, err
	}
	err = f.awaitDecision(ctx, c, ticket)
	if err == nil && unchanged(c.tool, ticket, "") != nil {
		err = errOutdated
	}

	switch {
	case errors.Is(err, ErrAskAgain):
		return c.askedAgain(ticket, err)
	case err == nil:
		err = f.redeem(ctx, ticket)
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
func (f follower) ticket(ctx context.Context, c call, a Approval) (engine.Run, error) {
	version, err := versionOf(c.tool)
	if err != nil {
		return engine.Run{}, err
	}
	req := c.asLaterRun(ctx, version)
	if run, asks := f.ticketOf(ctx, c); asks {
		return run, nil
	}

	req.IdempotencyKey, req.Silent = "", true // the call itself has them
	return f.approvals.hold(ctx, c.Session, req, a)
}

// ticketOf returns the ticket of the earlier request that a call resumes. One that is older
// than the client may take to repeat it counts no more.
func (f follower) ticketOf(ctx context.Context, c call) (engine.Run, bool) {
	if c.Resumes == "" || c.DryRun {
		return engine.Run{}, false
	}
	run, err := f.runs.Get(ctx, c.Session, c.Resumes)
	if err != nil || !isTicket(run) || run.Tool != c.tool.Name || time.Since(run.CreatedAt) > MaxAskAgain {
		return run, false
	}

	by := ""
	if c.outer != nil {
		by = c.outer.tool.Name
	}
	public, secret := c.tool.PublicArgs(c.Args)
	stored, err := f.runs.Payload(ctx, c.Session, run.ID, engine.PartArgs)
	return run, err == nil && secret && run.By == by && digestOf(stored) == digestOf(public)
}

// awaitDecision waits until somebody has decided on the ticket of a call. The error is the
// reason not to make the call.
func (f follower) awaitDecision(ctx context.Context, c call, ticket engine.Run) error {
	ticket, err := f.approvals.outcome(ctx, ticket, nil)
	if err == nil && ticket.Undecided() {
		ticket, err = f.approvals.decided(ctx, ticket, f.decider(c.Request))
	}
	if err != nil || !ticket.Undecided() {
		return err
	}

	if c.outer == nil {
		wait := c.patience()
		timed, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w: nobody has decided in %v, and %s", ErrApproval, wait, textLost))
		defer cancel()
		ctx = timed
	} else {
		defer background.GiveWay(ctx)()
	}
	asking, stop := f.approvals.whileHeld(ctx, ticket)
	<-asking.Done()
	cause := context.Cause(asking)
	stop()
	if !errors.Is(cause, errDecided) {
		return cause
	}
	if _, err = f.approvals.outcome(ctx, ticket, nil); errors.Is(err, engine.ErrNotFound) {
		return notHeld(ticket.ID)
	}
	return err
}

// redeem removes an approved ticket, so that it counts for one call.
func (f follower) redeem(ctx context.Context, ticket engine.Run) error {
	ctx = context.WithoutCancel(ctx)
	_, err := f.runs.Stop(ctx, ticket.Session, ticket.ID, background.StopRequest{Force: true, By: "host", Reason: "its caller makes the call"})
	if err == nil {
		err = f.runs.Remove(ctx, ticket.Session, ticket.ID)
	}
	if errors.Is(err, engine.ErrNotFound) {
		return notHeld(ticket.ID)
	}
	return err
}

// dropTickets refuses the waiting tickets whose hosts have gone down, and those of agents
// that have not come back.
func (p Approvals) dropTickets(ctx context.Context, waiting []engine.Run) error {
	tickets := slices.DeleteFunc(slices.Clone(waiting), func(run engine.Run) bool { return !isTicket(run) || hostOf(run) == p.service.process && !left(run) })
	if len(tickets) == 0 {
		return nil
	}
	live, err := p.service.cluster.Processes(ctx)
	if err != nil {
		return err
	}

	var errs []error
	for _, run := range tickets {
		if !live[hostOf(run)] || left(run) {
			a := Approval{Session: run.Session, Tool: run.Tool, Caller: callerOf(run), run: run.ID}
			_, err := p.refuse(ctx, a, "host", textLost)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// left reports whether the agent that made the call of a ticket can no longer come back.
func left(ticket engine.Run) bool {
	return callerOf(ticket) == "" && time.Since(ticket.CreatedAt) > MaxAskAgain
}

// hostOf returns the process that has the secret arguments of a ticket.
func hostOf(ticket engine.Run) string {
	t, _ := termsIn(ticket) // an error: no process
	return t.Host
}
