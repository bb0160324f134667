package background

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Whether Run waits for the end of a call with a key. The first change decides.
const (
	waiterThere  int32 = iota // Run waits
	waiterLeft                // Run has returned: the end makes a notice
	waiterServed              // the work has ended, and Run returns its outcome
)

// WithKey returns the run of a session that has the idempotency key of req, with its
// arguments but without the rest of its payload. It reports false if no run has the
// key. If that run has another tool or other arguments, the error matches
// [ErrKeyReused].
func (m *Manager) WithKey(ctx context.Context, session string, req SpawnRequest) (engine.Run, bool, error) {
	run, err := m.newRun(session, req)
	if err != nil {
		return engine.Run{}, false, err
	}
	return m.reader.sameKey(ctx, run)
}

// runKeyed is like Run, for a call with a key.
func (m *Manager) runKeyed(ctx context.Context, c *call, req RunRequest) (RunResult, error) {
	w, t := m.worker, c.task
	if err := w.park(t, time.Time{}); err != nil {
		if t.unsure { // if it is stored, it is a stray
			w.admission.release()
		}
		w.runs.drop(t)
		w.runs.running.Done()
		t.cancel(nil)

		found, err := m.reuse(ctx, t.run, err)
		if err != nil {
			return RunResult{}, fmt.Errorf("run: %w", err)
		}
		return RunResult{Reused: true, Run: found.Run}, nil
	}
	w.begin(c, w.ended)

	due := req.due()
	defer due.Stop()
	parks := false
	select {
	case <-t.done:
	case <-due.C:
		parks = true
	case <-req.Park:
		parks = true
	case <-ctx.Done():
		cause := context.Cause(ctx)
		if req.Stops != nil && req.Stops(cause) {
			m.stopKeyed(ctx, t, cause)
		} else if c.waiter.CompareAndSwap(waiterThere, waiterLeft) {
			return RunResult{Left: true, Run: t.lease.Run()}, cause
		}
	}

	if parks && c.waiter.CompareAndSwap(waiterThere, waiterLeft) {
		return RunResult{Parked: true, Run: t.lease.Run()}, nil
	}
	<-t.done
	switch {
	case c.err == nil:
	case !t.final.Status.Terminal(): // the manager is closing, and the next start runs it again
		return RunResult{Run: *t.final}, fmt.Errorf("run: %w", ErrClosed)
	case t.final.Attempt > 1: // another worker has run it again
		return RunResult{Reused: true, Run: *t.final}, nil
	}
	return RunResult{Run: *t.final, Outcome: c.outcome}, c.err
}

// stopKeyed stops a call because its caller has canceled it.
func (m *Manager) stopKeyed(ctx context.Context, t *task, cause error) {
	_, err := m.Stop(context.WithoutCancel(ctx), t.run.Session, t.run.ID, StopRequest{Force: true, Reason: cause.Error()})
	if err != nil && !errors.Is(err, engine.ErrNotFound) { // the engine is failing: end the work anyway
		m.log.Warn("stop of a call not stored", "task_id", t.run.ID, "error", err)
		t.requestStop(0)
	}
}

// ended ends the run of a call with a key whose work has returned.
func (w *worker) ended(c *call, r workResult) {
	c.outcome, c.err = r.outcome, r.err
	end := w.judge(c.task, r)
	end.end.Shown = c.waiter.CompareAndSwap(waiterThere, waiterServed)
	c.task.alone = !end.end.Shown
	w.settle(c.task, &end)
}
