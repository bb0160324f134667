package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// startCost is what starting an operation costs more than calling it, as a number of
// bytes: a goroutine, and entering the guest once more.
const startCost = 10_000 * bytesPerUnit

// pending is the operations that a guest has started and that have not ended for it. It
// belongs to the guest's goroutine.
type pending struct {
	call    *call
	last    int32              // id
	started map[int32]*started // nil before the first
	ends    chan *started      // those whose work is done, in that order; it has room for all
	works   sync.WaitGroup
	entry   *instance.Entry // toolhost_resume, with the stack that it has grown; nil before the first end
	held    []*started      // that begin once a state is stored that knows of them
	retry   time.Duration   // how long the call keeps its instance, as storing the state has failed
	resumed bool            // the call was continued, and nothing has ended since
	stored  bool            // a state of the call, which it continues from after a crash
	since   time.Time       // when the present wait began; zero: it has not been looked at
	waited  time.Duration   // how long it had lasted when its state was stored last, here or before a crash
}

// started is an operation that was started.
type started struct {
	waiting  // its request only if the call can be suspended
	cancel   context.CancelCauseFunc
	canceled bool // by the guest
	todo     work // while it is held
	known    bool // to the state that is stored
	takes    bool // it removes messages
	end      end  // once it is in pending.ends
	kept     int  // bytes that are paid for until the guest gets the end
}

// startCapability is the call_start function of the contract: the guest is told of the
// end when it waits.
func startCapability(c *call, mem api.Memory, stack []uint64) int32 {
	request := bytesAt(mem, abi.ImportStart, stack[2], stack[3])
	c.meter.charge(startCost)
	switch {
	case len(request) > abi.MaxStart:
		return c.refuse(abi.CallLimit, "limit", fmt.Sprintf("the request of an operation that is started has at most %d bytes", abi.MaxStart))
	case c.pending.last >= maxStarted:
		return c.refuse(abi.CallLimit, "limit", "the call has started too many operations")
	case len(c.pending.started) >= abi.MaxPending:
		return c.refuse(abi.CallLimit, "limit", fmt.Sprintf("at most %d operations can be pending at a time: wait for the end of one", abi.MaxPending))
	}

	name := bytesAt(mem, abi.ImportStart, stack[0], stack[1])
	c.begun = begun{id: c.pending.last + 1}
	work, code := c.operation(name, request)
	if work == nil && code < 0 {
		return code
	}
	s := c.pending.add(string(name))
	if work != nil && c.Suspend != nil {
		if err := c.meter.payer.Take(instance.Buffers, uint64(len(request))); err != nil {
			c.pending.drop(s)
			return c.refuse(abi.CallLimit, "limit", "the host has no memory for the request now")
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

// drop takes back an operation that was added last.
func (p *pending) drop(s *started) {
	delete(p.started, s.ID)
	p.last--
}

// withoutWork cancels nothing.
func withoutWork(error) {}

// begin begins an operation after its first half, which has returned work, or nil and the
// answer.
func (p *pending) begin(s *started, work work, code int32) {
	b := p.call.begun
	p.call.begun = begun{}
	if work == nil {
		p.ended(s, end{bytes: len(p.call.response), finish: p.told(ended{s.ID, code, p.call.response})})
		p.call.response = nil
		return
	}

	s.Apart, s.Once, s.takes = b.apart, b.once && p.once(), b.takes
	if p.precedes(s) {
		s.todo = work
		p.held = append(p.held, s)
		return
	}
	p.work(s, work)
}

// work does the work of an operation on a goroutine of its own, which close waits for.
func (p *pending) work(s *started, work work) {
	ctx, cancel := context.WithCancelCause(&p.call.ctx)
	s.cancel = cancel
	p.works.Go(func() { p.ended(s, guardedWork(ctx, work)) })
}

// ended keeps an end for the guest. It is safe for concurrent use.
func (p *pending) ended(s *started, ended end) {
	if err := p.call.meter.payer.Take(instance.Buffers, uint64(ended.bytes)); err == nil {
		s.kept += ended.bytes
	} else {
		ended.finish = p.noRoom(ended.finish)
	}
	s.end = ended
	p.ends <- s
}

// guardedWork does a work. That a function of the caller panics ends the call, and not
// the process.
func guardedWork(ctx context.Context, work work) (ended end) {
	defer func() {
		if r := recover(); r != nil {
			ended = end{finish: func() int32 {
				panic(&instance.Stop{Reason: fmt.Errorf("a function of the caller panicked: %v", r)})
			}}
		}
	}()
	return work(ctx)
}

// noRoom is an end that finds no memory in the host to wait in.
func (p *pending) noRoom(finish func() int32) func() int32 {
	return func() int32 {
		if code := finish(); code < 0 {
			return code
		}
		return p.call.refuse(abi.CallLimit, "limit", "the host has no memory for the answer now")
	}
}

// resume waits, without a processor, for an operation to end, and tells the guest. It
// returns what the guest answers.
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
		c.meter.check() // a call that has to end ends here
		return s.end.finish()
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
	c.response = nil
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

// settleTime is how much longer a call that was continued waits until it is suspended
// again: it was continued because something has ended, which may take a while to arrive.
const settleTime = 5 * time.Second

// suspendLater returns a channel that says when the call is to be suspended, nil for
// never.
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

// holdAfter is how long a call waits in its instance, at least, before its state is stored.
const holdAfter = time.Second

// holdLater returns a channel that says when the state of a call is to be stored that waits
// in its instance, nil for never. That is each time that the wait has lasted twice as long,
// also over crashes: a call that brings its host down gets no further.
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

// unkept has the state of a call that could not be stored stored later.
func (p *pending) unkept(err error) {
	c := p.call
	c.host.log.Warn("a call that waits keeps its instance for now: its state was not stored", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
	p.retry = min(max(2*p.retry, minRetry), maxRetry)
}

// short reports whether others need what the call holds.
func (p *pending) short() bool {
	c := p.call
	return c.module.slots.Contended() || c.meter.payer.Short() || c.Suspend.Short != nil && c.Suspend.Short()
}

// revived returns a channel that says when a call that keeps its instance may have become
// one that can be suspended, nil for never.
func (p *pending) revived(suspend <-chan time.Time) <-chan struct{} {
	s := p.call.Suspend
	if suspend != nil || s == nil {
		return nil
	}
	select {
	case <-s.Revived: // it is
		return nil
	default:
		return s.Revived
	}
}

// give gives back what an end has paid for.
func (p *pending) give(s *started) {
	if s.kept > 0 {
		p.call.meter.payer.Give(instance.Buffers, uint64(s.kept))
	}
}

// close cancels what is pending, and waits for it.
func (p *pending) close() {
	if len(p.started) == 0 {
		return
	}
	p.call.guest.Idle()
	for _, s := range p.held {
		p.ended(s, end{})
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

// guarded runs a part of the host that may end the call, outside of the guest.
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

// cancelOperation takes {"id"} and cancels an operation that was started. One that has
// ended, whether or not the guest has learned it, stays as it ended.
func cancelOperation(c *call, request []byte) int32 {
	var in struct {
		ID *int32 `json:"id"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.ID == nil || *in.ID < 1 || *in.ID > c.pending.last {
		return c.refuse(abi.CallInvalid, "invalid", `expected {"id": what call_start returned}`)
	}
	if s := c.pending.started[*in.ID]; s != nil {
		s.canceled = true
		s.cancel(ErrWithdrawn)
	}
	return c.respond([]byte("{}"))
}
