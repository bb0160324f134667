package host

import (
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// live is the usage of a running call, for other goroutines.
type live struct {
	fuel, peak, waited atomic.Int64
}

// observe lets the caller follow the usage of a call and its nested calls, if Call.Used
// is set.
func (c *call) observe() {
	if c.Used != nil || c.Caller != nil { // a nested call shares its caller's fuel
		c.meter.live = new(live)
	}
	if c.Used != nil {
		c.Used(c.usedSoFar)
	}
}

// note records the usage of the call, given what is left on the counter.
func (m *meter) note(left int64) {
	if m.live != nil {
		m.live.fuel.Store(max(0, m.fuel.Used(left)-m.earlier))
		m.live.peak.Store(int64(m.memory.Peak))
	}
}

// fuelSoFar returns the fuel of usedSoFar.
func (c *call) fuelSoFar() int64 { return c.meter.live.fuel.Load() + c.inner.fuelSoFar() }

// usedSoFar returns the usage of the call so far. It is safe for concurrent use.
func (c *call) usedSoFar() abi.Usage {
	l := c.meter.live
	computed, waited := c.guest.UsageSoFar()
	used := abi.Usage{
		Fuel: l.fuel.Load(), CPU: computed, Wall: time.Since(c.started), Wait: time.Duration(l.waited.Load()) + waited, MemoryPeak: l.peak.Load(),
	}
	c.inner.addSoFar(&used)
	return used
}
