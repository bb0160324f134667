package sqlite

import (
	"context"
	"errors"
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
	l, err := w.create(ctx, run, &permits)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// create stores a new run. If permits is not nil, the run is claimed by this worker.
func (w *worker) create(ctx context.Context, run engine.Run, permits *engine.Permits) (*lease, error) {
	e, g := w.engine, w.engine.active
	g.mu.Lock()
	err := w.ended()
	g.mu.Unlock()
	if err = errors.Join(err, checkID(run.ID)); err != nil {
		return nil, err
	}
	r := row{size: run.Size(), stored: stored{Run: run}}
	record, err := r.encode()
	if err != nil {
		return nil, err
	}

	a := &active{size: r.size, run: run.Light()}
	if permits != nil {
		a.worker = w
	}
	kind, l := engine.EventQueued, (*lease)(nil)
	if run.Status == engine.StatusRunning {
		l = &lease{worker: w, run: run}
		kind, a.lease, a.log = engine.EventStarted, l, e.logs.create(run)
	}

	err = e.db.write(ctx, func(c *conn) error {
		if err := unknown(c, run); err != nil {
			return err
		}
		g.mu.Lock()
		err := g.parented(run, permits)
		if err == nil && permits != nil {
			err = g.admit(a, *permits)
		}
		g.mu.Unlock()
		if err != nil {
			return err
		}
		if err := e.makeRoom(c, run.Session, a.size); err != nil {
			return err
		}
		a.seq, err = insert(c, nil, r, record)
		c.after = append(c.after, func() {
			g.mu.Lock()
			g.add(a)
			g.mu.Unlock()
			event := engine.RunEvent(kind, run)
			event.Claimed = permits != nil
			e.feed.Publish(event)
		})
		return err
	})
	if err != nil {
		g.mu.Lock()
		g.giveBack(a)
		g.mu.Unlock()
	}

	return l, err
}

// unknown returns an error if the id of a run is taken, if its session already
// has its idempotency key, or if its schedule is not stored.
func unknown(c *conn, run engine.Run) error {
	found, err := c.one(`SELECT 1 FROM runs WHERE id = ?`, run.ID)
	if err == nil && found != nil {
		err = fmt.Errorf("%w: %s", engine.ErrExists, run.ID)
	}
	if err == nil && run.Schedule != "" {
		found, err = c.one(`SELECT 1 FROM schedules WHERE id = ?`, run.Schedule)
		if err == nil && found == nil {
			err = fmt.Errorf("%w: schedule %s", engine.ErrNotFound, run.Schedule)
		}
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
