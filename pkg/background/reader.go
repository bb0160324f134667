package background

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// pollEvery is how often a waiter checks a run of another worker, because
// events of the engine may be lost.
const pollEvery = time.Second

// A reader reads runs. For runs of this worker it adds what their tasks know; it
// returns all other runs as the engine has them.
type reader struct {
	*core
	runs *registry
	quit <-chan struct{} // closed when the Manager has closed
}

// A handle is a run of a session as last read, and its task if this worker has
// it.
type handle struct {
	run  engine.Run
	task *task
	live bool // the task was live before the run was read
}

// find splits ids into those that the session has and those it does not have. If the
// session has none of them, missing is the error.
func (r *reader) find(ctx context.Context, session string, ids []string) (known []handle, missing *NotFoundError, err error) {
	known = make([]handle, 0, len(ids))
	for _, id := range ids {
		h, err := r.lookup(ctx, session, id)
		unknown, gone := errors.AsType[*NotFoundError](err)
		switch {
		case gone:
			missing = missing.add(unknown)
		case err != nil:
			return nil, nil, err
		default:
			known = append(known, h)
		}
	}

	if missing != nil && len(known) == 0 {
		return nil, nil, missing
	}
	return known, missing, nil
}

// lookup returns a run of the session. The error matches [engine.ErrNotFound],
// and is the same for an unknown id, an id of another session and an id whose
// record is gone.
func (r *reader) lookup(ctx context.Context, session, id string) (handle, error) {
	// Get the task first: it is removed only after the end is stored and the slot is
	// free.
	h := handle{task: r.runs.get(id)}
	h.live = h.task != nil && h.task.live.Load()

	run, err := r.engine.Get(ctx, id)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return handle{}, fmt.Errorf("reading run %s: %w", id, err)
	}
	if err != nil || !r.has(session, run.Session) {
		return handle{}, r.notFound(ctx, session, id)
	}

	if h.task != nil && run.Status.Terminal() && h.task.settled.Load() {
		<-h.task.done // immediate: the slot is free before anyone sees the end
	}
	h.run = view(run, h.task)
	return h, nil
}

// has reports whether a session can access by id what belongs to owner.
func (c *core) has(session, owner string) bool {
	return owner == session || c.cfg().CanAccess != nil && session != "" && c.cfg().CanAccess(session, owner)
}

// relook is like lookup, for a run that was found before. An ended run does not change,
// and its record may be gone.
func (r *reader) relook(ctx context.Context, session string, h handle) (handle, error) {
	switch {
	case h.task != nil && h.task.ended() && h.task.final.Status.Terminal():
		return handle{run: h.task.asEnded(), task: h.task, live: h.task.live.Load()}, nil
	case h.task == nil && h.run.Status.Terminal():
		return h, nil
	}
	return r.lookup(ctx, session, h.run.ID)
}

// steady calls read with a run. If another attempt has begun in the meantime, it looks
// the run up and calls read again. It returns the run of the last call.
func (r *reader) steady(ctx context.Context, session string, h handle, read func(handle) error) (handle, error) {
	for {
		err := read(h)
		if err != nil || h.task == nil || h.live == h.task.live.Load() {
			return h, err
		}
		if h, err = r.lookup(ctx, session, h.run.ID); err != nil {
			return h, err
		}
	}
}

// view returns a stored run updated from its task.
func view(run engine.Run, t *task) engine.Run {
	switch {
	case t == nil || run.Status.Terminal():
		return run
	case t.ended():
		return t.asEnded()
	case t.live.Load():
		run.Beat = t.sink.Now()
	}
	return run
}

// notFound returns the error for an id that the session does not have.
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

// list returns stored runs updated from their tasks.
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

// tail reads the log of a run, from its sink if that has all of it.
func (r *reader) tail(ctx context.Context, h handle, offset int64, max int) (engine.Chunk, error) {
	if h.task != nil && h.task.live.Load() {
		return h.task.sink.Tail(offset, max), nil
	}
	return r.engine.Tail(ctx, h.run.ID, offset, max)
}

// payload returns a part of a run's payload, from its task if its end may not be
// stored yet.
func (r *reader) payload(ctx context.Context, h handle, part engine.Part) (json.RawMessage, error) {
	if part == engine.PartCalls && h.task != nil && h.task.live.Load() && !h.task.ended() {
		return h.task.sink.Called(), nil
	}
	if part != engine.PartArgs && h.task != nil && h.task.unstored() {
		return bytes.Clone(h.task.final.Part(part)), nil
	}
	return r.engine.Payload(ctx, h.run.ID, part)
}

// waitLimits say how long to wait for runs to end.
type waitLimits struct {
	until  Until
	most   time.Duration   // 0: no limit
	enough <-chan struct{} // ends the wait; nil: never
	saved  bool            // for an end that was shown before, wait until it is stored
}

