package host

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
)

// startCost is the extra cost of starting an operation rather than calling it, as a
// number of bytes: a goroutine, and entering the guest once more.
const startCost = 10_000 * meter.BytesPerUnit

// pending is the set of started operations whose ends the guest has not received. It
// belongs to the guest's goroutine.
type pending struct {
	call    *call
	last    int32              // last id
	started map[int32]*started // nil before the first
	ends    chan *started      // finished operations, in that order; it has room for all
	works   sync.WaitGroup
	entry   *instance.Entry // toolhost_resume, with its grown stack; nil before the first end
	held    []*started      // operations to begin once a state that records them is stored
	retry   time.Duration   // how long the call keeps its instance after storing its state failed
	resumed bool            // the call was continued, and nothing has ended since
	stored  bool            // there is a stored state, from which the call continues after a crash
	since   time.Time       // start of the current wait; zero: not looked at yet
	waited  time.Duration   // length of the wait when its state was last stored, here or before a crash
}

// started is an operation that was started.
type started struct {
	waiting  // the request is set only if the call can be suspended
	cancel   context.CancelCauseFunc
	canceled bool           // the guest has canceled it
	todo     guestcall.Work // while it is held
	known    bool           // recorded in the stored state
	takes    bool           // it removes messages
	end      guestcall.End  // set once it is in pending.ends
	kept     int            // bytes paid for until the guest gets the end
}

// startCapability is the contract's call_start function: the guest gets the end of the
// operation when it waits.
func startCapability(c *call, mem api.Memory, stack []uint64) int32 {
	request := bytesAt(mem, abi.ImportStart, stack[2], stack[3])
	c.meter.Charge(startCost)
	switch {
	case len(request) > abi.MaxStart:
		return c.ops.Refuse(abi.CallLimit, "limit", fmt.Sprintf("the request of an operation that is started has at most %d bytes", abi.MaxStart))
	case c.pending.last >= maxStarted:
		return c.ops.Refuse(abi.CallLimit, "limit", "the call has started too many operations")
	case len(c.pending.started) >= abi.MaxPending:
		return c.ops.Refuse(abi.CallLimit, "limit", fmt.Sprintf("at most %d operations can be pending at a time: wait for the end of one", abi.MaxPending))
	}

	name := bytesAt(mem, abi.ImportStart, stack[0], stack[1])
	c.ops.Effect = guestcall.Effect{ID: c.pending.last + 1}
	work, code := c.ops.Operation(name, request)
	if work == nil && code < 0 {
		return code
	}
	s := c.pending.add(string(name))
	if work != nil && c.Suspend != nil {
		if err := c.meter.Payer.Take(instance.Buffers, uint64(len(request))); err != nil {
			c.pending.drop(s)
			return c.ops.Refuse(abi.CallLimit, "limit", "the host has no memory for the request now")
		}
		s.Request, s.kept = bytes.Clone(request), len(request)
	}
	c.pending.begin(s, work, code)
	return s.ID
}

func (p *pending) init() {
	if p.started == nil {
		p.started, p.ends = map[int32]*started{}, make(chan *started, abi.MaxPending)
	}
}

// add adds an operation.
func (p *pending) add(op string) *started {
	p.init()
	p.last++
	s := &started{waiting: waiting{ID: p.last, Op: op, At: time.Now()}, cancel: withoutWork}
	p.started[s.ID] = s
	return s
}

// drop removes the operation that was added last.
func (p *pending) drop(s *started) {
	delete(p.started, s.ID)
	p.last--
}

// withoutWork is a cancel function that does nothing.
func withoutWork(error) {}

