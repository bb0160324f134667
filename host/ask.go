package host

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/toolhost/toolhost/abi"
)

// askCapability puts questions to the user and waits for the answers. The time
// of the call runs meanwhile.
func (c *call) askCapability(request []byte) int32 {
	q, err := abi.DecodeQuestions(request)
	switch {
	case err != nil:
		return c.refuse(abi.CallInvalid, "invalid", err.Error())
	case c.Ask == nil:
		return c.refuse(abi.CallDenied, "denied", "nobody can be asked here")
	}
	ctx, cancel := context.WithCancel(&c.ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-c.Stopping:
			cancel()
		case <-ctx.Done():
		}
	})
	c.guest.Idle()
	answers, err := c.Ask(ctx, q)
	_ = c.compute()
	c.charge(0) // a call that was ended meanwhile ends here
	switch {
	case c.stopping():
		return c.refuse(abi.CallCanceled, "canceled", "the call is being stopped")
	case errors.Is(err, ErrDenied):
		return c.refuse(abi.CallDenied, "denied", err.Error())
	case errors.Is(err, abi.ErrQuestions):
		return c.refuse(abi.CallInvalid, "invalid", err.Error())
	case errors.Is(err, abi.ErrAnswer):
		return c.refuse(abi.CallFailed, "failed", err.Error())
	case err != nil:
		return c.refuse(abi.CallFailed, "failed", "the question could not be asked")
	}
	c.response, err = json.Marshal(answers)
	if err != nil {
		return c.refuse(abi.CallFailed, "failed", "the answer is not JSON")
	}
	c.charge(len(c.response))
	return int32(len(c.response))
}
