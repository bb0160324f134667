package background

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

const summaryCanceled = "Canceled by request."

// Texts for models about why a run failed.
var (
	errInterrupted = &engine.RunError{Kind: engine.KindInterrupted, Message: "The host shut down before the run ended"}
	errLost        = &engine.RunError{Kind: engine.KindOrphaned, Message: "The host lost the run to another one"}
	errOrphaned    = &engine.RunError{Kind: engine.KindOrphaned, Message: "The host went down during the run, and the tool may not be run again"}
	errIncomplete  = &engine.RunError{Kind: engine.KindOrphaned, Message: "The host went down before the run started, and some of its arguments are secrets, which are not stored"}
	errRejected    = &engine.RunError{Kind: engine.KindRejected, Message: "The host no longer allows the run"}
)

// failure returns the end of a run without an outcome.
func failure(e *engine.RunError) engine.End { return engine.End{Error: e, FinishedAt: time.Now()} }

// canceled returns the end of a run that was canceled before it started.
func canceled(at time.Time) engine.End {
	return engine.End{Summary: summaryCanceled, FinishedAt: at}
}

// judge is like verdict, but protected against errors whose methods panic, such as a
// nil pointer in an error.
func (w *worker) judge(t *task, r workResult) (e ending) {
	if err := guarded(func() error { e = w.verdict(t, r); return nil }); err != nil {
		e = w.verdict(t, workResult{err: err})
	}
	return e
}

// verdict decides how a run ended.
func (w *worker) verdict(t *task, r workResult) ending {
	o, err := r.outcome, r.err
	e := ending{status: engine.StatusSucceeded}
	e.end = engine.End{Summary: output.Shorten(o.Summary, maxSummary), Result: o.Result, Content: o.Content, ExitCode: o.ExitCode, FinishedAt: time.Now()}
	if o.Result != nil && !json.Valid(o.Result) || o.Content != nil && !json.Valid(o.Content) {
		e.end.Result, e.end.Content = nil, nil
		err = errors.Join(err, errors.New("what the executor returned is not valid JSON"))
	}

	_, crashed := errors.AsType[*panicError](err)
	e.beat = t.sink.Beat()
	switch {
	case err != nil || o.Suspend == nil:
	case r.stopped: // even if the engine does not know
		err = ErrStopped
	default:
		err = w.suspend(t, &e, *o.Suspend)
	}
	switch {
	case err == nil:
	case r.stopped && o.Result == nil && !crashed:
		e.status = engine.StatusCanceled
		e.end.Content = nil
		e.end.Summary = cmp.Or(e.end.Summary, summaryCanceled)
		t.sink.Note(summaryCanceled)
	default:
		e.status = engine.StatusFailed
		e.end.Error = w.runError(t, err, r.cause)
		e.end.Diagnosis = diagnosis(o.Diagnosis, err, e.end.Error)
		e.requeue = e.end.Error.Kind == engine.KindInterrupted && o.Result == nil &&
			t.lease != nil && !t.stopAsked() && w.refusal(w.base, t.interrupted()) == nil
	}
	if e.end.Result != nil && t.run.SignalOnCompletion {
		e.end.ResultStart, e.end.ResultSize = output.Shorten(string(e.end.Result), maxResultStart), len(e.end.Result)
	}
	e.beat = t.sink.Beat() // including reports about the end
	return e
}

// runError returns why a run failed, in words for the model, and logs what the model
// must not see.
func (w *worker) runError(t *task, err, cause error) *engine.RunError {
	_, crashed := errors.AsType[*panicError](err)
	typed, _ := errors.AsType[*Error](err)
	switch shown := typed.shown(); {
	case crashed:
	case shown != nil:
		return shown
	case errors.Is(cause, context.DeadlineExceeded):
		return &engine.RunError{Kind: engine.KindTimeout, Message: fmt.Sprintf("The run's deadline of %v passed", t.run.Timeout)}
	case errors.Is(cause, ErrClosed):
		return errInterrupted
	case errors.Is(cause, engine.ErrFenced):
		return errLost
	}

	attrs := []any{"task_id", t.run.ID, "session", t.run.Session, "tool", t.run.Tool, "args", loggedArgs(t.run.Args), "error", err}
	if typed != nil && !crashed {
		attrs = append(attrs, "message", typed.Message, "cause", typed.Err)
	}
	w.log.Error("background run failed by an internal error", attrs...)
	return &engine.RunError{Kind: engine.KindInternal, Message: w.cfg().InternalText}
}
