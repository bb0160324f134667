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
// RATIONALE.md rewrites a function as an example. place.go says how the places
// to charge are found, likely.go which ones run rarely, calls.go what happens between functions, and branch.go and
// emit.go why the code has the shapes it has: they are what wazero's compiler makes
// good machine code of.
//
// # What is exact
//
// The fuel of a call that returns is the price of the operators it has executed,
// whatever is done to place the charges. It ends with [ErrExhausted] if and only if that
// is more than its budget. A call that ends in another way (a trap, an exit, a stop) may
// have been charged for some operators it did not come to, or not yet for some that it
// has executed: a few in each function, or, where a function held the counter in a local,
// those since the last slice. The same call with the same program and budget always has
// the same figure, but for stops.
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
