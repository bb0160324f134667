package sched

import (
	"container/list"
	"context"
	"sync/atomic"
	"time"
)

// Guest is the guest of one call, as the scheduler sees it. It is used by one
// goroutine at a time.
type Guest struct {
	s        *Scheduler
	ctx      context.Context
	client   string
	stopping <-chan struct{} // asks it to stop; nil never does
	nested   bool            // its call was made within another: it never waits

	background atomic.Bool
	hurried    bool // it was asked to stop while it waited

	urgency urgency       // when it last asked for a slot
	used    time.Duration // it has computed, up to since
	since   time.Duration // it computes
	until   time.Duration // it keeps its slot, whoever waits
	polled  time.Duration // it last let other goroutines run

	// The mutex of the scheduler guards the rest.
	state  guestState
	slot   chan struct{} // closed when it gets a slot; made anew for each wait
	came   time.Duration // it waits
	marked bool          // it lent its slot before revoke last ran
	turn   *rotating     // that it waits for, or has; nil if it did not have to wait
	at     *list.Element // there, while it waits
}

// guestState is what a guest holds of the processors.
type guestState int

const (
	guestIdle    guestState = iota // no slot
	guestWaiting                   // no slot yet
	guestRunning                   // a slot
	guestLending                   // a slot that may be taken away
)

// GuestOptions describe a guest.
type GuestOptions struct {
	Client     string          // that it takes turns for
	Background bool            // others go first
	Nested     bool            // a guest that waits for this one has a slot: it must not wait
	Stopping   <-chan struct{} // asks it to stop: it goes before other background runs then
}

// Init makes a zero Guest one of the scheduler, which waits no longer than ctx.
func (s *Scheduler) Init(g *Guest, ctx context.Context, o GuestOptions) {
	g.s, g.ctx, g.client, g.nested, g.stopping = s, ctx, o.Client, o.Nested, o.Stopping
	g.background.Store(o.Background)
}

// Background has the guest count as a background run from its next quantum on.
func (g *Guest) Background() { g.background.Store(true) }

// Compute waits until the guest may compute. It is false if ctx has ended first.
func (g *Guest) Compute() bool { return g.s.enter(g) || g.wait() }

// Idle gives back what Compute got.
func (g *Guest) Idle() { g.s.leave(g) }

// GiveWay lets other guests compute if it is their turn. It is for each refill,
// and costs the check of one variable unless all slots are taken.
func (g *Guest) GiveWay() {
	if !g.s.yield(g) {
		g.wait()
	}
}

// Lend is called before a function that may wait for long, and Reclaim after it:
// others compute meanwhile. Both may be called where the guest does not compute.
func (g *Guest) Lend() { g.s.lend(g) }

// Reclaim ends Lend.
func (g *Guest) Reclaim() {
	if !g.s.reclaim(g) {
		g.Compute()
	}
}

// wait waits for the slot that the guest has asked for. One that is asked to stop
// meanwhile goes before others, since it has to compute to do so.
func (g *Guest) wait() bool {
	stopping := g.stopping
	for {
		select {
		case <-g.slot:
			return true
		case <-stopping:
			stopping = nil
			g.s.hurry(g)
		case <-g.ctx.Done():
			g.Idle()
			return false
		}
	}
}

// class is the urgency of a guest by what it has done so far.
func (g *Guest) class() urgency {
	switch {
	case g.background.Load() && !g.hurried:
		return backgroundRuns
	case g.background.Load() || g.used >= briefMost:
		return directCalls
	}
	return briefCalls
}
