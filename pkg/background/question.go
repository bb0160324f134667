package background

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// questionKey has what a run asks while it waits without a worker. It is no key of a
// message, and comes after all of them.
const questionKey = "question"

// questionLimit bounds a question together with the messages.
var questionLimit = engine.ValueLimit{Count: MaxMessages + 1, Bytes: MaxMessageBytes + MaxValueBytes}

// SaveQuestion stores the questions of the run whose work ctx belongs to, until the run
// ends: JSON of at most [MaxValueBytes]. It replaces what [Question] has returned with
// that version. A change by [Mailbox.Answer] lets the run continue. The error matches
// [engine.ErrConflict] if the questions were changed meanwhile.
func SaveQuestion(ctx context.Context, question json.RawMessage, version int64) error {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return output.ErrNoRun
	}
	stored, err := w.core.engine.PutValue(context.WithoutCancel(ctx), w.scope(), engine.Value{Key: questionKey, Data: question, Version: version}, questionLimit)
	if err == nil { // else there is a message that the run has not seen
		w.task.mailSeen.CompareAndSwap(stored.Version-1, stored.Version)
	}
	return err
}

// Question returns what [SaveQuestion] has stored for the run whose work ctx belongs
// to, as changed by [Mailbox.Answer], and its version. It returns nil and 0 if nothing
// is stored.
func Question(ctx context.Context) (json.RawMessage, int64, error) {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return nil, 0, output.ErrNoRun
	}
	return readQuestion(ctx, w.core.engine, w.scope())
}

func (w *workOf) scope() engine.Scope {
	return engine.Scope{Session: w.task.run.Session, Run: w.task.run.ID}
}

func readQuestion(ctx context.Context, e engine.Engine, s engine.Scope) (json.RawMessage, int64, error) {
	v, err := e.Value(ctx, s, questionKey)
	if errors.Is(err, engine.ErrNotFound) {
		return nil, 0, nil
	}
	return v.Data, v.Version, err
}

// Question returns what [SaveQuestion] has stored, and its version, or nil and 0 if
// nothing is stored.
func (b Mailbox) Question(ctx context.Context) (json.RawMessage, int64, error) {
	return readQuestion(ctx, b.reader.engine, b.scope())
}

// Answer changes what [SaveQuestion] has stored, and lets the run continue if it waits.
// The error matches [engine.ErrConflict] if it has another version, and
// [engine.ErrNotFound] if the run has ended.
func (b Mailbox) Answer(ctx context.Context, question json.RawMessage, version int64) error {
	_, err := b.reader.engine.PutValue(context.WithoutCancel(ctx), b.scope(), engine.Value{Key: questionKey, Data: question, Version: version}, questionLimit)
	return err
}
