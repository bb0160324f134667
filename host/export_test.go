package host

import (
	"context"

	"github.com/toolhost/toolhost/host/internal/sched"
)

// OnHeap makes a host that was just made keep memories on Go's heap, as one does
// on systems where none are mapped.
func (h *Host) OnHeap() { h.pool.heapOnly = true }

// Blind makes a host that was just made put memories back without looking what
// was written to, as one does where the system does not tell.
func (h *Host) Blind() {
	h.pool.written.close()
	h.pool.written = openPagemap("/dev/zero")
}

// Sees reports whether the system tells what was written to.
func (h *Host) Sees() bool { return h.pool.written.file != nil }

// Expire discards the warm instances, as their age does.
func (h *Host) Expire() { h.pool.discardWhile(func(*instance) bool { return true }) }

// OnDiscard has a function called while each of the warm instances there are is
// discarded.
func (h *Host) OnDiscard(f func()) {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	for e := h.pool.idle.Front(); e != nil; e = e.Next() {
		in := e.Value.(*instance)
		release := in.release
		in.release = func() {
			f()
			release()
		}
	}
}

// Processors makes a host that was just made have so many processors for guests.
func (h *Host) Processors(n int) { h.cpus = sched.New(func() int { return n }) }

// TakeProcessors takes all processors that guests have, for guests that give way
// to nobody, until the returned function is called.
func (h *Host) TakeProcessors() (giveBack func()) {
	var guests []*sched.Guest
	for !h.cpus.Full() {
		g := h.cpus.Guest(context.Background(), sched.GuestOptions{})
		g.Compute()
		guests = append(guests, g)
	}

	return func() {
		for _, g := range guests {
			g.Idle()
		}
	}
}
