// Package memory has an [engine.Engine] without a disk: what it stores is as
// durable as the process. Any number of workers can join it.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/ledger"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// An Engine keeps everything in memory. Make one with [New]. It is safe for
// concurrent use.
type Engine struct {
	mu        sync.Mutex
	runs      map[string]*record
	sessions  map[string][]*record // in the order of submission
	active    map[string]*record   // that are not terminal
	pending   map[string]*record   // whose notice is pending
	keys      map[key]*record      // with an idempotency key
	seq       int
	schedules []schedule // in the order they were made
	workers   map[string]*worker
	feed      engine.Feed
	quota     engine.Quota
	ledger    *ledger.Ledger // nil before the first Join
}

// A key is an idempotency key of a session.
type key struct{ session, key string }

// A record is a run as it is stored.
type record struct {
	seq        int
	run        engine.Run
	log        output.Buffer
	checkpoint []byte
	holder     *worker // who claimed it or works on it; nil: nobody
	notifier   *worker // who took its notice; nil: nobody
	counted
}

// New returns an empty engine.
func New() *Engine {
	return &Engine{
		runs: make(map[string]*record), sessions: make(map[string][]*record), active: make(map[string]*record),
		pending: make(map[string]*record), keys: make(map[key]*record), workers: make(map[string]*worker),
	}
}

// add stores a run. The lock must be held.
func (e *Engine) add(run engine.Run, holder *worker) *record {
	e.seq++
	r := &record{seq: e.seq, run: run, holder: holder, log: newLog(run)}
	e.runs[run.ID], e.active[run.ID] = r, r
	if run.IdempotencyKey != "" {
		e.keys[key{run.Session, run.IdempotencyKey}] = r
	}
	e.sessions[run.Session] = append(e.sessions[run.Session], r)
	e.count(r)
	return r
}

func newLog(run engine.Run) output.Buffer { return output.NewBuffer(max(1, run.OutputCap)) }

func (e *Engine) find(id string) (*record, error) {
	if r := e.runs[id]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %s", engine.ErrNotFound, id)
}

// Get implements [engine.Engine].
func (e *Engine) Get(_ context.Context, id string) (engine.Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	r, err := e.find(id)
	if err != nil {
		return engine.Run{}, err
	}
	return r.run.Light().Clone(), nil
}

// Payload implements [engine.Engine].
func (e *Engine) Payload(_ context.Context, id string, part engine.Part) (json.RawMessage, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	r, err := e.find(id)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(r.run.Part(part)), nil
}

// List implements [engine.Engine].
func (e *Engine) List(_ context.Context, q engine.Query) ([]engine.Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	records := e.sessions[q.Session]
	if q.Session == "" {
		records = bySeq(e.runs, func(*record) bool { return true })
	}

	var runs []engine.Run
	begun := q.Before == ""
	for _, r := range slices.Backward(records) {
		if !begun {
			begun = r.run.ID == q.Before
			continue
		}
		if !q.Matches(r.run) {
			continue
		}
		runs = append(runs, r.run.Light().Clone())
		if len(runs) == q.Limit {
			break
		}
	}

	return runs, nil
}

// bySeq returns the records that which selects, in the order of submission.
func bySeq(records map[string]*record, which func(*record) bool) []*record {
	var found []*record
	for _, r := range records {
		if which(r) {
			found = append(found, r)
		}
	}

	slices.SortFunc(found, func(a, b *record) int { return cmp.Compare(a.seq, b.seq) })
	return found
}

// Cancel implements [engine.Engine].
func (e *Engine) Cancel(_ context.Context, id string, c engine.Cancellation, end engine.End) (engine.Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	r, err := e.find(id)
	if err != nil {
		return engine.Run{}, err
	}
	if r.run.Status.Terminal() {
		return r.run.Light().Clone(), nil
	}

	if r.run.Cancel == nil {
		r.run.Cancel = &c
	}
	if r.run.Status == engine.StatusQueued {
		return e.end(r, r.run.Finish(engine.StatusCanceled, r.run.Beat, end)), nil
	}
	e.publish(engine.EventStopping, r)
	r.holder.hint(engine.Hint{Kind: engine.HintStop, Run: id})
	return r.run.Light().Clone(), nil
}

