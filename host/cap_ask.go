package host

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toolhost/toolhost/abi"
)

// askOperations puts questions to the user.
var askOperations = map[string]operation{"ask": {func(c *call) bool { return c.Policy.Ask }, "ask is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", askOperation}}

// askOperation waits for the answers. The call's time limit keeps running.
func askOperation(c *call, request []byte) (work, int32) {
	q, err := abi.DecodeQuestions(request)
	if err != nil {
		return nil, c.refuse(abi.CallInvalid, "invalid", err.Error())
	}
	if c.Ask == nil {
		return nil, c.deny("nobody can be asked here")
	}

	ask := c.Ask
	if operation := c.begun.id; c.pending.asksAgain() && operation > 0 {
		ask = func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
			return c.Suspend.Ask(ctx, operation, q)
		}
	}
	return func(ctx context.Context) end {
		until, done := c.untilStopped(ctx)
		defer done()
		answers, err := ask(until, q)
		canceled := ctx.Err() != nil
		return end{cut: canceled && err != nil, finish: func() int32 { return answerAsk(c, answers, err, canceled) }}
	}, 0
}

// answerAsk responds to the operation ask.
func answerAsk(c *call, answers abi.Answers, err error, canceled bool) int32 {
	switch {
	case c.stopping(), canceled && err != nil:
		return c.refuseCanceled()
	case errors.Is(err, ErrDenied):
		return c.deny(err.Error())
	case errors.Is(err, abi.ErrQuestions):
		return c.refuse(abi.CallInvalid, "invalid", err.Error())
	case errors.Is(err, abi.ErrAnswer):
		return c.refuse(abi.CallFailed, "failed", err.Error())
	case err != nil:
		return c.refuse(abi.CallFailed, "failed", "the question could not be asked")
	}

	response, err := json.Marshal(answers)
	if err != nil {
		return c.refuse(abi.CallFailed, "failed", "the answer is not JSON")
	}
	return c.respond(response)
}

// asksAgain reports whether the user can be asked again when the call continues.
func (p *pending) asksAgain() bool { return p.call.Suspend != nil && p.call.Suspend.Ask != nil }

// untilStopped returns a context for work on the guest's behalf. It ends with its
// parent, when the tool is asked to stop, or when done is called.
func (c *call) untilStopped(parent context.Context) (_ context.Context, done func()) {
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
