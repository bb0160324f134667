package host

import (
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// live is what other goroutines see of the usage of a call while it runs.
type live struct {
	fuel, peak, waited atomic.Int64
}

// observe lets the caller follow the usage of a call, and of those that it makes, if it
// wants to.
func (c *call) observe() {
	if c.Used != nil || c.Caller != nil { // which shares its fuel with others
		c.meter.live = new(live)
	}
	if c.Used != nil {
		c.Used(c.usedSoFar)
	}
}

// note writes what the call has used, with so much left on the counter.
func (m *meter) note(left int64) {
	if m.live != nil {
		m.live.fuel.Store(max(0, m.fuel.Used(left)-m.earlier))
		m.live.peak.Store(int64(m.memory.Peak))
	}
}

// fuelSoFar is the fuel of usedSoFar.
func (c *call) fuelSoFar() int64 { return c.meter.live.fuel.Load() + c.inner.fuelSoFar() }

// usedSoFar is safe for concurrent use.
func (c *call) usedSoFar() abi.Usage {
	l := c.meter.live
	computed, waited := c.guest.UsageSoFar()
	used := abi.Usage{
		Fuel: l.fuel.Load(), CPU: computed, Wall: time.Since(c.started), Wait: time.Duration(l.waited.Load()) + waited, MemoryPeak: l.peak.Load(),
	}
	c.inner.addSoFar(&used)
	return used
}
