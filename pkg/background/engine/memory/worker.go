package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/ledger"
)

// A worker implements [engine.Worker].
type worker struct {
	engine  *Engine
	id      string
	ttl     time.Duration
	since   time.Time
	renewed time.Time
	left    bool
	offers
}

// Join implements [engine.Engine].
func (e *Engine) Join(_ context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.quota, e.ledger = info.Quota, ledger.New(info.Quota)
	for _, r := range e.runs {
		r.recordShare = recordShare{}
		e.count(r)
	}
	for _, s := range e.schedules {
		s.recordShare = recordShare{}
		e.countSchedule(s)
	}
	for at, s := range e.scopes {
		s.recordShare = recordShare{}
		e.recount(at.Session, &s.recordShare, engine.ScopeSize(len(s.values), s.bytes), false)
	}

	e.joined++
	now := time.Now()
	w := &worker{engine: e, id: strconv.Itoa(e.joined), ttl: cmp.Or(info.TTL, engine.DefaultTTL), since: now, renewed: now, offers: offers{now: info.Offer, patience: info.Patience}}
	e.workers = append(which(e.workers, func(w *worker) bool { return w.live() || w.remembered() }), w)
	return w, nil
}

func (w *worker) ID() string { return w.id }

// live reports whether the lease of w is valid. A nil worker has none.
func (w *worker) live() bool { return w != nil && !w.left && time.Since(w.renewed) < w.ttl }

// lock locks the engine, and returns an error if the lease of w has ended. The
// caller unlocks it in either case.
func (w *worker) lock() (*Engine, error) {
	w.engine.mu.Lock()
	if !w.live() {
		return w.engine, fmt.Errorf("%w: the worker's lease has ended", engine.ErrFenced)
	}
	return w.engine, nil
}

// lockRun locks the engine and returns a run. w must have the run, in the given attempt.
func (w *worker) lockRun(id string, attempt int) (*Engine, *record, error) {
	e, ended := w.lock()
	r, err := e.find(id)
	switch {
	case err != nil:
	case ended != nil:
		err = ended
	case r.run.Status.Terminal() || r.holder != w || r.run.Attempt != attempt:
		err = fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, id, attempt)
	}
	return e, r, err
}

func (w *worker) Submit(_ context.Context, run engine.Run, permits *engine.Permits) error {
	e, err := w.lock()
	defer e.mu.Unlock()
	if err == nil {
		err = e.admit(run, permits, engine.ErrSessionLimit)
	}
	if err != nil {
		return err
	}

	run.Status = engine.StatusQueued
	holder := w
	if permits == nil || permits.Queue {
		holder = nil
	}
	e.add(run, holder, engine.EventQueued)
	return nil
}

func (w *worker) Adopt(_ context.Context, run engine.Run, permits engine.Permits) (engine.Lease, error) {
	e, err := w.lock()
	defer e.mu.Unlock()
	if err == nil {
		err = e.admit(run, &permits, engine.ErrParkedLimit)
	}
	if err != nil {
		return nil, err
	}

	run.Status, run.Attempt, run.HeartbeatAt = engine.StatusRunning, 1, time.Now()
	e.add(run, w, engine.EventStarted)
	return e.byID[run.ID].begin(w), nil
}

// ownerless reports whether a run has the given status and no live worker.
func (r *record) ownerless(status engine.Status) bool {
	return r.run.Status == status && !r.holder.live()
}

func (w *worker) Claim(_ context.Context, max int, permits engine.Permits) (claimed []engine.Run, err error) {
	e, err := w.lock()
	defer e.mu.Unlock()
	if err != nil {
		return nil, err
	}

	queued := which(e.active, func(r *record) bool { return r.ownerless(engine.StatusQueued) })
	for _, r := range queued {
		r.holder = nil // a dead worker's claim holds no permit
	}

	for _, r := range queued {
		if len(claimed) >= max {
			break
		}
		earlier := e.byID[r.run.After]
		blocked := earlier != nil && !earlier.run.Status.Terminal()
		if blocked || !w.takes(r.run) || r.run.Held != "" || e.permitted(r.run, permits, engine.ErrSessionLimit) != nil {
			continue
		}
		r.holder = w
		claimed = append(claimed, r.run.Light())
	}
	return claimed, nil
}

func (w *worker) Start(_ context.Context, id string) (engine.Lease, error) {
	e, ended := w.lock()
	defer e.mu.Unlock()
	r, err := e.find(id)
	switch {
	case err != nil:
		return nil, err
	case ended != nil:
		return nil, ended
	case r.run.Status != engine.StatusQueued || r.holder != w:
		return nil, fmt.Errorf("%w: %s is %s", engine.ErrFenced, id, r.run.Status)
	}

	r.run = r.run.Begin(time.Now())
	if r.state == nil {
		r.log = newLog(r.run)
	} else {
		r.log.Cut(r.run.StateLog)
	}
	e.count(r)
	e.publish(engine.EventStarted, r)
	return r.begin(w), nil
}

