package server

import (
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/shape"
)

// Limits bound one call: Fuel in units, Memory in bytes of linear memory, Output in bytes
// written to all streams, Timeout of a call that its caller waits for, and Background of a
// background run. Each limit is set by the first of these that does not leave it at zero: the
// caller, the tool's manifest, the operator, the host.
type Limits = catalog.Limits

// The most a tool may ask for, unless the operator says otherwise. For both time limits, it is
// [background.DefaultMaxTimeout].
const (
	DefaultMaxFuel   = catalog.DefaultMaxFuel   // 10^13 units
	DefaultMaxMemory = catalog.DefaultMaxMemory // 1 GiB of linear memory
	DefaultMaxOutput = catalog.DefaultMaxOutput // 256 MiB written to all streams
)

// Limits of the size of the value that a model gets at once, in bytes.
const (
	DefaultAnswer = 100 << 10 // 100 KiB, some 25,000 tokens
	MinAnswer     = 8 << 10   // 8 KiB, which is also how much of a larger value a model gets
)

// NoLimit is a time limit that is never reached. As Config.Limits.Timeout or Background, it
// also lifts the same limit of Config.MaxLimits, unless that one is set.
const NoLimit = shape.NoLimit

// Park says which calls continue in the background when they take too long.
type Park = catalog.Park

// Which calls are parked. The zero value is ParkOverdue.
const (
	// ParkOverdue parks the calls to tools that support background runs, after
	// Config.ParkAfter. Any other call is parked when it reaches the default time limit,
	// because nobody chose that limit for it. A limit that the caller or the tool's manifest
	// has set ends the call instead.
	ParkOverdue Park = catalog.ParkOverdue
	ParkHinted  Park = catalog.ParkHinted // calls to tools that support background runs
	ParkAll     Park = catalog.ParkAll    // all calls
	ParkNever   Park = catalog.ParkNever  // no calls
)

const (
	// DefaultParkAfter is how long a caller waits before the call is parked: 10 minutes.
	DefaultParkAfter = catalog.DefaultParkAfter
	// ParkedTime is the minimum time from parking a call to its deadline: 5 minutes.
	ParkedTime = catalog.ParkedTime
)
