package server

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// The bounds of what is kept of calls whose answer was not delivered.
const (
	lostLife       = 5 * time.Minute
	maxLost        = 1024      // calls, of all sessions
	maxLostSession = 32        // calls of one session
	maxLostAnswer  = 256 << 10 // bytes of an answer; of a larger one only its size is kept
	maxLostBytes   = 16 << 20  // bytes of all answers
)

// repeats has the calls that a client may repeat without having seen an answer. Its
// zero value is empty.
type repeats struct {
	mu    sync.Mutex
	calls map[callID]*loneCall
	lost  []*loneCall // those that ended without a delivered answer, and parked ones; the oldest first
	bytes int         // of the answers of lost
}

// callID is what a repeat has in common with its call.
type callID struct {
	session, tool string
	args          [sha256.Size]byte
}

// loneCall is a call that no other one like it is made next to. The mutex of its
// repeats guards all but over, and cancel, which is set once.
type loneCall struct {
	id     callID
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when it has ended

	callers   int           // that wait for it
	settled   chan struct{} // closed while no answer is on its way, once there was one
	answers   int           // on their way
	abandoned bool          // all of them have left
	acting    bool          // its tool has begun
	delivered bool          // some answer was
	callEnd
	bytes int       // of its answer, as repeats counts it
	until time.Time // of a lost one: when it is forgotten
}

// callEnd is how a call ended. It does not change once over is closed, but for an
// answer that is too large to be kept.
type callEnd struct {
	r       abi.Result
	err     error
	run     string // that the call continues as
	again   bool   // nothing has happened: a repeat is a new call
	stopped bool   // because all callers had left
	at      time.Time
	large   int // bytes of an answer that is not kept
}

// join adds a caller to a call. First reports that the caller has to make it.
func (p *repeats) join(id callID, now time.Time) (c *loneCall, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	if c = p.calls[id]; c != nil {
		c.callers++
		return c, false
	}

	c = &loneCall{id: id, callers: 1, over: make(chan struct{}), settled: make(chan struct{})}
	if p.calls == nil {
		p.calls = map[callID]*loneCall{}
	}
	p.calls[id] = c
	return c, true
}

// stay lets a caller leave a call when its context ends, or when left is called.
func (p *repeats) stay(ctx context.Context, c *loneCall) (left func()) {
	stop := context.AfterFunc(ctx, func() { p.leave(c, context.Cause(ctx)) })
	return func() {
		if stop() {
			p.leave(c, nil)
		}
	}
}

func (p *repeats) leave(c *loneCall, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.callers--; c.callers == 0 {
		c.abandoned = true // those that come now get what is left of it
		c.cancel(cause)
		p.shrink(c)
	}
}

// begun notes that the tool of a call has begun.
func (p *repeats) begun(c *loneCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.acting = true
}

// end notes how a call ended. A call whose tool has not begun leaves nothing, unless it
// waits as a run.
func (p *repeats) end(c *loneCall, end callEnd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.callEnd = end
	c.again = end.again || !c.acting && end.r.Kind == abi.CanceledKind
	c.stopped = c.abandoned && end.r.Kind == abi.CanceledKind
	if c.again || !c.acting && c.run == "" {
		p.remove(c)
	}
	close(c.over)
}

// ended returns how a call ended, and whether some answer was delivered.
func (p *repeats) ended(c *loneCall) (end callEnd, delivered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.callEnd, c.delivered
}

// settled returns a channel that is closed once it is known whether the answers that are
// on their way were delivered, or that one of them was.
func (p *repeats) settled(c *loneCall) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.settled
}

// answer notes that an answer is on its way. Settle says whether it was delivered, see
// [Receipt].
func (p *repeats) answer(c *loneCall) (settle func(delivered bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.answers++; isClosed(c.settled) {
		c.settled = make(chan struct{})
	}

	left := sync.OnceFunc(func() { c.answers-- }) // p is locked
	return func(delivered bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		left()
		p.settle(c, delivered, time.Now())
	}
}

// settle notes whether an answer was delivered. A call is forgotten when one was, and
// one that continues as a run when that has ended. p is locked.
func (p *repeats) settle(c *loneCall, delivered bool, now time.Time) {
	c.delivered = c.delivered || delivered
	if (c.delivered || c.answers == 0) && !isClosed(c.settled) {
		close(c.settled)
	}

	switch {
	case p.calls[c.id] != c:
	case c.delivered && c.run == "":
		p.remove(c)
	case !slices.Contains(p.lost, c):
		p.lose(c, now)
	}
}

// forget removes a call.
func (p *repeats) forget(c *loneCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(c)
}

// lose keeps a call for a repeat. p is locked.
func (p *repeats) lose(c *loneCall, now time.Time) {
	c.until = now.Add(lostLife)
	c.bytes = len(c.r.Value) + len(c.r.Error)
	for _, b := range c.r.Content {
		c.bytes += len(b.Text) + len(b.Data) + len(b.URI)
	}
	p.bytes += c.bytes
	p.lost = append(p.lost, c)
	p.shrink(c)

	own, oldest := 0, (*loneCall)(nil)
	for _, other := range p.lost {
		if other.id.session == c.id.session {
			if own++; oldest == nil {
				oldest = other
			}
		}
	}
	if own > maxLostSession {
		p.remove(oldest)
	}
	for len(p.lost) > maxLost || p.bytes > maxLostBytes && p.lost[0] != c {
		p.remove(p.lost[0])
	}
}

// shrink drops an answer that is too large to be kept, once nobody waits for it. p is
// locked.
func (p *repeats) shrink(c *loneCall) {
	if c.callers > 0 || c.bytes <= maxLostAnswer {
		return
	}
	p.bytes -= c.bytes
	c.r, c.large, c.bytes = abi.Result{Kind: c.r.Kind}, c.bytes, 0
}

// expire removes the lost calls that are too old. p is locked.
func (p *repeats) expire(now time.Time) {
	for len(p.lost) > 0 && now.After(p.lost[0].until) {
		p.remove(p.lost[0])
	}
}

// remove removes a call. Those that wait for it still get its answer. p is locked.
func (p *repeats) remove(c *loneCall) {
	if p.calls[c.id] == c {
		delete(p.calls, c.id)
	}
	if i := slices.Index(p.lost, c); i >= 0 {
		p.lost = slices.Delete(p.lost, i, i+1)
		p.bytes -= c.bytes
	}
}
