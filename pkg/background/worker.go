package background

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// startAgain is the pause before the retry of a start that failed in the engine.
const startAgain = time.Second

// A worker does the work of runs, from the moment they have a slot until their
// end is stored.
type worker struct {
	*core
	member    *member
	runs      *registry
	admission *admission
	reader    *reader
	schedules *scheduler
	pool      *pool // does the work
}

// A panicError is a panic in a function of the program that uses this package.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// errExited is the error of work that ended its goroutine instead of returning.
var errExited = &panicError{value: "runtime.Goexit was called"}

// guarded calls f and turns a panic into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	return f()
}

// A workResult is what the work returned, and why it ended.
type workResult struct {
	outcome Outcome
	err     error
	cause   error // cancellation cause of the work's context; nil if it has not ended
	stopped bool  // a stop was requested before the work returned
}

// execute starts a run, and then its work on another goroutine, whose stack does not
// grow as deep as the engine needs it. That matters with thousands of runs.
func (w *worker) execute(t *task) {
	go func() {
		if !w.started(t) {
			t.cancel(nil)
			w.runs.running.Done()
			return
		}

		run := t.record()
		work := func(ctx context.Context) (Outcome, error) {
			if t.stopAsked() {
				return Outcome{}, ErrStopped
			}
			return w.cfg().Executor(ctx, *run, t.sink)
		}
		w.pool.run(func() {
			w.perform(t, work, func(r workResult) {
				end := w.judge(t, r)
				w.settle(t, &end)
			})
		})
	}()
}

// record returns the record for the work, including arguments that are not stored.
func (t *task) record() *engine.Run {
	run := t.lease.Run()
	if t.args != nil && run.Attempt == 1 {
		run.Args = t.args
	}
	return &run
}

// perform does the work of a task, and then always calls after. A panic, or the
// end of the goroutine, becomes an error.
func (w *worker) perform(t *task, work func(context.Context) (Outcome, error), after func(workResult)) {
	defer w.runs.running.Done()
	defer t.cancel(nil)
	pprof.SetGoroutineLabels(t.ctx) // the goroutine may have done other work before
	ctx, release := context.WithTimeoutCause(context.WithValue(t.ctx, workKey{}, &workOf{w.core, t, w.member, w.admission}), t.run.Timeout, context.DeadlineExceeded)
	defer release()

	r := workResult{err: errExited}
	defer func() {
		r.cause, r.stopped = context.Cause(ctx), t.hasReturned()
		after(r)
	}()
	r.err = guarded(func() (err error) {
		r.outcome, err = work(ctx)
		return err
	})
}

// started starts a run in the engine, and reports whether its work is to be done.
// While the engine fails, the run stays queued: its end could not be stored
// either.
func (w *worker) started(t *task) bool {
	for logged := false; ; {
		refused, err := w.readmit(t)
		if refused != nil {
			w.settle(t, &ending{status: engine.StatusFailed, beat: t.run.Beat, end: failure(refused)})
			return false
		}
		if err == nil {
			err = w.start(t)
		}

		switch {
		case err == nil:
			return true
		case fenced(err): // it was canceled, or a lost answer has made it a stray
			w.settle(t, &ending{status: engine.StatusFailed, beat: t.run.Beat, end: failure(errLost), lost: true})
			return false
		case !logged:
			logged = true
			w.log.Error("background run not started; trying again", "task_id", t.run.ID, "error", err)
		}

		select {
		case <-time.After(startAgain):
		case <-t.sink.Stopping():
		case <-t.ctx.Done():
		}

		switch {
		case w.runs.isClosing(): // it stays queued
			w.runs.drop(t)
			w.admission.release()
			return false
		case t.stopAsked():
			w.settle(t, &ending{status: engine.StatusCanceled, end: canceled(time.Now())})
			return false
		}
	}
}