// end stores the end of a run. The lock must be held.
func (e *Engine) end(r *record, run engine.Run) engine.Run {
	run.OutputBytes = max(run.OutputBytes, r.log.Total())
	r.run, r.checkpoint, r.holder = run.Clone(), nil, nil
	delete(e.active, run.ID)
	e.count(r)
	e.publish(engine.EventEnded, r)

	if r.run.Notice == engine.NoticePending {
		e.pending[run.ID] = r
		e.hint(engine.HintNotice)
	}
	e.hint(engine.HintQueue) // it gave its permits back
	return r.run.Light().Clone()
}

// Tail implements [engine.Engine].
func (e *Engine) Tail(_ context.Context, id string, offset int64, max int) (engine.Chunk, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	r, err := e.find(id)
	if err != nil {
		return engine.Chunk{}, err
	}
	chunk := r.log.Read(offset, max)
	chunk.Attempt = r.run.Attempt
	return chunk, nil
}

// Open implements [engine.Engine].
func (e *Engine) Open(_ context.Context, id, name string) (engine.Artifact, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	r, err := e.find(id)
	if err != nil {
		return nil, err
	}
	if r.run.Status.Terminal() {
		switch name {
		case engine.OutputLog:
			return artifact{bytes.NewReader([]byte(r.log.Output().String()))}, nil
		case engine.ResultJSON:
			data, err := r.run.ResultFile()
			return artifact{bytes.NewReader(data)}, err
		}
	}

	return nil, fmt.Errorf("%w: %s of %s", engine.ErrNotFound, name, id)
}

type artifact struct{ *bytes.Reader }

func (artifact) Close() error { return nil }

// Acknowledge implements [engine.Engine].
func (e *Engine) Acknowledge(_ context.Context, session string, ids []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, id := range ids {
		r := e.runs[id]
		if r == nil || r.run.Session != session || r.run.Notice != engine.NoticePending {
			continue
		}
		r.run.Notice = engine.NoticeSeen
		delete(e.pending, id)
		e.count(r)
		e.publish(engine.EventSeen, r)
	}

	return nil
}

// Prune implements [engine.Engine].
func (e *Engine) Prune(_ context.Context, ret engine.Retention) (int, error) {
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

func (e *Engine) pruneSession(session string, ret engine.Retention) int {
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
		delivered := r.run.Notice != engine.NoticePending || r.run.FinishedAt.Before(ret.Notices)
		if delivered && (i >= ret.Keep || r.run.FinishedAt.Before(ret.Before)) {
			e.remove(r)
			removed++
		}
	}

	return removed
}

// remove removes a run. The lock must be held.
func (e *Engine) remove(r *record) {
	session := r.run.Session
	delete(e.runs, r.run.ID)
	delete(e.pending, r.run.ID)
	delete(e.keys, key{session, r.run.IdempotencyKey})
	e.uncount(session, &r.counted)
	e.publish(engine.EventPurged, r)

	rest := slices.DeleteFunc(slices.Clone(e.sessions[session]), func(other *record) bool { return other == r })
	e.sessions[session] = rest
	if len(rest) == 0 {
		delete(e.sessions, session)
	}
}

// publish tells watchers of a change of a run. The lock must be held.
func (e *Engine) publish(kind engine.EventKind, r *record) {
	e.feed.Publish(engine.RunEvent(kind, r.run))
}

// Watch implements [engine.Engine].
func (e *Engine) Watch(ctx context.Context, session string) <-chan engine.Event {
	return e.feed.Watch(ctx, session)
}

// Now implements [engine.Engine].
func (e *Engine) Now(context.Context) (time.Time, error) { return time.Now(), nil }

var (
	_ engine.Engine = (*Engine)(nil)
	_ engine.Worker = (*worker)(nil)
	_ engine.Lease  = (*lease)(nil)
)
