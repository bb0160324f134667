package sched

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// GuestOptions describe a guest.
type GuestOptions struct {
	Client     string          // client that the guest belongs to: clients take turns
	Background bool            // whether it is a background run, with a lower priority than direct calls
	Stopping   <-chan struct{} // closed to ask the guest to stop: it then goes before other background runs
}

// Guest is the guest of one call, as the scheduler sees it. It is used by one
// goroutine at a time.
type Guest struct {
	GuestOptions
	s   *Scheduler
	ctx context.Context

	background atomic.Bool
	hurried    bool // whether it was asked to stop while it waited

	urgency urgency       // urgency of its last request for a slot
	used    time.Duration // computing time up to since
	since   time.Duration // start of its current slot
	ended   time.Duration // last return of its slot by Idle
	until   time.Duration // time until which it keeps its slot, even if others wait
	polled  time.Duration // last time it let other goroutines run

	// The mutex of the scheduler guards the rest.
	state  guestState
	slot   chan struct{} // closed when it gets a slot; new for each wait
	came   time.Duration // start of its current wait
	waited time.Duration // total of its finished waits
	lent   time.Duration // when it began to lend its slot
	away   time.Duration // part of used during which it lent its slot
	marked bool          // it was lending when revoke last ran
}

// guestState is a guest's share of the processors.
type guestState int

const (
	guestIdle    guestState = iota // no slot
	guestWaiting                   // waiting for a slot
	guestRunning                   // holds a slot
	guestLending                   // holds a slot that may be taken away
)

// Init makes a zero Guest a guest of the scheduler. The guest stops waiting when ctx is done.
func (s *Scheduler) Init(g *Guest, ctx context.Context, o GuestOptions) {
	g.s, g.ctx, g.GuestOptions = s, ctx, o
	g.background.Store(o.Background)
}

// Background makes the guest count as a background run from its next quantum on.
func (g *Guest) Background() { g.background.Store(true) }

// IsBackground reports whether the guest counts as a background run.
func (g *Guest) IsBackground() bool { return g.background.Load() }

// Compute waits until the guest may compute. It reports false if ctx ended first.
func (g *Guest) Compute() bool { return g.enter() || g.wait() }

// wait waits for the slot that the guest has requested.
func (g *Guest) wait() bool {
	stopping := g.Stopping
	for {
		select {
		case <-g.slot:
			return true
		case <-stopping:
			stopping = nil
			g.hurry()
		case <-g.ctx.Done():
			g.Idle()
			return false
		}
	}
}

// enter takes a free slot, and reports whether there was one. If not, the guest waits
// for g.slot.
func (g *Guest) enter() bool {
	s := g.s
	s.mu.Lock()
	defer s.unlock()

	now := s.now()
	if s.taken >= s.slots {
		s.resize()
		s.dispatch(now)
	}
	if s.taken < s.slots {
		s.grant(g, now)
		return true
	}
	s.waits++
	s.wait(g, now)
	return false
}

// hurry makes a waiting guest go before background runs: it was asked to stop, and
// has to compute to do so.
func (g *Guest) hurry() {
	s := g.s
	s.mu.Lock()
	defer s.unlock()

	if g.state == guestWaiting {
		s.remove(g)
		g.hurried = true
		g.urgency = g.class()
		s.waiting[g.urgency].push(g)
	}
}

// Idle gives back the slot that Compute got. It may be called while another goroutine
// waits in Compute.
func (g *Guest) Idle() {
	s := g.s
	s.mu.Lock()
	defer s.unlock()

	now := s.now()
	switch g.ended = now; g.state {
	case guestIdle:
		return
	case guestWaiting:
		s.remove(g)
		s.hasWaited(g, now)
	default:
		s.release(g, now)
	}
	g.state = guestIdle
	s.dispatch(now)
}

// GiveWay lets other guests compute if it is their turn, and lets other goroutines of
// the process run if no processor is left for them. Call it at each refill: unless all
// slots are taken, it only checks one variable.
func (g *Guest) GiveWay() {
	if !g.yield() {
		g.wait()
	}
}

// yield is like GiveWay, but does not wait. It reports whether the guest keeps its slot.
func (g *Guest) yield() bool {
	s := g.s
	if !s.Full() {
		return true
	}

	now := s.now()
	if s.givesWay(g, now) {
		return g.requeue(now)
	}

	if now-g.polled >= pollEvery && s.crowded.Load() {
		g.polled = now
		runtime.Gosched()
	}
	return true
}

func (g *Guest) requeue(now time.Duration) bool {
	s := g.s
	s.mu.Lock()
	defer s.unlock()

	if g.state != guestRunning || !s.givesWay(g, now) {
		return true // its call has ended, or another guest has given way
	}

	s.resize()
	s.release(g, now)
	s.wait(g, now)
	s.dispatch(now)
	if g.state == guestWaiting {
		s.waits++
	}
	return g.state == guestRunning
}

// Lend lets other guests compute while a host function waits: call Lend before the
// function, and Reclaim after it. Both may be called even if the guest is not computing.
func (g *Guest) Lend() {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()

	if g.state == guestRunning {
		g.state, g.marked, g.lent = guestLending, false, g.s.now()
		s.lent = append(s.lent, g)
		s.scheduleRevoke()
	}
}

// Reclaim takes the slot back after Lend, and waits for a new one if it was taken away.
func (g *Guest) Reclaim() {
	if !g.reclaim() {
		g.Compute()
	}
}

func (g *Guest) reclaim() bool {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()

	if g.state == guestLending {
		g.s.unlend(g, g.s.now())
	}
	return g.state == guestRunning
}

func (s *Scheduler) unlend(g *Guest, now time.Duration) {
	g.away += now - g.lent
	i := slices.Index(s.lent, g)
	s.lent = slices.Delete(s.lent, i, i+1)
	g.state = guestRunning
}

// Usage returns how long the guest computed and how long it waited to compute, up to its
// last Idle, and the time of that Idle, which is zero if there was none. Lending does not
// count as computing.
func (g *Guest) Usage() (computed, waited time.Duration, ended time.Time) {
	if g.ended > 0 {
		ended = g.s.began.Add(g.ended)
	}
	return g.used - g.away, g.waited, ended
}

// UsageSoFar is like Usage, but up to now, and any goroutine may call it.
func (g *Guest) UsageSoFar() (computed, waited time.Duration) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()

	now := g.s.now()
	computed, waited = g.used-g.away, g.waited
	switch g.state {
	case guestWaiting:
		waited += now - g.came
	case guestRunning:
		computed += now - g.since
	case guestLending:
		computed += g.lent - g.since
	}
	return computed, waited
}

// class returns the urgency of a guest, from what it has done so far.
func (g *Guest) class() urgency {
	switch {
	case g.background.Load() && !g.hurried:
		return backgroundRuns
	case g.background.Load() || g.used >= briefMost:
		return directCalls
	}
	return briefCalls
}
