package background

import (
	"context"
	"errors"
)

// flushChunk is how much of a log is handed to the engine at once.
const flushChunk = 256 << 10

// flush stores what a running run wrote and said since the last time. The
// run's sink asks for it when it has something new, so that an idle run costs
// nothing; what is new while it is stored waits for the next one, so that a
// slow engine is asked less often, and the sink keeps what it can.
func (m *Manager) flush(t *task) {
	t.io.Lock()
	defer t.io.Unlock()
	if t.lease == nil || t.settled.Load() {
		return
	}
	t.sink.fresh()
	err := t.appendLog(m.base)
	m.refusedLease(t, err)
	switch {
	case err == nil:
		t.dull = false
	case !lost(err) && !t.dull:
		t.dull = true
		m.log.Warn("output of a background run not stored; trying again", "task_id", t.run.ID, "error", err)
	}
	if beat := t.sink.Beat(); !lost(err) && !beat.Equal(t.beat) {
		m.extend(m.base, t, beat)
	}
}

// appendLog appends to the lease what the sink has kept and the lease does not
// have. The lock io must be held.
func (t *task) appendLog(ctx context.Context) error {
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

// heartbeat extends the lease of a running run, and stores what could not be
// stored before.
func (m *Manager) heartbeat(ctx context.Context, t *task) {
	if t.orphan.CompareAndSwap(true, false) {
		m.reclaim(ctx, t)
		return
	}
	if err := m.retry(ctx, t); err != nil {
		m.log.Warn("end of a background run still not stored", "task_id", t.run.ID, "error", err)
	}
	if !t.io.TryLock() { // something is being stored: the run is well
		return
	}
	defer t.io.Unlock()
	if t.lease == nil || t.settled.Load() {
		return
	}
	m.extend(ctx, t, t.sink.Beat())
	if t.dull {
		t.flusher.Reset(0)
	}
}

// extend extends the lease. The lock io must be held.
func (m *Manager) extend(ctx context.Context, t *task, beat Beat) {
	c, err := t.lease.Extend(ctx, beat)
	m.refusedLease(t, err)
	switch {
	case err == nil:
		t.beat = beat
	case !lost(err) && !errors.Is(err, context.Canceled):
		m.log.Warn("heartbeat of a background run not stored", "task_id", t.run.ID, "error", err)
	}
	if c != nil {
		t.requestStop(m.cfg.Grace)
	}
}

// refusedLease stops the run if err says that it is another's by now.
func (m *Manager) refusedLease(t *task, err error) {
	if lost(err) {
		m.log.Warn("background run lost its lease", "task_id", t.run.ID, "attempt", t.lease.Run().Attempt)
		t.abort(ErrFenced)
	}
}

// checkpoint stores a checkpoint of a run.
func (m *Manager) checkpoint(t *task, data []byte) error {
	t.io.Lock()
	defer t.io.Unlock()
	if t.settled.Load() {
		return ErrFenced
	}
	err := t.lease.Save(m.base, data)
	m.refusedLease(t, err)
	return err
}
