package background

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A MemoryEngine is an [Engine] that keeps everything in memory: a run is as
// durable as the process. Make one with [NewMemoryEngine].
type MemoryEngine struct {
	mu        sync.Mutex
	runs      map[string]*record
	sessions  map[string][]*record // in the order of submission
	seq       int
	schedules []memorySchedule // in the order they were made
	feed      Feed
	ledger    *Ledger // nil before Limit
}

type record struct {
	seq        int
	run        Run
	log        buffer
	checkpoint []byte
	counted
}

// NewMemoryEngine returns an empty engine.
func NewMemoryEngine() *MemoryEngine {
	return &MemoryEngine{runs: make(map[string]*record), sessions: make(map[string][]*record)}
}

// Submit implements [Engine].
func (e *MemoryEngine) Submit(_ context.Context, run Run) error {
	run = run.Clone()
	run.Status = StatusQueued
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[run.ID] != nil {
		return fmt.Errorf("%w: %s", ErrExists, run.ID)
	}
	if err := e.makeRoom(run.Session, run.Size()); err != nil {
		return err
	}
	e.add(run)
	e.feed.Publish(RunEvent(EventQueued, run))
	return nil
}

// add stores a run. The lock must be held.
func (e *MemoryEngine) add(run Run) *record {
	e.seq++
	r := &record{seq: e.seq, run: run}
	e.runs[run.ID] = r
	e.sessions[run.Session] = append(e.sessions[run.Session], r)
	e.count(r)
	return r
}

// Adopt implements [Engine].
func (e *MemoryEngine) Adopt(_ context.Context, run Run) (Lease, error) {
	run = run.Clone()
	run.Status, run.Attempt, run.HeartbeatAt = StatusRunning, 1, time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[run.ID] != nil {
		return nil, fmt.Errorf("%w: %s", ErrExists, run.ID)
	}
	if err := e.makeRoom(run.Session, run.Size()); err != nil {
		return nil, err
	}
	r := e.add(run)
	r.log = newBuffer(max(1, run.OutputCap))
	e.feed.Publish(RunEvent(EventStarted, run))
	return &memoryLease{engine: e, run: run.Clone()}, nil
}

// Get implements [Engine].
func (e *MemoryEngine) Get(_ context.Context, id string) (Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.find(id)
	if err != nil {
		return Run{}, err
	}
	return r.run.Clone(), nil
}

func (e *MemoryEngine) find(id string) (*record, error) {
	if r := e.runs[id]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
}

// List implements [Engine].
func (e *MemoryEngine) List(_ context.Context, q Query) ([]Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	records := e.sessions[q.Session]
	if q.Session == "" {
		records = nil
		for _, r := range e.runs {
			records = append(records, r)
		}
		slices.SortFunc(records, func(a, b *record) int { return cmp.Compare(a.seq, b.seq) })
	}
	var runs []Run
	begun := q.Before == ""
	for _, r := range slices.Backward(records) {
		if !begun {
			begun = r.run.ID == q.Before
			continue
		}
		if !q.matches(r.run) {
			continue
		}
		run := r.run
		run.Args, run.Result, run.Content = nil, nil, nil // before it is copied: they may have megabytes
		runs = append(runs, run.Clone())
		if len(runs) == q.Limit {
			break
		}
	}
	return runs, nil
}

// Claim implements [Engine].
func (e *MemoryEngine) Claim(_ context.Context, id string) (Lease, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.find(id)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	stale := r.run.Status == StatusRunning && now.Sub(r.run.HeartbeatAt) >= LeaseTTL
	if r.run.Status != StatusQueued && !stale {
		return nil, fmt.Errorf("%w: %s is %s", ErrNotClaimable, id, r.run.Status)
	}
	r.run.Status = StatusRunning
	r.run.Attempt++
	r.run.StartedAt, r.run.HeartbeatAt = now, now
	r.run.Beat = Beat{}
	r.log = newBuffer(max(1, r.run.OutputCap))
	e.count(r)
	e.feed.Publish(RunEvent(EventStarted, r.run))
	return &memoryLease{e, r.run.Clone(), bytes.Clone(r.checkpoint)}, nil
}

// Requeue implements [Engine].
func (e *MemoryEngine) Requeue(_ context.Context, id string, attempt int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.find(id)
	if err != nil {
		return err
	}
	if r.run.Status != StatusRunning || r.run.Attempt != attempt {
		return fmt.Errorf("%w: %s, attempt %d", ErrFenced, id, attempt)
	}
	r.run.Status = StatusQueued
	e.feed.Publish(RunEvent(EventQueued, r.run))
	return nil
}

// Abandon implements [Engine].
func (e *MemoryEngine) Abandon(_ context.Context, id string, attempt int, status Status, b Beat, end End) (Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.find(id)
	if err != nil {
		return Run{}, err
	}
	if r.run.Status.Terminal() || r.run.Attempt != attempt {
		return Run{}, fmt.Errorf("%w: %s, attempt %d", ErrFenced, id, attempt)
	}
	return e.end(r, r.run.Ended(status, b, end)), nil
}

