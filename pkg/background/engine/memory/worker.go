package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/ledger"
)

// A worker is one lease on the engine.
type worker struct {
	engine  *Engine
	epoch   string
	ttl     time.Duration
	renewed time.Time
	left    bool
	hints   chan engine.Hint
}

// Join implements [engine.Engine].
func (e *Engine) Join(_ context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.quota = info.Quota
	e.ledger = ledger.New(info.Quota)
	e.recountAll()

	w := &worker{
		engine: e, epoch: uuid.NewString(), ttl: cmp.Or(info.TTL, engine.DefaultTTL),
		renewed: time.Now(), hints: make(chan engine.Hint, 64),
	}
	e.workers[w.epoch] = w
	return w, nil
}

// Epoch implements [engine.Worker].
func (w *worker) Epoch() string { return w.epoch }

// Hints implements [engine.Worker].
func (w *worker) Hints() <-chan engine.Hint { return w.hints }

// hint passes on a hint if there is room for it. The engine's lock must be
// held. A nil worker ignores it.
func (w *worker) hint(h engine.Hint) {
	if w == nil || w.left {
		return
	}
	select {
	case w.hints <- h:
	default:
	}
}

// live reports whether the lease of w lasts. A nil worker has none.
func (w *worker) live(now time.Time) bool {
	return w != nil && !w.left && now.Sub(w.renewed) < w.ttl
}

// check returns an error if the lease of w has ended. The engine's lock must be
// held.
func (w *worker) check() error {
	if w.live(time.Now()) {
		return nil
	}
	return fmt.Errorf("%w: of worker %s", engine.ErrFenced, w.epoch)
}

// Submit implements [engine.Worker].
func (w *worker) Submit(_ context.Context, run engine.Run, permits *engine.Permits) error {
	run = run.Clone()
	run.Status = engine.StatusQueued
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	if err := w.admit(run, permits, engine.ErrSessionLimit); err != nil {
		return err
	}

	holder := w
	if permits == nil {
		holder = nil
	}
	e.publish(engine.EventQueued, e.add(run, holder))
	if holder == nil {
		e.hint(engine.HintQueue)
	}

	return nil
}

// Adopt implements [engine.Worker].
func (w *worker) Adopt(_ context.Context, run engine.Run, permits engine.Permits) (engine.Lease, error) {
	run = run.Clone()
	run.Status, run.Attempt, run.HeartbeatAt = engine.StatusRunning, 1, time.Now()
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	if err := w.admit(run, &permits, engine.ErrParkedLimit); err != nil {
		return nil, err
	}
	e.publish(engine.EventStarted, e.add(run, w))
	return &lease{worker: w, run: run.Clone()}, nil
}

// admit says why there can be no such run, or makes room for it. The engine's
// lock must be held.
func (w *worker) admit(run engine.Run, permits *engine.Permits, session error) error {
	e := w.engine
	if err := w.check(); err != nil {
		return err
	}
	if e.runs[run.ID] != nil {
		return fmt.Errorf("%w: %s", engine.ErrExists, run.ID)
	}
	if run.IdempotencyKey != "" {
		if r := e.keys[key{run.Session, run.IdempotencyKey}]; r != nil {
			return &engine.ExistsError{ID: r.run.ID}
		}
	}
	if permits != nil {
		if err := e.permitted(run, *permits, session); err != nil {
			return err
		}
	}

	return e.makeRoom(run.Session, run.Size())
}

// permitted returns an error if the session or the owner of a run has no permit
// left for it. The lock must be held.
func (e *Engine) permitted(run engine.Run, permits engine.Permits, session error) error {
	parked := run.Origin == engine.OriginParked
	most := permits.Session
	if parked {
		most = permits.Parked
	}

	if few := len(e.active); (most == 0 || few < most) && (permits.Owner == 0 || few < permits.Owner) {
		return nil
	}

	owner, owned := e.quota.OwnerOf(run.Session), 0
	var active []string
	for _, r := range e.active {
		if r.holder == nil || e.quota.OwnerOf(r.run.Session) != owner {
			continue
		}
		owned++
		if r.run.Session == run.Session && (r.run.Origin == engine.OriginParked) == parked {
			active = append(active, r.run.ID)
		}
	}

	if most > 0 && len(active) >= most {
		slices.Sort(active)
		return &engine.LimitError{Err: session, Max: most, Active: active}
	}
	if permits.Owner > 0 && owned >= permits.Owner {
		return &engine.LimitError{Err: engine.ErrOwnerLimit, Max: permits.Owner}
	}

	return nil
}

// Claim implements [engine.Worker].
func (w *worker) Claim(_ context.Context, max int, permits engine.Permits) ([]engine.Run, error) {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	if err := w.check(); err != nil {
		return nil, err
	}

	now := time.Now()
	waiting := bySeq(e.active, func(r *record) bool { return r.run.Status == engine.StatusQueued && !r.holder.live(now) })
	for _, r := range waiting {
		r.holder = nil // of a dead worker
	}

	var claimed []engine.Run
	for _, r := range waiting {
		if len(claimed) >= max {
			break
		}
		if e.blocked(r.run) || e.permitted(r.run, permits, engine.ErrSessionLimit) != nil {
			continue
		}
		r.holder = w
		claimed = append(claimed, r.run.Light().Clone())
	}

	return claimed, nil
}

