package background

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// lookEvery is how often a run that another worker works on is looked at while
// somebody waits for it: events of the engine may be lost.
const lookEvery = time.Second

// A reader shows runs: those of this worker with what their tasks know better
// than the engine, and all others as the engine has them.
type reader struct {
	*core
	runs *registry
	quit <-chan struct{} // closed when the Manager has closed
}

// A handle is a run of a session, and its task if this worker works on it.
type handle struct {
	id   string
	task *task
	run  engine.Run      // as it was seen last
	end  <-chan struct{} // closed when it has ended; set by await
}

// find returns those of the ids that the session has, and which it has not. If
// it has none, that is the error.
func (r *reader) find(ctx context.Context, session string, ids []string) (known []handle, missing *NotFoundError, err error) {
	for _, id := range ids {
		run, t, err := r.lookup(ctx, session, id)
		unknown, gone := errors.AsType[*NotFoundError](err)
		switch {
		case gone && missing != nil:
			missing.IDs = append(missing.IDs, id)
		case gone:
			missing = unknown
		case err != nil:
			return nil, nil, err
		default:
			known = append(known, handle{id: id, task: t, run: run})
		}
	}
	if missing != nil && len(known) == 0 {
		return nil, nil, missing
	}
	return known, missing, nil
}

// lookup returns a run of the session and, if this worker works on it, its task.
// The error for an id that never was, one of another session and one whose
// record is gone is the same, and matches [engine.ErrNotFound].
func (r *reader) lookup(ctx context.Context, session, id string) (engine.Run, *task, error) {
	// The task comes first: it goes only after the end is stored and the slot is
	// given back, so that a run without one is as the engine says.
	t := r.runs.get(id)
	run, err := r.engine.Get(ctx, id)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return engine.Run{}, nil, fmt.Errorf("reading run %s: %w", id, err)
	}
	if err != nil || run.Session != session {
		return engine.Run{}, nil, r.notFound(ctx, session, id)
	}
	if t != nil && run.Status.Terminal() && t.settled.Load() {
		<-t.done // at once: whoever sees the end finds the slot given back
	}
	return view(run, t), t, nil
}

// relook is lookup for a run that was found before. One that has ended does not
// change, and its record may be gone.
func (r *reader) relook(ctx context.Context, session string, h handle) (engine.Run, *task, error) {
	if h.task != nil && h.task.ended() && h.task.final.Status.Terminal() {
		return h.task.asEnded(), h.task, nil
	}
	if h.task == nil && h.run.Status.Terminal() {
		return h.run, nil, nil
	}
	return r.lookup(ctx, session, h.id)
}

// view returns a stored run with what its task knows better.
func view(run engine.Run, t *task) engine.Run {
	switch {
	case t == nil || run.Status.Terminal():
		return run
	case t.ended():
		return t.asEnded()
	}
	if t.live.Load() {
		run.Beat = t.sink.Beat()
	}
	return run
}

// notFound makes the error for an id that the session does not have.
func (r *reader) notFound(ctx context.Context, session, id string) error {
	e := &NotFoundError{IDs: []string{id}}
	if session == "" {
		return e
	}
	active, err := r.engine.List(ctx, engine.Query{Session: session, Active: true, Limit: 5})
	if err != nil {
		r.log.Warn("active runs not listed", "session", session, "error", err)
	}
	for _, run := range active {
		e.Active = append(e.Active, run.ID)
	}
	return e
}

// list returns stored runs with what their tasks know better.
func (r *reader) list(ctx context.Context, q engine.Query) ([]engine.Run, error) {
	tasks := make(map[string]*task) // first, as in lookup
	for _, t := range r.runs.all() {
		tasks[t.run.ID] = t
	}
	runs, err := r.engine.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	for i := range runs {
		runs[i] = view(runs[i], tasks[runs[i].ID])
	}
	return runs, nil
}

// A patience says how long somebody waits for runs to end.
type patience struct {
	until  Until
	late   <-chan time.Time // ends the wait; nil: never
	enough <-chan struct{}  // ends it too; nil: never
	saved  bool             // the wait is for an end to be stored that was shown before
}

// await waits until any or all of the runs have ended, the patience is over or
// the Manager has closed,
// and returns ctx's error if that ends first.
func (r *reader) await(ctx context.Context, session string, known []handle, p patience) error {
	following, done := context.WithCancel(ctx)
	defer done()
	r.follow(following, session, known, p.saved)

	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(p.late)},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(p.enough)},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(r.quit)},
	}
	fixed := len(cases)
	for _, h := range known {
		switch {
		case !closed(h.end):
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(h.end)})
		case p.until != UntilAll:
			return nil
		}
	}

	for len(cases) > fixed {
		chosen, _, _ := reflect.Select(cases)
		switch {
		case chosen == 0:
			return ctx.Err()
		case chosen < fixed || p.until != UntilAll:
			return nil
		}
		cases = append(cases[:chosen], cases[chosen+1:]...)
	}
	return nil
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// follow sets the channels that are closed when the runs have ended. Those of
// other workers are looked at, until ctx is done.
func (r *reader) follow(ctx context.Context, session string, known []handle, saved bool) {
	remote := make(map[string]chan struct{})
	for i, h := range known {
		switch {
		case h.task != nil && saved:
			known[i].end = h.task.news()
		case h.task != nil:
			known[i].end = h.task.done
		case h.run.Status.Terminal():
			known[i].end = closedChan
		default:
			remote[h.id] = make(chan struct{})
			known[i].end = remote[h.id]
		}
	}
	if len(remote) > 0 {
		go r.poll(ctx, session, remote)
	}
}

// poll closes the channels of runs when they have ended, until ctx is done or
// none is left. It looks with each event of one of them, and each second.
func (r *reader) poll(ctx context.Context, session string, ends map[string]chan struct{}) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	events := r.engine.Watch(ctx, session)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()

	look := func(id string) {
		run, err := r.engine.Get(ctx, id)
		if err == nil && run.Status.Terminal() || errors.Is(err, engine.ErrNotFound) {
			close(ends[id])
			delete(ends, id)
		}
	}
	for id := range ends {
		look(id)
	}
	for len(ends) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-r.quit:
			return
		case <-tick.C:
			for id := range ends {
				look(id)
			}
		case e := <-events:
			if e.Run != nil && e.Run.Status.Terminal() && ends[e.Run.ID] != nil {
				look(e.Run.ID)
			}
		}
	}
}

// awaitElsewhere closes a task's done when another worker, or a later attempt
// here, has ended its run.
func (r *reader) awaitElsewhere(t *task) {
	end := make(chan struct{})
	go r.poll(r.base, t.run.Session, map[string]chan struct{}{t.run.ID: end})
	select {
	case <-end:
	case <-r.quit:
	}
	if run, err := r.engine.Get(r.base, t.run.ID); err == nil {
		t.final = &run
	}
	close(t.done)
}

// tail reads the log of a run: from its sink while that has all of it.
func (r *reader) tail(ctx context.Context, id string, t *task, offset int64, max int) (engine.Chunk, error) {
	if t != nil && t.live.Load() {
		return t.sink.Tail(offset, max), nil
	}
	return r.engine.Tail(ctx, id, offset, max)
}

// payload returns a part of a run's payload: from its task if its end may not be
// stored yet.
func (r *reader) payload(ctx context.Context, id string, t *task, part engine.Part) (json.RawMessage, error) {
	if part != engine.PartArgs && t != nil && t.unstored() {
		return bytes.Clone(t.final.Part(part)), nil
	}
	return r.engine.Payload(ctx, id, part)
}
