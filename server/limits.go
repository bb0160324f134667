package server

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// Limits bound one call. A zero field is decided by the next in this order: the caller,
// the tool's manifest, the operator, the host.
type Limits struct {
	Fuel       int64         `json:"fuel,omitempty"`   // units
	Memory     int64         `json:"memory,omitempty"` // bytes of linear memory
	Output     int64         `json:"output,omitempty"` // bytes written to all streams
	Timeout    time.Duration `json:"-"`                // time limit of a call that its caller waits for
	Background time.Duration `json:"-"`                // time limit of a background run
}

// The most a tool may ask for, unless the operator says otherwise. The times are
// [background.DefaultMaxTimeout].
const (
	DefaultMaxFuel   = 10_000_000_000_000 // units
	DefaultMaxMemory = 1 << 30            // bytes of linear memory
	DefaultMaxOutput = 256 << 20          // bytes written to all streams
)

// NoLimit is a time limit that is never reached. As Config.Limits.Timeout or Background,
// it lifts that of Config.MaxLimits too, unless that is set.
const NoLimit = shape.NoLimit

// or fills zero fields from m.
func (l Limits) or(m Limits) Limits {
	return Limits{
		Fuel: cmp.Or(l.Fuel, m.Fuel), Memory: cmp.Or(l.Memory, m.Memory), Output: cmp.Or(l.Output, m.Output),
		Timeout: cmp.Or(l.Timeout, m.Timeout), Background: cmp.Or(l.Background, m.Background),
	}
}

// atMost cuts each field to that of m.
func (l Limits) atMost(m Limits) Limits {
	return Limits{
		Fuel: min(l.Fuel, m.Fuel), Memory: min(l.Memory, m.Memory), Output: min(l.Output, m.Output),
		Timeout: min(l.Timeout, m.Timeout), Background: min(l.Background, m.Background),
	}
}

// policy returns the host's policy for these limits. Grants are added where the plugin is
// known.
func (l Limits) policy() host.Policy {
	return host.Policy{Fuel: l.Fuel, Memory: l.Memory, Output: l.Output, Timeout: l.Timeout}
}

// rules are the operator's rules for the limits of calls and for parking them.
type rules struct {
	own, most Limits        // for tools that ask for nothing; the most a tool may have
	park      Park          // which calls are parked
	parkAfter time.Duration // how long callers wait; 0: as long as calls take
}

func newRules(cfg Config) rules {
	r := rules{
		own: cfg.Limits.or(Limits{
			Fuel: host.DefaultFuel, Memory: host.DefaultMemory, Output: host.DefaultOutput,
			Timeout: host.DefaultTimeout, Background: background.DefaultTimeout,
		}),
		most: cfg.MaxLimits.or(Limits{
			Fuel: DefaultMaxFuel, Memory: DefaultMaxMemory, Output: DefaultMaxOutput,
			Timeout: background.DefaultMaxTimeout, Background: background.DefaultMaxTimeout,
		}),
		park: cmp.Or(cfg.Park, ParkOverdue),
	}
	if r.own.Timeout == NoLimit && cfg.MaxLimits.Timeout == 0 {
		r.most.Timeout = NoLimit
	}
	if r.own.Background == NoLimit && cfg.MaxLimits.Background == 0 {
		r.most.Background = NoLimit
	}

	switch after := cfg.ParkAfter; {
	case r.park == ParkNever || after < 0:
	case after > 0:
		r.parkAfter = after
	default:
		r.parkAfter = max(0, min(DefaultParkAfter, r.most.Background-ParkedTime))
	}

	return r
}

// limits returns the limits of one call.
func (r rules) limits(wanted Limits, tool *abi.Tool) Limits {
	asked := Limits{
		Fuel: tool.Limits.Fuel, Memory: tool.Limits.MemoryBytes, Output: tool.Limits.OutputBytes,
		Timeout:    seconds(tool.Limits.TimeoutSeconds),
		Background: seconds(tool.Limits.BackgroundSeconds),
	}
	return wanted.or(asked).or(r.own).atMost(r.most)
}

// shown returns the limits of a tool as callers see them.
func (r rules) shown(tool *abi.Tool, sandboxed bool) wire.ToolLimits {
	l := r.limits(Limits{}, tool)
	out := wire.ToolLimits{TimeoutSeconds: shape.Deadline(l.Timeout), OutputBytes: l.Output, ArgsBytes: MaxArgs}
	if sandboxed {
		out.MemoryBytes = l.Memory
	}
	if tool.Hints.SupportsBackground {
		out.BackgroundSeconds = shape.Deadline(l.Background)
	}
	return out
}

// farFrom is the factor by which a limit has to differ from the usual one before models
// are informed of it.
const farFrom = 4

// hint describes the limits of a tool that are far from the usual ones.
func (r rules) hint(tool *abi.Tool) string {
	l := r.limits(Limits{}, tool)
	far := func(limit, usual int64) bool { return limit >= farFrom*usual || limit <= usual/farFrom }

	var parts []string
	if far(int64(l.Timeout), int64(r.own.Timeout)) {
		parts = append(parts, l.Timeout.String())
	}
	if far(l.Memory, r.own.Memory) {
		parts = append(parts, mebibytes(l.Memory)+" of memory")
	}
	if far(l.Output, r.own.Output) {
		parts = append(parts, mebibytes(l.Output)+" of output")
	}
	if len(parts) == 0 {
		return ""
	}
	return " Limits: " + strings.Join(parts, ", ") + "."
}

func mebibytes(n int64) string {
	return strconv.FormatFloat(float64(n)/(1<<20), 'g', 3, 64) + " MiB"
}

// deadline returns the deadline of a background run: the agent's, else the tool's. Asking
// for more than the maximum is an error, because the agent relies on the time it asked for.
func (r rules) deadline(asked time.Duration, tool *abi.Tool) (time.Duration, error) {
	if most := r.most.Background; asked < 0 || asked > most {
		return 0, &background.FieldError{Field: "timeout_seconds", Problem: fmt.Sprintf("must be between 1 and %.0f", most.Seconds())}
	}
	return cmp.Or(asked, r.limits(Limits{}, tool).Background), nil
}

// parks reports whether calls of a tool are parked.
func (r rules) parks(tool *callable) bool {
	return r.parkAfter > 0 && (r.park == ParkAll || tool.Tool.Hints.SupportsBackground)
}

// parksOverdue reports whether calls of a tool are parked at the default time limit only.
// An author who set a limit, or who made the tool never deferred, has decided otherwise.
func (r rules) parksOverdue(tool *callable) bool {
	return r.park == ParkOverdue && r.parkAfter > 0 && !tool.Tool.Hints.SupportsBackground &&
		tool.Tool.Limits.TimeoutSeconds == 0 && tool.Tool.Deferrable != abi.DeferNever
}

// duration is a number of seconds from JSON, where 60.0 is an integer and 1e300 is
// valid. Negative numbers are 0.
func duration(n float64) time.Duration { return seconds(int64(max(0, min(n, 1e9)))) }

// seconds is n seconds, or the longest duration there is.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(1<<62/time.Second))) * time.Second
}