// blocked reports whether a run waits for the end of another.
func (e *Engine) blocked(run engine.Run) bool {
	earlier := e.runs[run.After]
	return earlier != nil && !earlier.run.Status.Terminal()
}

// Start implements [engine.Worker].
func (w *worker) Start(_ context.Context, id string) (engine.Lease, error) {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	r, err := e.find(id)
	if err != nil {
		return nil, err
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	if r.run.Status != engine.StatusQueued || r.holder != w {
		return nil, fmt.Errorf("%w: %s is %s", engine.ErrNotClaimable, id, r.run.Status)
	}

	now := time.Now()
	r.run.Status = engine.StatusRunning
	r.run.Attempt++
	r.run.StartedAt, r.run.HeartbeatAt = now, now
	r.run.Beat = engine.Beat{}
	r.log = newLog(r.run)
	e.count(r)
	e.publish(engine.EventStarted, r)
	return &lease{w, r.run.Clone(), bytes.Clone(r.checkpoint)}, nil
}

// Renew implements [engine.Worker].
func (w *worker) Renew(_ context.Context, held map[string]engine.Beat) (engine.Renewal, error) {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	if err := w.check(); err != nil {
		return engine.Renewal{}, err
	}

	now := time.Now()
	w.renewed = now
	var news engine.Renewal
	for id, r := range e.active {
		switch status := r.run.Status; {
		case status == engine.StatusQueued && !r.holder.live(now):
			news.Queued = true
		case status == engine.StatusRunning && !r.holder.live(now):
			news.Orphans = true
		case status == engine.StatusRunning && r.holder == w:
			r.run.HeartbeatAt = now
			beat, named := held[id]
			if named {
				e.beat(r, beat)
			} else {
				news.Strays = append(news.Strays, id)
			}
			if r.run.Cancel != nil {
				news.Stops = append(news.Stops, id)
			}
		}
	}

	for _, r := range e.pending {
		if !r.notifier.live(now) {
			news.Notices = true
		}
	}

	return news, nil
}

// beat stores what a run says of itself. The lock must be held.
func (e *Engine) beat(r *record, b engine.Beat) {
	if !b.Equal(r.run.Beat) {
		r.run.Beat = b.Clone()
		e.publish(engine.EventBeat, r)
	}
}

// Orphans implements [engine.Worker].
func (w *worker) Orphans(_ context.Context, max int) ([]engine.Run, error) {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	if err := w.check(); err != nil {
		return nil, err
	}

	now := time.Now()
	var taken []engine.Run
	for _, r := range bySeq(e.active, func(r *record) bool { return r.run.Status == engine.StatusRunning && !r.holder.live(now) }) {
		if len(taken) == max {
			break
		}
		r.holder = w
		taken = append(taken, r.run.Light().Clone())
	}

	return taken, nil
}

// own returns the record of an active run that is this worker's, in that
// attempt. The engine's lock must be held.
func (w *worker) own(id string, attempt int) (*record, error) {
	r, err := w.engine.find(id)
	if err != nil {
		return nil, err
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	if r.run.Status.Terminal() || r.holder != w || r.run.Attempt != attempt {
		return nil, fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, id, attempt)
	}
	return r, nil
}

// Requeue implements [engine.Worker].
func (w *worker) Requeue(_ context.Context, id string, attempt int) error {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	r, err := w.own(id, attempt)
	if err != nil {
		return err
	}
	r.run.Status, r.holder = engine.StatusQueued, nil
	e.publish(engine.EventQueued, r)
	e.hint(engine.HintQueue)
	return nil
}

// hint gives all workers a hint. The lock must be held.
func (e *Engine) hint(kind engine.HintKind) {
	for _, w := range e.workers {
		w.hint(engine.Hint{Kind: kind})
	}
}

// Abandon implements [engine.Worker].
func (w *worker) Abandon(_ context.Context, id string, attempt int, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	r, err := w.own(id, attempt)
	if err != nil {
		return engine.Run{}, err
	}
	return e.end(r, r.run.Finish(status, b, end)), nil
}

// Notices implements [engine.Worker].
func (w *worker) Notices(_ context.Context, max int) ([]engine.Run, error) {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	if err := w.check(); err != nil {
		return nil, err
	}

	now := time.Now()
	pending := bySeq(e.pending, func(r *record) bool { return !r.notifier.live(now) })
	slices.SortStableFunc(pending, func(a, b *record) int { return a.run.FinishedAt.Compare(b.run.FinishedAt) })

	var taken []engine.Run
	for _, r := range pending[:min(len(pending), max)] {
		r.notifier = w
		taken = append(taken, r.run.Light().Clone())
	}

	return taken, nil
}

// Leave implements [engine.Worker].
func (w *worker) Leave(context.Context) error {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()

	if w.left {
		return nil
	}

	w.left = true
	close(w.hints)
	delete(e.workers, w.epoch)
	e.hint(engine.HintQueue)
	return nil
}
