package background

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// claim makes this manager the worker of the run.
func (m *Manager) claim(t *task) error {
	t.io.Lock()
	defer t.io.Unlock()
	lease, err := m.engine.Claim(m.base, t.run.ID)
	if err != nil {
		return err
	}
	m.hold(t, lease)
	if attempt := lease.Run().Attempt; attempt > 1 {
		t.sink.Status(fmt.Sprintf("running again, attempt %d", attempt))
	}
	return nil
}

// hold lets the task's sink follow its lease. The lock io must be held.
func (m *Manager) hold(t *task, lease Lease) {
	t.lease = lease
	t.flusher = time.AfterFunc(flushEvery, func() { m.flush(t) })
	t.flusher.Stop()
	t.sink.attach(lease.Checkpoint(), func(data []byte) error { return m.checkpoint(t, data) },
		func() { t.flusher.Reset(flushEvery) })
	t.live.Store(true)
}

// settle stores how a run ended, gives its permits back and wakes who waits
// for it, in this order: whoever saw the end can spawn again. Then it is told.
// A nil ending stands for a run that ended without this manager.
func (m *Manager) settle(t *task, e *ending) {
	t.sink.close()
	final, stored := m.storeEnd(t, e)
	t.final = &final
	started := m.limits.release(t.lane, t.run.ID)
	close(t.done)
	if stored {
		m.over(t)
	}
	m.start(append(started, m.unblock(t)...))
}

// leave ends a task whose run stays queued, for the next start of the host.
func (m *Manager) leave(t *task) {
	t.final = &t.run
	t.sink.close()
	close(t.done)
	m.forget(t)
}

// over is called once when the end of a run is stored and its waiters are
// awake.
func (m *Manager) over(t *task) {
	m.forget(t)
	run := *t.final
	if !run.Status.Terminal() {
		m.log.Info("background run left for the next start", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "status", run.Status)
		return
	}
	attrs := []any{"task_id", run.ID, "session", run.Session, "tool", run.Tool, "status", run.Status, "elapsed", run.Elapsed(run.FinishedAt)}
	if run.Error != nil {
		attrs = append(attrs, "kind", run.Error.Kind) // not its message: that is the tool's own text
	}
	m.log.Info("background run ended", attrs...)
	m.count(func(s *Stats) { s.ended(run) })
	t.mu.Lock()
	t.stored = true
	t.mu.Unlock()
	m.tell(t)
}

// storeEnd writes the end of a run. It returns the run as it ended, and false
// if that has to be stored later: then the task stays, so that who asks is
// told the truth.
func (m *Manager) storeEnd(t *task, e *ending) (final Run, stored bool) {
	t.io.Lock()
	defer t.io.Unlock()
	t.settled.Store(true)
	if t.flusher != nil {
		t.flusher.Stop()
	}
	err := ErrNotClaimable
	if e != nil {
		final, err = m.save(m.base, t, e)
	}
	if err == nil {
		return final, true
	}
	if lost(err) {
		if final, err = m.engine.Get(m.base, t.run.ID); err == nil {
			return final, true
		}
	}
	final = t.run
	if t.lease != nil {
		final = t.lease.Run()
	}
	if e == nil || errors.Is(err, ErrNotFound) {
		m.log.Error("background run has no record", "task_id", t.run.ID, "error", err)
		return final, true
	}
	m.log.Error("end of a background run not stored; trying again", "task_id", t.run.ID, "error", err)
	t.unsaved = e
	t.pending.Store(true)
	if e.cancel != nil {
		return final.Canceled(*e.cancel), false
	}
	return final.Ended(e.status, e.beat, e.end), false
}

// lost reports whether err says that the run is not this manager's to write.
func lost(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrNotClaimable) || errors.Is(err, ErrNotFound)
}

// save writes the end of a run, and before it what of its log is not stored.
// The lock io must be held.
func (m *Manager) save(ctx context.Context, t *task, e *ending) (Run, error) {
	switch {
	case e.cancel != nil:
		return m.engine.Cancel(ctx, t.run.ID, *e.cancel)
	case t.lease == nil:
		return m.engine.Abandon(ctx, t.run.ID, t.run.Attempt, e.status, e.beat, e.end)
	}
	if err := t.appendLog(ctx); lost(err) {
		return Run{}, err
	} else if err != nil {
		m.log.Error("output of a background run not stored", "task_id", t.run.ID, "error", err)
		e.end.ArtifactError = textUnstored
	}
	if e.requeue {
		return m.requeue(ctx, t, e)
	}
	return t.lease.Complete(ctx, e.status, e.beat, e.end)
}

// requeue makes the run queued again, for the next start of the host; if that
// does not work, it ends now.
func (m *Manager) requeue(ctx context.Context, t *task, e *ending) (Run, error) {
	run := t.lease.Run()
	err := m.engine.Requeue(ctx, run.ID, run.Attempt)
	switch {
	case err == nil:
		run.Status = StatusQueued
		return run, nil
	case lost(err):
		return Run{}, err
	}
	m.log.Warn("background run not queued again", "task_id", run.ID, "error", err)
	return t.lease.Complete(ctx, e.status, e.beat, e.end)
}

// retry stores an end that could not be stored before, if t has one.
func (m *Manager) retry(ctx context.Context, t *task) error {
	stored, err := m.storeAgain(ctx, t)
	if !stored {
		return err
	}
	<-t.done
	m.over(t)
	return nil
}

func (m *Manager) storeAgain(ctx context.Context, t *task) (stored bool, err error) {
	if !t.io.TryLock() { // it is being stored at this moment
		return false, nil
	}
	defer t.io.Unlock()
	if t.unsaved == nil {
		return false, nil
	}
	if _, err := m.save(ctx, t, t.unsaved); err != nil && !lost(err) {
		return false, err
	}
	t.unsaved = nil
	t.pending.Store(false)
	close(t.saved)
	return true, nil
}
