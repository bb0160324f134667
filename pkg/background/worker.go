package background

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A worker does the work of runs: from the moment they have a slot until their
// end is stored.
type worker struct {
	*core
	member    *member
	runs      *registry
	admission *admission
	reader    *reader
	schedules *scheduler
}

// errExited stands for work that ended its goroutine in place of returning.
var errExited = errors.New("executor called runtime.Goexit")

// A panicError is a panic of an executor.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("executor panicked: %v\n%s", e.value, e.stack)
}

// execute starts a run and then its work. That has a goroutine of its own, whose
// stack is not as deep as the engine's: with thousands of runs their stacks are
// what counts.
func (w *worker) execute(t *task) {
	t.launch(w.base)
	go func() {
		if w.started(t) {
			run := t.record()
			go w.perform(t, &run)
			return
		}
		t.abort(nil)
		w.runs.running.Done()
	}()
}

// perform is the goroutine of a run that has started.
func (w *worker) perform(t *task, run *engine.Run) {
	defer w.runs.running.Done()
	defer t.abort(nil)
	ctx, release := context.WithTimeoutCause(t.ctx, t.run.Timeout, context.DeadlineExceeded)
	defer release()

	protect(func() (Outcome, error) { return w.attempt(ctx, t, run) }, func(o Outcome, err error) {
		stopped := t.hasReturned()
		end := w.judge(t, o, err, context.Cause(ctx), stopped)
		w.settle(t, &end)
	})
}

// attempt does the work of a run, unless a stop was requested already.
func (w *worker) attempt(ctx context.Context, t *task, run *engine.Run) (Outcome, error) {
	if t.stopAsked() {
		return Outcome{}, ErrStopped
	}
	return w.cfg.Executor(ctx, *run, t.sink)
}

// record returns the record that the work is given, with the arguments that are
// not stored.
func (t *task) record() engine.Run {
	run := t.lease.Run()
	if t.args != nil && run.Attempt == 1 {
		run.Args = t.args
	}
	return run
}

// protect calls work, and then after with its results, whatever work does: a
// panic is an error, and so is the end of its goroutine.
func protect(work func() (Outcome, error), after func(Outcome, error)) {
	outcome, err := Outcome{}, errExited
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
		after(outcome, err)
	}()
	outcome, err = work()
}

// The first and the longest pause before a start is tried again that the engine
// failed at.
const (
	startSoon = 100 * time.Millisecond
	startLate = 5 * time.Second
)

// started starts a run in the engine, and reports whether its work is to be done.
// While the engine fails, because the disk is full, the run stays queued: its end
// could not be stored either.
func (w *worker) started(t *task) bool {
	for pause, logged := startSoon, false; ; pause = min(2*pause, startLate) {
		refused, err := w.readmit(t)
		if err == nil && refused == nil {
			err = w.start(t)
		}

		switch {
		case refused != nil:
			t.hasReturned()
			w.settle(t, &ending{status: engine.StatusFailed, beat: t.run.Beat, end: failure(refused)})
			return false
		case err == nil:
			return true
		case fenced(err): // it was canceled before it started
			t.hasReturned()
			w.settle(t, nil)
			return false
		case !logged:
			logged = true
			w.log.Error("background run not started; trying again", "task_id", t.run.ID, "error", err)
		}

		select {
		case <-time.After(pause):
		case <-t.sink.Stopping():
		case <-t.ctx.Done():
		}
		if w.givesUp(t) {
			return false
		}
	}
}

// start makes this worker's run a running one.
func (w *worker) start(t *task) error {
	t.io.Lock()
	defer t.io.Unlock()
	lease, err := w.member.worker().Start(w.base, t.run.ID)
	if err != nil {
		return err
	}

	w.hold(t, lease)
	if attempt := lease.Run().Attempt; attempt > 1 {
		w.counters.add(func(s *Stats) { s.Rerun++ })
		t.sink.Status(fmt.Sprintf("running again, attempt %d", attempt))
	}
	return nil
}

// givesUp ends a task that could not be started and that nobody wants any more:
// a stop was requested, or the manager closes and leaves it queued.
func (w *worker) givesUp(t *task) bool {
	switch {
	case w.runs.isClosing():
		t.hasReturned()
		t.final = &t.run
		t.sink.Close()
		w.runs.remove(t)
		w.admission.release()
		close(t.done)
	case t.stopAsked():
		t.hasReturned()
		w.settle(t, &ending{status: engine.StatusCanceled, end: canceled(time.Now())})
	default:
		return false
	}
	return true
}

