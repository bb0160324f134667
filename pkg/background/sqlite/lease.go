package sqlite

import (
	"bytes"
	"context"
	"fmt"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A lease implements [engine.Lease].
type lease struct {
	worker     *worker
	run        engine.Run
	checkpoint []byte
	state      []byte
}

// Run implements [engine.Lease].
func (l *lease) Run() engine.Run { return l.run }

// Checkpoint implements [engine.Lease].
func (l *lease) Checkpoint() []byte { return bytes.Clone(l.checkpoint) }

// check returns an error if the lease is not the run's current one. The
// registry's lock must be held.
func (l *lease) check(a *active) error {
	if a == nil || a.lease != l {
		return fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, l.run.ID, l.run.Attempt)
	}
	return l.worker.ended()
}

func (l *lease) change(do func(a *active, r row) error) error {
	return l.worker.engine.active.change(l.run.ID, l.check, do)
}

// Report implements [engine.Lease]. It writes nothing.
func (l *lease) Report(_ context.Context, b engine.Beat) error {
	g := l.worker.engine.active
	g.mu.Lock()
	defer g.mu.Unlock()

	a := g.runs[l.run.ID]
	if err := l.check(a); err != nil {
		return err
	}
	l.worker.engine.beat(a, b)
	return nil
}

// Append implements [engine.Lease].
func (l *lease) Append(ctx context.Context, offset int64, p []byte) error {
	return l.change(func(a *active, _ row) error { return l.worker.engine.logs.append(ctx, a.log, offset, p) })
}

// Save implements [engine.Lease].
func (l *lease) Save(ctx context.Context, data []byte) error {
	return l.change(func(a *active, r row) error {
		more := int64(len(data)) - a.saved
		before := r.SavedIn
		r.Run = r.Checkpointed(l.run, l.checkpoint, data)
		record, err := r.encode()
		if err != nil {
			return err
		}
		e := l.worker.engine
		e.active.mu.Lock()
		reported := a.changed
		e.active.mu.Unlock()
		return e.db.write(ctx, func(w *conn) error {
			w.after = append(w.after, func() {
				e.active.mu.Lock()
				defer e.active.mu.Unlock()
				a.saved, a.size, a.run.SavedIn = a.saved+more, a.size+more, r.SavedIn
			})
			if r.SavedIn != before || reported {
				if err := w.run(`UPDATE runs SET record = ? WHERE seq = ?`, record, r.seq); err != nil {
					return err
				}
			}
			return save(w, l.run.Session, a.seq, more, append([]byte{}, data...))
		})
	})
}

// Complete implements [engine.Lease].
func (l *lease) Complete(ctx context.Context, status engine.Status, b engine.Beat, end engine.End) (run engine.Run, err error) {
	err = l.change(func(a *active, r row) error {
		run, err = l.worker.engine.end(ctx, a, r.Finish(status, b, end))
		return err
	})
	return run, err
}
