package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// once reports whether the call needs at-most-once semantics.
func (p *pending) once() bool {
	s := p.call.Suspend
	return s != nil && s.Drop != nil && !s.Repeats
}

// act removes the stored state, if the call needs at-most-once semantics. Call it before
// a side effect that the stored state does not record.
func (p *pending) act() {
	if p.once() {
		p.forget()
	}
}

// forget removes the stored state before an operation that invalidates it for every
// call.
func (p *pending) forget() {
	if err := p.removeState(); err != nil {
		panic(&instance.Stop{Reason: fmt.Errorf("removing the state of the call: %w", err)})
	}
}

// removeState removes the stored state, if there is one.
func (p *pending) removeState() error {
	if !p.stored || p.call.Suspend.Drop == nil {
		return nil
	}
	err := p.call.Suspend.Drop()
	p.stored = err != nil
	return err
}

// saved is called after a checkpoint was saved. A restarted call begins there, not
// from an older state.
func (p *pending) saved() error {
	if s := p.call.Suspend; s == nil || !s.Repeats {
		return nil
	}
	return p.removeState()
}

// precedes reports whether a state is to be stored before an operation begins.
func (p *pending) precedes(s *started) bool {
	needs := s.Apart || s.Once || s.takes && (p.once() || p.stored || p.retry == 0)
	return needs && p.durable()
}

// acting wraps the begin function of an operation that is done at once, with
// at-most-once semantics.
func acting(begin func(*call, []byte) (work, int32)) func(*call, []byte) (work, int32) {
	return func(c *call, request []byte) (work, int32) {
		c.pending.act()
		return begin(c, request)
	}
}

// ahead begins the operations that were held until a state that records them is stored.
func (p *pending) ahead() error {
	if len(p.held) == 0 {
		return nil
	}
	held := p.held
	p.held = nil
	if p.unfit() != "" {
		_, err := guarded(func() int32 { p.unrecorded(held); return 0 })
		for _, s := range held {
			s.Apart = false
			p.proceed(s)
		}
		return err
	}

	for _, s := range held {
		s.known = true
	}
	st, err := p.look()
	if err != nil {
		p.held = held // for close
		return err
	}
	err = p.keep(st, held)
	for _, s := range held {
		switch {
		case err == nil:
		case s.takes && !p.once() && !p.stored: // the call starts over, and no stored state lacks the messages
			p.retry = minRetry
		default:
			s.Apart, s.Once = false, false
			s.todo = p.unstored(err)
		}
		p.proceed(s)
	}
	return nil
}

// unrecorded is called before operations that no state can record.
func (p *pending) unrecorded(held []*started) {
	for _, s := range held {
		if s.takes {
			p.forget()
		}
	}
	p.act()
}

// unstored is the work of an operation that did not begin because the state of the call
// could not be stored.
func (p *pending) unstored(err error) work {
	c := p.call
	refusal, ok := errors.AsType[*Refusal](err)
	switch {
	case c.stopping():
		return func(context.Context) end { return end{finish: c.refuseStopped} }
	case !ok:
		c.host.log.Warn("an operation was refused: the state of its call was not stored", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
		refusal = &Refusal{abi.CallFailed, "the state of the run could not be stored, so it has not begun"}
	}
	return func(context.Context) end {
		return end{finish: func() int32 { return c.refuse(refusal.Code, refusalNames[refusal.Code], refusal.Message) }}
	}
}

// proceed begins a held operation.
func (p *pending) proceed(s *started) {
	todo := s.todo
	s.todo = nil
	switch {
	case s.canceled:
		p.ended(s, end{finish: p.call.refuseCanceled})
	case s.Apart:
		p.work(s, p.await(s.waiting))
	default:
		p.work(s, todo)
	}
}

// await is the work of a detached tool call.
func (p *pending) await(w waiting) work {
	c := p.call
	return func(ctx context.Context) end {
		t, err := readToolCall(w.Request)
		var r abi.Result
		if err == nil {
			until, done := c.untilLate(ctx)
			r, err = c.Suspend.Await(until, w.ID, t)
			done()
		}
		canceled := ctx.Err() != nil
		return end{bytes: len(r.Value), cut: canceled && err != nil, finish: func() int32 {
			c.inner.Owe(r.Usage)
			return c.finishTool(t.Tool, r, err, canceled)
		}}
	}
}
