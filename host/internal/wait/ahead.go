package wait

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// once reports whether the call needs at-most-once semantics. A call with an owner does,
// unless Terms.Repeats is set.
func (p *Pending) once() bool { return p.owner != nil && !p.terms.Repeats }

// Act removes the stored state, if the call needs at-most-once semantics. Call it before
// a side effect that the stored state does not record.
func (p *Pending) Act() {
	if p.once() {
		p.Forget()
	}
}

// Forget removes the stored state, whatever the semantics of the call. Call it before an
// operation that invalidates the state.
func (p *Pending) Forget() {
	if err := p.removeState(); err != nil {
		panic(&instance.Stop{Reason: fmt.Errorf("removing the state of the call: %w", err)})
	}
}

// removeState removes the stored state, if there is one.
func (p *Pending) removeState() error {
	if !p.stored || p.owner == nil {
		return nil
	}
	err := p.owner.Drop()
	p.stored = err != nil
	return err
}

// Saved is called after a checkpoint was saved. It removes the stored state of a call that
// may be repeated: such a call restarts from the checkpoint, not from an older state.
func (p *Pending) Saved() error {
	if !p.terms.Repeats {
		return nil
	}
	return p.removeState()
}

// AskAgain returns a function that asks the user questions and can be repeated when the
// call continues, or nil if the owner offers none.
func (p *Pending) AskAgain(operation int32) func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
	if !p.terms.Asks {
		return nil
	}
	return func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		return p.owner.Ask(ctx, operation, q)
	}
}

// CrashPolicy decides how a nested call survives a crash, if the call can be suspended.
func (p *Pending) CrashPolicy(operation int32, t guestcall.ToolCall) (policy guestcall.CrashPolicy, suspendable bool) {
	if p.owner == nil {
		return guestcall.LostOnCrash, false
	}
	return p.owner.CrashPolicy(operation, t), true
}

// precedes reports whether a state is to be stored before an operation begins.
func (p *Pending) precedes(s *startedOperation) bool {
	needs := s.Detached || s.Once || s.takes && (p.once() || p.stored || p.retry == 0)
	return needs && p.durable()
}

// ahead begins the operations that were held until a state that records them is stored.
// After an error or a panic they are still held, for Close.
func (p *Pending) ahead() error {
	held := p.held
	if len(held) == 0 {
		return nil
	}
	if p.unfit() != "" {
		_, err := instance.Catch(func() int32 { p.unrecorded(held); return 0 })
		p.held = nil
		for _, s := range held {
			s.Detached = false
			p.proceed(s)
		}
		return err
	}

	for _, s := range held {
		s.known = true
	}
	st, err := p.look()
	if err != nil {
		return err
	}
	err = p.keep(st, held)
	p.held = nil
	for _, s := range held {
		switch {
		case err == nil:
		case s.takes && !p.once() && !p.stored: // the call starts over, and no stored state lacks the messages
			p.retry = minRetry
		default:
			s.Detached, s.Once = false, false
			s.todo = p.unstored(err)
		}
		p.proceed(s)
	}
	return nil
}

// unrecorded is called before operations that no state can record.
func (p *Pending) unrecorded(held []*startedOperation) {
	for _, s := range held {
		if s.takes {
			p.Forget()
		}
	}
	p.Act()
}

// unstored returns the work of an operation that did not begin because the state of the
// call could not be stored.
func (p *Pending) unstored(err error) guestcall.Work {
	refusal, ok := errors.AsType[*guestcall.Refusal](err)
	switch {
	case p.ops.IsStopping():
		return func(context.Context) guestcall.End { return guestcall.End{Finish: p.ops.RefuseStopped} }
	case !ok:
		p.ops.Log.Warn("an operation was refused: the state of its call was not stored", "plugin", p.ops.Plugin, "tool", p.ops.Tool, "call", p.ops.ID, "error", err)
		refusal = &guestcall.Refusal{Code: abi.CallFailed, Message: "the state of the run could not be stored, so it has not begun"}
	}
	return func(context.Context) guestcall.End {
		return guestcall.End{Finish: func() int32 { return p.ops.Refuse(refusal.Code, guestcall.RefusalNames[refusal.Code], refusal.Message) }}
	}
}

// proceed begins a held operation.
func (p *Pending) proceed(s *startedOperation) {
	todo := s.todo
	s.todo = nil
	switch {
	case s.canceled:
		p.ended(s, guestcall.End{Finish: p.ops.RefuseCanceled})
	case s.Detached:
		p.work(s, p.await(s.pendingOperation))
	default:
		p.work(s, todo)
	}
}

// await returns the work of a detached tool call: it waits for the call to end.
func (p *Pending) await(w pendingOperation) guestcall.Work {
	return func(ctx context.Context) guestcall.End {
		t, err := guestcall.ReadToolCall(w.Request)
		var r abi.Result
		if err == nil {
			until, done := p.ops.UntilLate(ctx)
			r, err = p.owner.Await(until, w.ID, t)
			done()
		}
		canceled := ctx.Err() != nil
		return guestcall.End{Bytes: len(r.Value), Cut: canceled && err != nil, Finish: func() int32 {
			p.ops.Tree.Owe(r.Usage)
			return p.ops.FinishTool(t.Tool, r, err, canceled)
		}}
	}
}
