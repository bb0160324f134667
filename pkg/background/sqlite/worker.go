package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A worker is the one that has the engine. Its lease is kept in memory: the
// process that dies takes it along.
type worker struct {
	engine *Engine
	epoch  string
	ttl    time.Duration

	// The registry's lock guards these.
	renewed time.Time
	left    bool
}

// Join implements [engine.Engine]. While the lease of a worker lasts, the error
// matches [engine.ErrLocked].
func (e *Engine) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w := &worker{
		engine: e, epoch: uuid.NewString(), ttl: cmp.Or(info.TTL, engine.DefaultTTL),
		renewed: time.Now(),
	}
	g := e.active
	g.mu.Lock()
	before := g.worker
	if before != nil && before.ended() == nil {
		g.mu.Unlock()
		return nil, fmt.Errorf("%w: %s has a worker, and takes only one", engine.ErrLocked, e.dir)
	}
	g.worker = w
	g.mu.Unlock()

	err := e.db.limit(ctx, info.Quota, func(pending []string) { g.join(w, info.Quota, pending) })
	if err != nil {
		_ = w.Leave(ctx)
		return nil, err
	}

	return w, nil
}

// ended returns an error if the lease has ended. The registry's lock must be
// held.
func (w *worker) ended() error {
	g := w.engine.active
	if g.worker == w && !w.left && time.Since(w.renewed) < w.ttl {
		return nil
	}
	return fmt.Errorf("%w: of worker %s", engine.ErrFenced, w.epoch)
}

func (w *worker) check() error {
	w.engine.active.mu.Lock()
	defer w.engine.active.mu.Unlock()
	return w.ended()
}

// Claim implements [engine.Worker]. It writes nothing: with the process, its
// claims end.
func (w *worker) Claim(_ context.Context, max int, permits engine.Permits) ([]engine.Run, error) {
	g := w.engine.active
	g.mu.Lock()
	defer g.mu.Unlock()

	if err := w.ended(); err != nil {
		return nil, err
	}

	var claimed []engine.Run
	rest := g.waiting[:0]
	for _, a := range g.waiting {
		if len(claimed) >= max || g.runs[a.run.After] != nil || g.admit(a, permits) != nil {
			rest = append(rest, a)
			continue
		}
		a.worker = w
		claimed = append(claimed, a.run)
	}
	clear(g.waiting[len(rest):])
	g.waiting = rest
	return claimed, nil
}

// Start implements [engine.Worker].
func (w *worker) Start(ctx context.Context, id string) (engine.Lease, error) {
	e, g := w.engine, w.engine.active
	if err := w.check(); err != nil {
		return nil, err
	}
	a, release, err := g.hold(id)
	if err != nil {
		return nil, err
	}
	defer release()

	g.mu.Lock()
	mine := a != nil && a.worker == w && a.run.Status == engine.StatusQueued
	g.mu.Unlock()
	if !mine {
		return nil, e.refuse(ctx, id, fmt.Errorf("%w: %s", engine.ErrFenced, id))
	}

	r := g.row(a)
	r.Status = engine.StatusRunning
	r.Attempt++
	r.StartedAt = time.Now()
	r.HeartbeatAt = r.StartedAt
	r.Beat = engine.Beat{}
	l := &lease{worker: w, active: a, run: r.Run}
	err = e.db.read(ctx, func(c *conn) (err error) {
		if a.saved > 0 {
			l.checkpoint, err = blob(c, "checkpoints", a.seq)
		}
		if err == nil {
			l.run.Args, err = blob(c, "args", a.seq)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	log := e.logs.create(r.Run)
	err = e.update(ctx, r, engine.EventStarted, func() { a.run, a.log, a.lease = r.Run, log, l })
	if err != nil {
		return nil, err
	}

	return l, nil
}

// refuse returns err, or that there is no such run.
func (e *Engine) refuse(ctx context.Context, id string, err error) error {
	if _, missing := e.Get(ctx, id); missing != nil {
		return missing
	}
	return err
}

// update stores a change of an active run that is held. do makes it known.
func (e *Engine) update(ctx context.Context, r row, kind engine.EventKind, do func()) error {
	record, err := r.encode()
	if err != nil {
		return err
	}
	return e.db.write(ctx, func(w *conn) (func(), error) {
		return func() {
			e.active.mu.Lock()
			do()
			e.active.mu.Unlock()
			e.feed.Publish(engine.RunEvent(kind, r.Run))
		}, w.run(`UPDATE runs SET record = ? WHERE seq = ?`, record, r.seq)
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
	for id, a := range g.runs {
		if a.run.Status != engine.StatusRunning {
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
	news.Queued, news.Notices = len(g.waiting) > 0, len(g.notices) > 0
	return news, nil
}

// beat notes what a run says of itself. The registry's lock must be held.
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

	for _, a := range g.inOrder(func(a *active) bool { return a.run.Status == engine.StatusRunning && a.worker != w }) {
		if len(taken) == max {
			break
		}
		a.worker, a.lease = w, nil
		taken = append(taken, a.run)
	}

	return taken, nil
}

// own begins a change of a run that is this worker's, in that attempt.
func (w *worker) own(ctx context.Context, id string, attempt int) (a *active, release func(), err error) {
	g := w.engine.active
	if a, release, err = g.hold(id); err != nil {
		return nil, nil, err
	}
	g.mu.Lock()
	err = w.ended()
	if err == nil && (a == nil || a.worker != w || a.run.Attempt != attempt) {
		err = fenced(id, attempt)
	}
	g.mu.Unlock()
	if err != nil {
		release()
		return nil, nil, w.engine.refuse(ctx, id, err)
	}

	return a, release, nil
}

func fenced(id string, attempt int) error {
	return fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, id, attempt)
}

// Requeue implements [engine.Worker].
func (w *worker) Requeue(ctx context.Context, id string, attempt int) error {
	a, release, err := w.own(ctx, id, attempt)
	if err != nil {
		return err
	}
	defer release()

	g := w.engine.active
	r := g.row(a)
	r.Status = engine.StatusQueued
	return w.engine.update(ctx, r, engine.EventQueued, func() {
		a.run, a.changed = r.Run, false
		g.enqueue(a)
	})
}

// Abandon implements [engine.Worker].
func (w *worker) Abandon(ctx context.Context, id string, attempt int, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	a, release, err := w.own(ctx, id, attempt)
	if err != nil {
		return engine.Run{}, err
	}
	defer release()
	return w.engine.end(ctx, a, w.engine.active.row(a).Finish(status, b, end))
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

		r, err := w.engine.db.load(ctx, id)
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

	w.left = true
	return nil
}
