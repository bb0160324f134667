package host

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/egress"
)

// A Caller is a running call that calls other tools: see [Call.Caller]. The called
// tools use its slots, its fuel and its time. Several of them can run concurrently,
// even while the guest of the Caller computes.
type Caller struct {
	call *call
	// Of the first call only: what it and those that begin with it do over HTTP.
	traffic  atomic.Pointer[egress.Shared] // nil before the first request
	attempts atomic.Int64

	mu      sync.Mutex
	fuel    int64 // that the calls may use together, by what the guest had when it said so last
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

// left is the fuel that another inner call may use.
func (r *Caller) left() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(1, r.rest()) // 0 would be the default
}

// rest is the fuel that inner calls have not used yet. The mutex must be held.
func (r *Caller) rest() int64 {
	rest := r.fuel - r.spent
	for _, c := range r.running {
		rest -= c.fuelSoFar()
	}
	return rest
}

// overdrawn reports whether the calls that run with this one, and those that wait for it,
// have used up together what there was. By itself none of them can tell.
func (r *Caller) overdrawn() bool {
	for ; r != nil; r = r.call.Caller {
		r.mu.Lock()
		over := len(r.running) > 0 && r.rest() < 0
		r.mu.Unlock()
		if over {
			return true
		}
	}
	return false
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
	memory := r.memory + used.MemoryPeak
	for _, one := range r.running {
		memory += one.meter.live.peak.Load()
	}
	r.ended.MemoryPeak = max(r.ended.MemoryPeak, memory)
}

// owe has the guest owe what a call has used that was made apart.
func (r *Caller) owe(used abi.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent += used.Fuel
	r.ended.Fuel += used.Fuel
	r.ended.CPU += used.CPU
}

// unpaid is the fuel of calls that have ended, which the guest has not paid for yet: a
// guest that has to end never does.
func (r *Caller) unpaid() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent
}

// pay has the guest pay for the calls that have ended.
func (r *Caller) pay() {
	r.mu.Lock()
	owed := r.spent
	r.spent = 0 // not counted twice by calls that run meanwhile
	r.mu.Unlock()

	paid := false
	defer func() {
		if !paid {
			r.mu.Lock()
			r.spent += owed
			r.mu.Unlock()
		}
	}()
	r.call.meter.pay(owed)
	paid = true
}

// fuelSoFar is what the calls have used that the guest has not paid for.
func (r *Caller) fuelSoFar() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := r.spent
	for _, c := range r.running {
		used += c.fuelSoFar()
	}
	return used
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

	memory := r.memory
	for _, c := range r.running {
		used := c.usedSoFar()
		u.Fuel += used.Fuel
		u.CPU += used.CPU
		memory += used.MemoryPeak
	}
	u.MemoryPeak = max(u.MemoryPeak, memory)
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

// BusyError says why a call made by another call was refused: it would wait for a third
// call, which might never end.
type BusyError struct{ Why string }

func (e *BusyError) Error() string { return e.Why }