// begin begins an operation after its first half, which returned work, or nil and the
// answer.
func (p *pending) begin(s *started, work guestcall.Work, code int32) {
	b := p.call.ops.Effect
	p.call.ops.Effect = guestcall.Effect{}
	if work == nil {
		p.ended(s, guestcall.End{Bytes: len(p.call.ops.Response), Finish: p.replay(ended{s.ID, code, p.call.ops.Response})})
		p.call.ops.Response = nil
		return
	}

	s.Apart, s.Once, s.takes = b.Detached, b.AtMostOnce && p.once(), b.TakesMessages
	if p.precedes(s) {
		s.todo = work
		p.held = append(p.held, s)
		return
	}
	p.work(s, work)
}

// work does the work of an operation on a goroutine of its own. close waits for it.
func (p *pending) work(s *started, work guestcall.Work) {
	ctx, cancel := context.WithCancelCause(&p.call.ctx)
	s.cancel = cancel
	p.works.Go(func() { p.ended(s, guardedWork(ctx, work)) })
}

// ended queues an end for the guest. It is safe for concurrent use.
func (p *pending) ended(s *started, ended guestcall.End) {
	if err := p.call.meter.Payer.Take(instance.Buffers, uint64(ended.Bytes)); err == nil {
		s.kept += ended.Bytes
	} else {
		ended.Finish = p.noRoom(ended.Finish)
	}
	s.end = ended
	p.ends <- s
}

// guardedWork does a work. A panic in a function of the caller ends the call, not the
// process.
func guardedWork(ctx context.Context, work guestcall.Work) (ended guestcall.End) {
	defer func() {
		if r := recover(); r != nil {
			ended = guestcall.End{Finish: func() int32 {
				panic(&instance.Stop{Reason: fmt.Errorf("a function of the caller panicked: %v", r)})
			}}
		}
	}()
	return work(ctx)
}

// noRoom replaces an end that does not fit in the host's memory.
func (p *pending) noRoom(finish func() int32) func() int32 {
	return func() int32 {
		if code := finish(); code < 0 {
			return code
		}
		return p.call.ops.Refuse(abi.CallLimit, "limit", "the host has no memory for the answer now")
	}
}

// resume waits, without a processor, for an operation to end, and reports it to the
// guest. It returns the guest's response.
func (p *pending) resume() (code int32, err error) {
	c := p.call
	if len(p.started) == 0 {
		return 0, &instance.Stop{Reason: fmt.Errorf("%w: the plugin returned %d, waiting, but no operation is pending", ErrABI, abi.InvokeWaiting)}
	}

	s, err := p.next()
	if err != nil {
		return 0, err
	}
	delete(p.started, s.ID)
	p.resumed, p.since, p.waited = false, time.Time{}, 0
	s.cancel(nil)
	code, err = guarded(func() int32 {
		c.meter.Check() // a call that has to end ends here
		return s.end.Finish()
	})
	p.give(s)
	if err != nil {
		return 0, err
	}

	c.params[0], c.params[1] = api.EncodeI32(s.ID), api.EncodeI32(code)
	if p.entry == nil { // the call pays for one stack
		c.instance.Shrink(abi.ExportInvoke)
		p.entry = c.instance.Cached(abi.ExportResume)
	}
	code, err = c.enter(p.entry)
	c.ops.Response = nil
	return code, err
}

// next waits for the next end.
func (p *pending) next() (*started, error) {
	c := p.call
	if err := p.ahead(); err != nil {
		return nil, err
	}
	select {
	case s := <-p.ends:
		return s, nil
	default:
	}

	c.guest.Idle()
	suspend, stop := p.suspendLater()
	defer stop()
	hold, stopHold := p.holdLater(suspend)
	defer stopHold()
	select {
	case <-p.revived(suspend):
		return p.next()
	case <-hold:
		if err := c.compute(); err != nil {
			return nil, &instance.Stop{Reason: err}
		}
		p.hold()
		return p.next()
	case <-suspend:
		if err := c.compute(); err != nil {
			return nil, &instance.Stop{Reason: err}
		}
		if err := p.suspend(); err != nil {
			return nil, err
		}
		return p.next()
	case s := <-p.ends:
		if err := c.compute(); err != nil {
			p.ends <- s // for close
			return nil, &instance.Stop{Reason: err}
		}
		return s, nil
	case <-c.ctx.Done():
		p.leave()
		return nil, &instance.Stop{Reason: c.interrupted()}
	}
}

