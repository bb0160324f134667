// Package wait manages the operations that a guest has started and waits for. It
// suspends a call that does nothing but wait: it stores the state of the call, from
// which the call continues in another instance.
package wait

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
)

// startCost is the extra cost of starting an operation rather than calling it, as a
// number of bytes: a goroutine, and entering the guest once more.
const startCost = 10_000 * meter.BytesPerUnit

// Call is the running call whose operations are pending. Everything else about the call is
// in its [guestcall.Call].
type Call interface {
	// Instance returns the instance that runs the call.
	Instance() *instance.Instance
	// Elapsed returns the time on the guest's monotonic clock, in nanoseconds.
	Elapsed() int64
	// SetElapsed sets the guest's monotonic clock, in nanoseconds; the clock continues from
	// there.
	SetElapsed(ns int64)
	// Bound returns why the call can never leave its instance, or nothing.
	Bound() string
	// Contended reports whether other calls wait for a slot that the call holds.
	Contended() bool
	// Compute waits until the guest may compute. If the call ends first, the error says
	// why.
	Compute() error
	// Interrupted returns why the call must end now, or nil.
	Interrupted() error
}

// Pending is the set of started operations whose ends the guest has not received. It
// belongs to the guest's goroutine.
type Pending struct {
	call   Call
	ops    *guestcall.Call
	owner  Owner // nil if the call cannot be suspended
	terms  Terms
	digest string // the plugin's digest, in hex

	last    int32                       // id of the last operation
	started map[int32]*startedOperation // operations by id; nil before the first one
	ends    chan *startedOperation      // finished operations, in the order in which they ended; it has room for all
	works   sync.WaitGroup
	held    []*startedOperation // operations to begin once a state that records them is stored
	retry   time.Duration       // how long the call keeps its instance after storing its state failed
	resumed bool                // whether the call was continued, and nothing has ended since
	stored  bool                // whether there is a stored state, from which the call continues after a crash
	leaving bool                // whether the call was interrupted, and its state is being stored
	since   time.Time           // start of the current wait; zero until holdLater sets it
	waited  time.Duration       // length of the wait when its state was last stored, here or before a crash
}

// Init initializes the set for a call of the plugin with this digest, in hex. owner is
// nil if the call cannot be suspended. Call Close once the guest has returned.
func (p *Pending) Init(call Call, ops *guestcall.Call, owner Owner, digest string) {
	p.call, p.ops, p.owner, p.digest = call, ops, owner, digest
	if owner != nil {
		p.terms = owner.Terms()
	}
}

// Any reports whether operations are pending.
func (p *Pending) Any() bool { return len(p.started) > 0 }

// Leaving reports whether the call was interrupted and its state is being stored. The
// call must not end until that is done.
func (p *Pending) Leaving() bool { return p.leaving }

// startedOperation is an operation that was started.
type startedOperation struct {
	pendingOperation // the request is set only if the call can be suspended
	cancel           context.CancelCauseFunc
	canceled         bool           // the guest has canceled it
	todo             guestcall.Work // its work, while it is held
	known            bool           // recorded in the stored state
	takes            bool           // it removes messages
	end              guestcall.End  // set once it is in Pending.ends
	kept             int            // bytes paid for until the guest gets the end
}

// Admit charges for an operation that is about to be started, or refuses the operation if
// it exceeds a limit. It returns 0, or the code of the refusal.
func (p *Pending) Admit(request []byte) int32 {
	p.ops.Meter.Charge(startCost)
	switch {
	case len(request) > abi.MaxStart:
		return p.ops.Refuse(abi.CallLimit, "limit", fmt.Sprintf("the request of an operation that is started has at most %d bytes", abi.MaxStart))
	case p.last >= maxStarted:
		return p.ops.Refuse(abi.CallLimit, "limit", "the call has started too many operations")
	case len(p.started) >= abi.MaxPending:
		return p.ops.Refuse(abi.CallLimit, "limit", fmt.Sprintf("at most %d operations can be pending at a time: wait for the end of one", abi.MaxPending))
	}
	return 0
}

