// Package memory provides an [engine.Engine] in memory: its data lasts as long as
// the process. Any number of workers can join it.
package memory

import (
	"bytes"
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
	*store
	scheduleStore
	valueStore
}

// A store holds the data of an engine. Callers of its methods must hold mu.
type store struct {
	mu        sync.Mutex // guards all fields below, and the workers
	byID      map[string]*record
	runs      []*record   // in the order of submission
	active    []*record   // runs that are not terminal
	pending   []*record   // runs with a pending notice
	schedules []*schedule // in the order of creation
	scopes    map[engine.Scope]*scope
	workers   []*worker // in the order they joined; dead ones stay for a while
	joined    int
	feed      engine.Feed
	quota     engine.Quota
	ledger    *ledger.Ledger // nil before the first Join
}

// A record is a stored run.
type record struct {
	run        engine.Run
	log        output.Buffer
	checkpoint []byte
	state      []byte
	lease      *lease // current lease
	alarm      engine.Alarm
	holder     *worker // the worker that claimed it or works on it; nil: none
	notifier   *worker // the worker that took its notice; nil: none
	recordShare
}

// New returns an empty engine.
func New() *Engine {
	st := &store{byID: make(map[string]*record), scopes: make(map[engine.Scope]*scope)}
	return &Engine{st, scheduleStore{st}, valueStore{st}}
}

// add stores a run.
func (st *store) add(run engine.Run, holder *worker, kind engine.EventKind) {
	r := &record{run: run, holder: holder, log: newLog(run)}
	st.byID[run.ID] = r
	st.runs, st.active = append(st.runs, r), append(st.active, r)
	st.count(r)
	event := engine.RunEvent(kind, run)
	event.Claimed = holder != nil
	st.feed.Publish(event)
}

func newLog(run engine.Run) output.Buffer { return output.NewBuffer(max(1, run.OutputCap)) }

// remove removes a run.
func (st *store) remove(r *record) {
	delete(st.byID, r.run.ID)
	st.runs, st.pending = without(st.runs, r), without(st.pending, r)
	st.recount(r.run.Session, &r.recordShare, 0, false)
	st.publish(engine.EventPurged, r)
}

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(other T) bool { return other == one })
}

// publish notifies watchers of a change of a run.
func (st *store) publish(kind engine.EventKind, r *record) {
	st.feed.Publish(engine.RunEvent(kind, r.run))
}

// which returns the elements that match.
func which[T any](all []T, match func(T) bool) (found []T) {
	for _, r := range all {
		if match(r) {
			found = append(found, r)
		}
	}
	return found
}

func (st *store) find(id string) (*record, error) {
	if r := st.byID[id]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %s", engine.ErrNotFound, id)
}

// onRun calls do with a run, under the lock.
func onRun[T any](st *store, id string, do func(r *record) (T, error)) (value T, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()

	r, err := st.find(id)
	if err != nil {
		return value, err
	}
	return do(r)
}

// Get implements [engine.Engine].
func (e *Engine) Get(_ context.Context, id string) (engine.Run, error) {
	return onRun(e.store, id, func(r *record) (engine.Run, error) { return r.run.Light(), nil })
}

// Payload implements [engine.Engine].
func (e *Engine) Payload(_ context.Context, id string, part engine.Part) (json.RawMessage, error) {
	return onRun(e.store, id, func(r *record) (json.RawMessage, error) { return r.run.Part(part), nil })
}

// List implements [engine.Engine].
func (e *Engine) List(_ context.Context, q engine.Query) (runs []engine.Run, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	begun := q.Before == ""
	for _, r := range slices.Backward(e.runs) {
		switch {
		case q.Session != "" && r.run.Session != q.Session:
		case !begun:
			begun = r.run.ID == q.Before
		case q.Matches(r.run):
			runs = append(runs, r.run.Light())
			if len(runs) == q.Limit {
				return runs, nil
			}
		}
	}
	return runs, nil
}

// Cancel implements [engine.Engine].
func (e *Engine) Cancel(_ context.Context, id string, c engine.Cancellation, end engine.End) (engine.Run, error) {
	return onRun(e.store, id, func(r *record) (engine.Run, error) {
		if c.Held && !r.run.Undecided() {
			return engine.Run{}, fmt.Errorf("%w: run %s", engine.ErrConflict, id)
		}
		if r.run.Status.Terminal() {
			return r.run.Light(), nil
		}

		r.run = r.run.Canceled(c)
		if r.run.Status == engine.StatusQueued || r.run.Status == engine.StatusWaiting {
			return e.end(r, engine.StatusCanceled, r.run.Beat, end), nil
		}
		e.publish(engine.EventStopping, r)
		return r.run.Light(), nil
	})
}

// Release implements [engine.Engine].
func (e *Engine) Release(_ context.Context, id string) (engine.Run, error) {
	return onRun(e.store, id, func(r *record) (engine.Run, error) {
		if !r.run.Undecided() {
			return engine.Run{}, fmt.Errorf("%w: run %s", engine.ErrConflict, id)
		}
		r.run.Held = ""
		e.publish(engine.EventQueued, r)
		return r.run.Light(), nil
	})
}