// settleTime is how much longer a continued call waits before it is suspended again. It
// was continued because something has ended, which may take a while to arrive.
const settleTime = 5 * time.Second

// suspendLater returns a channel that fires when the call is to be suspended; nil
// for never.
func (p *pending) suspendLater() (_ <-chan time.Time, stop func()) {
	c := p.call
	if c.Suspend == nil || p.resident() != "" {
		return nil, func() {}
	}
	after := c.Suspend.After
	switch short := p.short(); {
	case p.resumed && !short:
		after += settleTime
	case !p.resumed && short:
		after = 0
	}
	after = max(after, p.retry)
	timer := time.NewTimer(after)
	return timer.C, func() { timer.Stop() }
}

// holdAfter is the shortest wait after which the state of a call that stays in its instance
// is stored.
const holdAfter = time.Second

// holdLater returns a channel that fires when the state of a call that waits in its
// instance is to be stored; nil for never. That happens each time the length of the wait
// has doubled. The length includes waits before a crash, so a call that keeps crashing its
// host gets no further.
func (p *pending) holdLater(suspend <-chan time.Time) (_ <-chan time.Time, stop func()) {
	if suspend != nil || p.unfit() != "" {
		return nil, func() {}
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	after := max(holdAfter, p.call.Suspend.After, 2*p.waited, p.retry)
	timer := time.NewTimer(after - time.Since(p.since))
	return timer.C, func() { timer.Stop() }
}

// hold stores the state of a call that waits in its instance.
func (p *pending) hold() {
	p.waited = time.Since(p.since)
	st, err := p.look()
	if err == nil {
		err = p.keep(st, []*started{})
	}
	if err != nil {
		p.unkept(err)
	}
}

// unkept schedules another attempt to store the state of a call.
func (p *pending) unkept(err error) {
	c := p.call
	c.host.log.Warn("a call that waits keeps its instance for now: its state was not stored", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
	p.retry = min(max(2*p.retry, minRetry), maxRetry)
}

// short reports whether others need the resources that the call holds.
func (p *pending) short() bool {
	c := p.call
	return c.module.slots.Contended() || c.meter.Payer.Short() || c.Suspend.UnderPressure != nil && c.Suspend.UnderPressure()
}

// revived returns a channel that fires when a call that keeps its instance may have
// become suspendable; nil for never.
func (p *pending) revived(suspend <-chan time.Time) <-chan struct{} {
	s := p.call.Suspend
	if suspend != nil || s == nil {
		return nil
	}
	select {
	case <-s.Revived: // it already has
		return nil
	default:
		return s.Revived
	}
}

// give returns the memory paid for an end.
func (p *pending) give(s *started) {
	if s.kept > 0 {
		p.call.meter.Payer.Give(instance.Buffers, uint64(s.kept))
	}
}

// close cancels all pending operations, and waits for them.
func (p *pending) close() {
	if len(p.started) == 0 {
		return
	}
	p.call.guest.Idle()
	for _, s := range p.held {
		p.ended(s, guestcall.End{})
	}
	for _, s := range p.started {
		s.cancel(ErrWithdrawn)
	}
	p.works.Wait()
	for range p.started {
		p.give(<-p.ends)
	}
	clear(p.started)
}

// guarded runs host code outside of the guest that may end the call.
func guarded(f func() int32) (code int32, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *instance.Stop:
			err = r
		default:
			panic(r)
		}
	}()
	return f(), nil
}

// Cancel cancels a started operation, and reports whether the id is one. An operation
// that has ended is left as it is, even if the guest has not received its end.
func (p *pending) Cancel(id int32) bool {
	if id > p.last {
		return false
	}
	if s := p.started[id]; s != nil {
		s.canceled = true
		s.cancel(ErrWithdrawn)
	}
	return true
}