// Start starts an operation that Admit has admitted, and returns its id or the code of a
// refusal. The guest learns that the operation has ended when it waits. Start does not hold
// on to name and request, which are guest memory.
func (p *Pending) Start(name, request []byte) int32 {
	p.ops.Effect = guestcall.Effect{ID: p.last + 1}
	work, code := p.ops.Operation(name, request)
	if work == nil && code < 0 {
		return code
	}

	s := p.add(string(name))
	if work != nil && p.owner != nil {
		if err := p.ops.Meter.Payer.Take(instance.Buffers, uint64(len(request))); err != nil {
			p.drop(s)
			return p.ops.Refuse(abi.CallLimit, "limit", "the host has no memory for the request now")
		}
		s.Request, s.kept = bytes.Clone(request), len(request)
	}
	p.begin(s, work, code)
	return s.ID
}

// open makes room for operations.
func (p *Pending) open() {
	if p.started == nil {
		p.started, p.ends = map[int32]*startedOperation{}, make(chan *startedOperation, abi.MaxPending)
	}
}

// add adds an operation.
func (p *Pending) add(op string) *startedOperation {
	p.open()
	p.last++
	s := &startedOperation{pendingOperation: pendingOperation{ID: p.last, Op: op, At: time.Now()}, cancel: withoutWork}
	p.started[s.ID] = s
	return s
}

// drop removes the operation that was added last.
func (p *Pending) drop(s *startedOperation) {
	delete(p.started, s.ID)
	p.last--
}

// withoutWork is a cancel function that does nothing.
func withoutWork(error) {}

// begin begins an operation after its first half, which returned work, or nil and the
// answer.
func (p *Pending) begin(s *startedOperation, work guestcall.Work, code int32) {
	b := p.ops.Effect
	p.ops.Effect = guestcall.Effect{}
	if work == nil {
		p.ended(s, guestcall.End{Bytes: len(p.ops.Response), Finish: p.replay(endedOperation{s.ID, code, p.ops.Response})})
		p.ops.Response = nil
		return
	}

	s.Detached, s.Once, s.takes = b.Detached, b.AtMostOnce && p.once(), b.TakesMessages
	if p.precedes(s) {
		s.todo = work
		p.held = append(p.held, s)
		return
	}
	p.work(s, work)
}

// work does the work of an operation on a goroutine of its own. Close waits for it.
func (p *Pending) work(s *startedOperation, work guestcall.Work) {
	ctx, cancel := context.WithCancelCause(p.ops.Context)
	s.cancel = cancel
	p.works.Go(func() { p.ended(s, guardedWork(ctx, work)) })
}

// ended queues an end for the guest. It is safe for concurrent use.
func (p *Pending) ended(s *startedOperation, ended guestcall.End) {
	if err := p.ops.Meter.Payer.Take(instance.Buffers, uint64(ended.Bytes)); err == nil {
		s.kept += ended.Bytes
	} else {
		ended.Finish = p.noRoom(ended.Finish)
	}
	s.end = ended
	p.ends <- s
}

// guardedWork does the work of an operation. A panic in a function of the caller ends
// the call, not the process.
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
func (p *Pending) noRoom(finish func() int32) func() int32 {
	return func() int32 {
		if code := finish(); code < 0 {
			return code
		}
		return p.ops.Refuse(abi.CallLimit, "limit", "the host has no memory for the answer now")
	}
}

// Next waits, without a processor, for an operation to end. It returns the operation's id
// and its code for the guest, and sets the response. After an error the call has to end.
// The error matches ErrSuspended if the call is to be continued later.
func (p *Pending) Next() (id, code int32, err error) {
	s, err := p.nextEnd()
	if err != nil {
		return 0, 0, err
	}

	delete(p.started, s.ID)
	p.resumed, p.since, p.waited = false, time.Time{}, 0
	s.cancel(nil)
	code, err = instance.Catch(func() int32 {
		p.ops.Meter.Check() // a call that has to end ends here
		return s.end.Finish()
	})
	p.give(s)
	return s.ID, code, err
}

