package memory

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// waits reports whether a run is waiting.
func (r *record) waits() bool { return r.run.Status == engine.StatusWaiting }

// resume queues a run if it is waiting.
func (st *store) resume(r *record) {
	if r.waits() {
		r.run = r.run.Resumed()
		st.publish(engine.EventQueued, r)
	}
}

// Wake implements [engine.Worker].
func (w *worker) Wake(_ context.Context, now time.Time, max int) (woken int, next time.Time, err error) {
	e, err := w.lock()
	defer e.mu.Unlock()
	if err != nil {
		return 0, next, err
	}

	timed := which(e.active, func(r *record) bool { return r.waits() && !r.run.WakeAt.IsZero() })
	slices.SortStableFunc(timed, func(a, b *record) int { return a.alarm.At.Compare(b.alarm.At) })
	for _, r := range timed {
		if woken >= max || !r.alarm.Due(now) {
			return woken, r.alarm.At, nil
		}
		e.resume(r)
		woken++
	}
	return woken, next, nil
}

// State implements [engine.Lease].
func (l *lease) State() []byte { return bytes.Clone(l.state) }

// Suspend implements [engine.Lease].
func (l *lease) Suspend(_ context.Context, s engine.Suspension) (run engine.Run, err error) {
	writing := l.write(func(e *Engine, r *record) {
		if err = s.Check(r.run); err != nil {
			return
		}
		if err = e.suspend(r, s); err == nil {
			run = r.run.Light()
		}
	})
	return run, errors.Join(writing, err)
}

// suspend stores a suspension.
func (st *store) suspend(r *record, s engine.Suspension) error {
	var fresh []engine.Run
	state := r.state
	switch {
	case s.Drop:
		state = nil
	case s.State != nil:
		state = bytes.Clone(s.State)
	}
	more := int64(max(0, len(state)-len(r.state)))
	for _, child := range s.Children {
		err := st.admit(child, nil, nil)
		switch {
		case errors.Is(err, engine.ErrExists):
			continue
		case err != nil:
			return err
		}
		fresh = append(fresh, child)
		more += child.Size()
	}
	if more > 0 {
		if err := st.makeRoom(r.run.Session, more); err != nil {
			return err
		}
	}

	for _, child := range fresh {
		child.Status = engine.StatusQueued
		st.add(child, nil, engine.EventQueued)
	}
	r.state = state
	r.run = r.run.Suspended(s, r.log.Total())
	st.count(r)
	if s.Hold {
		return nil
	}

	r.holder, r.lease, r.alarm = nil, nil, engine.NewAlarm(s.Wake)
	st.publish(engine.EventWaiting, r)
	if st.happened(r) {
		st.resume(r)
	}
	return nil
}

// happened reports whether an event that a waiting run waits for, other than a time,
// has already happened.
func (st *store) happened(r *record) bool {
	mailbox := st.scopes[engine.Scope{Session: r.run.Session, Run: r.run.ID}]
	return mailbox != nil && mailbox.version > r.run.Mail || slices.ContainsFunc(r.run.Await, func(id string) bool {
		awaited := st.byID[id]
		return awaited == nil || awaited.run.Status.Terminal()
	})
}
