// Package fuel rewrites WebAssembly modules so that they meter themselves and
// can be stopped, and accounts for the fuel of each call.
//
// The rewritten module subtracts the price of the code that it runs from a
// counter. Where a path can repeat (loops, recursion) it checks whether the
// counter is below zero. If so, it calls a host function, which grants the next
// slice of the budget or ends the call. An exhausted budget, a deadline, a stop
// and a shutdown all take effect at that call. The call is also a safepoint for
// Go's garbage collector, which cannot preempt compiled WebAssembly.
//
// The guest can neither name nor reach the counter: the names this package adds
// are refused in a guest, and every index is checked against the module as it
// was before the counter was added to it.
//
// RATIONALE.md rewrites a function as an example. place.go explains where charges go, likely.go which paths run
// rarely, and calls.go what happens between functions. branch.go and emit.go explain the shapes of the emitted
// code: wazero's compiler turns them into good machine code.
//
// # What is exact
//
// The fuel of a call that returns is the price of the operators that it executed, wherever the
// charges are placed. A call ends with [ErrExhausted] if and only if that price exceeds its
// budget. A call that ends in another way (a trap, an exit, a stop) may have paid for operators
// that it did not reach, or not yet have paid for some that it executed. These are a few in
// each function or, where a function keeps the counter in a local, all since the last slice.
// Except for stops, the same call with the same program and budget always uses the same amount
// of fuel.
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
