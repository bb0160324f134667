// Package calltree counts the total usage of a call and its nested calls: fuel,
// memory, HTTP requests and the number of calls.
package calltree

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/host/internal/sched"
	"github.com/toolhost/toolhost/internal/egress"
)

// A Caller is a running call, which may call other tools. The called tools use its
// slots, its fuel and its time. Several of them can run concurrently, even while the
// guest of the Caller computes.
type Caller struct {
	Outer   *Caller      // the call that waits for this one; nil if there is none
	Guest   *sched.Guest // guest of the call
	meter   *meter.Meter // usage of the call itself
	started time.Time
	Serial  any // serial slot that it holds; nil if none

	// Used in the outermost call only: HTTP traffic of the whole call tree.
	traffic  atomic.Pointer[egress.Shared] // nil before the first request
	Attempts atomic.Int64

	mu      sync.Mutex
	fuel    int64 // units that all calls may use together, as of the guest's last report
	memory  int64 // memory of the guest at that time, in bytes
	Made    int   // number of nested calls in the tree; counted only in the outermost call
	running []*Caller
	spent   int64     // fuel of finished nested calls that the guest has not paid for yet
	ended   abi.Usage // usage of all finished nested calls: fuel, processor time and memory
}

// Begin begins a call. outer is the call that waits for it, or nil.
func (r *Caller) Begin(outer *Caller, guest *sched.Guest, meter *meter.Meter, started time.Time) {
	r.Outer, r.Guest, r.meter, r.started = outer, guest, meter, started
}

// Shared returns the HTTP usage that all calls of the tree share.
func (r *Caller) Shared() *egress.Shared {
	if r.traffic.Load() == nil {
		r.traffic.CompareAndSwap(nil, new(egress.Shared))
	}
	return r.traffic.Load()
}

// First returns the outermost call of the tree.
func (r *Caller) First() *Caller {
	for r.Outer != nil {
		r = r.Outer
	}
	return r
}

// Nested returns the nested calls that are running.
func (r *Caller) Nested() []*Caller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.running)
}

// Depth returns how many calls wait for this one.
func (r *Caller) Depth() (n int) {
	for o := r.Outer; o != nil; o = o.Outer {
		n++
	}
	return n
}

// Count counts a nested call against the limit, and reports whether it is allowed.
func (r *Caller) Count() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Made++
	return r.Made <= abi.MaxToolCalls
}

// Allow sets the fuel that nested calls may use, and the current memory of the guest.
func (r *Caller) Allow(fuel, memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fuel, r.memory = fuel, memory
}

// Left returns the fuel that another nested call may use.
func (r *Caller) Left() int64 {
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

// Overdrawn reports whether the running nested calls and the calls that wait for them have
// together used more fuel than they may. None of them can tell by itself.
func (r *Caller) Overdrawn() bool {
	for ; r != nil; r = r.Outer {
		r.mu.Lock()
		over := len(r.running) > 0 && r.rest() < 0
		r.mu.Unlock()
		if over {
			return true
		}
	}
	return false
}

// Enter registers a nested call.
func (r *Caller) Enter(c *Caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, c)
	if r.Guest.IsBackground() {
		c.Guest.Background()
	}
}

// Leave removes a finished nested call, and adds its usage to the guest's debt.
func (r *Caller) Leave(c *Caller, used abi.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.running = slices.DeleteFunc(r.running, func(one *Caller) bool { return one == c })
	r.spent += used.Fuel
	r.ended.Fuel += used.Fuel
	r.ended.CPU += used.CPU
	memory := r.memory + used.MemoryPeak
	for _, one := range r.running {
		memory += one.meter.Live.Peak.Load()
	}
	r.ended.MemoryPeak = max(r.ended.MemoryPeak, memory)
}

// Owe adds the usage of a detached call to the guest's debt.
func (r *Caller) Owe(used abi.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent += used.Fuel
	r.ended.Fuel += used.Fuel
	r.ended.CPU += used.CPU
}

// Unpaid returns the fuel of finished calls that the guest has not paid for yet. A guest
// that was ended early never pays.
func (r *Caller) Unpaid() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent
}

// Pay charges the guest for the finished nested calls.
func (r *Caller) Pay() {
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
	r.meter.Pay(owed)
	paid = true
}

// fuelSoFar returns the fuel that UsedSoFar reports.
func (r *Caller) fuelSoFar() int64 { return r.meter.Live.Fuel.Load() + r.unpaidSoFar() }

// unpaidSoFar returns the fuel of nested calls that the guest has not paid for.
func (r *Caller) unpaidSoFar() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := r.spent
	for _, c := range r.running {
		used += c.fuelSoFar()
	}
	return used
}

// Background makes the guests of nested calls count as background runs.
func (r *Caller) Background() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.running {
		c.Guest.Background()
		c.Background()
	}
}

// Total returns the fuel and processor time of finished nested calls, and the peak
// memory of the guest together with its nested calls.
func (r *Caller) Total() abi.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// UsedSoFar returns the usage of the call so far. It is safe for concurrent use.
func (r *Caller) UsedSoFar() abi.Usage {
	l := r.meter.Live
	computed, waited := r.Guest.UsageSoFar()
	used := abi.Usage{
		Fuel: l.Fuel.Load(), CPU: computed, Wall: time.Since(r.started), Wait: time.Duration(l.Waited.Load()) + waited, MemoryPeak: l.Peak.Load(),
	}
	r.addSoFar(&used)
	return used
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
		used := c.UsedSoFar()
		u.Fuel += used.Fuel
		u.CPU += used.CPU
		memory += used.MemoryPeak
	}
	u.MemoryPeak = max(u.MemoryPeak, memory)
}
