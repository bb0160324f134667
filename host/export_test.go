package host

import (
	"context"

	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/sched"
)

// OnHeap makes a host that was just made keep memories on Go's heap, as one does
// on systems where none are mapped.
func (h *Host) OnHeap() { h.changeLedger(func(c *instance.Config) { c.HeapOnly = true }) }

// Blind makes a host that was just made put memories back without knowing what
// was written to, as one does where the system does not tell.
func (h *Host) Blind() { h.changeLedger(func(c *instance.Config) { c.Pagemap = "/dev/zero" }) }

func (h *Host) changeLedger(change func(*instance.Config)) {
	cfg := h.ledger.Config
	change(&cfg)
	h.ledger.Close()
	h.ledger = instance.NewLedger(cfg)
}

// Expire discards the warm instances, as their age does.
func (h *Host) Expire() { h.ledger.DiscardOlder(0) }

// OnDiscard has a function called while the warm instance of a module is discarded.
func (m *Module) OnDiscard(f func()) {
	c, _ := m.host.begin(context.Background(), m, &Call{})
	defer c.end()
	in := m.account.Snapshot(c.start.view()).Warm(c.meter.Payer)
	release := in.Release
	in.Release = func() {
		f()
		release()
	}
	in.Finish(true)
}

// Processors makes a host that was just made have so many processors for guests.
func (h *Host) Processors(n int) { h.cpus = sched.New(func() int { return n }) }

// TakeProcessors takes all processors that guests have, for guests that give way
// to nobody, until the returned function is called.
func (h *Host) TakeProcessors() (giveBack func()) {
	var guests []*sched.Guest
	for !h.cpus.Full() {
		g := new(sched.Guest)
		h.cpus.Init(g, context.Background(), sched.GuestOptions{})
		g.Compute()
		guests = append(guests, g)
	}

	return func() {
		for _, g := range guests {
			g.Idle()
		}
	}
}

// InnerBackground says of each call that c waits for whether it counts as a background run.
func InnerBackground(c *Caller) (all []bool) {
	for _, inner := range c.Nested() {
		all = append(all, inner.Guest.IsBackground())
	}
	return all
}

// Scripted reports whether the plugin has a script.
func (m *Module) Scripted() bool { return m.Info.Script != nil }