// end stores the end of a run.
func (st *store) end(r *record, status engine.Status, b engine.Beat, end engine.End) engine.Run {
	b.OutputBytes = max(b.OutputBytes, r.log.Total())
	r.run = r.run.Finish(status, b, end)
	r.checkpoint, r.state, r.holder = nil, nil, nil
	st.active = without(st.active, r)
	if at := (engine.Scope{Session: r.run.Session, Run: r.run.ID}); st.scopes[at] != nil {
		st.scopes[at].dropAll(st, at)
	}
	if r.run.Notice == engine.NoticePending {
		st.pending = append(st.pending, r)
	}
	st.count(r)
	st.publish(engine.EventEnded, r)
	for _, waiting := range which(st.active, (*record).waits) {
		if slices.Contains(waiting.run.Await, r.run.ID) {
			st.resume(waiting)
		}
	}
	return r.run.Light()
}

// Tail implements [engine.Engine].
func (e *Engine) Tail(_ context.Context, id string, offset int64, max int) (engine.Chunk, error) {
	return onRun(e.store, id, func(r *record) (engine.Chunk, error) {
		chunk := r.log.Read(offset, max)
		chunk.Attempt = r.run.Attempt
		return chunk, nil
	})
}

// Open implements [engine.Engine].
func (e *Engine) Open(_ context.Context, id, name string) (engine.Artifact, error) {
	return onRun(e.store, id, func(r *record) (engine.Artifact, error) {
		switch {
		case r.run.Status.Terminal() && name == engine.OutputLog:
			return artifact{bytes.NewReader([]byte(r.log.Output().String()))}, nil
		case r.run.Status.Terminal() && name == engine.ResultJSON:
			data, err := r.run.ResultFile()
			return artifact{bytes.NewReader(data)}, err
		}
		return nil, fmt.Errorf("%w: %s of %s", engine.ErrNotFound, name, id)
	})
}

type artifact struct{ *bytes.Reader }

func (artifact) Close() error { return nil }

// Pending implements [engine.Engine].
func (e *Engine) Pending(_ context.Context, session string, since time.Time, max int) (runs []engine.Run, total int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	found := which(e.pending, func(r *record) bool { return r.run.Session == session && !r.run.FinishedAt.Before(since) })
	slices.SortStableFunc(found, func(a, b *record) int { return a.run.FinishedAt.Compare(b.run.FinishedAt) })
	total = len(found)
	if max > 0 {
		found = found[:min(max, total)]
	}
	for _, r := range found {
		runs = append(runs, r.run.Light())
	}
	return runs, total, nil
}

// Acknowledge implements [engine.Engine].
func (e *Engine) Acknowledge(_ context.Context, session string, ids []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, id := range ids {
		r := e.byID[id]
		if r == nil || r.run.Session != session || r.run.Notice != engine.NoticePending {
			continue
		}
		r.run.Notice = engine.NoticeSeen
		e.pending = without(e.pending, r)
		e.count(r)
		e.publish(engine.EventSeen, r)
	}
	return nil
}

// Remove implements [engine.Engine].
func (e *Engine) Remove(_ context.Context, id string) error {
	_, err := onRun(e.store, id, func(r *record) (none struct{}, err error) {
		if !r.run.Status.Terminal() {
			return none, fmt.Errorf("%w: %s", engine.ErrActive, id)
		}
		e.remove(r)
		return none, nil
	})
	return err
}

// Prune implements [engine.Engine].
func (e *Engine) Prune(_ context.Context, ret engine.Retention) (removed int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, s := range unkept(e.schedules, ret, (*schedule).aged) {
		e.removeSchedule(s)
	}
	e.pruneValues(ret)

	for _, r := range unkept(e.runs, ret, (*record).aged) {
		if r.run.Notice != engine.NoticePending || r.run.FinishedAt.Before(ret.Notices) {
			e.remove(r)
			removed++
		}
	}
	return removed, nil
}

// aged returns the session of a run, whether the run is over, and if so, since when.
func (r *record) aged() (session string, since time.Time, over bool) {
	return r.run.Session, r.run.FinishedAt, r.run.Status.Terminal()
}

// unkept returns the elements that are over and that ret does not keep.
func unkept[T any](all []T, ret engine.Retention, aged func(T) (string, time.Time, bool)) (old []T) {
	var over []T
	for _, one := range slices.Backward(all) {
		if _, _, ended := aged(one); ended {
			over = append(over, one)
		}
	}
	slices.SortStableFunc(over, func(a, b T) int {
		_, since, _ := aged(a)
		_, other, _ := aged(b)
		return other.Compare(since)
	})

	newest := make(map[string]int) // number of runs so far, by session
	for _, one := range over {
		session, since, _ := aged(one)
		newest[session]++
		if newest[session] > ret.Keep || since.Before(ret.Before) {
			old = append(old, one)
		}
	}
	return old
}

// Watch implements [engine.Engine].
func (e *Engine) Watch(ctx context.Context, session string) <-chan engine.Event {
	return e.feed.Watch(ctx, session)
}

// Now implements [engine.Engine].
func (e *Engine) Now(context.Context) (time.Time, error) { return time.Now(), nil }
