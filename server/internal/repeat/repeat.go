// Package repeat answers calls from the runs of earlier requests, so that nothing runs
// twice: a request with the same idempotency key, or one that was answered with a question.
package repeat

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/runs"
)

// MaxKey is the maximum length of an idempotency key, in characters.
const MaxKey = 128

// CheckKey checks the idempotency key of a call in a session.
func CheckKey(session, key string) error {
	switch {
	case session == "":
		return &background.FieldError{Field: "idempotency_key", Problem: "only with a session"}
	case utf8.RuneCountInString(key) > MaxKey:
		return &background.FieldError{Field: "idempotency_key", Problem: "longer than 128 characters"}
	}
	return nil
}

// Runs gives access to the runs of earlier requests. A *[background.Manager] implements it.
type Runs interface {
	Get(ctx context.Context, session, id string) (engine.Run, error)
	WithKey(ctx context.Context, session string, req background.SpawnRequest) (engine.Run, bool, error)
	Remove(ctx context.Context, session, id string) error
}

// A Follower waits for a run and returns its result. A *[runs.Follower] implements it.
type Follower interface {
	Follow(ctx context.Context, c runs.Waiter, run engine.Run, wait time.Duration) (abi.Result, error)
}

// A Repeater answers calls from the runs of earlier requests.
type Repeater struct {
	Runs     Runs
	Follower Follower
	Log      *slog.Logger
}

// A Call is a call that may repeat an earlier request.
type Call struct {
	runs.Waiter
	Tool    *catalog.Tool
	Args    json.RawMessage
	Key     string // idempotency key; empty if none
	Resumes string // id of the run of the earlier request; empty if none
}

// Answer answers a call from the run of an earlier request. If found is false, there is
// no such run, and the call must be made.
func (p Repeater) Answer(ctx context.Context, c Call) (r abi.Result, found bool, err error) {
	if c.Resumes != "" {
		if r, found, err = p.resume(ctx, c); found {
			return r, true, err
		}
	}
	if c.Key == "" {
		return abi.Result{}, false, nil
	}

	same := background.SpawnRequest{Tool: c.Tool.Name, Args: c.Args, IdempotencyKey: c.Key}
	if public, secret := c.Tool.PublicArgs(c.Args); secret {
		same.Stored = public
	}
	run, found, err := p.Runs.WithKey(ctx, c.Session, same)
	switch {
	case err != nil:
		r, _ = reason.Explain(err)
		return r, true, err
	case !found:
		return abi.Result{}, false, nil
	}
	r, err = p.Follow(ctx, c.Waiter, run)
	return r, true, err
}

// resume continues a call that was answered with a question. If found is false, the call
// starts over.
func (p Repeater) resume(ctx context.Context, c Call) (r abi.Result, found bool, err error) {
	run, err := p.Runs.Get(ctx, c.Session, c.Resumes)
	if err != nil || run.Tool != c.Tool.Name || approval.IsTicket(run) {
		return abi.Result{}, false, nil // it was removed, or is only a decision
	}
	r, err = p.Follower.Follow(ctx, c.Waiter, run, c.Patience)
	if errors.Is(err, approval.ErrOutdated) {
		c.Note.Run, c.Note.Followed = "", false
		return abi.Result{}, false, nil
	}
	return r, true, err
}

// Follow waits for the run of an earlier call, for as long as the caller would wait for a
// call, and returns the run's result. The session then needs no notice that the run has ended.
func (p Repeater) Follow(ctx context.Context, c runs.Waiter, run engine.Run) (abi.Result, error) {
	c.Note.Repeat = true
	return p.Follower.Follow(ctx, c, run, c.Patience)
}

// Forget removes the record of a keyed call that was not made, because its user is asked
// first or its plugin was replaced. The caller repeats it.
func (p Repeater) Forget(ctx context.Context, run engine.Run) {
	if err := p.Runs.Remove(context.WithoutCancel(ctx), run.Session, run.ID); err != nil {
		p.Log.Warn("record of a call that was not made not removed: its key cannot be used again", "task_id", run.ID, "error", err)
	}
}