// await waits until any or all of the runs have ended, the wait is over or the
// Manager has closed. If ctx ends first, it returns ctx's error.
func (r *reader) await(ctx context.Context, session string, known []handle, w waitLimits) error {
	following, done := context.WithCancel(ctx)
	defer done()
	ends := r.follow(following, session, known, w.saved)
	left := slices.DeleteFunc(slices.Clone(ends), closed)
	if w.until != UntilAll && len(left) < len(ends) {
		return nil
	}

	var late <-chan time.Time
	if w.most > 0 {
		timer := time.NewTimer(w.most)
		defer timer.Stop()
		late = timer.C
	}
	cases := []reflect.SelectCase{receive(ctx.Done()), receive(late), receive(w.enough), receive(r.quit)}
	fixed := len(cases)
	for _, end := range left {
		cases = append(cases, receive(end))
	}

	for len(cases) > fixed {
		chosen, _, _ := reflect.Select(cases)
		switch {
		case chosen == 0:
			return ctx.Err()
		case chosen < fixed || w.until != UntilAll:
			return nil
		}
		cases = slices.Delete(cases, chosen, chosen+1)
	}
	return nil
}

func receive(c any) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
}

// follow returns channels that are closed when the runs have ended. Runs of other
// workers are polled until ctx is done.
func (r *reader) follow(ctx context.Context, session string, known []handle, saved bool) []<-chan struct{} {
	ends := make([]<-chan struct{}, len(known))
	remote := make(map[string]chan struct{})
	for i, h := range known {
		switch {
		case h.task != nil && saved && h.task.unstored():
			ends[i] = h.task.news()
		case h.task != nil:
			ends[i] = r.endOf(ctx, session, h.task)
		default:
			end := remote[h.run.ID]
			if end == nil {
				end = make(chan struct{})
				if h.run.Status.Terminal() {
					close(end)
				} else {
					remote[h.run.ID] = end
				}
			}
			ends[i] = end
		}
	}

	if len(remote) > 0 {
		go r.poll(ctx, session, remote)
	}
	return ends
}

// endOf returns a channel that is closed when the run of a task has ended, even if
// the run was suspended in between.
func (r *reader) endOf(ctx context.Context, session string, t *task) <-chan struct{} {
	if t.ended() && t.final.Status.Terminal() {
		return t.done
	}
	end := make(chan struct{})
	go func() {
		if !closedFirst(t.done, ctx.Done()) {
			return
		}
		if t.final.Status.Terminal() || r.runs.isClosing() {
			close(end)
			return
		}
		r.poll(ctx, session, map[string]chan struct{}{t.run.ID: end})
	}()
	return end
}

// poll closes the channels of runs when they have ended, until ctx is done or
// none is left. It checks them when one of them ends, and every second.
func (r *reader) poll(ctx context.Context, session string, ends map[string]chan struct{}) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	events := r.engine.Watch(ctx, session)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()

	for {
		for id, end := range ends {
			run, err := r.engine.Get(ctx, id)
			if err == nil && run.Status.Terminal() || errors.Is(err, engine.ErrNotFound) {
				close(end)
				delete(ends, id)
			}
		}

		for waiting := true; waiting; {
			if len(ends) == 0 {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-r.quit:
				return
			case <-tick.C:
				waiting = false
			case e := <-events:
				waiting = e.Run == nil || !e.Run.Status.Terminal() || ends[e.Run.ID] == nil
			}
		}
	}
}

// awaitElsewhere closes the done channel of a task when another worker, or a later
// attempt here, has ended its run.
func (r *reader) awaitElsewhere(t *task) {
	end := make(chan struct{})
	r.poll(r.base, t.run.Session, map[string]chan struct{}{t.run.ID: end})
	if run, err := r.engine.Get(r.base, t.run.ID); err == nil {
		t.final = &run
	}
	close(t.done)
}

// sameKey returns the earlier run that has the same idempotency key as run.
func (r *reader) sameKey(ctx context.Context, run engine.Run) (first engine.Run, found bool, err error) {
	if run.IdempotencyKey == "" {
		return first, false, nil
	}
	all, err := r.list(ctx, engine.Query{Session: run.Session, IdempotencyKey: run.IdempotencyKey, Limit: 1})
	if err != nil || len(all) == 0 {
		return first, false, err
	}

	first = all[0]
	if first.Args, err = r.engine.Payload(ctx, first.ID, engine.PartArgs); err != nil {
		return first, false, err
	}
	if first.Tool != run.Tool || !sameJSON(first.Args, run.Args) {
		return first, false, fmt.Errorf("%w: %s", ErrKeyReused, first.ID)
	}
	return first, true, nil
}