// begin makes a new current lease of the run, for w.
func (r *record) begin(w *worker) *lease {
	r.lease = &lease{w, r.run, r.checkpoint, r.state}
	return r.lease
}

func (w *worker) Renew(_ context.Context, held map[string]engine.Beat) (news engine.Renewal, err error) {
	e, err := w.lock()
	defer e.mu.Unlock()
	if err != nil {
		return news, err
	}

	w.renewed = time.Now()
	news.Notices = slices.ContainsFunc(e.pending, (*record).untaken)
	for _, r := range e.active {
		news.Queued = news.Queued || r.ownerless(engine.StatusQueued)
		news.Orphans = news.Orphans || r.ownerless(engine.StatusRunning)
		if r.holder != w || r.run.Status != engine.StatusRunning {
			continue
		}

		id := r.run.ID
		r.run.HeartbeatAt = w.renewed
		if beat, named := held[id]; named {
			r.beat(e, beat)
		} else {
			news.Strays = append(news.Strays, id)
		}
		if r.run.Cancel != nil {
			news.Stops = append(news.Stops, id)
		}
	}
	return news, nil
}

// beat stores the beat of a run.
func (r *record) beat(e *Engine, b engine.Beat) {
	if !b.Equal(r.run.Beat) {
		r.run.Beat = b
		e.publish(engine.EventBeat, r)
	}
}

func (w *worker) Orphans(_ context.Context, max int) (taken []engine.Run, err error) {
	e, err := w.lock()
	defer e.mu.Unlock()
	if err != nil {
		return nil, err
	}

	orphans := which(e.active, func(r *record) bool { return r.ownerless(engine.StatusRunning) })
	for _, r := range orphans[:min(len(orphans), max)] {
		r.holder = w
		taken = append(taken, r.run.Light())
	}
	return taken, nil
}

func (w *worker) Requeue(_ context.Context, id string, attempt int) error {
	e, r, err := w.lockRun(id, attempt)
	defer e.mu.Unlock()
	if err != nil {
		return err
	}

	r.run.Status, r.holder = engine.StatusQueued, nil
	e.publish(engine.EventQueued, r)
	return nil
}

func (w *worker) Abandon(_ context.Context, id string, attempt int, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	e, r, err := w.lockRun(id, attempt)
	defer e.mu.Unlock()
	if err != nil {
		return engine.Run{}, err
	}
	return e.end(r, status, b, end), nil
}

// untaken reports whether a run has a notice that no live worker has taken.
func (r *record) untaken() bool {
	return r.run.Notice == engine.NoticePending && !r.notifier.live()
}

func (w *worker) Notices(_ context.Context, max int) (taken []engine.Run, err error) {
	e, err := w.lock()
	defer e.mu.Unlock()
	if err != nil {
		return nil, err
	}

	pending := which(e.pending, (*record).untaken)
	slices.SortStableFunc(pending, func(a, b *record) int { return a.run.FinishedAt.Compare(b.run.FinishedAt) })
	for _, r := range pending[:min(len(pending), max)] {
		r.notifier = w
		taken = append(taken, r.run.Light())
	}
	return taken, nil
}

func (w *worker) Leave(context.Context) error {
	e, err := w.lock()
	defer e.mu.Unlock()
	if !w.left {
		w.left, w.renewed = true, time.Now()
	}
	if err != nil {
		return nil // its runs are already free
	}

	for _, r := range which(e.active, func(r *record) bool { return r.holder == w && r.run.Status == engine.StatusQueued }) {
		r.holder = nil
		e.publish(engine.EventQueued, r)
	}
	return nil
}

// A lease implements [engine.Lease].
type lease struct {
	worker     *worker
	run        engine.Run
	checkpoint []byte
	state      []byte
}

func (l *lease) Run() engine.Run { return l.run }

func (l *lease) Checkpoint() []byte { return bytes.Clone(l.checkpoint) }

// write calls do with the run if the lease is its current one.
func (l *lease) write(do func(e *Engine, r *record)) error {
	e, r, err := l.worker.lockRun(l.run.ID, l.run.Attempt)
	defer e.mu.Unlock()
	if err != nil || r.run.Status != engine.StatusRunning || r.lease != l {
		return fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, l.run.ID, l.run.Attempt)
	}
	do(e, r)
	return nil
}

func (l *lease) Report(_ context.Context, b engine.Beat) error {
	return l.write(func(e *Engine, r *record) { r.beat(e, b) })
}

func (l *lease) Append(_ context.Context, offset int64, p []byte) error {
	return l.write(func(e *Engine, r *record) {
		r.log.AppendAt(offset, p)
		e.count(r)
	})
}

func (l *lease) Save(_ context.Context, data []byte) error {
	return l.write(func(e *Engine, r *record) {
		r.checkpoint, r.run = bytes.Clone(data), r.run.Checkpointed(l.run, l.checkpoint, data)
		e.count(r)
	})
}

func (l *lease) Complete(_ context.Context, status engine.Status, b engine.Beat, end engine.End) (run engine.Run, err error) {
	err = l.write(func(e *Engine, r *record) { run = e.end(r, status, b, end) })
	return run, err
}
