package host

import (
	"container/list"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// quantum is how long a guest computes before it gives way to one that waits
	// at its own level.
	quantum = 10 * time.Millisecond
	// briefMost is how long a direct call computes at the most urgent level.
	briefMost = 50 * time.Millisecond
	// leastShare is how long the levels above one that waits compute for each
	// quantum that it is certain of.
	leastShare = 9 * quantum
	// pollEvery is how long a guest computes before it lets other goroutines run.
	pollEvery = time.Millisecond
	// lendFor is how long a guest that waits in a host function keeps its slot, at
	// most twice that.
	lendFor = time.Millisecond
)

// urgency is what guests compute by: the lowest goes first.
type urgency int32

const (
	briefCalls     urgency = iota // direct calls that have computed for less than briefMost
	directCalls                   // other direct calls, and runs that were asked to stop
	backgroundRuns                // background runs
	urgencies
)

// processors is a scheduler for guests. It has a slot for each processor, and a guest computes only while it has a slot. All others wait where Go's
// own scheduler does not see them. So the goroutines of the host, which answer
// requests and stop runs, never queue behind more guests than there are
// processors.
//
// A guest of a more urgent level goes first, and a less urgent one gives way to
// it at its next refill. A level that waits still gets a tenth of the time of
// those above it. Within a level clients take turns, and so do the guests of a
// client, a quantum each.
//
// Times are since the scheduler was made. It is safe for concurrent use; each
// guest is used by one goroutine at a time.
type processors struct {
	count func() int // how many there are; it may change
	began time.Time

	// What a guest checks at each refill, without the mutex.
	full    atomic.Bool  // all slots are taken
	urgent  atomic.Int32 // the lowest urgency that waits, or urgencies
	crowded atomic.Bool  // guests can take all processors that Go has

	mu       sync.Mutex
	slots    int
	taken    int // more than slots while calls run within calls
	waiting  [urgencies]rotation
	passed   [urgencies]time.Duration // how long levels above computed while this one waited
	lent     []*guest                 // those in guestLends
	revoking bool                     // revoke was scheduled

	waits    int64         // that have begun
	waitTime time.Duration // of those that have ended
}

// guest is the guest of one call, as the scheduler sees it.
type guest struct {
	client     string
	background atomic.Bool
	hurried    bool // it was asked to stop

	urgency urgency       // when it last asked for a slot
	used    time.Duration // it has computed, up to since
	since   time.Duration // it computes
	until   time.Duration // it keeps its slot, whoever waits
	polled  time.Duration // it last let other goroutines run

	// What follows is guarded by the mutex of processors.
	state  guestState
	slot   chan struct{} // closed when it gets a slot; made anew for each wait
	came   time.Duration // it waits
	marked bool          // it lent its slot before revoke was last here
	turn   *rotating     // that it waits for, or has; nil if it did not have to wait
	at     *list.Element // there, while it waits
}

// guestState is what a guest has of the processors.
type guestState int

const (
	guestIdle    guestState = iota // no slot
	guestWaiting                   // no slot yet
	guestRuns                      // a slot
	guestLends                     // a slot that may be taken away
)

func newProcessors(count func() int) *processors {
	p := &processors{count: count, began: time.Now()}
	p.resize()
	p.publish()
	return p
}

// resize has as many slots as there are processors now.
func (p *processors) resize() {
	p.slots = p.count()
	p.crowded.Store(p.slots >= runtime.GOMAXPROCS(0))
}

func (p *processors) now() time.Duration { return time.Since(p.began) }

// enter takes a slot for a guest that has none, and reports whether there was
// one. If not, the guest waits for g.slot. One that must not wait gets a slot in
// any case.
func (p *processors) enter(g *guest, mustNotWait bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.publish()

	now := p.now()
	if p.taken >= p.slots {
		p.resize()
		p.dispatch(now)
	}
	if p.taken < p.slots || mustNotWait {
		p.grant(g, now)
		return true
	}
	p.waits++
	p.wait(g, now)
	return false
}

// hurry has a guest that waits go before other background runs: it was asked to
// stop, and has to compute to do so.
func (p *processors) hurry(g *guest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.publish()

	if g.state == guestWaiting {
		p.remove(g)
		g.hurried = true
		g.urgency = g.class()
		p.waiting[g.urgency].push(g)
	}
}

// leave gives back the slot of a guest, or its place in the queue.
func (p *processors) leave(g *guest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.publish()

	now := g.since
	if p.mostUrgent() < urgencies { // else nobody asks how long it has computed
		now = p.now()
	}
	switch g.state {
	case guestIdle:
		return
	case guestWaiting:
		p.remove(g)
		p.waitTime += now - g.came
	default:
		p.release(g, now)
	}
	g.state = guestIdle
	p.dispatch(now)
}

// yield is called by a guest at each refill. It takes the slot away if the guest
// has to give way, and lets other goroutines of the process run where no processor
// is left to them. It reports whether the guest has its slot. If not, it waits for
// g.slot.
//
// It costs a look at one variable unless all slots are taken.
func (p *processors) yield(g *guest) bool {
	if !p.full.Load() {
		return true
	}
	now := p.now()
	if p.givesWay(g, now) {
		return p.requeue(g, now)
	}
	if now-g.polled >= pollEvery && p.crowded.Load() {
		g.polled = now
		runtime.Gosched()
	}
	return true
}

