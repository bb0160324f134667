package host

import "time"

// Limits of a call whose policy says nothing.
const (
	DefaultFuel    = 100_000_000_000   // units, some 20 to 100 seconds of computing
	DefaultMemory  = 64 << 20          // bytes of linear memory
	DefaultOutput  = 8 << 20           // bytes written to all streams together
	DefaultTimeout = 120 * time.Second // from when it was asked for: waiting counts
)

// The largest limits of a call. A memory of 4 GiB has one page more, and a length
// that does not fit into the 32 bits wazero counts it with.
const (
	MaxFuel   = 1 << 62
	MaxMemory = 4<<30 - 64<<10 // bytes of linear memory: 65,535 pages
)

// Policy says what one call may use and touch. The zero Policy has the default
// limits and grants nothing: no folder, no environment, no clock (time stands at
// the start of 2022 and moves only as the plugin sleeps or reads it) and no
// randomness (a fixed sequence). Under it a call depends on nothing but the module
// and its arguments. A negative limit is the smallest.
type Policy struct {
	Fuel    int64         // units; 0 is DefaultFuel
	Memory  int64         // bytes of linear memory, MaxMemory at most; 0 is DefaultMemory
	Output  int64         // bytes written to all streams; 0 is DefaultOutput
	Timeout time.Duration // wall time, waiting included; 0 is DefaultTimeout

	Grant
}

// withDefaults fills in the limits left open.
func (p Policy) withDefaults() Policy {
	p.Fuel = limit(p.Fuel, DefaultFuel, MaxFuel)
	p.Memory = limit(p.Memory, DefaultMemory, MaxMemory)
	p.Output = limit(p.Output, DefaultOutput, 1<<40)
	p.Timeout = limit(p.Timeout, DefaultTimeout, 1<<62)
	return p
}

func limit[T ~int | ~int64](n, zero, most T) T {
	if n == 0 {
		return zero
	}
	return min(max(n, 1), most)
}
