// Package sched decides which guests compute. It has a slot for each processor, and a
// guest computes only while it holds a slot. All others are blocked, invisible to Go's
// own scheduler, so the goroutines that answer requests and stop runs never queue
// behind more guests than there are processors.
package sched

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// quantum is how long a guest computes before it yields to a waiting guest
	// of its own level.
	quantum = 10 * time.Millisecond
	// briefMost is how long a direct call computes at the most urgent level.
	briefMost = 50 * time.Millisecond
	// leastShare is how long the levels above a waiting one compute for each
	// quantum that it is guaranteed.
	leastShare = 9 * quantum
	// pollEvery is how long a guest computes before it lets other goroutines run.
	pollEvery = time.Millisecond
	// lendFor is how long a guest that waits in a host function keeps its slot; it
	// may be up to twice that.
	lendFor = time.Millisecond
)

// urgency is the priority of a guest: the lowest goes first.
type urgency int32

const (
	briefCalls     urgency = iota // direct calls that have computed for less than briefMost
	directCalls                   // other direct calls, and runs that were asked to stop
	backgroundRuns                // background runs
	urgencies
)

// Scheduler assigns the slots to guests.
//
// More urgent guests go first, and less urgent ones yield to them at their next
// refill of fuel. A waiting level still gets a tenth of the time of the levels
// above it. Within a level clients take turns, and so do the guests of a client, a
// quantum each.
//
// Times are measured from when the scheduler was made. The scheduler is safe for concurrent
// use; each guest is used by one goroutine at a time.
type Scheduler struct {
	count func() int // returns the number of processors, which may change
	began time.Time

	// Checked by guests at each refill, without the mutex.
	full    atomic.Bool  // all slots are taken
	urgent  atomic.Int32 // the lowest waiting urgency, or urgencies
	crowded atomic.Bool  // whether guests can take all processors that Go has

	mu       sync.Mutex
	slots    int
	taken    int
	waiting  [urgencies]queue
	passed   [urgencies]time.Duration // how long levels above computed while this one waited
	lent     []*Guest                 // guests that lend their slots
	revoking bool                     // whether revoke is scheduled

	waits    int64         // number of waits begun
	waitTime time.Duration // total of finished waits
}

// New returns a scheduler with as many slots as count returns.
func New(count func() int) *Scheduler {
	s := &Scheduler{count: count, began: time.Now()}
	s.mu.Lock()
	defer s.unlock()
	s.resize()
	return s
}

// Full reports whether all slots are taken.
func (s *Scheduler) Full() bool { return s.full.Load() }

// resize adapts the number of slots to the current number of processors.
func (s *Scheduler) resize() {
	s.slots = s.count()
	s.crowded.Store(s.slots >= runtime.GOMAXPROCS(0))
}

func (s *Scheduler) now() time.Duration { return time.Since(s.began) }

// unlock updates the variables that guests check without the mutex, and unlocks it.
func (s *Scheduler) unlock() {
	if full := s.taken >= s.slots; full != s.full.Load() {
		s.full.Store(full)
	}
	if most := int32(s.mostUrgent()); most != s.urgent.Load() {
		s.urgent.Store(most)
	}
	s.mu.Unlock()
}

// givesWay reports whether a guest has to let others compute.
func (s *Scheduler) givesWay(g *Guest, now time.Duration) bool {
	urgent := urgency(s.urgent.Load())
	if now-g.since >= quantum {
		return urgent < urgencies
	}
	return urgent < g.urgency && now >= g.until
}

// scheduleRevoke schedules revoke if it has work. The mutex must be held, as for the
// methods below that do not lock it.
func (s *Scheduler) scheduleRevoke() {
	if len(s.lent) > 0 && !s.revoking && s.mostUrgent() < urgencies {
		s.revoking = true
		time.AfterFunc(lendFor, s.revoke)
	}
}

// revoke takes the slots of guests that have been in a host function since its
// last run.
func (s *Scheduler) revoke() {
	s.mu.Lock()
	defer s.unlock()

	s.revoking = false
	now := s.now()

	for _, g := range slices.Clone(s.lent) {
		if g.marked {
			s.release(g, now)
			g.state = guestIdle
		}
		g.marked = true
	}
	s.dispatch(now)
	s.scheduleRevoke()
}

