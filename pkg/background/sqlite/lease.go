package sqlite

import (
	"bytes"
	"context"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A lease implements [engine.Lease].
type lease struct {
	worker     *worker
	active     *active
	run        engine.Run
	checkpoint []byte
}

// Run implements [engine.Lease].
func (l *lease) Run() engine.Run { return l.run }

// Checkpoint implements [engine.Lease].
func (l *lease) Checkpoint() []byte { return bytes.Clone(l.checkpoint) }

// current returns an error if the lease is not the run's current one. The
// registry's lock must be held.
func (l *lease) current() error {
	if l.active.gone || l.active.lease != l {
		return fenced(l.run.ID, l.run.Attempt)
	}
	return l.worker.ended()
}

// use begins a change of the run.
func (l *lease) use() (release func(), err error) {
	g := l.worker.engine.active
	_, release, err = g.hold(l.run.ID)
	if err != nil {
		return nil, err
	}

	g.mu.Lock()
	err = l.current()
	g.mu.Unlock()
	if err != nil {
		release()
		return nil, err
	}

	return release, nil
}

// Report implements [engine.Lease]. It writes nothing.
func (l *lease) Report(_ context.Context, b engine.Beat) error {
	g := l.worker.engine.active
	g.mu.Lock()
	defer g.mu.Unlock()

	if err := l.current(); err != nil {
		return err
	}
	l.worker.engine.beat(l.active, b)
	return nil
}

// Append implements [engine.Lease].
func (l *lease) Append(ctx context.Context, offset int64, p []byte) error {
	release, err := l.use()
	if err != nil {
		return err
	}
	defer release()
	return l.worker.engine.logs.append(ctx, l.active.log, offset, p)
}

// Save implements [engine.Lease].
func (l *lease) Save(ctx context.Context, data []byte) error {
	release, err := l.use()
	if err != nil {
		return err
	}
	defer release()

	a := l.active
	more := int64(len(data)) - a.saved
	return l.worker.engine.db.write(ctx, func(w *conn) (func(), error) {
		return func() { a.saved, a.size = a.saved+more, a.size+more }, save(w, l.run.Session, a.seq, more, append([]byte{}, data...))
	})
}

// Complete implements [engine.Lease].
func (l *lease) Complete(ctx context.Context, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	release, err := l.use()
	if err != nil {
		return engine.Run{}, err
	}
	defer release()

	e := l.worker.engine
	return e.end(ctx, l.active, e.active.row(l.active).Finish(status, b, end))
}
