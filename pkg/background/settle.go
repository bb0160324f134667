package background

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// flushChunk is the maximum number of bytes of a log passed to the engine at a time.
const flushChunk = 256 << 10

// hold connects a task's sink to its lease. The lock io must be held.
func (w *worker) hold(t *task, worker engine.Worker, lease engine.Lease) {
	t.worker, t.lease = worker, lease
	t.flusher = time.AfterFunc(flushEvery, func() { w.flush(t) })
	t.flusher.Stop()
	t.sink.Attach(lease.Run().Cost, lease.Checkpoint(), func(ctx context.Context, data []byte) error { return w.checkpoint(ctx, t, data) },
		func() { t.flusher.Reset(w.untilFlush(time.Duration(t.rest.Load()))) })
	t.live.Store(true)
	if w.member.over(worker) { // abortAll may have run before the task was live
		t.cancel(engine.ErrFenced)
	}
}

// untilFlush returns the time until the first flush that is not before rest, a time since
// the Manager's creation. All runs flush at the same moments, so that an engine can store
// them in one write.
func (w *worker) untilFlush(rest time.Duration) time.Duration {
	now := time.Since(w.born)
	next := max(now+1, rest) + flushEvery - 1
	return next - next%flushEvery - now
}

// flush stores new output and reports of a running run. The sink requests it when
// there is something new, so an idle run costs nothing. Changes that arrive while
// a slow engine is storing wait for the next flush.
func (w *worker) flush(t *task) {
	t.io.Lock()
	defer t.io.Unlock()
	if t.settled.Load() {
		return
	}

	t.sink.Fresh()
	if t.sink.Full() { // most of it would be stored only to be dropped again
		t.rest.Store(int64(time.Since(w.born) + fullEvery))
	}
	switch err := t.appendLog(w.base); {
	case err == nil:
		t.stuck.Store(false)
	case w.lostRun(t, err):
		return
	case t.stuck.CompareAndSwap(false, true):
		w.log.Warn("output of a background run not stored; trying again", "task_id", t.run.ID, "error", err)
	}

	w.report(t)
}

// report stores the sink's report about a run, if it is new. The lock io must be held.
func (w *worker) report(t *task) {
	beat := t.sink.Beat()
	if beat.Equal(t.beat) {
		return
	}
	switch err := t.lease.Report(w.base, beat); {
	case err == nil:
		t.beat = beat
	case !w.lostRun(t, err):
		w.log.Warn("status of a background run not stored", "task_id", t.run.ID, "error", err)
	}
}

// appendLog appends to the lease the output that the lease does not have yet. Output
// that is written in the meantime waits for the next call. The lock io must be held.
func (t *task) appendLog(ctx context.Context) error {
	for {
		chunk := t.sink.Tail(t.flushed, flushChunk)
		if len(chunk.Data) == 0 {
			return nil
		}
		if err := t.lease.Append(ctx, chunk.Offset, chunk.Data); err != nil {
			return err
		}
		if t.flushed = chunk.Offset + int64(len(chunk.Data)); t.flushed == chunk.End {
			return nil
		}
	}
}

// lostRun stops the run if err means that another worker has it, and reports whether it
// does.
func (w *worker) lostRun(t *task, err error) bool {
	if !fenced(err) {
		return false
	}
	w.log.Warn("background run lost its lease", "task_id", t.run.ID, "attempt", t.lease.Run().Attempt)
	t.cancel(engine.ErrFenced)
	return true
}

// checkpoint stores a checkpoint of a run, with the cost of what led to it. While the
// storage accepts nothing, it waits: without the checkpoint, what the work does next
// could be repeated after a crash, even if it must not be.
func (w *worker) checkpoint(ctx context.Context, t *task, data []byte) error {
	if len(data) > MaxCheckpoint {
		return &FieldError{"data", "longer than 1 MiB"}
	}

	logged := false
	return t.persist(ctx, func() error {
		err := w.saveCheckpoint(t, data)
		if stalled(err) && !logged {
			logged = true
			w.log.Warn("checkpoint of a background run not stored; the run waits until it is", "task_id", t.run.ID, "error", err)
		}
		return err
	})
}

// saveCheckpoint tries once to store a checkpoint.
func (w *worker) saveCheckpoint(t *task, data []byte) error {
	t.io.Lock()
	defer t.io.Unlock()
	if t.settled.Load() {
		return engine.ErrFenced
	}

	w.report(t)
	err := t.lease.Save(w.base, data)
	if err == nil {
		t.advanced.Store(t.advanced.Load() || !bytes.Equal(data, t.lease.Checkpoint()))
	}
	w.lostRun(t, err)
	return err
}

