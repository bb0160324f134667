package guestcall

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
)

// noMessages is the error text for a call that cannot receive messages.
const noMessages = "only a background run receives messages"

// Message is a message to a background run.
type Message struct {
	ID   int64           `json:"id"` // id of the message; later ones have higher ids
	At   time.Time       `json:"at"`
	By   string          `json:"by,omitempty"` // the sender; empty means the session's agent
	Data json.RawMessage `json:"message"`
}

// messageOperations receives messages to a run.
var messageOperations = map[string]Operation{
	"messages.receive": {func(c *Call) bool { return c.Receive != nil }, noMessages, receiveOperation},
}

// receiveOperation takes {"after", "wait_ms"} and answers {"messages"}. If the call is
// asked to stop while it waits without a message, the operation is canceled. The
// call's time limit keeps running.
func receiveOperation(c *Call, request []byte) (Work, int32) {
	var in struct {
		After  int64 `json:"after"`
		WaitMS int64 `json:"wait_ms"`
	}
	if decodeStrict(request, &in) != nil || in.After < 0 || in.WaitMS < 0 {
		return nil, c.Refuse(abi.CallInvalid, "invalid", `expected {"after": id of the last message, "wait_ms": milliseconds}`)
	}

	c.Meter.Charge(readCost)
	if in.After > 0 {
		c.Meter.Charge(saveCost) // acknowledged messages are removed
		c.Effect.TakesMessages = true
	}
	wait := time.Duration(min(in.WaitMS, int64(time.Hour/time.Millisecond))) * time.Millisecond
	return func(ctx context.Context) End {
		found, err := c.Receive(ctx, in.After, wait)
		canceled := ctx.Err() != nil
		return End{Cut: canceled && len(found) == 0, Finish: func() int32 { return answerReceive(c, found, err, canceled) }}
	}, 0
}

// answerReceive responds to the operation messages.receive.
func answerReceive(c *Call, found []Message, err error, canceled bool) int32 {
	switch {
	case errors.Is(err, grant.ErrDenied):
		return c.deny(noMessages)
	case len(found) == 0 && (c.IsStopping() || canceled):
		return c.RefuseCanceled()
	case err != nil:
		return c.Refuse(abi.CallFailed, "failed", "the messages cannot be reached now")
	}
	if found == nil {
		found = []Message{}
	}
	return c.respond(JSON(map[string]any{"messages": found}))
}

// Receive is the type of [Services.Receive].
type Receive = func(ctx context.Context, after int64, wait time.Duration) ([]Message, error)