// givesWay reports whether a guest has to let others compute.
func (p *processors) givesWay(g *guest, now time.Duration) bool {
	urgent := urgency(p.urgent.Load())
	if now-g.since >= quantum {
		return urgent < urgencies
	}
	return urgent < g.urgency && now >= g.until
}

func (p *processors) requeue(g *guest, now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.publish()

	if g.state != guestRuns || !p.givesWay(g, now) {
		return true // its call has ended, or another guest has given way
	}
	p.resize()
	turn := g.turn
	g.turn = nil
	p.release(g, now)
	p.wait(g, now)
	turn.done() // after it waits for the next one: its client keeps its place among the others
	p.dispatch(now)
	if g.state == guestWaiting {
		p.waits++
	}
	return g.state == guestRuns
}

// lend lets others have the slot of a guest that enters a host function, if it
// stays there for long.
func (p *processors) lend(g *guest) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if g.state == guestRuns {
		g.state, g.marked = guestLends, false
		p.lent = append(p.lent, g)
		p.scheduleRevoke()
	}
}

// reclaim ends lend. It reports whether the guest still has its slot.
func (p *processors) reclaim(g *guest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	if g.state == guestLends {
		p.unlend(g)
	}
	return g.state == guestRuns
}

func (p *processors) unlend(g *guest) {
	i := slices.Index(p.lent, g)
	p.lent = slices.Delete(p.lent, i, i+1)
	g.state = guestRuns
}

// scheduleRevoke has revoke called if it has something to do. The mutex must be
// held, as for all below.
func (p *processors) scheduleRevoke() {
	if len(p.lent) > 0 && !p.revoking && p.mostUrgent() < urgencies {
		p.revoking = true
		time.AfterFunc(lendFor, p.revoke)
	}
}

// revoke takes away the slots of guests that have been in a host function since
// the last time.
func (p *processors) revoke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.publish()

	p.revoking = false
	now := p.now()
	for _, g := range slices.Clone(p.lent) {
		if g.marked {
			p.release(g, now)
			g.state = guestIdle
		}
		g.marked = true
	}
	p.dispatch(now)
	p.scheduleRevoke()
}

// grant gives a slot to a guest.
func (p *processors) grant(g *guest, now time.Duration) {
	p.taken++
	g.state = guestRuns
	g.since, g.until, g.polled = now, now, now
	g.urgency = g.class()
}

// release takes the slot of a guest away.
func (p *processors) release(g *guest, now time.Duration) {
	if g.state == guestLends {
		p.unlend(g)
	}
	p.taken--
	g.turn.done()
	g.turn = nil

	spent := now - g.since
	g.used += spent
	for l := g.urgency + 1; l < urgencies; l++ {
		if p.waiting[l].waiting > 0 {
			p.passed[l] += spent
		}
	}
}

// wait queues a guest.
func (p *processors) wait(g *guest, now time.Duration) {
	g.state, g.came, g.slot = guestWaiting, now, make(chan struct{})
	g.urgency = g.class()
	p.waiting[g.urgency].push(g)
	p.scheduleRevoke()
}

// class is the urgency of a guest by what it has done so far.
func (g *guest) class() urgency {
	switch {
	case g.background.Load() && !g.hurried:
		return backgroundRuns
	case g.background.Load() || g.used >= briefMost:
		return directCalls
	}
	return briefCalls
}

// remove takes a guest out of the queue.
func (p *processors) remove(g *guest) {
	l := g.urgency
	if p.waiting[l].remove(g); p.waiting[l].waiting == 0 {
		p.passed[l] = 0
	}
}

// dispatch gives free slots to guests that wait.
func (p *processors) dispatch(now time.Duration) {
	for p.taken < p.slots {
		l, certain := p.next()
		if l == urgencies {
			return
		}
		g := p.waiting[l].next()
		p.passed[l] = 0

		p.waitTime += now - g.came
		p.grant(g, now)
		if g.urgency = l; certain {
			g.until = now + quantum
		}
		close(g.slot)
	}
}

// next is the level whose turn it is, and whether it got it although others are
// more urgent. It is urgencies if nobody waits.
func (p *processors) next() (l urgency, certain bool) {
	most := p.mostUrgent()
	for l := urgencies - 1; l > most; l-- {
		if p.passed[l] >= leastShare && p.waiting[l].waiting > 0 {
			return l, true
		}
	}
	return most, false
}

func (p *processors) mostUrgent() urgency {
	for l := range urgencies {
		if p.waiting[l].waiting > 0 {
			return l
		}
	}
	return urgencies
}

// publish says what guests check without the mutex.
func (p *processors) publish() {
	if full := p.taken >= p.slots; full != p.full.Load() {
		p.full.Store(full)
	}
	if most := int32(p.mostUrgent()); most != p.urgent.Load() {
		p.urgent.Store(most)
	}
}

// ProcessorStats are figures of who computes on a host. A call has a processor,
// or waits for one, from when it has its instance made until it ends, but for the
// time its guest sleeps or waits for an answer.
type ProcessorStats struct {
	Computing int           `json:"computing"` // calls that have a processor
	Waiting   int           `json:"waiting"`   // calls that wait for one
	Waited    int64         `json:"waited"`    // how many times one had to wait
	WaitTime  time.Duration `json:"wait_ns"`   // for how long together, of waits that have ended
}

func (p *processors) stats() ProcessorStats {
	p.mu.Lock()
	defer p.mu.Unlock()

	s := ProcessorStats{Computing: p.taken, Waited: p.waits, WaitTime: p.waitTime}
	for l := range urgencies {
		s.Waiting += p.waiting[l].waiting
	}
	return s
}