// readmit decides whether a run may start that was not admitted right before, and
// returns why not.
func (w *worker) readmit(t *task) (refused *engine.RunError, err error) {
	if !t.ask {
		return nil, nil
	}
	run, err := w.engine.Get(t.ctx, t.run.ID)
	if err != nil {
		return nil, err
	}
	if run.Status != engine.StatusQueued {
		return nil, nil // its start will fail
	}
	if run.Args, err = w.engine.Payload(t.ctx, t.run.ID, engine.PartArgs); err != nil {
		return nil, err
	}

	refused = w.schedules.asked(t.ctx, run, w.refusal(t.ctx, run))
	t.ask = refused != nil
	return refused, nil
}

// refusal returns why a run may not start that was not admitted right before, nil
// if it may. A run that was running before is run again only if nothing of it is
// unknown and [Config.Readmit] agrees.
func (w *worker) refusal(ctx context.Context, run engine.Run) *engine.RunError {
	if refused := w.barred(run); refused != nil || w.cfg.Readmit == nil {
		return refused
	}
	err := w.askReadmit(ctx, run)
	if err == nil {
		return nil
	}

	w.log.Warn("background run not admitted", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "attempt", run.Attempt, "error", err)
	typed, _ := errors.AsType[*Error](err)
	switch {
	case typed.shown():
		return typed.runError()
	case run.Attempt > 0:
		return &engine.RunError{Kind: engine.KindOrphaned, Message: textOrphaned}
	}
	return &engine.RunError{Kind: engine.KindRejected, Message: textRejected}
}

// barred returns why a run may not start again, whatever [Config.Readmit] says.
func (w *worker) barred(run engine.Run) *engine.RunError {
	switch {
	case run.Attempt > 0 && (run.Secret || run.Attempt >= w.cfg.Attempts || w.cfg.Readmit == nil):
		return &engine.RunError{Kind: engine.KindOrphaned, Message: textOrphaned}
	case run.Secret:
		return &engine.RunError{Kind: engine.KindOrphaned, Message: textIncomplete}
	}
	return nil
}

// askReadmit calls Config.Readmit, whose panic is an error.
func (w *worker) askReadmit(ctx context.Context, run engine.Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("readmit panicked: %v", p)
		}
	}()
	return w.cfg.Readmit(ctx, run)
}

// recover queues a running run again that this worker took over, or ends it. If
// that fails, the next heartbeat reports the run as a stray.
func (w *worker) recover(ctx context.Context, run engine.Run) {
	lease := w.member.worker()
	refused := w.barred(run)
	var err error
	switch {
	case run.Cancel != nil:
		_, err = lease.Abandon(ctx, run.ID, run.Attempt, engine.StatusCanceled, w.lastBeat(ctx, run), canceled(time.Now()))
	case refused != nil:
		_, err = lease.Abandon(ctx, run.ID, run.Attempt, engine.StatusFailed, w.lastBeat(ctx, run), failure(refused))
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

// lastBeat returns the last beat of a run whose work is gone, with as much
// output as its log has.
func (w *worker) lastBeat(ctx context.Context, run engine.Run) engine.Beat {
	if chunk, err := w.engine.Tail(ctx, run.ID, 0, 0); err == nil {
		run.OutputBytes = max(run.OutputBytes, chunk.End)
	}
	return run.Beat
}

// stop records that a run is to end and asks its work to, without waiting for it.
// A queued run is canceled by that. A slow engine delays the request by no more
// than a second. It returns the run as stored, and its task, nil if it is not this
// worker's.
func (w *worker) stop(ctx context.Context, id string, c engine.Cancellation, grace time.Duration) (engine.Run, *task, error) {
	t := w.runs.get(id)
	if t != nil {
		defer t.storeStop()()
		late := time.AfterFunc(maxDelay, func() { t.requestStop(grace) })
		defer late.Stop()
	}

	run, err := w.engine.Cancel(context.WithoutCancel(ctx), id, c, canceled(c.At))
	if err != nil {
		err = fmt.Errorf("storing the stop of run %s: %w", id, err)
	}
	switch {
	case t != nil:
		t.requestStop(grace)
	case err == nil && run.Status == engine.StatusCanceled && run.Cancel.At.Equal(c.At):
		w.counters.add(func(s *Stats) { s.ended(run) })
	}
	return run, t, err
}
