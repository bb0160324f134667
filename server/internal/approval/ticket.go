package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// textLost tells a caller why a decision on its call came too late.
const textLost = "its arguments have a secret, which is only in the memory of its host while its caller waits: call again"

// IsTicket reports whether a run is a ticket: a held run that only records the decision on
// a call with secret arguments. It stores only the other arguments, and never starts: the
// caller makes the call itself, once it is approved.
func IsTicket(run engine.Run) bool {
	return run.Secret && run.Origin == engine.OriginParked && run.Attempt == 0
}

// Ticket returns the ticket with this id, if it was made for this call: for the same tool, the
// same arguments and the same caller. A ticket expires after the time that a client has to
// repeat a request.
func (m *Manager) Ticket(ctx context.Context, id string, tool *catalog.Tool, c Call) (engine.Run, bool) {
	run, err := m.Runs.Get(ctx, c.Session, id)
	if err != nil || !IsTicket(run) || run.Tool != tool.Name || time.Since(run.CreatedAt) > question.MaxAskAgain {
		return run, false
	}
	public, secret := tool.PublicArgs(c.Args)
	stored, err := m.Runs.Payload(ctx, c.Session, run.ID, engine.PartArgs)
	return run, err == nil && secret && run.By == c.Caller && digestOf(stored) == digestOf(public)
}

// Await asks the user, and then waits for the decision on the ticket of a call: for at most
// the duration wait, or, if that is negative, until ctx is done. The error says why the call
// must not be made.
func (m *Manager) Await(ctx context.Context, ticket engine.Run, u User, wait time.Duration) error {
	ticket, err := m.outcome(ctx, ticket, nil)
	if err == nil && ticket.Undecided() {
		ticket, err = m.Ask(ctx, ticket, u)
	}
	if err != nil || !ticket.Undecided() {
		return err
	}

	if wait >= 0 {
		timed, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w: nobody has decided in %v, and %s", reason.ErrApproval, wait, textLost))
		defer cancel()
		ctx = timed
	} else {
		defer background.GiveWay(ctx)()
	}
	asking, stop := m.whileHeld(ctx, ticket)
	<-asking.Done()
	cause := context.Cause(asking)
	stop()
	if !errors.Is(cause, errDecided) {
		return cause
	}
	if _, err = m.outcome(ctx, ticket, nil); errors.Is(err, engine.ErrNotFound) {
		return notHeld(ticket.ID)
	}
	return err
}

// Redeem removes an approved ticket, so that it is valid for one call only.
func (m *Manager) Redeem(ctx context.Context, ticket engine.Run) error {
	ctx = context.WithoutCancel(ctx)
	_, err := m.Runs.Stop(ctx, ticket.Session, ticket.ID, background.StopRequest{Force: true, By: "host", Reason: "its caller makes the call"})
	if err == nil {
		err = m.Runs.Remove(ctx, ticket.Session, ticket.ID)
	}
	if errors.Is(err, engine.ErrNotFound) {
		return notHeld(ticket.ID)
	}
	return err
}

// dropTickets refuses the waiting tickets whose hosts have gone down, and those of agents
// that have not come back.
func (m *Manager) dropTickets(ctx context.Context, waiting []engine.Run) error {
	tickets := slices.DeleteFunc(slices.Clone(waiting), func(run engine.Run) bool {
		return !IsTicket(run) || processOf(run) == m.Process && !left(run)
	})
	if len(tickets) == 0 {
		return nil
	}
	live, err := m.Processes(ctx)
	if err != nil {
		return err
	}

	var errs []error
	for _, run := range tickets {
		if !live[processOf(run)] || left(run) {
			_, err := m.refuse(ctx, run, "host", textLost)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// left reports whether the agent that made the call of a ticket can no longer come back.
func left(ticket engine.Run) bool {
	return callerOf(ticket) == "" && time.Since(ticket.CreatedAt) > question.MaxAskAgain
}

// processOf returns the process that holds the secret arguments of a ticket.
func processOf(ticket engine.Run) string {
	b, _ := BindingOf(ticket) // an error: no process
	return b.Process
}
