// Package fuel rewrites WebAssembly modules so that they count what they execute
// and can be stopped, and keeps the account of one call.
//
// The rewritten module subtracts the price of what it runs from a counter. Where
// a path can repeat (loops, recursion) it checks whether the counter is below
// zero, and then calls a host function that hands out the next slice of the
// budget or ends the call. That one call is where an exhausted budget, a
// deadline, a stop and a shutdown arrive, and it is a safepoint for Go's garbage
// collector, which cannot preempt compiled WebAssembly.
//
// The guest can neither name nor reach the counter: the names this package adds
// are refused in a guest, and every index is checked against the module as it
// was before the counter was added to it.
//
// # An example
//
// This function adds the numbers from n down to 1. One iteration executes nine
// operators, and one more returns the sum.
//
//	(func $sum (param $n i32) (result i32) (local $s i32)
//	  (loop $next
//	    (local.set $s (i32.add (local.get $s) (local.get $n)))
//	    (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
//	  (local.get $s))
//
// Rewritten, it keeps the counter in a local, charges the first iteration and
// the return at its entry, and every other iteration on the back edge, which is
// also where it checks the counter. The way out of the loop charges nothing.
//
//	(func $sum (param $n i32) (result i32) (local $s i32) (local $fuel i64)
//	  (local.set $fuel (i64.sub (global.get $counter) (i64.const 10)))
//	  (loop $next
//	    (local.set $s (i32.add (local.get $s) (local.get $n)))
//	    (if (local.tee $n (i32.sub (local.get $n) (i32.const 1)))
//	      (then
//	        (local.set $fuel (i64.sub (local.get $fuel) (i64.const 9)))
//	        (if (i64.ge_s (local.get $fuel) (i64.const 0)) (then (br $next)))
//	        (local.set $fuel (call $refill (local.get $fuel)))
//	        (br $next))))
//	  (global.set $counter (local.get $fuel))
//	  (local.get $s))
//
// place.go says how the places to charge are found, calls.go what happens
// between functions, and branch.go and emit.go why the code has the shapes it
// has: they are what wazero's compiler makes good machine code of.
//
// # What is exact
//
// The fuel of a call that returns is the price of the operators it has executed,
// whatever is done to place the charges; exceptions that are caught are no
// exception. It ends with [ErrExhausted] if and only if that is more than its
// budget. A call that ends in another way (a trap, an exit, a stop) may have been
// charged for some operators it did not come to, or, where a function held the
// counter in a local, not yet for those since the last slice; the same call with
// the same program and budget always has the same figure, but for stops.
//
// # Use
//
// A host instantiates [Program.Wasm] with a function [ImportModule].[ImportName]
// that calls [Meter.Refill], and reads and sets the exported global [CounterExport]:
//
//	set the counter to 0         before each call into the guest
//	Meter.Refill                 when the guest asks, see there
//	Meter.Charge                 in host functions, for what they cost
//	Meter.Finish, Meter.Used     after the call
//
// A host function that calls back into the guest must ask the meter first
// (Meter.Charge with 0 will do): the rewriter does not see that recursion.
package fuel
