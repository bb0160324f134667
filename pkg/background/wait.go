package background

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// maxWaitIDs bounds the runs of one Wait.
const maxWaitIDs = 1000

// Get returns the record of a run of the session, or an error matching
// [ErrNotFound].
func (m *Manager) Get(ctx context.Context, session, id string) (Run, error) {
	run, _, err := m.lookup(ctx, session, id)
	return run, err
}

// Wait waits until any or all of the runs have ended, or until ctx has, and
// returns their records in the order of the ids, each id once. A run that is active in the
// engine but not in this manager is not waited for. If the session has not all
// of the runs, Wait returns a *[NotFoundError] at once. More than 1,000 ids are
// a *[FieldError]. Waiting takes no notice back.
func (m *Manager) Wait(ctx context.Context, session string, ids []string, until Until) ([]Run, error) {
	if !until.valid() {
		return nil, fmt.Errorf("wait: %w", &FieldError{"until", `must be "any" or "all"`})
	}
	if ids = distinct(ids); len(ids) > maxWaitIDs {
		return nil, fmt.Errorf("wait: %w", &FieldError{"task_ids", fmt.Sprintf("more than %d", maxWaitIDs)})
	}
	known, missing, err := m.find(ctx, session, ids, math.MaxInt64)
	if err == nil && missing != nil {
		err = missing
	}
	if err == nil {
		err = await(ctx, nil, nil, known, until, (*task).end)
	}
	if err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	runs := make([]Run, 0, len(ids))
	for _, h := range known {
		run, _, err := m.relook(ctx, session, h)
		if err != nil {
			return nil, fmt.Errorf("wait: %w", err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// A handle is a run the session has, and its task, nil if this manager has
// nothing to do with it.
type handle struct {
	id    string
	task  *task
	run   Run  // as it was seen last, if it was
	large bool // its record was, when it was found: more than maxKnown
}

// find returns those of the ids that the session has, and which it has not. If
// it has none, that is the error. Records are kept that have no more than so many
// bytes of arguments, result and content.
func (m *Manager) find(ctx context.Context, session string, ids []string, keeps int64) (known []handle, missing *NotFoundError, err error) {
	for _, id := range ids {
		run, t, err := m.lookup(ctx, session, id)
		var unknown *NotFoundError
		switch {
		case errors.As(err, &unknown) && missing != nil:
			missing.IDs = append(missing.IDs, id)
		case errors.As(err, &unknown):
			missing = unknown
		case err != nil:
			return nil, nil, err
		default:
			h := handle{id: id, task: t, large: run.payload() > maxKnown}
			if run.payload() <= keeps {
				h.run = run
			}
			known = append(known, h)
		}
	}
	if missing != nil && len(known) == 0 {
		return nil, nil, missing
	}
	return known, missing, nil
}

// await waits until any or all of the runs have ended, or it is late or enough,
// and returns ctx's error if that ends first. What is waited for of a run is end,
// [task.end] or [task.news]. A run without a task counts as ended.
func await(ctx context.Context, late <-chan time.Time, enough <-chan struct{}, known []handle, until Until, end func(*task) <-chan struct{}) error {
	if until == UntilAll {
		for _, h := range known {
			if h.task == nil {
				continue
			}
			select {
			case <-end(h.task):
			case <-late:
				return nil
			case <-enough:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(late)},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(enough)},
	}
	for _, h := range known {
		if h.task == nil || closed(end(h.task)) {
			return nil
		}
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(end(h.task))})
	}
	if len(known) == 0 {
		return nil
	}
	if chosen, _, _ := reflect.Select(cases); chosen == 0 {
		return ctx.Err()
	}
	return nil
}

// lookup returns a run of the session and, if it is executed here, its task.
// The error for an id that never was, one of another session and one whose
// record is gone is the same, and matches ErrNotFound.
func (m *Manager) lookup(ctx context.Context, session, id string) (Run, *task, error) {
	// The task is looked for first: it goes only after the end is stored and
	// the permits are given back, so that a run without one is as the engine says.
	t := m.task(id)
	run, err := m.engine.Get(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Run{}, nil, fmt.Errorf("reading run %s: %w", id, err)
	}
	if err != nil || run.Session != session {
		return Run{}, nil, m.notFound(ctx, session, id)
	}
	if t != nil && run.Status.Terminal() && t.settled.Load() {
		<-t.done // at once: who is told of the end finds the permits given back
	}
	return view(run, t), t, nil
}

// relook is lookup for a run that was found before. One that has ended does not
// change, and its record may be gone by now.
func (m *Manager) relook(ctx context.Context, session string, h handle) (Run, *task, error) {
	if h.task != nil && h.task.ended() && h.task.final.Status.Terminal() {
		return h.task.asEnded(), h.task, nil
	}
	if h.task == nil && h.run.Status.Terminal() {
		return h.run, nil, nil
	}
	return m.lookup(ctx, session, h.id)
}

// view returns a stored run with what its task knows better.
func view(run Run, t *task) Run {
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

// notFound makes the error for an id the session does not have.
func (m *Manager) notFound(ctx context.Context, session, id string) error {
	e := &NotFoundError{IDs: []string{id}}
	if session == "" {
		return e
	}
	active, err := m.engine.List(ctx, Query{Session: session, Active: true, Limit: 5})
	if err != nil {
		m.log.Warn("active runs not listed", "session", session, "error", err)
	}
	for _, run := range active {
		e.Active = append(e.Active, run.ID)
	}
	return e
}
