package guestcall

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
)

// askOperations puts questions to the user.
var askOperations = map[string]Operation{"ask": {func(c *Call) bool { return c.Grant.Ask }, "ask is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", askOperation}}

// askOperation waits for the answers. The call's time limit keeps running.
func askOperation(c *Call, request []byte) (Work, int32) {
	q, err := abi.DecodeQuestions(request)
	if err != nil {
		return nil, c.Refuse(abi.CallInvalid, "invalid", err.Error())
	}
	if c.Ask == nil {
		return nil, c.deny("nobody can be asked here")
	}

	ask := c.Ask
	if c.Effect.ID > 0 {
		if again := c.Suspension.AskAgain(c.Effect.ID); again != nil {
			ask = again
		}
	}
	return func(ctx context.Context) End {
		until, done := c.untilStopped(ctx)
		defer done()
		answers, err := ask(until, q)
		canceled := ctx.Err() != nil
		if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			c.unanswered.Store(true)
		}
		return End{Cut: canceled && err != nil, Finish: func() int32 { return answerAsk(c, answers, err, canceled) }}
	}, 0
}

// answerAsk responds to the operation ask.
func answerAsk(c *Call, answers abi.Answers, err error, canceled bool) int32 {
	switch {
	case c.IsStopping(), canceled && err != nil:
		return c.RefuseCanceled()
	case errors.Is(err, grant.ErrDenied):
		return c.deny(strings.TrimPrefix(err.Error(), grant.ErrDenied.Error()+": "))
	case errors.Is(err, abi.ErrQuestions):
		return c.Refuse(abi.CallInvalid, "invalid", err.Error())
	case errors.Is(err, abi.ErrAnswer):
		return c.Refuse(abi.CallFailed, "failed", err.Error())
	case err != nil:
		return c.Refuse(abi.CallFailed, "failed", "the question could not be asked")
	}

	response, err := json.Marshal(answers)
	if err != nil {
		return c.Refuse(abi.CallFailed, "failed", "the answer is not JSON")
	}
	return c.respond(response)
}

// untilStopped returns a context for work on the guest's behalf. It ends with its
// parent, when the tool is asked to stop, or when done is called.
func (c *Call) untilStopped(parent context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(parent)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-c.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()

	return ctx, func() {
		cancel()
		<-watching
	}
}
