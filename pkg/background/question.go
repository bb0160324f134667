package background

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// questionKey is the key of the questions of a waiting run. It sorts after the keys
// of all messages.
const questionKey = "question"

// questionLimit is the limit of the questions of a run together with its messages.
var questionLimit = engine.ValueLimit{Count: MaxMessages + 1, Bytes: MaxMessageBytes + MaxValueBytes}

// SaveQuestion stores the questions of the run whose work ctx belongs to, until the run
// ends: JSON of at most [MaxValueBytes]. version is the one that [Question] returned
// with the questions to replace. A change by [Mailbox.Answer] lets the run continue.
// The error matches [engine.ErrConflict] if the questions have been changed in the
// meantime.
func SaveQuestion(ctx context.Context, question json.RawMessage, version int64) error {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return output.ErrNoRun
	}
	stored, err := w.core.engine.PutValue(context.WithoutCancel(ctx), w.scope(), engine.Value{Key: questionKey, Data: question, Version: version}, questionLimit)
	if err == nil { // otherwise there is an unseen message
		w.task.mailSeen.CompareAndSwap(stored.Version-1, stored.Version)
	}
	return err
}

// Question returns the questions that [SaveQuestion] stored for the run whose work ctx
// belongs to, as changed by [Mailbox.Answer], and their version. It returns nil and 0
// if nothing is stored.
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

// Question returns the questions that [SaveQuestion] stored, and their version, or
// nil and 0 if nothing is stored.
func (b Mailbox) Question(ctx context.Context) (json.RawMessage, int64, error) {
	return readQuestion(ctx, b.reader.engine, b.scope())
}

// Answer changes the questions that [SaveQuestion] stored, and lets the run continue if
// it is waiting. The error matches [engine.ErrConflict] if they have another version,
// and [engine.ErrNotFound] if the run has ended.
func (b Mailbox) Answer(ctx context.Context, question json.RawMessage, version int64) error {
	_, err := b.reader.engine.PutValue(context.WithoutCancel(ctx), b.scope(), engine.Value{Key: questionKey, Data: question, Version: version}, questionLimit)
	return err
}
