package guest

import (
	"encoding/json"
	"time"
)

// Message is a message to a running background run.
type Message struct {
	ID   int64           `json:"id"` // later messages have higher ids
	At   time.Time       `json:"at"`
	By   string          `json:"by,omitempty"` // the sender; empty means the session's agent
	Data json.RawMessage `json:"message"`
}

// Receive waits for the next message to the run and returns it. Messages arrive in the order
// they were sent. Receive returns nil if none arrives within the given time. The tool needs the
// hint messages. If the call is stopped while it waits, the error matches [ErrCanceled]; in a
// call that is not a background run it matches [ErrDenied].
//
// A message is acknowledged when Receive is called again and asks the host for more. If
// the host goes down before that, the message is delivered again to the next attempt:
// save a checkpoint with its ID after each message whose effect must not be repeated. A
// checkpoint must contain everything that the tool needs from earlier messages, because
// an idempotent or readonly tool restarts from its last checkpoint. Do not call Receive
// from several goroutines.
func (c *Call) Receive(wait time.Duration) (*Message, error) {
	if len(c.inbox) == 0 {
		var out struct {
			Messages []Message `json:"messages"`
		}
		request := map[string]int64{"after": c.received, "wait_ms": int64(max(0, wait) / time.Millisecond)}
		if err := c.Host("messages.receive", request, &out); err != nil {
			return nil, err
		}
		c.inbox = out.Messages
	}
	if len(c.inbox) == 0 {
		return nil, nil
	}

	m := c.inbox[0]
	c.inbox, c.received = c.inbox[1:], m.ID
	return &m, nil
}
