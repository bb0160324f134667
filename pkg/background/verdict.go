package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Sentences that models are shown.
const (
	summaryCanceled = "Canceled by request."
	textInterrupted = "The host shut down before the run ended"
	textFenced      = "The host lost the run to another one"
	textOrphaned    = "The host went down during the run, and the tool may not be run again"
	textIncomplete  = "The host went down before the run started, and some of its arguments are secrets, which are not stored"
	textRejected    = "The host no longer allows the run"
	textUnstored    = "Part of the output could not be stored"
)

// failure is the end of a run that has no outcome.
func failure(e *engine.RunError) engine.End { return engine.End{Error: e, FinishedAt: time.Now()} }

// canceled is the end of a run that was canceled before it started.
func canceled(at time.Time) engine.End {
	return engine.End{Summary: summaryCanceled, FinishedAt: at}
}

// judge is verdict, safe from errors whose methods panic, as those of a nil
// pointer in an error may.
func (w *worker) judge(t *task, o Outcome, err, cause error, stopped bool) (e ending) {
	defer func() {
		if p := recover(); p != nil {
			e = w.verdict(t, Outcome{}, &panicError{p, debug.Stack()}, nil, false)
		}
	}()
	return w.verdict(t, o, err, cause, stopped)
}

// verdict decides how a run ended, from what its executor returned, the cause
// its context ended by (nil if it has not), and whether a stop was requested
// before the executor returned.
func (w *worker) verdict(t *task, o Outcome, err, cause error, stopped bool) ending {
	e := ending{status: engine.StatusSucceeded}
	e.end = engine.End{Summary: output.Shorten(o.Summary, maxSummary), Result: o.Result, Content: o.Content, ExitCode: o.ExitCode, FinishedAt: time.Now()}
	if o.Result != nil && !json.Valid(o.Result) || o.Content != nil && !json.Valid(o.Content) {
		e.end.Result, e.end.Content = nil, nil
		err = errors.Join(err, errors.New("what the executor answered is not valid JSON"))
	}
	if err == nil && o.ExitCode != nil && *o.ExitCode != 0 {
		err = &Error{Kind: engine.KindToolError, Message: fmt.Sprintf("exit code %d", *o.ExitCode)}
	}
	var crash *panicError
	crashed := errors.As(err, &crash) || errors.Is(err, errExited)
	switch {
	case err == nil:
	case stopped && o.Result == nil && !crashed:
		e.status = engine.StatusCanceled
		e.end.Content = nil
		if e.end.Summary == "" {
			e.end.Summary = summaryCanceled
		}
		t.sink.Note(summaryCanceled)
	default:
		e.status = engine.StatusFailed
		e.end.Error = w.runError(t, err, cause)
		e.requeue = e.end.Error.Kind == engine.KindInterrupted && o.Result == nil && w.mayRerun(t)
	}
	e.beat = t.sink.Beat()
	return e
}

// runError says in words for the model why a run failed, and logs what must
// not be said to it.
func (w *worker) runError(t *task, err, cause error) *engine.RunError {
	var crash *panicError
	var typed *Error
	known := errors.As(err, &typed) && typed.shown()
	switch {
	case errors.As(err, &crash) || errors.Is(err, errExited):
	case known:
		return typed.runError()
	case errors.Is(cause, context.DeadlineExceeded):
		return &engine.RunError{Kind: engine.KindTimeout, Message: fmt.Sprintf("The run's deadline of %v passed", t.run.Timeout)}
	case errors.Is(cause, ErrClosed):
		return &engine.RunError{Kind: engine.KindInterrupted, Message: textInterrupted}
	case errors.Is(cause, engine.ErrFenced):
		return &engine.RunError{Kind: engine.KindOrphaned, Message: textFenced}
	}
	attrs := []any{"task_id", t.run.ID, "session", t.run.Session, "tool", t.run.Tool, "args", loggedArgs(t.run.Args), "error", err}
	if typed != nil && crash == nil {
		attrs = append(attrs, "message", typed.Message, "cause", typed.Err)
	}
	w.log.Error("background run failed by an internal error", attrs...)
	return &engine.RunError{Kind: engine.KindInternal, Message: w.cfg.Texts.Internal}
}

// mayRerun reports whether an interrupted run may be run again.
func (w *worker) mayRerun(t *task) bool {
	if t.lease == nil || t.stopAsked() {
		return false
	}
	return w.refusal(w.base, t.lease.Run()) == nil
}
