package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Texts a model is shown.
const (
	summaryCanceled = "Canceled by request."
	textInternal    = "An internal error occurred while executing the tool"
	textInterrupted = "The host shut down before the run ended"
	textFenced      = "The host lost the run to another one"
	textOrphaned    = "The host went down during the run, and the tool may not be run again"
	textIncomplete  = "The host went down before the run started, and some of its arguments are secrets, which are not stored"
	textRejected    = "The host does not allow the run any more"
	textUnstored    = "Part of the output could not be stored"
)

// failure is the end of a run that did not run to its own.
func failure(e *RunError) End { return End{Error: e, FinishedAt: time.Now()} }

// judge is verdict, safe from errors whose methods panic, as those of a nil
// pointer in an error may.
func (m *Manager) judge(t *task, o Outcome, err, cause error, stopped bool) (e ending) {
	defer func() {
		if p := recover(); p != nil {
			e = m.verdict(t, Outcome{}, &panicError{p, debug.Stack()}, nil, false)
		}
	}()
	return m.verdict(t, o, err, cause, stopped)
}

// verdict decides how a run ended, from what its executor returned, the cause
// its context ended by (nil if it has not), and whether a stop was requested
// before the executor returned.
func (m *Manager) verdict(t *task, o Outcome, err, cause error, stopped bool) ending {
	e := ending{status: StatusSucceeded}
	e.end = End{Summary: shorten(o.Summary, maxSummary), Result: o.Result, Content: o.Content, ExitCode: o.ExitCode, FinishedAt: time.Now()}
	if o.Result != nil && !json.Valid(o.Result) || o.Content != nil && !json.Valid(o.Content) {
		e.end.Result, e.end.Content = nil, nil
		err = errors.Join(err, errors.New("what the executor answered is not valid JSON"))
	}
	if err == nil && o.ExitCode != nil && *o.ExitCode != 0 {
		err = &Error{Kind: KindToolError, Message: fmt.Sprintf("exit code %d", *o.ExitCode)}
	}
	var crash *panicError
	crashed := errors.As(err, &crash) || errors.Is(err, errExited)
	switch {
	case err == nil:
	case stopped && o.Result == nil && !crashed:
		e.status = StatusCanceled
		e.end.Content = nil
		if e.end.Summary == "" {
			e.end.Summary = summaryCanceled
		}
		t.sink.note(summaryCanceled)
	default:
		e.status = StatusFailed
		e.end.Error = m.runError(t, err, cause)
		e.requeue = e.end.Error.Kind == KindInterrupted && o.Result == nil && m.mayRerun(t)
	}
	e.beat = t.sink.Beat()
	return e
}

// runError says in words for the model why a run failed, and logs what must
// not be said to it.
func (m *Manager) runError(t *task, err, cause error) *RunError {
	var crash *panicError
	var typed *Error
	known := errors.As(err, &typed) && typed.shown()
	switch {
	case errors.As(err, &crash) || errors.Is(err, errExited):
	case known:
		return typed.runError()
	case errors.Is(cause, context.DeadlineExceeded):
		return &RunError{KindTimeout, fmt.Sprintf("The run's deadline of %v passed", t.run.Timeout)}
	case errors.Is(cause, ErrClosed):
		return &RunError{KindInterrupted, textInterrupted}
	case errors.Is(cause, ErrFenced):
		return &RunError{KindOrphaned, textFenced}
	}
	attrs := []any{"task_id", t.run.ID, "session", t.run.Session, "tool", t.run.Tool, "args", loggedArgs(t.run.Args), "error", err}
	if typed != nil && crash == nil {
		attrs = append(attrs, "message", typed.Message, "cause", typed.Err)
	}
	m.log.Error("background run failed by an internal error", attrs...)
	return &RunError{KindInternal, textInternal}
}

// shown reports whether a model may be shown the message of e, which may be nil.
func (e *Error) shown() bool { return e != nil && e.Kind.valid() && e.Kind != KindInternal }

func (e *Error) runError() *RunError { return &RunError{e.Kind, shorten(e.Message, maxMessage)} }
