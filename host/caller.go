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
	// Of the outermost call only: HTTP traffic of the whole call tree.
	traffic  atomic.Pointer[egress.Shared] // nil before the first request
	attempts atomic.Int64

	mu      sync.Mutex
	fuel    int64 // units that all calls may use together, as of the guest's last report
	memory  int64 // memory of the guest meanwhile, in bytes
	made    int   // calls in the tree; counted only in the outermost call
	running []*call
	spent   int64     // fuel of finished nested calls that the guest has not paid for yet
	ended   abi.Usage // usage of all finished nested calls: fuel, processor time and memory
}

// shared returns the HTTP traffic that the whole call tree has in common.
func (r *Caller) shared() *egress.Shared {
	if r.traffic.Load() == nil {
		r.traffic.CompareAndSwap(nil, new(egress.Shared))
	}
	return r.traffic.Load()
}

// outer returns the call that waits for this one, or nil.
func (c *call) outer() *call {
	if c.Caller == nil {
		return nil
	}
	return c.Caller.call
}

// first returns the outermost call of the tree.
func (r *Caller) first() *Caller {
	for r.call.Caller != nil {
		r = r.call.Caller
	}
	return r
}

// depth returns how many calls wait for this one.
func (r *Caller) depth() (n int) {
	for o := r.call.outer(); o != nil; o = o.outer() {
		n++
	}
	return n
}

// count counts a nested call against the limit, and reports whether it is allowed.
func (r *Caller) count() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	return r.made <= abi.MaxToolCalls
}

// allow sets the fuel that nested calls may use, and the current memory of the guest.
func (r *Caller) allow(fuel, memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fuel, r.memory = fuel, memory
}

// left returns the fuel that another nested call may use.
func (r *Caller) left() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(1, r.rest()) // 0 would be the default
}

// rest returns the fuel that nested calls have not used yet. The mutex must be held.
func (r *Caller) rest() int64 {
	rest := r.fuel - r.spent
	for _, c := range r.running {
		rest -= c.fuelSoFar()
	}
	return rest
}

// overdrawn reports whether the running nested calls and the calls that wait for them
// have used up their fuel together. None of them can tell by itself.
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

// enter registers a nested call.
func (r *Caller) enter(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, c)
	if r.call.guest.IsBackground() {
		c.guest.Background()
	}
}

// leave removes a finished nested call, and adds its usage to what the guest owes.
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

// owe adds the usage of a detached call to what the guest owes.
func (r *Caller) owe(used abi.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent += used.Fuel
	r.ended.Fuel += used.Fuel
	r.ended.CPU += used.CPU
}

// unpaid returns the fuel of finished calls that the guest has not paid for yet. A
// guest that is ended never pays.
func (r *Caller) unpaid() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent
}

// pay charges the guest for the finished calls.
func (r *Caller) pay() {
	r.mu.Lock()
	owed := r.spent
	r.spent = 0 // so that concurrent calls do not count it twice
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

// fuelSoFar returns the fuel of nested calls that the guest has not paid for.
func (r *Caller) fuelSoFar() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := r.spent
	for _, c := range r.running {
		used += c.fuelSoFar()
	}
	return used
}

// background makes the guests of nested calls count as background runs.
func (r *Caller) background() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.running {
		c.guest.Background()
		c.inner.background()
	}
}

// total returns the fuel and processor time of finished nested calls, and the peak
// memory of the guest together with its nested calls.
func (r *Caller) total() abi.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// addSoFar adds the usage of nested calls to the guest's own usage so far.
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

// acquireSerial waits for the slot of the session, which only one serial call holds at
// a time. A nested call is refused where waiting could deadlock: if one of its callers
// holds that slot, or holds any other serial slot while this one is taken.
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

// BusyError says why a nested call was refused: it would wait for a third call, which
// might never end.
type BusyError struct{ Why string }

func (e *BusyError) Error() string { return e.Why }
