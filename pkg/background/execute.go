package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Texts a model is shown.
const (
	summaryCanceled = "Canceled by request."
	textInternal    = "An internal error occurred while executing the tool"
	textInterrupted = "The host shut down before the run ended"
	textOrphaned    = "The host lost the run to another one"
	textUnstored    = "Part of the output could not be stored"
)

// A task is a run this manager executes.
type task struct {
	run    Run // as it was spawned
	sink   *Sink
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed after the terminal write
	final  Run           // the run as it ended; valid once done is closed

	mu       sync.Mutex
	stopped  bool        // a stop was requested
	returned bool        // the work has ended
	kill     *time.Timer // cancels ctx when the grace is over

	io      sync.Mutex // held while the lease is used
	lease   Lease      // nil before the run is claimed
	flushed int64      // how much of the log has been appended to the lease
	unsaved *ending    // an end that could not be stored yet

	settled atomic.Bool // an end was decided, and is about to be stored
}

// An ending is what is written when a run ends.
type ending struct {
	status Status
	beat   Beat
	end    End
}

func newTask(base context.Context, run Run) *task {
	ctx, cancel := context.WithCancelCause(base)
	return &task{run: run, sink: NewSink(run.OutputCap), ctx: ctx, cancel: cancel, done: make(chan struct{})}
}

// ended reports whether done is closed.
func (t *task) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// requestStop asks the work to end, and ends its context after the grace. A
// later request can only make that sooner.
func (t *task) requestStop(grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.returned {
		return
	}
	if !t.stopped {
		t.stopped = true
		t.sink.RequestStop()
		t.kill = time.AfterFunc(grace, func() { t.cancel(ErrStopped) })
	}
	if grace <= 0 {
		t.cancel(ErrStopped)
	}
}

// interrupt ends the work because the manager closes.
func (t *task) interrupt() {
	t.sink.RequestStop()
	t.cancel(ErrClosed)
}

// hasReturned notes that the work has ended, and reports whether a stop was
// requested before.
func (t *task) hasReturned() (stopped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.returned = true
	if t.kill != nil {
		t.kill.Stop()
	}
	return t.stopped
}

// errExited stands for an executor that ended its goroutine in place of returning.
var errExited = errors.New("executor called runtime.Goexit")

// A panicError is a panic of an executor.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("executor panicked: %v\n%s", e.value, e.stack)
}

// execute is the goroutine of a run.
func (m *Manager) execute(t *task) {
	defer m.running.Done()
	defer t.cancel(nil)
	run, err := m.claim(t)
	if err != nil {
		m.refused(t, err)
		return
	}
	ctx, release := context.WithTimeoutCause(t.ctx, run.Timeout, context.DeadlineExceeded)
	defer release()
	var outcome Outcome
	err = errExited
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
		stopped := t.hasReturned()
		end := m.judge(t, outcome, err, context.Cause(ctx), stopped)
		m.settle(t, &end)
	}()
	outcome, err = m.cfg.Executor(ctx, run, t.sink)
}

// refused ends a task whose run could not be claimed: it was canceled before
// it started, or the engine does not work.
func (m *Manager) refused(t *task, err error) {
	t.hasReturned()
	if errors.Is(err, ErrNotClaimable) || errors.Is(err, ErrNotFound) {
		m.settle(t, nil)
		return
	}
	end := m.verdict(t, Outcome{}, fmt.Errorf("claiming the run: %w", err), nil, false)
	m.settle(t, &end)
}

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
	e := ending{status: StatusSucceeded, beat: t.sink.Beat()}
	e.end = End{Summary: shorten(o.Summary, maxSummary), Result: o.Result, ExitCode: o.ExitCode, FinishedAt: time.Now()}
	if o.Result != nil && !json.Valid(o.Result) {
		e.end.Result = nil
		err = errors.Join(err, errors.New("the executor's result is not valid JSON"))
	}
	if err == nil && o.ExitCode != nil && *o.ExitCode != 0 {
		err = &Error{Kind: KindToolError, Message: fmt.Sprintf("exit code %d", *o.ExitCode)}
	}
	if err == nil {
		return e
	}
	var crash *panicError
	if stopped && o.Result == nil && !errors.As(err, &crash) && err != errExited {
		e.status = StatusCanceled
		if e.end.Summary == "" {
			e.end.Summary = summaryCanceled
		}
		return e
	}
	e.status = StatusFailed
	e.end.Error = m.runError(t, err, cause)
	return e
}

// runError says in words for the model why a run failed, and logs what must
// not be said to it.
func (m *Manager) runError(t *task, err, cause error) *RunError {
	var crash *panicError
	var typed *Error
	known := errors.As(err, &typed) && typed != nil && typed.Kind.valid() && typed.Kind != KindInternal
	switch {
	case errors.As(err, &crash) || errors.Is(err, errExited):
	case known:
		return &RunError{typed.Kind, shorten(typed.Message, maxMessage)}
	case errors.Is(cause, context.DeadlineExceeded):
		return &RunError{KindTimeout, fmt.Sprintf("The run's deadline of %v passed", t.run.Timeout)}
	case errors.Is(cause, ErrClosed):
		return &RunError{KindInterrupted, textInterrupted}
	case errors.Is(cause, ErrFenced):
		return &RunError{KindOrphaned, textOrphaned}
	}
	attrs := []any{"task_id", t.run.ID, "session", t.run.Session, "tool", t.run.Tool, "args", Redact(t.run.Args), "error", err}
	if typed != nil && crash == nil {
		attrs = append(attrs, "message", typed.Message, "cause", typed.Err)
	}
	m.log.Error("background run failed by an internal error", attrs...)
	return &RunError{KindInternal, textInternal}
}
