package background

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

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

// start starts tasks that have got their permits.
func (m *Manager) start(tasks []*task) {
	for _, t := range tasks {
		m.mu.Lock()
		closing := m.closing
		if !closing {
			m.running.Add(1)
		}
		m.mu.Unlock()
		if closing {
			m.limits.release(t.lane, t.run.ID)
			m.leave(t)
			continue
		}
		t.launch(m.base)
		go m.execute(t)
	}
}

// execute is the goroutine of a run until its work begins. That has another
// one, whose stack is not as deep as the engine's claim made this one's: with
// thousands of runs their stacks are what counts.
func (m *Manager) execute(t *task) {
	if m.begin(t) {
		run := t.record()
		go m.perform(t, &run)
		return
	}
	t.abort(nil)
	m.running.Done()
}

// perform is the goroutine of a run that has begun.
func (m *Manager) perform(t *task, run *Run) {
	defer m.running.Done()
	defer t.abort(nil)
	ctx, release := context.WithTimeoutCause(t.ctx, t.run.Timeout, context.DeadlineExceeded)
	defer release()
	protect(func() (Outcome, error) { return m.attempt(ctx, t, run) }, func(o Outcome, err error) {
		stopped := t.hasReturned()
		end := m.judge(t, o, err, context.Cause(ctx), stopped)
		m.settle(t, &end)
	})
}

// begin claims the run of a task, and reports whether its work is to be done;
// if not, the run has ended.
func (m *Manager) begin(t *task) bool {
	if refusal := m.readmit(t); refusal != nil {
		t.hasReturned()
		m.settle(t, &ending{status: StatusFailed, beat: t.run.Beat, end: failure(refusal)})
		return false
	}
	return m.claimed(t)
}

// How long a claim that the engine failed at waits before it is tried again: at
// first, and at most.
const (
	claimSoon = 100 * time.Millisecond
	claimLate = 5 * time.Second
)

// claimed claims the run of a task, and reports whether its work is to be done.
// While the engine fails, because the disk is full, the run stays queued: to end
// it would tell of an end that is not stored.
func (m *Manager) claimed(t *task) bool {
	for wait, told := claimSoon, false; ; wait = min(2*wait, claimLate) {
		err := m.claim(t)
		switch {
		case err == nil:
			return true
		case lost(err): // it was canceled before it started
			t.hasReturned()
			m.settle(t, nil)
			return false
		case !told:
			told = true
			m.log.Error("background run not started, as it could not be claimed; trying again", "task_id", t.run.ID, "error", err)
		}

		select {
		case <-time.After(wait):
		case <-t.sink.Stopping():
		case <-t.ctx.Done():
		}
		if m.givesUp(t) {
			return false
		}
	}
}

// givesUp ends a task that could not be claimed and that nobody wants any more:
// a stop was asked for, or the manager closes and leaves it to the next one.
func (m *Manager) givesUp(t *task) bool {
	m.mu.Lock()
	closing := m.closing
	m.mu.Unlock()
	switch {
	case closing:
		t.hasReturned()
		m.limits.release(t.lane, t.run.ID)
		m.leave(t)
	case t.stopAsked():
		t.hasReturned()
		m.settle(t, &ending{status: StatusCanceled, end: End{Summary: summaryCanceled, FinishedAt: time.Now()}})
	default:
		return false
	}
	return true
}

// attempt does the work of a claimed run, unless a stop was asked for by now.
func (m *Manager) attempt(ctx context.Context, t *task, run *Run) (Outcome, error) {
	if t.stopAsked() {
		return Outcome{}, ErrStopped
	}
	return m.cfg.Executor(ctx, *run, t.sink)
}

// record returns the record the work is given: that of the claim, with the
// arguments that are not stored.
func (t *task) record() Run {
	run := t.lease.Run()
	if t.args != nil && run.Attempt == 1 {
		run.Args = t.args
	}
	return run
}

// protect calls work, and then after with what it gave, whatever work does: a
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
