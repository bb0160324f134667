package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// Send sends a message, at most 16 KiB of JSON, to an active run whose tool reads
// messages (the hint messages of its manifest). The record keeps by as the sender; empty
// means the session's agent. A run has at most 64 unread messages, 256 KiB together. In a
// dry run the message has no id, and is not sent.
func (v Session) Send(ctx context.Context, id, by string, message json.RawMessage) (wire.Message, error) {
	run, err := v.record(ctx, id)
	if err == nil && run.Status.Terminal() {
		err = ended(run)
	}
	if err == nil {
		err = v.readsMessages(run)
	}
	if err != nil {
		return wire.Message{}, err
	}

	box := v.service.runs.Mailbox(run.Session, id)
	if InDryRun(ctx) {
		m, err := box.Check(ctx, by, message)
		return newMessage(m), refusedMessage(run, err)
	}
	m, err := box.Send(ctx, by, message)
	return newMessage(m), refusedMessage(run, err)
}

// readsMessages returns an error if the tool of an active run does not read messages.
func (v Session) readsMessages(run engine.Run) error {
	tool, err := v.service.catalog.Lookup(run.Tool)
	switch {
	case errors.Is(err, plugins.ErrNoTool):
		return reason.Refuse("%s was removed from this host while %s ran: that run gets no more messages. Wait for its end, or stop it", run.Tool, run.ID)
	case err == nil && !tool.Hints.Messages:
		err = reason.Refuse("%s does not read messages: wait for the end of %s, or stop it and run %s with other arguments", run.Tool, run.ID, run.Tool)
	}
	return err
}

// ended refuses a message to a run that has ended.
func ended(run engine.Run) error {
	return &reason.Error{Reason: Reason{Code: wire.CodeConflict,
		Text: fmt.Sprintf("%s has ended (%s) and takes no more messages: read its result, or run %s again", run.ID, run.Status, run.Tool)}, Err: background.ErrEnded}
}

// refusedMessage says what to do about a message that the mailbox refused.
func refusedMessage(run engine.Run, err error) error {
	if errors.Is(err, background.ErrEnded) {
		return ended(run)
	}
	if limit, ok := errors.AsType[*engine.LimitError](err); ok && !errors.Is(err, engine.ErrRecordLimit) {
		return &reason.Error{Reason: Reason{Code: wire.CodeLimit, Max: limit.Max, Retry: fullRetry, Text: fmt.Sprintf(
			"the mailbox of %s is full: send the message again when its tool has read some of the others", run.ID)}, Err: err}
	}
	return err
}

// fullRetry is when a full mailbox may have room again.
const fullRetry = 5 * time.Second

// Messages returns the unread messages of a run, in the order they were sent. The end of
// the run removes them.
func (v Session) Messages(ctx context.Context, id string) (wire.Messages, error) {
	run, err := v.record(ctx, id)
	if err != nil {
		return wire.Messages{}, err
	}
	found, err := v.service.runs.Mailbox(run.Session, id).List(ctx)
	out := wire.Messages{Messages: make([]wire.Message, len(found))}
	for i, m := range found {
		out.Messages[i] = newMessage(m)
	}
	return out, err
}

func newMessage(m background.Message) wire.Message {
	return wire.Message{ID: m.ID, SentAt: m.At, By: m.By, Message: m.Data}
}
