package server

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// Send sends a message, at most 16 KiB of JSON, to an active run whose tool reads
// messages, as the hint messages of its manifest says. The record keeps by as the
// sender; empty means the session's agent. A run has at most 64 messages, 256 KiB
// together, that its tool has not taken.
func (v Session) Send(ctx context.Context, id, by string, message json.RawMessage) (wire.Message, error) {
	run, err := v.record(ctx, id)
	if err != nil {
		return wire.Message{}, err
	}
	tool, err := v.service.lookup(run.Tool)
	if err != nil {
		return wire.Message{}, err
	}
	if !tool.Hints.Messages {
		return wire.Message{}, refuse("%s does not read messages", run.Tool)
	}

	m, err := v.service.runs.Mailbox(v.name, id).Send(ctx, by, message)
	if limit, ok := errors.AsType[*engine.LimitError](err); ok && !errors.Is(err, engine.ErrRecordLimit) {
		err = &refusal{Reason: Reason{Code: wire.CodeLimit, Max: limit.Max, Retry: fullRetry,
			Text: "the mailbox of this run is full: wait until its tool has read some messages"}, err: err}
	}
	return newMessage(m), err
}

// fullRetry is when a full mailbox may have room again.
const fullRetry = 5 * time.Second

// Messages returns the messages that the tool of a run has not taken, in the order they
// were sent. The end of the run removes them.
func (v Session) Messages(ctx context.Context, id string) (wire.Messages, error) {
	found, err := v.service.runs.Mailbox(v.name, id).List(ctx)
	out := wire.Messages{Messages: make([]wire.Message, len(found))}
	for i, m := range found {
		out.Messages[i] = newMessage(m)
	}
	return out, err
}

func newMessage(m background.Message) wire.Message {
	return wire.Message{ID: m.ID, SentAt: m.At, By: m.By, Message: m.Data}
}