// grant gives a slot to a guest.
func (s *Scheduler) grant(g *Guest, now time.Duration) {
	s.taken++
	g.state = guestRunning
	g.since, g.until, g.polled = now, now, now
	g.urgency = g.class()
}

// release takes the slot of a guest away.
func (s *Scheduler) release(g *Guest, now time.Duration) {
	if g.state == guestLending {
		s.unlend(g, now)
	}
	s.taken--

	spent := now - g.since
	g.used += spent
	for l := g.urgency + 1; l < urgencies; l++ {
		if len(s.waiting[l].guests) > 0 {
			s.passed[l] += spent
		}
	}
}

// hasWaited counts a finished wait.
func (s *Scheduler) hasWaited(g *Guest, now time.Duration) {
	g.waited += now - g.came
	s.waitTime += now - g.came
}

// wait queues a guest.
func (s *Scheduler) wait(g *Guest, now time.Duration) {
	g.state, g.came, g.slot = guestWaiting, now, make(chan struct{})
	g.urgency = g.class()
	s.waiting[g.urgency].push(g)
	s.scheduleRevoke()
}

// remove takes a guest out of the queue.
func (s *Scheduler) remove(g *Guest) {
	l := g.urgency
	if s.waiting[l].remove(g); len(s.waiting[l].guests) == 0 {
		s.passed[l] = 0
	}
}

// dispatch gives free slots to guests that wait.
func (s *Scheduler) dispatch(now time.Duration) {
	for s.taken < s.slots {
		l, certain := s.next()
		if l == urgencies {
			return
		}
		g := s.waiting[l].next()
		s.passed[l] = 0

		s.hasWaited(g, now)
		s.grant(g, now)
		if g.urgency = l; certain {
			g.until = now + quantum
		}
		close(g.slot)
	}
}

// next returns the level to serve, or urgencies if nobody waits. certain
// reports that it is served because of its guaranteed share.
func (s *Scheduler) next() (l urgency, certain bool) {
	most := s.mostUrgent()
	for l := urgencies - 1; l > most; l-- {
		if s.passed[l] >= leastShare && len(s.waiting[l].guests) > 0 {
			return l, true
		}
	}
	return most, false
}

func (s *Scheduler) mostUrgent() urgency {
	for l := range urgencies {
		if len(s.waiting[l].guests) > 0 {
			return l
		}
	}
	return urgencies
}

// queue holds the waiting guests of a level, in the order they came. The next one
// belongs to the client that was served longest ago.
type queue struct {
	guests []*Guest
	served map[string]int // when a client was last served, as a number of turns
	turns  int
}

// servedMost is how many clients a queue remembers while it is not empty.
const servedMost = 10_000

func (q *queue) push(g *Guest) {
	if q.served == nil {
		q.served = map[string]int{}
	}
	if _, known := q.served[g.Client]; !known { // behind all others
		q.served[g.Client] = q.turns
	}
	q.guests = append(q.guests, g)
}

func (q *queue) remove(g *Guest) {
	i := slices.Index(q.guests, g)
	q.guests = slices.Delete(q.guests, i, i+1)
	if len(q.guests) == 0 || len(q.served) > servedMost {
		clear(q.served)
	}
}

// next removes and returns the guest to serve. There must be one.
func (q *queue) next() *Guest {
	next := q.guests[0]
	for _, g := range q.guests[1:] {
		if q.served[g.Client] < q.served[next.Client] {
			next = g
		}
	}

	q.turns++
	q.served[next.Client] = q.turns
	q.remove(next)
	return next
}

// Stats are statistics about the calls that are computing. From when a call gets an
// instance until it ends, it has a processor or waits for one, except while its guest
// sleeps or waits for an answer.
type Stats struct {
	Computing int           `json:"computing"` // calls with a processor
	Waiting   int           `json:"waiting"`   // calls waiting for a processor
	Waited    int64         `json:"waited"`    // number of waits
	WaitTime  time.Duration `json:"wait_ns"`   // total of finished waits
}

// Stats returns the current statistics.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()

	stats := Stats{Computing: s.taken, Waited: s.waits, WaitTime: s.waitTime}
	for l := range urgencies {
		stats.Waiting += len(s.waiting[l].guests)
	}
	return stats
}
