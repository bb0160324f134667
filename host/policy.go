package host

import (
	"time"
)

// These are the default limits of a call.
const (
	DefaultFuel    = 100_000_000_000   // units, about 20 to 100 seconds of computing
	DefaultMemory  = 64 << 20          // bytes of linear memory
	DefaultOutput  = 8 << 20           // bytes written to all streams together
	DefaultTimeout = 120 * time.Second // waiting included
)

// These are the largest limits of a call. A memory of 4 GiB would be one page larger,
// and its length would not fit in wazero's 32 bits.
const (
	MaxFuel   = 1 << 62
	MaxMemory = 4<<30 - 64<<10 // bytes of linear memory: 65,535 pages
)

// Policy has the limits and grants of one call. The zero Policy has the default
// limits and grants nothing: no folder, no environment, no clock (time starts in 2022
// and moves only when the plugin sleeps or reads it) and no randomness (a fixed
// sequence). Under it a call depends only on the module and its arguments. A negative
// limit means the smallest one.
type Policy struct {
	Fuel    int64         // units; 0 means DefaultFuel
	Memory  int64         // bytes of linear memory, at most MaxMemory; 0 means DefaultMemory
	Output  int64         // bytes written to all streams; 0 means DefaultOutput
	Timeout time.Duration // wall time, waiting included; 0 means DefaultTimeout

	Grant
}

// withDefaults replaces zero limits with the defaults.
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
