package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// once reports whether the call needs at-most-once semantics.
func (p *pending) once() bool {
	s := p.call.Suspend
	return s != nil && s.Drop != nil && !s.Repeats
}

// Act removes the stored state, if the call needs at-most-once semantics. Call it before
// a side effect that the stored state does not record.
func (p *pending) Act() {
	if p.once() {
		p.Forget()
	}
}

// Forget removes the stored state before an operation that invalidates it for every
// call.
func (p *pending) Forget() {
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

// Saved is called after a checkpoint was saved. A restarted call begins there, not
// from an older state.
func (p *pending) Saved() error {
	if s := p.call.Suspend; s == nil || !s.Repeats {
		return nil
	}
	return p.removeState()
}

// asksAgain reports whether the user can be asked again when the call continues.
func (p *pending) asksAgain() bool { return p.call.Suspend != nil && p.call.Suspend.Ask != nil }

// AskAgain returns the function that asks the user again when the call continues, or nil.
func (p *pending) AskAgain(operation int32) func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
	if !p.asksAgain() {
		return nil
	}
	return func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		return p.call.Suspend.Ask(ctx, operation, q)
	}
}

// CrashPolicy decides how a nested call survives a crash, if the call can be suspended.
func (p *pending) CrashPolicy(operation int32, t guestcall.ToolCall) (m guestcall.CrashPolicy, suspendable bool) {
	s := p.call.Suspend
	switch {
	case s == nil:
		return guestcall.LostOnCrash, false
	case s.Tool == nil:
		return guestcall.LostOnCrash, true
	}
	return s.Tool(operation, t), true
}

// precedes reports whether a state is to be stored before an operation begins.
func (p *pending) precedes(s *started) bool {
	needs := s.Apart || s.Once || s.takes && (p.once() || p.stored || p.retry == 0)
	return needs && p.durable()
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
			p.Forget()
		}
	}
	p.Act()
}

// unstored is the work of an operation that did not begin because the state of the call
// could not be stored.
func (p *pending) unstored(err error) guestcall.Work {
	c := p.call
	refusal, ok := errors.AsType[*guestcall.Refusal](err)
	switch {
	case c.ops.IsStopping():
		return func(context.Context) guestcall.End { return guestcall.End{Finish: c.ops.RefuseStopped} }
	case !ok:
		c.host.log.Warn("an operation was refused: the state of its call was not stored", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
		refusal = &guestcall.Refusal{Code: abi.CallFailed, Message: "the state of the run could not be stored, so it has not begun"}
	}
	return func(context.Context) guestcall.End {
		return guestcall.End{Finish: func() int32 { return c.ops.Refuse(refusal.Code, guestcall.RefusalNames[refusal.Code], refusal.Message) }}
	}
}

// proceed begins a held operation.
func (p *pending) proceed(s *started) {
	todo := s.todo
	s.todo = nil
	switch {
	case s.canceled:
		p.ended(s, guestcall.End{Finish: p.call.ops.RefuseCanceled})
	case s.Apart:
		p.work(s, p.await(s.waiting))
	default:
		p.work(s, todo)
	}
}

// await is the work of a detached tool call.
func (p *pending) await(w waiting) guestcall.Work {
	c := p.call
	return func(ctx context.Context) guestcall.End {
		t, err := guestcall.ReadToolCall(w.Request)
		var r abi.Result
		if err == nil {
			until, done := c.ops.UntilLate(ctx)
			r, err = c.Suspend.Await(until, w.ID, t)
			done()
		}
		canceled := ctx.Err() != nil
		return guestcall.End{Bytes: len(r.Value), Cut: canceled && err != nil, Finish: func() int32 {
			c.inner.Owe(r.Usage)
			return c.ops.FinishTool(t.Tool, r, err, canceled)
		}}
	}
}