// settle stores how a run ended, returns its slot and wakes its waiters, in this order,
// so that a session that has seen the end can spawn again.
func (w *worker) settle(t *task, e *ending) {
	t.hasReturned()
	t.sink.Close()
	final, stored := w.storeEnd(t, e)
	t.final = &final
	w.admission.release()

	if final.Status == engine.StatusWaiting || final.Woken {
		w.suspended(t)
		return
	}
	if !final.Status.Terminal() && !w.runs.isClosing() { // another worker continues it
		w.runs.remove(t)
		go w.reader.awaitElsewhere(t)
		return
	}
	close(t.done)
	if stored {
		w.over(t)
	}
}

// over is called once, when the end of a run is stored.
func (w *worker) over(t *task) {
	w.runs.remove(t)
	run := *t.final
	if !run.Status.Terminal() {
		w.log.Info("background run left in the queue", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "status", run.Status)
		return
	}

	attrs := []any{"task_id", run.ID, "session", run.Session, "tool", run.Tool, "status", run.Status, "elapsed", run.Elapsed(run.FinishedAt)}
	if run.Error != nil {
		attrs = append(attrs, "kind", run.Error.Kind) // not its message, which is the tool's own text
	}
	w.log.Info("background run ended", attrs...)
	w.counters.ended(run)
}

// storeEnd writes the end of a run. It returns the run as it ended, and whether the end
// is stored. If not, the task stays, so that the end can be stored later.
func (w *worker) storeEnd(t *task, e *ending) (final engine.Run, stored bool) {
	t.io.Lock()
	defer t.io.Unlock()
	t.settled.Store(true)
	if t.flusher != nil {
		t.flusher.Stop()
	}

	final, err := w.save(w.base, t, e)
	if fenced(err) { // it ended, or continues elsewhere
		final, err = w.engine.Get(w.base, t.run.ID)
	}
	if err == nil {
		return final, true
	}

	final = t.run
	if t.lease != nil {
		final = t.lease.Run()
	}
	final = final.Finish(e.status, e.beat, e.end)
	if fenced(err) {
		w.log.Error("background run has no record", "task_id", t.run.ID, "error", err)
		return final, true
	}
	w.log.Error("end of a background run not stored; trying again", "task_id", t.run.ID, "error", err)
	t.unsaved.Store(e)
	return final, false
}

// save writes the rest of a run's log and then its end. The lock io must be
// held.
func (w *worker) save(ctx context.Context, t *task, e *ending) (engine.Run, error) {
	switch {
	case e.lost:
		return engine.Run{}, engine.ErrFenced
	case t.lease == nil: // refused unless it is still queued and claimed by this worker
		attempt := t.run.Attempt
		if t.call {
			attempt = 1
		}
		return t.worker.Abandon(ctx, t.run.ID, attempt, e.status, e.beat, e.end)
	}
	if err := t.appendLog(ctx); fenced(err) {
		return engine.Run{}, err
	} else if err != nil {
		w.log.Error("output of a background run not stored", "task_id", t.run.ID, "error", err)
		e.end.ArtifactError = "Part of the output could not be stored"
	}

	if e.suspend != nil {
		e.suspend.Calls = t.sink.Called()
		run, stored, err := w.storeSuspension(ctx, t, e)
		if stored || err != nil {
			return run, err
		}
	}
	if e.requeue {
		run := t.lease.Run()
		err := t.lease.Report(ctx, e.beat) // cost of the attempt
		if err == nil {
			err = w.member.worker().Requeue(ctx, run.ID, run.Attempt)
		}
		switch {
		case err == nil:
			run.Status = engine.StatusQueued
			return run, nil
		case fenced(err):
			return engine.Run{}, err
		}

		w.log.Warn("background run not queued again", "task_id", run.ID, "error", err)
	}
	e.end.Calls = t.sink.Called()
	return t.lease.Complete(ctx, e.status, e.beat, e.end)
}

// retry stores the output and the end of a task that could not be stored before.
func (w *worker) retry(ctx context.Context, t *task) error {
	if t.stuck.Load() && !t.settled.Load() {
		t.flusher.Reset(0)
	}
	return w.storeAgain(ctx, t)
}

// storeAgain stores an end that could not be stored before, if t has one.
func (w *worker) storeAgain(ctx context.Context, t *task) error {
	if t.unsaved.Load() == nil || !t.io.TryLock() { // no end to store, or it is being stored right now
		return nil
	}
	defer t.io.Unlock()
	e := t.unsaved.Load()
	if e == nil {
		return nil
	}
	if _, err := w.save(ctx, t, e); err != nil && !fenced(err) {
		return err
	}

	t.unsaved.Store(nil)
	close(t.saved)
	<-t.done
	w.over(t)
	return nil
}

// storeRest tries once more to store all unstored ends.
func (w *worker) storeRest(ctx context.Context) error {
	var errs []error
	for _, t := range w.runs.all() {
		if err := w.storeAgain(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("storing the end of run %s: %w", t.run.ID, err))
		}
	}
	return errors.Join(errs...)
}
