package server

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// ErrCancel is the cancellation cause that stops a call with a Key. If its context ends
// in any other way, the call continues without the caller: a client that has lost its
// connection repeats the call with the same key.
var ErrCancel = errors.New("the caller canceled the call")

// cancelsKeyed reports whether the end of a caller's context stops its keyed call.
func cancelsKeyed(cause error) bool {
	return errors.Is(cause, ErrCancel) || errors.Is(cause, ErrAskAgain)
}

// checkKey checks the key of a call.
func checkKey(req Request) error {
	switch {
	case req.Session == "":
		return &background.FieldError{Field: "idempotency_key", Problem: "only with a session"}
	case utf8.RuneCountInString(req.Key) > MaxKey:
		return &background.FieldError{Field: "idempotency_key", Problem: "longer than 128 characters"}
	}
	return nil
}

// repeat is the stage that answers a call from the run of an earlier request: one with
// the same key, or one that was answered with a question.
func (f follower) repeat(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if c.DryRun {
			return next(ctx, c)
		}
		if c.Resumes != "" {
			if r, found, err := f.resume(ctx, c); found {
				return r, err
			}
		}
		if c.Key != "" {
			if r, found, err := f.repeatKeyed(ctx, c); found {
				return r, err
			}
		}
		return next(ctx, c)
	}
}

// repeatKeyed answers a call whose key the session has used before. It reports false
// for a new key.
func (f follower) repeatKeyed(ctx context.Context, c call) (r abi.Result, found bool, err error) {
	same := background.SpawnRequest{Tool: c.tool.Name, Args: c.Args, IdempotencyKey: c.Key}
	if public, secret := c.tool.PublicArgs(c.Args); secret {
		same.Stored = public
	}

	run, found, err := f.runs.WithKey(ctx, c.Session, same)
	switch {
	case err != nil:
		r, _ = reason.Explain(err)
		return r, true, err
	case !found:
		return r, false, nil
	}
	r, err = f.repeated(ctx, c, run)
	return r, true, err
}

// repeated waits for the run of an earlier call as long as for a call, and returns its
// result. The session then needs no notice of the end.
func (f follower) repeated(ctx context.Context, c call, run engine.Run) (abi.Result, error) {
	c.note.Repeat = true
	return f.follow(ctx, c, run, c.patience())
}

// forgetUnmade removes the record of a keyed call that was not made, because its user is
// asked first or its plugin was replaced. The caller repeats it.
func (f follower) forgetUnmade(ctx context.Context, run engine.Run) {
	if err := f.runs.Remove(context.WithoutCancel(ctx), run.Session, run.ID); err != nil {
		f.log.Warn("record of a call that was not made not removed: its key cannot be used again", "task_id", run.ID, "error", err)
	}
}
