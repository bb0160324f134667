package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A worker is the engine's current worker. Its lease is kept in memory, and ends
// with the process.
type worker struct {
	engine *Engine
	id     string
	ttl    time.Duration
	since  time.Time

	// Guarded by the registry's lock.
	renewed time.Time
	offer   engine.Offer
}

// Join implements [engine.Engine]. While another worker's lease lasts, the
// error matches [engine.ErrLocked].
func (e *Engine) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	now := time.Now()
	w := &worker{engine: e, id: rand.Text(), ttl: cmp.Or(info.TTL, engine.DefaultTTL), since: now, renewed: now, offer: info.Offer}
	g := e.active
	g.mu.Lock()
	before := g.worker
	if before != nil && before.ended() == nil {
		g.mu.Unlock()
		return nil, fmt.Errorf("%w: %s has a worker, and takes only one", engine.ErrLocked, e.dir)
	}
	g.worker = w
	g.mu.Unlock()

	err := e.db.limit(ctx, info.Quota, func(pending []string) { g.join(info.Quota, pending) })
	if err != nil {
		_ = w.Leave(ctx)
		return nil, err
	}
	return w, nil
}

// ended returns an error if the lease has ended. The registry's lock must be
// held.
func (w *worker) ended() error {
	if w.engine.active.worker == w && time.Since(w.renewed) < w.ttl {
		return nil
	}
	return fmt.Errorf("%w: of the worker", engine.ErrFenced)
}

// ID implements [engine.Worker].
func (w *worker) ID() string { return w.id }

// Offer implements [engine.Worker].
func (w *worker) Offer(_ context.Context, o engine.Offer) error {
	g := w.engine.active
	g.mu.Lock()
	defer g.mu.Unlock()

	if err := w.ended(); err != nil {
		return err
	}
	w.offer = o
	return nil
}

// Workers implements [engine.Engine]. There is at most one.
func (e *Engine) Workers(context.Context) ([]engine.WorkerState, error) {
	g := e.active
	g.mu.Lock()
	defer g.mu.Unlock()

	w := g.worker
	if w == nil {
		return nil, nil
	}
	state := engine.WorkerState{ID: w.id, Offer: w.offer, Since: w.since, RenewedAt: w.renewed, TTL: w.ttl, Live: w.ended() == nil}
	for _, a := range g.holders {
		switch {
		case a.worker != w:
		case a.run.Status == engine.StatusQueued:
			state.Claimed++
		case a.run.Status == engine.StatusRunning:
			state.Running++
		}
	}
	return []engine.WorkerState{state}, nil
}

// Claim implements [engine.Worker]. It writes nothing: its claims end with
// the process.
func (w *worker) Claim(_ context.Context, max int, permits engine.Permits) ([]engine.Run, error) {
	g := w.engine.active
	g.mu.Lock()
	defer g.mu.Unlock()

	if err := w.ended(); err != nil {
		return nil, err
	}

	var claimed []engine.Run
	g.queue = slices.DeleteFunc(g.queue, func(a *active) bool {
		if len(claimed) >= max || a.run.Held != "" || g.runs[a.run.After] != nil || g.admit(a, permits) != nil {
			return false
		}
		a.worker = w
		claimed = append(claimed, a.run)
		return true
	})

	return claimed, nil
}

// owns returns a check for [registry.change]: this worker must have the run, and
// known must accept it.
func (w *worker) owns(id string, known func(engine.Run) bool) func(*active) error {
	return func(a *active) error {
		if a == nil || a.worker != w || !known(a.run) {
			return fmt.Errorf("%w: %s", engine.ErrFenced, id)
		}
		return w.ended()
	}
}

// refused returns err or, if there is no run with that id, an error that says so.
func (w *worker) refused(ctx context.Context, id string, err error) error {
	if errors.Is(err, engine.ErrFenced) {
		if _, missing := w.engine.Get(ctx, id); missing != nil {
			return missing
		}
	}
	return err
}

// Start implements [engine.Worker].
func (w *worker) Start(ctx context.Context, id string) (engine.Lease, error) {
	e, l := w.engine, &lease{worker: w}
	queued := func(run engine.Run) bool { return run.Status == engine.StatusQueued }
	err := e.active.change(id, w.owns(id, queued), func(a *active, r row) error {
		before := r.Run
		r.Run = r.Begin(time.Now())
		l.run = r.Run
		err := e.db.read(ctx, func(c *conn) (err error) {
			if a.saved > 0 {
				l.checkpoint, err = blob(c, "checkpoints", a.seq)
			}
			if err == nil && a.state > 0 {
				l.state, err = blob(c, "states", a.seq)
			}
			if err == nil {
				l.run.Args, err = blob(c, "args", a.seq)
			}
			return err
		})
		if err != nil {
			return err
		}
		log, err := e.logs.begin(before, r.Run)
		if err != nil {
			return err
		}
		return e.update(ctx, r, engine.EventStarted, func() {
			a.run, a.log, a.lease = r.Run, log, l
			if e.active.dequeue(a) { // another worker has joined meanwhile, and the run is its orphan
				e.active.holders[id] = a
			}
		})
	})
	if err != nil {
		return nil, w.refused(ctx, id, err)
	}

	return l, nil
}