// end stores the end of a run. The lock must be held.
func (e *MemoryEngine) end(r *record, run Run) Run {
	run.OutputBytes = max(run.OutputBytes, r.log.total)
	r.run, r.checkpoint = run.Clone(), nil
	e.count(r)
	e.feed.Publish(RunEvent(EventEnded, r.run))
	return r.run.Clone()
}

// Cancel implements [Engine].
func (e *MemoryEngine) Cancel(_ context.Context, id string, c Cancellation) (Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.find(id)
	if err != nil {
		return Run{}, err
	}
	if r.run.Status.Terminal() {
		return r.run.Clone(), nil
	}
	if r.run.Cancel == nil {
		r.run.Cancel = &c
	}
	if r.run.Status == StatusQueued {
		return e.end(r, r.run.Canceled(c)), nil
	}
	e.feed.Publish(RunEvent(EventStopping, r.run))
	return r.run.Clone(), nil
}

// Tail implements [Engine].
func (e *MemoryEngine) Tail(_ context.Context, id string, offset int64, max int) (Chunk, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.find(id)
	if err != nil {
		return Chunk{}, err
	}
	return r.log.read(offset, max), nil
}

// Prune implements [Engine].
func (e *MemoryEngine) Prune(_ context.Context, ret Retention) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pruneSchedules(ret)
	if ret.Session != "" {
		return e.pruneSession(ret.Session, ret), nil
	}
	removed := 0
	for session := range e.sessions {
		removed += e.pruneSession(session, ret)
	}
	return removed, nil
}

func (e *MemoryEngine) pruneSession(session string, ret Retention) int {
	var ended []*record
	for _, r := range e.sessions[session] {
		if r.run.Status.Terminal() {
			ended = append(ended, r)
		}
	}
	slices.SortFunc(ended, func(a, b *record) int {
		return cmp.Or(b.run.FinishedAt.Compare(a.run.FinishedAt), cmp.Compare(b.seq, a.seq))
	})
	removed := 0
	for i, r := range ended {
		told := r.run.Notice != NoticePending || r.run.FinishedAt.Before(ret.Notices)
		if told && (i >= ret.Keep || r.run.FinishedAt.Before(ret.Before)) {
			e.remove(r)
			removed++
		}
	}
	if removed > 0 {
		e.forget(session)
	}
	return removed
}

// remove removes a run. The lock must be held, and forget called afterwards.
func (e *MemoryEngine) remove(r *record) {
	delete(e.runs, r.run.ID)
	e.uncount(r.run.Session, &r.counted)
	e.feed.Publish(RunEvent(EventPurged, r.run))
}

// forget takes runs that were removed out of their session. The lock must be
// held.
func (e *MemoryEngine) forget(session string) {
	rest := slices.DeleteFunc(e.sessions[session], func(r *record) bool { return e.runs[r.run.ID] != r })
	if len(rest) == 0 {
		delete(e.sessions, session)
	} else {
		e.sessions[session] = rest
	}
}

type memoryLease struct {
	engine     *MemoryEngine
	run        Run
	checkpoint []byte
}

// current returns the record if the lease is its current one. The engine's
// lock must be held.
func (l *memoryLease) current() (*record, error) {
	r := l.engine.runs[l.run.ID]
	if r == nil || r.run.Status != StatusRunning || r.run.Attempt != l.run.Attempt {
		return nil, fmt.Errorf("%w: %s, attempt %d", ErrFenced, l.run.ID, l.run.Attempt)
	}
	return r, nil
}

// Run implements [Lease].
func (l *memoryLease) Run() Run { return l.run.Clone() }

// Checkpoint implements [Lease].
func (l *memoryLease) Checkpoint() []byte { return bytes.Clone(l.checkpoint) }

// Save implements [Lease].
func (l *memoryLease) Save(_ context.Context, data []byte) error {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	r, err := l.current()
	if err != nil {
		return err
	}
	r.checkpoint = bytes.Clone(data)
	l.engine.count(r)
	return nil
}

// Extend implements [Lease].
func (l *memoryLease) Extend(_ context.Context, b Beat) (*Cancellation, error) {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	r, err := l.current()
	if err != nil {
		return nil, err
	}
	b.Progress = clonePointer(b.Progress)
	changed := !b.Equal(r.run.Beat)
	r.run.Beat = b
	r.run.HeartbeatAt = time.Now()
	if changed {
		l.engine.feed.Publish(RunEvent(EventBeat, r.run))
	}
	return clonePointer(r.run.Cancel), nil
}

// Append implements [Lease].
func (l *memoryLease) Append(_ context.Context, offset int64, p []byte) error {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	r, err := l.current()
	if err != nil {
		return err
	}
	r.log.appendAt(offset, p)
	l.engine.count(r)
	return nil
}

// Complete implements [Lease].
func (l *memoryLease) Complete(_ context.Context, status Status, b Beat, e End) (Run, error) {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	r, err := l.current()
	if err != nil {
		return Run{}, err
	}
	return l.engine.end(r, r.run.Ended(status, b, e)), nil
}

var (
	_ Engine = (*MemoryEngine)(nil)
	_ Lease  = (*memoryLease)(nil)
)
