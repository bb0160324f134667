package host

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/egress"
)

// A Caller is a running call that calls other tools: see [Call.Caller]. It waits for
// them, and they use its slots, its fuel and its time.
type Caller struct {
	call *call
	// Of the first call only: what it and those that begin with it do over HTTP.
	traffic  atomic.Pointer[egress.Shared] // nil before the first request
	attempts atomic.Int64

	mu      sync.Mutex
	fuel    int64 // that the calls may use until the guest continues
	memory  int64 // that the guest has meanwhile, in bytes
	made    int   // calls that begin with this one; only counted where nobody waits for it
	running []*call
	spent   int64     // fuel of calls that have ended, which the guest has not paid for yet
	ended   abi.Usage // of all calls that have ended: their fuel, processor time and memory
}

// shared is what the calls that begin with this one have in common.
func (r *Caller) shared() *egress.Shared {
	if r.traffic.Load() == nil {
		r.traffic.CompareAndSwap(nil, new(egress.Shared))
	}
	return r.traffic.Load()
}

// outer is the call that waits for this one, or nil.
func (c *call) outer() *call {
	if c.Caller == nil {
		return nil
	}
	return c.Caller.call
}

// first is the call at which those that wait for each other begin.
func (r *Caller) first() *Caller {
	for r.call.Caller != nil {
		r = r.call.Caller
	}
	return r
}

// depth is how many calls wait for this one.
func (r *Caller) depth() (n int) {
	for o := r.call.outer(); o != nil; o = o.outer() {
		n++
	}
	return n
}

// count counts one more call that begins with this one, and reports whether it may be made.
func (r *Caller) count() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	return r.made <= abi.MaxToolCalls
}

// allow lets inner calls use so much fuel, while the guest has so much memory.
func (r *Caller) allow(fuel, memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fuel, r.memory = fuel, memory
}

// left is the fuel that an inner call may use.
func (r *Caller) left() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(1, r.fuel-r.spent) // 0 would be the default
}

// enter begins an inner call.
func (r *Caller) enter(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, c)
	if r.call.guest.IsBackground() {
		c.guest.Background()
	}
}

// leave ends an inner call.
func (r *Caller) leave(c *call) {
	used := c.usage()
	r.mu.Lock()
	defer r.mu.Unlock()

	r.running = slices.DeleteFunc(r.running, func(one *call) bool { return one == c })
	r.spent += used.Fuel
	r.ended.Fuel += used.Fuel
	r.ended.CPU += used.CPU
	r.ended.MemoryPeak = max(r.ended.MemoryPeak, r.memory+used.MemoryPeak)
}

// unpaid is the fuel of calls that have ended, which the guest has not paid for yet: a
// guest that has to end never does.
func (r *Caller) unpaid() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent
}

// paid notes that the guest has paid for so much fuel.
func (r *Caller) paid(fuel int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent -= fuel
}

// background has the guests of inner calls count as background runs.
func (r *Caller) background() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.running {
		c.guest.Background()
		c.inner.background()
	}
}

// total is the fuel and processor time that the inner calls that have ended have used,
// and the most memory that one of them and the guest had together.
func (r *Caller) total() abi.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// addSoFar adds what inner calls use to what the guest itself has used so far.
func (r *Caller) addSoFar(u *abi.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.Fuel += r.spent
	u.CPU += r.ended.CPU
	u.MemoryPeak = max(u.MemoryPeak, r.ended.MemoryPeak)

	for _, c := range r.running {
		used := c.usedSoFar()
		u.Fuel += used.Fuel
		u.CPU += used.CPU
		u.MemoryPeak = max(u.MemoryPeak, r.memory+used.MemoryPeak)
	}
}

// acquireSerial waits for the slot of the session, which only one call of a serial tool
// has at a time. A call that others wait for is refused where they could wait for each
// other forever: for a slot that one of them holds, or while one of them holds any.
func (c *call) acquireSerial() error {
	holds := false
	for o := c.outer(); o != nil; o = o.outer() {
		if o.sessionSlot && o.module == c.module && o.Session == c.Session {
			return &BusyError{"the plugin " + c.Plugin + " runs one call of a session at a time, and the call that waits for this one is of it: this one would wait for itself"}
		}
		holds = holds || o.sessionSlot
	}

	if !holds {
		return c.wait(c.module.serial, c.Session)
	}
	if !c.module.serial.TryAcquire(c.Session) {
		return &BusyError{c.module.serial.full}
	}
	return nil
}

// BusyError says why a call was refused that another call waits for: waiting for a third
// one might not end.
type BusyError struct{ Why string }

func (e *BusyError) Error() string { return e.Why }