// nextEnd waits for the next end.
func (p *Pending) nextEnd() (*startedOperation, error) {
	if err := p.ahead(); err != nil {
		return nil, err
	}
	select {
	case s := <-p.ends:
		return s, nil
	default:
	}

	p.ops.Guest.Idle()
	revived := p.revived()
	suspend, stop := p.suspendLater()
	defer stop()
	hold, stopHold := p.holdLater(suspend)
	defer stopHold()
	select {
	case <-revived:
		return p.nextEnd()
	case <-hold:
		if err := p.call.Compute(); err != nil {
			return nil, &instance.Stop{Reason: err}
		}
		p.hold()
		return p.nextEnd()
	case <-suspend:
		if err := p.call.Compute(); err != nil {
			return nil, &instance.Stop{Reason: err}
		}
		if err := p.suspend(); err != nil {
			return nil, err
		}
		return p.nextEnd()
	case s := <-p.ends:
		if err := p.call.Compute(); err != nil {
			p.ends <- s // for Close
			return nil, &instance.Stop{Reason: err}
		}
		return s, nil
	case <-p.ops.Context.Done():
		p.leave()
		return nil, &instance.Stop{Reason: p.call.Interrupted()}
	}
}

// settleTime is how much longer a continued call waits before it is suspended again. It
// was continued because something has ended, which may take a while to arrive.
const settleTime = 5 * time.Second

// suspendLater returns a channel that fires when the call is to be suspended, or nil if
// it is not.
func (p *Pending) suspendLater() (_ <-chan time.Time, stop func()) {
	if p.owner == nil || p.resident() != "" {
		return nil, func() {}
	}
	after := p.terms.After
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
// instance is to be stored, or nil if it is not. That happens each time the length of the
// wait has doubled. The length includes waits before a crash, so a call that keeps
// crashing its host gets no further.
func (p *Pending) holdLater(suspend <-chan time.Time) (_ <-chan time.Time, stop func()) {
	if suspend != nil || p.unfit() != "" {
		return nil, func() {}
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	after := max(holdAfter, p.terms.After, 2*p.waited, p.retry)
	timer := time.NewTimer(after - time.Since(p.since))
	return timer.C, func() { timer.Stop() }
}

// hold stores the state of a call that waits in its instance.
func (p *Pending) hold() {
	p.waited = time.Since(p.since)
	st, err := p.look()
	if err == nil {
		err = p.keep(st, []*startedOperation{})
	}
	if err != nil {
		p.unkept(err)
	}
}

// unkept schedules another attempt to store the state of a call.
func (p *Pending) unkept(err error) {
	p.ops.Log.Warn("a call that waits keeps its instance for now: its state was not stored", "plugin", p.ops.Plugin, "tool", p.ops.Tool, "call", p.ops.ID, "error", err)
	p.retry = min(max(2*p.retry, minRetry), maxRetry)
}

// short reports whether others need the resources that the call holds.
func (p *Pending) short() bool {
	return p.call.Contended() || p.ops.Meter.Payer.Short() || p.owner.Status().UnderPressure
}

// revived returns a channel that fires when the call may have become suspendable, or nil
// if that will not happen. Ask for it before what depends on Live, or that change may be
// missed.
func (p *Pending) revived() <-chan struct{} {
	if p.owner == nil {
		return nil
	}
	revived := p.owner.Status().Revived
	select {
	case <-revived: // it already has
		return nil
	default:
		return revived
	}
}

// give gives back the memory that was paid for an end.
func (p *Pending) give(s *startedOperation) {
	if s.kept > 0 {
		p.ops.Meter.Payer.Give(instance.Buffers, uint64(s.kept))
	}
}

// Close cancels all pending operations, and waits for them.
func (p *Pending) Close() {
	if len(p.started) == 0 {
		return
	}
	p.ops.Guest.Idle()
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

// Cancel cancels a started operation, and reports whether the call has started one with
// this id. An operation that has ended is left as it is, even if the guest has not
// received its end.
func (p *Pending) Cancel(id int32) bool {
	if id > p.last {
		return false
	}
	if s := p.started[id]; s != nil {
		s.canceled = true
		s.cancel(ErrWithdrawn)
	}
	return true
}