// start starts a run of this worker in the engine.
func (w *worker) start(t *task) error {
	t.io.Lock()
	defer t.io.Unlock()
	lease, err := t.worker.Start(w.base, t.run.ID) // a later lease may have claimed it for another task
	if err != nil {
		return err
	}

	w.resume(w.base, t, lease)
	w.hold(t, t.worker, lease)
	if attempt := lease.Run().Attempt; attempt > 1 && !t.run.Woken {
		w.counters.add(func(s *Stats) { s.Rerun++ })
		t.sink.Status(fmt.Sprintf("running again, attempt %d", attempt))
	}
	return nil
}

// readmit decides whether to start a run that was not admitted just now, and returns
// why not.
func (w *worker) readmit(t *task) (refused *engine.RunError, err error) {
	if !t.ask {
		return nil, nil
	}
	run, err := w.engine.Get(t.ctx, t.run.ID)
	if err != nil || run.Status != engine.StatusQueued { // otherwise its start will fail
		return nil, err
	}
	if run.Cancel != nil { // stopped while it was queued again
		_, err := w.engine.Cancel(t.ctx, run.ID, *run.Cancel, canceled(time.Now()))
		return nil, err
	}
	if stopped, err := w.stopOrphan(t.ctx, run); err != nil || stopped {
		return nil, err
	}
	if run.Args, err = w.engine.Payload(t.ctx, t.run.ID, engine.PartArgs); err != nil {
		return nil, err
	}

	refused = w.schedules.asked(t.ctx, run, w.refusal(t.ctx, run))
	t.ask = refused != nil
	return refused, nil
}

// refusal returns why not to start a run that was not admitted just now, or nil if it
// may start.
func (w *worker) refusal(ctx context.Context, run engine.Run) *engine.RunError {
	if refused := w.barred(run); refused != nil || w.cfg().Readmit == nil {
		return refused
	}
	err := guarded(func() error { return w.cfg().Readmit(ctx, run) })
	if err == nil {
		return nil
	}

	w.log.Warn("background run not admitted", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "attempt", run.Attempt, "error", err)
	typed, _ := errors.AsType[*Error](err)
	if shown := typed.shown(); shown != nil {
		return shown
	}
	if run.Attempt > 0 {
		return errOrphaned
	}
	return errRejected
}

// barred returns why a run may not start again, whatever [Config.Readmit] says.
func (w *worker) barred(run engine.Run) *engine.RunError {
	over := run.Idle() >= w.cfg().Attempts
	switch {
	case run.Woken || run.StateSize > 0 && !over: // its state protects against doing work twice
		return nil
	case run.Attempt > 0 && (run.Secret || w.cfg().Readmit == nil):
		return errOrphaned
	case over:
		return &engine.RunError{Kind: engine.KindOrphaned, Message: fmt.Sprintf("The host went down during each of %d attempts to run it, and there are no more", run.Idle())}
	case run.Secret:
		return errIncomplete
	}
	return nil
}

// recover queues a running run that this worker took over, or ends it. If that
// fails, the next heartbeat reports the run as a stray.
func (w *worker) recover(ctx context.Context, run engine.Run) {
	lease, refused, beat := w.member.worker(), w.barred(run), run.Beat
	if chunk, err := w.engine.Tail(ctx, run.ID, 0, 0); err == nil {
		beat.OutputBytes = max(beat.OutputBytes, chunk.End)
	}

	stopped, err := w.stopOrphan(ctx, run)
	switch {
	case err != nil:
	case stopped || run.Cancel != nil:
		_, err = lease.Abandon(ctx, run.ID, run.Attempt, engine.StatusCanceled, beat, canceled(time.Now()))
	case refused != nil:
		_, err = lease.Abandon(ctx, run.ID, run.Attempt, engine.StatusFailed, beat, failure(refused))
	default:
		err = lease.Requeue(ctx, run.ID, run.Attempt)
	}
	switch {
	case err == nil:
		w.log.Info("background run of a dead worker taken over", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "attempt", run.Attempt)
	case !fenced(err):
		w.log.Error("background run of a dead worker not taken over; trying again", "task_id", run.ID, "error", err)
	}
}
