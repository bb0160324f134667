package approval

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// A User is the user of a session, who decides on its held calls through a client. The zero
// User is not asked.
type User struct {
	// Ask asks the user, and returns the answer. An error leaves the call held;
	// question.ErrAskAgain means that the client answers with its next request.
	Ask       func(ctx context.Context, q Question) (abi.Answer, error)
	Keeps     bool // whether approvals can be kept for the session
	Connected bool // whether the session ends with its connection to this process
}

// span describes how long an approval for the session holds.
func (u User) span() string {
	if u.Connected {
		return "until this connection ends"
	}
	return "in this session, for a day"
}

var (
	// ErrOutdated means that a held call can no longer be approved, because its plugin or
	// its grants have changed. It has been withdrawn, and has to be held again.
	ErrOutdated = fmt.Errorf("%w: it or its grants have changed since the call was held", plugins.ErrReplaced)
	// errDecided is why the user is no longer asked: somebody else has decided.
	errDecided = errors.New("another person has decided")
)

// Ask asks a user about a held run, if the policy lets users decide, and returns the run once
// anybody has decided. If the user does not decide, the run stays held. The error matches
// [reason.ErrApproval] if the call was refused, ErrOutdated if it can no longer be approved,
// or question.ErrAskAgain if the client calls again.
func (m *Manager) Ask(ctx context.Context, run engine.Run, u User) (engine.Run, error) {
	if u.Ask == nil || !m.Policy().byUser() {
		return run, nil
	}
	tool, err := m.Lookup(run.Tool)
	if err != nil || Unchanged(tool, run, "") != nil {
		return run, m.outdate(ctx, run)
	}
	q, err := m.question(ctx, tool, run, u)
	if err != nil {
		return run, err
	}

	asking, stop := m.whileHeld(ctx, run)
	answer, err := u.Ask(asking, q)
	stop()
	switch {
	case errors.Is(err, question.ErrAskAgain), ctx.Err() != nil:
		return run, errors.Join(err, ctx.Err())
	case err != nil && !errors.Is(context.Cause(asking), errDecided):
		m.Log.Info("the user of a client was not asked about a held call", "task_id", run.ID, "tool", run.Tool, "session", run.Session, "error", err)
		return run, nil
	case err == nil:
		err = m.answer(ctx, q, answer, u)
	}
	if errors.Is(err, ErrChanged) {
		return m.Ask(ctx, run, u)
	}
	return m.outcome(ctx, run, err)
}

// outdate refuses a held call whose plugin or grants have changed. An agent's call leaves
// no record, so that it can be held again with the same key.
func (m *Manager) outdate(ctx context.Context, run engine.Run) error {
	if _, err := m.refuse(ctx, run, "host", "the plugin or its grants have changed"); err != nil {
		return err
	}
	if callerOf(run) == "" {
		if err := m.Runs.Remove(context.WithoutCancel(ctx), run.Session, run.ID); err != nil {
			return err
		}
	}
	return ErrOutdated
}

// answer applies the user's answer about a held call.
func (m *Manager) answer(ctx context.Context, q Question, answer abi.Answer, u User) error {
	in, err := decisionOf(q, answer)
	if err != nil || !m.Policy().byUser() { // since it was asked
		return nil // it stays held
	}
	_, err = m.decide(ctx, q.Run, "user", in, u.Connected)
	return err
}

// outcome returns a held run after a decision. The decision may have failed with err:
// another one came first, or the policy now denies the tool, which ends the call.
func (m *Manager) outcome(ctx context.Context, run engine.Run, err error) (engine.Run, error) {
	if errors.Is(err, reason.ErrApproval) {
		if _, err := m.refuse(ctx, run, "policy", ""); err != nil {
			return run, err
		}
		return run, err
	}
	now, gone := m.Engine.Get(ctx, run.ID)
	switch {
	case gone != nil:
		return run, gone
	case now.Held != "" && now.Status == engine.StatusCanceled:
		return now, RefusedBy(now)
	case now.Undecided():
		return now, err
	}
	return now, nil
}

// RefusedBy returns the error of a call that was refused while it was held.
func RefusedBy(run engine.Run) error {
	why := "it was withdrawn"
	if run.Cancel != nil {
		why = strings.TrimPrefix(run.Cancel.Reason, notApproved+": ")
	}
	return fmt.Errorf("%w: %s", reason.ErrApproval, why)
}
