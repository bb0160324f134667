package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

// A live is a run this process works on. Its fields but the first three are
// guarded by Engine.mu.
type live struct {
	lease *lease
	seq   int64
	log   *logFile
	run   background.Run // without Args and Result; its Beat is newer than the stored one
	dirty bool           // the Beat is not stored yet
}

// begin makes l the current lease of its run. It is called when that is
// stored, by the writer.
func (e *Engine) begin(l *lease, seq int64) {
	run := l.run
	run.Args, run.Result, run.Content = nil, nil, nil
	e.mu.Lock()
	e.live[run.ID] = &live{lease: l, seq: seq, log: e.newLog(run), run: run}
	e.mu.Unlock()
	e.feed.Publish(background.RunEvent(background.EventStarted, run))
}

// over ends the lease of a run that was stored as it now is, if it has one,
// and tells who watches.
func (e *Engine) over(kind background.EventKind, run background.Run) {
	e.mu.Lock()
	delete(e.live, run.ID)
	e.mu.Unlock()
	e.feed.Publish(background.RunEvent(kind, run))
}

// worker returns the run this process works on, nil if it does not.
func (e *Engine) worker(id string) *live {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live[id]
}

// refresh puts what the worker of a run last said into it.
func (e *Engine) refresh(run *background.Run) {
	if run.Status != background.StatusRunning {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if v := e.live[run.ID]; v != nil && v.run.Attempt == run.Attempt {
		run.Beat, run.HeartbeatAt = v.run.Beat.Clone(), v.run.HeartbeatAt
	}
}

// stale reports whether the worker of a running run has not been heard of for
// too long, or is not of this process.
func (e *Engine) stale(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.live[id]
	return v == nil || time.Since(v.run.HeartbeatAt) >= background.LeaseTTL
}

// enterRun begins a method that changes a run: until it calls release, no other
// one changes it, and the engine is not closed.
func (e *Engine) enterRun(ctx context.Context, id string) (release func(), err error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	unlock, err := e.runs.lock(ctx, id)
	if err != nil {
		e.calls.Done()
		return nil, err
	}
	return func() { unlock(); e.calls.Done() }, nil
}

// Claim implements [background.Engine].
func (e *Engine) Claim(ctx context.Context, id string) (background.Lease, error) {
	release, err := e.enterRun(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	l := &lease{engine: e}
	err = e.write(ctx, func(w *conn) (func(), error) {
		r, err := loadFull(w, id)
		if err != nil {
			return nil, err
		}
		if r.Status != background.StatusQueued && (r.Status != background.StatusRunning || !e.stale(id)) {
			return nil, fmt.Errorf("%w: %s is %s", background.ErrNotClaimable, id, r.Status)
		}
		r.Status = background.StatusRunning
		r.Attempt++
		r.StartedAt = time.Now()
		r.HeartbeatAt = r.StartedAt
		r.Beat = background.Beat{}
		saved, err := w.one(`SELECT data FROM checkpoints WHERE seq = ?`, r.seq)
		if err != nil {
			return nil, err
		}
		if saved != nil {
			l.checkpoint, _ = saved[0].([]byte)
		}
		l.run = r.Run
		return func() { e.begin(l, r.seq) }, r.update(w)
	})
	if err = e.quarantine(ctx, err); err != nil {
		return nil, err
	}
	return l, nil
}

// Requeue implements [background.Engine].
func (e *Engine) Requeue(ctx context.Context, id string, attempt int) error {
	release, err := e.enterRun(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	return e.quarantine(ctx, e.write(ctx, func(w *conn) (func(), error) {
		r, err := load(w, id)
		if err != nil {
			return nil, err
		}
		if r.Status != background.StatusRunning || r.Attempt != attempt {
			return nil, fenced(id, attempt)
		}
		e.refresh(&r.Run)
		r.Status = background.StatusQueued
		return func() { e.over(background.EventQueued, r.Run) }, r.update(w)
	}))
}

func fenced(id string, attempt int) error {
	return fmt.Errorf("%w: %s, attempt %d", background.ErrFenced, id, attempt)
}

// Abandon implements [background.Engine].
func (e *Engine) Abandon(ctx context.Context, id string, attempt int, status background.Status, b background.Beat, end background.End) (background.Run, error) {
	release, err := e.enterRun(ctx, id)
	if err != nil {
		return background.Run{}, err
	}
	defer release()
	r, err := e.load(ctx, id, loadFull)
	if err != nil {
		return background.Run{}, err
	}
	if r.Status.Terminal() || r.Attempt != attempt {
		return background.Run{}, fenced(id, attempt)
	}
	args := r.Args
	r.Run = r.Ended(status, b, end)
	return e.end(ctx, r, args)
}

// Cancel implements [background.Engine].
func (e *Engine) Cancel(ctx context.Context, id string, c background.Cancellation) (background.Run, error) {
	release, err := e.enterRun(ctx, id)
	if err != nil {
		return background.Run{}, err
	}
	defer release()
	r, err := e.load(ctx, id, loadFull)
	if err != nil || r.Status.Terminal() {
		return r.Run, err
	}
	if r.Run.Cancel == nil {
		r.Run.Cancel = &c
	}
	if r.Status == background.StatusQueued {
		args := r.Args
		r.Run = r.Canceled(c)
		return e.end(ctx, r, args)
	}
	err = e.write(ctx, func(w *conn) (func(), error) {
		e.refresh(&r.Run)
		return func() { e.canceling(r.Run) }, r.update(w)
	})
	return r.Run.Clone(), err
}

// canceling tells the worker of a run that its end was asked for.
func (e *Engine) canceling(run background.Run) {
	e.mu.Lock()
	if v := e.live[run.ID]; v != nil {
		v.run.Cancel = run.Cancel
	}
	e.mu.Unlock()
	e.feed.Publish(background.RunEvent(background.EventStopping, run))
}

// end stores the end of a run whose lock is held: its log, its artifacts and
// its record, in this order. r is the run as it will be, but for
// ArtifactError.
func (e *Engine) end(ctx context.Context, r row, args []byte) (background.Run, error) {
	log, err := e.logOf(r.Run)
	if err != nil {
		log = e.newLog(r.Run)
	}
	before := log.size()
	x, sealing := log.seal()
	r.Log = &x
	r.OutputBytes = max(r.OutputBytes, x.End)
	file, writing := writeEnvelope(log.dir, r.Run)
	err = errors.Join(err, sealing, writing, syncDir(log.dir), syncDir(e.path(runsFolder)))
	if err != nil {
		e.log.Error("artifacts of a background run not written", "task_id", r.ID, "error", err)
		if r.ArtifactError == "" {
			r.ArtifactError = "The output or result file could not be written"
		}
	}
	logged := e.loggedBy(r.Run, x, log)
	err = e.write(ctx, func(w *conn) (func(), error) {
		now, err := load(w, r.ID)
		if err != nil {
			return nil, err
		}
		if now.seq != r.seq || now.Status.Terminal() || now.Attempt != r.Attempt {
			return nil, fenced(r.ID, r.Attempt)
		}
		r.size = now.size
		return func() { e.over(background.EventEnded, r.Run) }, r.finish(w, logged, file)
	})
	if err = e.quarantine(ctx, err); err != nil {
		return background.Run{}, err
	}
	if x.Whole {
		if err := publish(log.dir); err != nil {
			e.log.Warn("log of a background run not put in its place yet", "task_id", r.ID, "error", err)
		}
		e.used.Add(x.size() - before)
	}
	ended := r.Run.Clone()
	ended.Args = bytes.Clone(args)
	return ended, nil
}

// logOf returns the log of a run that has not ended.
func (e *Engine) logOf(run background.Run) (*logFile, error) {
	if v := e.worker(run.ID); v != nil && v.run.Attempt == run.Attempt {
		return v.log, nil
	}
	return e.findLog(run)
}

// loggedBy returns how much room the logs of a run take once it has ended.
func (e *Engine) loggedBy(run background.Run, x extent, log *logFile) int64 {
	n := log.size()
	if x.Whole {
		n = x.size()
	}
	for earlier := run; earlier.Attempt > 1; {
		earlier.Attempt--
		n += logSize(e.path(runsFolder, earlier.Folder()))
	}
	return n
}
