package background

import (
	"context"
	"errors"
)

// flushChunk is how much of a log is handed to the engine at once.
const flushChunk = 256 << 10

// claim makes this manager the worker of the run, and returns it as claimed.
func (m *Manager) claim(t *task) (Run, error) {
	t.io.Lock()
	defer t.io.Unlock()
	lease, err := m.engine.Claim(m.base, t.run.ID)
	if err != nil {
		return Run{}, err
	}
	t.lease = lease
	return lease.Run(), nil
}

// settle stores how a run ended, gives its permits back and wakes who waits
// for it, in this order: whoever saw the end can spawn again. A nil ending
// stands for a run that ended without this manager.
func (m *Manager) settle(t *task, e *ending) {
	t.sink.close()
	var stored bool
	t.final, stored = m.storeEnd(t, e)
	m.limits.release(t.run.Session, t.run.ID)
	close(t.done)
	if stored {
		m.forget(t)
	}
	attrs := []any{"task_id", t.run.ID, "session", t.run.Session, "tool", t.run.Tool, "status", t.final.Status, "elapsed", t.final.Elapsed(t.final.FinishedAt)}
	if t.final.Error != nil {
		attrs = append(attrs, "kind", t.final.Error.Kind) // not its message: that is the tool's own text
	}
	m.log.Info("background run ended", attrs...)
	m.prune(t.run.Session)
}

// storeEnd writes the end of a run. It returns the run as it ended, and false
// if that has to be stored later: then the task stays, so that who asks is
// told the truth.
func (m *Manager) storeEnd(t *task, e *ending) (final Run, stored bool) {
	t.io.Lock()
	defer t.io.Unlock()
	t.settled.Store(true)
	err := ErrNotClaimable
	if e != nil {
		final, err = m.save(t, e)
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
	if e == nil || lost(err) {
		m.log.Error("background run has no record", "task_id", t.run.ID, "error", err)
		return final, true
	}
	m.log.Error("end of a background run not stored; trying again", "task_id", t.run.ID, "error", err)
	t.unsaved = e
	return final.Ended(e.status, e.beat, e.end), false
}

// lost reports whether err says that the run is not this manager's to write.
func lost(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrNotClaimable) || errors.Is(err, ErrNotFound)
}

// save writes the log and the end of a run. The lock io must be held.
func (m *Manager) save(t *task, e *ending) (Run, error) {
	if t.lease == nil {
		lease, err := m.engine.Claim(m.base, t.run.ID)
		if err != nil {
			return Run{}, err
		}
		t.lease = lease
	}
	if err := t.flush(m.base); lost(err) {
		return Run{}, err
	} else if err != nil {
		m.log.Error("output of a background run not stored", "task_id", t.run.ID, "error", err)
		e.end.ArtifactError = textUnstored
	}
	return t.lease.Complete(m.base, e.status, e.beat, e.end)
}

// flush appends to the lease what the sink has kept and the lease does not
// have. The lock io must be held.
func (t *task) flush(ctx context.Context) error {
	for {
		chunk := t.sink.Tail(t.flushed, flushChunk)
		if len(chunk.Data) == 0 {
			return nil
		}
		if err := t.lease.Append(ctx, chunk.Offset, chunk.Data); err != nil {
			return err
		}
		t.flushed = chunk.Offset + int64(len(chunk.Data))
	}
}

// heartbeat extends the lease of a running run, or stores an end that could
// not be stored before.
func (m *Manager) heartbeat(t *task) {
	if err := m.retry(t); err != nil {
		m.log.Warn("end of a background run still not stored", "task_id", t.run.ID, "error", err)
	}
	t.io.Lock()
	defer t.io.Unlock()
	if t.lease == nil || t.settled.Load() {
		return
	}
	c, err := t.lease.Extend(m.base, t.sink.Beat())
	switch {
	case errors.Is(err, ErrFenced):
		m.log.Warn("background run lost its lease", "task_id", t.run.ID, "attempt", t.lease.Run().Attempt)
		t.cancel(ErrFenced)
	case err != nil:
		m.log.Warn("heartbeat of a background run not stored", "task_id", t.run.ID, "error", err)
	case c != nil:
		t.requestStop(m.cfg.Grace)
	}
}

// retry stores an end that could not be stored before, if t has one.
func (m *Manager) retry(t *task) error {
	t.io.Lock()
	defer t.io.Unlock()
	if t.unsaved == nil {
		return nil
	}
	if _, err := m.save(t, t.unsaved); err != nil && !lost(err) {
		return err
	}
	t.unsaved = nil
	m.forget(t)
	return nil
}