// update stores a change of an active run. Once it is stored, do makes the same change in
// memory.
func (e *Engine) update(ctx context.Context, r row, kind engine.EventKind, do func()) error {
	record, err := r.encode()
	if err != nil {
		return err
	}
	return e.db.write(ctx, func(w *conn) error {
		w.after = append(w.after, func() {
			e.active.mu.Lock()
			do()
			e.active.mu.Unlock()
			e.feed.Publish(engine.RunEvent(kind, r.Run))
		})
		return w.run(`UPDATE runs SET record = ? WHERE seq = ?`, record, r.seq)
	})
}

// Renew implements [engine.Worker]. It writes nothing.
func (w *worker) Renew(_ context.Context, held map[string]engine.Beat) (news engine.Renewal, err error) {
	e, g := w.engine, w.engine.active
	g.mu.Lock()
	defer g.mu.Unlock()

	if err := w.ended(); err != nil {
		return news, err
	}

	w.renewed = time.Now()
	for id, a := range g.holders {
		if a.run.Status != engine.StatusRunning || g.runs[id] != a { // it is being stored in the latter case
			continue
		}
		if a.worker != w {
			news.Orphans = true
			continue
		}
		a.run.HeartbeatAt = w.renewed
		if beat, ok := held[id]; ok {
			e.beat(a, beat)
		} else {
			news.Strays = append(news.Strays, id)
		}
		if a.run.Cancel != nil {
			news.Stops = append(news.Stops, id)
		}
	}
	news.Queued, news.Notices = len(g.queue) > 0, len(g.notices) > 0
	return news, nil
}

// beat records the beat of a run. The registry's lock must be held.
func (e *Engine) beat(a *active, b engine.Beat) {
	if !b.Equal(a.run.Beat) {
		a.run.Beat, a.changed = b, true
		e.feed.Publish(engine.RunEvent(engine.EventBeat, a.run))
	}
}

// Orphans implements [engine.Worker].
func (w *worker) Orphans(_ context.Context, max int) (taken []engine.Run, err error) {
	g := w.engine.active
	g.mu.Lock()
	defer g.mu.Unlock()

	if err := w.ended(); err != nil {
		return nil, err
	}

	var orphans []*active
	for id, a := range g.holders {
		if a.run.Status == engine.StatusRunning && a.worker != w && g.runs[id] == a {
			orphans = append(orphans, a)
		}
	}
	slices.SortFunc(orphans, func(a, b *active) int { return cmp.Compare(a.seq, b.seq) })
	for _, a := range orphans[:min(max, len(orphans))] {
		a.worker, a.lease = w, nil
		taken = append(taken, a.run)
	}

	return taken, nil
}

// Requeue implements [engine.Worker].
func (w *worker) Requeue(ctx context.Context, id string, attempt int) error {
	e := w.engine
	current := func(run engine.Run) bool { return run.Attempt == attempt }
	err := e.active.change(id, w.owns(id, current), func(a *active, r row) error {
		r.Status = engine.StatusQueued
		return e.update(ctx, r, engine.EventQueued, func() {
			a.run, a.changed = r.Run, false
			e.active.enqueue(a)
		})
	})
	return w.refused(ctx, id, err)
}

// Abandon implements [engine.Worker].
func (w *worker) Abandon(ctx context.Context, id string, attempt int, status engine.Status, b engine.Beat, end engine.End) (run engine.Run, err error) {
	current := func(run engine.Run) bool { return run.Attempt == attempt }
	err = w.engine.active.change(id, w.owns(id, current), func(a *active, r row) error {
		run, err = w.engine.end(ctx, a, r.Finish(status, b, end))
		return err
	})
	return run, w.refused(ctx, id, err)
}

// Notices implements [engine.Worker].
func (w *worker) Notices(ctx context.Context, max int) (taken []engine.Run, err error) {
	g := w.engine.active
	for len(taken) < max {
		g.mu.Lock()
		err := w.ended()
		if err != nil || len(g.notices) == 0 {
			g.mu.Unlock()
			return taken, err
		}
		id := g.notices[0]
		g.notices = g.notices[1:]
		g.mu.Unlock()

		r, err := runTable.get(ctx, w.engine.db, id)
		if err == nil && r.Notice == engine.NoticePending {
			taken = append(taken, r.Run)
		}
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			g.mu.Lock()
			g.notices = slices.Insert(g.notices, 0, id)
			g.mu.Unlock()
			return taken, err
		}
	}

	return taken, nil
}

// Leave implements [engine.Worker].
func (w *worker) Leave(context.Context) error {
	g := w.engine.active
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.worker == w {
		g.worker = nil
	}
	return nil
}
