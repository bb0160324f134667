package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Submit implements [engine.Worker].
func (w *worker) Submit(ctx context.Context, run engine.Run, permits *engine.Permits) error {
	run.Status = engine.StatusQueued
	_, err := w.create(ctx, run, permits)
	return err
}

// Adopt implements [engine.Worker].
func (w *worker) Adopt(ctx context.Context, run engine.Run, permits engine.Permits) (engine.Lease, error) {
	run.Status, run.Attempt, run.HeartbeatAt = engine.StatusRunning, 1, time.Now()
	a, err := w.create(ctx, run, &permits)
	if err != nil {
		return nil, err
	}
	return a.lease, nil
}

// create stores a new run, which this worker has if it takes a permit.
func (w *worker) create(ctx context.Context, run engine.Run, permits *engine.Permits) (*active, error) {
	e, g := w.engine, w.engine.active
	if err := w.check(); err != nil {
		return nil, err
	}
	if err := checkID(run.ID); err != nil {
		return nil, err
	}
	record, err := stored{Run: run}.encode()
	if err != nil {
		return nil, err
	}

	a := &active{size: run.Size(), run: run.Light()}
	kind := engine.EventQueued
	if permits != nil {
		a.worker = w
	}
	if run.Status == engine.StatusRunning {
		kind, a.log = engine.EventStarted, e.logs.create(run)
		a.lease = &lease{worker: w, active: a, run: run}
	}
	if err := g.reserve(a); err != nil {
		return nil, err
	}
	defer g.release(a)

	err = e.create(ctx, func(c *conn, room room) (func(), error) {
		if err := unknown(c, run); err != nil {
			return nil, err
		}
		if permits != nil {
			if err := g.admit(a, *permits); err != nil {
				return nil, err
			}
		}
		if err := room(run.Session, a.size); err != nil {
			return nil, err
		}
		seq, err := insert(c, nil, row{size: a.size, stored: stored{Run: run}}, record, 0)
		return func() {
			a.seq = seq
			g.added(a)
			e.feed.Publish(engine.RunEvent(kind, a.run))
		}, err
	})

	return a, err
}

// unknown returns an error if there is a run with the id, or with the
// idempotency key in the session.
func unknown(c *conn, run engine.Run) error {
	found, err := c.one(`SELECT 1 FROM runs WHERE id = ?`, run.ID)
	if err == nil && found != nil {
		err = fmt.Errorf("%w: %s", engine.ErrExists, run.ID)
	}
	if err != nil || run.IdempotencyKey == "" {
		return err
	}

	found, err = c.one(`SELECT id FROM runs INDEXED BY runs_key WHERE idempotency_key = ? AND session = ?`, run.IdempotencyKey, run.Session)
	if err != nil || found == nil {
		return err
	}
	id, _ := found[0].(string)
	return &engine.ExistsError{ID: id}
}

// added makes a new run that is stored known.
func (g *registry) added(a *active) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(a)
}
