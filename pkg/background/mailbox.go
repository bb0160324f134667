package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Limits of the unacknowledged messages of a run.
const (
	MaxMessages     = 64        // number of messages
	MaxMessage      = 16 << 10  // bytes of one message
	MaxMessageBytes = 256 << 10 // bytes of all messages
	MaxReceived     = 16        // messages that one Receive returns
)

var mailboxLimit = engine.ValueLimit{Count: MaxMessages, Bytes: MaxMessageBytes}

// ErrEnded means that a run has ended, and accepts no more messages.
var ErrEnded = errors.New("the run has ended and takes no more messages")

// A Message is a message to a run.
type Message struct {
	ID   int64           `json:"-"` // increases with each message of the run
	At   time.Time       `json:"-"`
	By   string          `json:"by,omitempty"` // the sender; "": the session's agent
	Data json.RawMessage `json:"message"`
}

// A Mailbox holds the unacknowledged messages of an active run. They are stored like
// the run, and removed when the run ends. Each attempt gets them again until they are
// acknowledged.
type Mailbox struct {
	reader  *reader
	session string
	run     string
}

// Mailbox returns the mailbox of a run of the session.
func (m *Manager) Mailbox(session, run string) Mailbox { return Mailbox{m.reader, session, run} }

func (b Mailbox) scope() engine.Scope { return engine.Scope{Session: b.session, Run: b.run} }

// open returns an error if the session does not have the run, or it has ended.
func (b Mailbox) open(ctx context.Context) error {
	h, err := b.reader.lookup(ctx, b.session, b.run)
	if err == nil && h.run.Status.Terminal() {
		err = ErrEnded
	}
	return err
}

// Send stores a message for the run, at most MaxMessage bytes of JSON, and returns it
// with its id. If the mailbox is full, the error is an *[engine.LimitError] matching
// [engine.ErrValueCount] or [engine.ErrValueBytes]. The error matches [ErrEnded] if
// the run has ended, and [engine.ErrNotFound] if the session does not have it.
func (b Mailbox) Send(ctx context.Context, by string, data json.RawMessage) (Message, error) {
	m, text, err := b.prepare(ctx, by, data)
	if err != nil {
		return Message{}, err
	}
	stored, err := b.reader.engine.PutValue(context.WithoutCancel(ctx), b.scope(), engine.Value{Data: text}, mailboxLimit)
	if errors.Is(err, engine.ErrNotFound) { // it has ended in the meantime
		err = ErrEnded
	}
	m.ID, m.At = stored.Version, stored.At
	return m, err
}

// Check makes the same checks as Send but stores nothing, so the message that it
// returns has no id.
func (b Mailbox) Check(ctx context.Context, by string, data json.RawMessage) (Message, error) {
	m, text, err := b.prepare(ctx, by, data)
	if err != nil {
		return Message{}, err
	}
	stored, err := b.reader.engine.Values(ctx, b.scope(), "", 0, false)
	if err != nil {
		return Message{}, fmt.Errorf("reading the messages of run %s: %w", b.run, err)
	}

	count, size := 1, int64(len(engine.VersionKey(1))+len(text))
	for _, v := range stored {
		if v.Key != questionKey {
			count, size = count+1, size+int64(len(v.Key)+v.Bytes)
		}
	}
	return m, mailboxLimit.Check(count, size)
}

// prepare returns a message to send and its stored form.
func (b Mailbox) prepare(ctx context.Context, by string, data json.RawMessage) (m Message, stored []byte, err error) {
	switch {
	case len(data) > MaxMessage:
		return m, nil, &FieldError{"message", fmt.Sprintf("it has %d bytes, and at most %d are allowed", len(data), MaxMessage)}
	case !json.Valid(data):
		return m, nil, &FieldError{"message", "not valid JSON"}
	}
	if err := b.open(ctx); err != nil {
		return m, nil, err
	}
	m = Message{At: time.Now(), By: output.Shorten(by, maxReason), Data: data}
	stored, err = json.Marshal(m)
	return m, stored, err
}

// List returns the unacknowledged messages, in the order they were sent.
func (b Mailbox) List(ctx context.Context) ([]Message, error) {
	if _, err := b.reader.lookup(ctx, b.session, b.run); err != nil {
		return nil, err
	}
	return readMessages(ctx, b.reader.engine, b.scope(), 0)
}

func readMessages(ctx context.Context, e engine.Engine, s engine.Scope, max int) ([]Message, error) {
	stored, err := e.Values(ctx, s, "", max, true)
	if err != nil {
		return nil, fmt.Errorf("reading the messages of run %s: %w", s.Run, err)
	}

	all := make([]Message, 0, len(stored))
	for _, v := range stored {
		if v.Key == questionKey {
			continue
		}
		m := Message{ID: v.Version, At: v.At}
		if err := json.Unmarshal(v.Data, &m); err != nil {
			return nil, fmt.Errorf("reading message %d of run %s: %w", v.Version, s.Run, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// Receive returns the messages of the run whose work ctx belongs to, up to MaxReceived
// of them in the order they were sent. If there are none, it waits for the first one;
// if wait passes or the run is asked to stop before that, it returns none. First it
// acknowledges the messages with ids up to after, 0 for none: they are never returned
// again. All other messages are returned again, even to a later attempt. If ctx does
// not belong to a run, the error matches [output.ErrNoRun].
func Receive(ctx context.Context, after int64, wait time.Duration) ([]Message, error) {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return nil, output.ErrNoRun
	}

	s := w.scope()
	if after > 0 {
		if err := w.core.engine.DropValues(ctx, s, engine.VersionKey(after)); err != nil {
			return nil, fmt.Errorf("taking messages of run %s: %w", s.Run, err)
		}
	}

	timer := time.NewTimer(max(0, wait))
	defer timer.Stop()
	for late := wait <= 0; ; {
		found, err := readMessages(ctx, w.core.engine, s, MaxReceived)
		if len(found) > 0 {
			seen := &w.task.mailSeen
			seen.Store(max(seen.Load(), found[len(found)-1].ID))
		}
		if err != nil || len(found) > 0 || late {
			return found, err
		}
		select {
		case <-w.task.mail:
		case <-timer.C:
			late = true
		case <-w.task.sink.Stopping():
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
