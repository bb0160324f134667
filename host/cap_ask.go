package host

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toolhost/toolhost/abi"
)

// askCapability puts questions to the user.
var askCapability = flag("ask", "questions to the user",
	func(n abi.Needs) bool { return n.Ask }, func(g *Grant) *bool { return &g.Ask },
	map[string]operation{"ask": {func(c *call) bool { return c.Policy.Ask }, "ask is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", askOperation}})

// askOperation waits for the answers. The time of the call runs meanwhile.
func askOperation(c *call, request []byte) int32 {
	q, err := abi.DecodeQuestions(request)
	if err != nil {
		return c.refuse(abi.CallInvalid, "invalid", err.Error())
	}
	if c.Ask == nil {
		return c.deny("nobody can be asked here")
	}

	answers, err := c.ask(q)
	c.meter.check() // a call that has to end ends here
	switch {
	case c.stopping():
		return c.refuseStopped()
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

// ask asks until the call is asked to stop.
func (c *call) ask(q abi.Questions) (abi.Answers, error) {
	ctx, done := c.untilStopped()
	defer done()

	c.guest.Idle()
	defer c.guest.Compute()
	return c.Ask(ctx, q)
}

// untilStopped returns a context of what the host does for the guest: it ends with the
// call, when the tool is asked to stop, or with done.
func (c *call) untilStopped() (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(&c.ctx)
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
