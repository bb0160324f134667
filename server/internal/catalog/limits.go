package catalog

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

// Limits bound one call. Each limit is set by the first of these that does not leave it at
// zero: the caller, the tool's manifest, the operator, the host.
type Limits struct {
	Fuel       int64         `json:"fuel,omitempty"`   // units of fuel
	Memory     int64         `json:"memory,omitempty"` // bytes of linear memory
	Output     int64         `json:"output,omitempty"` // bytes written to all streams
	Timeout    time.Duration `json:"-"`                // time limit of a call that its caller waits for
	Background time.Duration `json:"-"`                // time limit of a background run
}

// The most a tool may ask for, unless the operator says otherwise. For both time limits, it is
// [background.DefaultMaxTimeout].
const (
	DefaultMaxFuel   = 10_000_000_000_000 // units of fuel
	DefaultMaxMemory = 1 << 30            // bytes of linear memory
	DefaultMaxOutput = 256 << 20          // bytes written to all streams
)

// or fills zero fields from m.
func (l Limits) or(m Limits) Limits {
	return Limits{
		Fuel: cmp.Or(l.Fuel, m.Fuel), Memory: cmp.Or(l.Memory, m.Memory), Output: cmp.Or(l.Output, m.Output),
		Timeout: cmp.Or(l.Timeout, m.Timeout), Background: cmp.Or(l.Background, m.Background),
	}
}

// atMost cuts each field to the same field of m.
func (l Limits) atMost(m Limits) Limits {
	return Limits{
		Fuel: min(l.Fuel, m.Fuel), Memory: min(l.Memory, m.Memory), Output: min(l.Output, m.Output),
		Timeout: min(l.Timeout, m.Timeout), Background: min(l.Background, m.Background),
	}
}

// Policy returns the host's policy for these limits. Grants are added later, where the plugin
// is known.
func (l Limits) Policy() host.Policy {
	return host.Policy{Fuel: l.Fuel, Memory: l.Memory, Output: l.Output, Timeout: l.Timeout}
}

// Park says which calls continue in the background when they take too long.
type Park string

// Which calls are parked. The zero value is ParkOverdue.
const (
	// ParkOverdue parks the calls to tools that support background runs, after
	// Terms.ParkAfter. Any other call is parked when it reaches the default time limit,
	// because nobody chose that limit for it. A limit that the caller or the tool's manifest
	// has set ends the call instead.
	ParkOverdue Park = "overdue"
	ParkHinted  Park = "hinted" // calls to tools that support background runs
	ParkAll     Park = "all"    // all calls
	ParkNever   Park = "never"  // no calls
)

const (
	// DefaultParkAfter is how long a caller waits before the call is parked.
	DefaultParkAfter = 10 * time.Minute
	// ParkedTime is the minimum time from parking a call to its deadline.
	ParkedTime = 5 * time.Minute
)

// Terms are the operator's settings for the limits and the parking of calls. Zero fields
// have defaults.
type Terms struct {
	Limits    Limits        // limits of tools that request none of their own
	Max       Limits        // the most a tool may ask for
	Park      Park          // which calls are parked
	ParkAfter time.Duration // how long callers wait before a call is parked; negative means never
}

// Rules are Terms with their defaults filled in.
type Rules struct {
	own, most Limits
	park      Park
	parkAfter time.Duration // 0: callers wait as long as calls take
}

// NewRules returns the rules for these terms.
func NewRules(t Terms) Rules {
	r := Rules{
		own: t.Limits.or(Limits{
			Fuel: host.DefaultFuel, Memory: host.DefaultMemory, Output: host.DefaultOutput,
			Timeout: host.DefaultTimeout, Background: background.DefaultTimeout,
		}),
		most: t.Max.or(Limits{
			Fuel: DefaultMaxFuel, Memory: DefaultMaxMemory, Output: DefaultMaxOutput,
			Timeout: background.DefaultMaxTimeout, Background: background.DefaultMaxTimeout,
		}),
		park: cmp.Or(t.Park, ParkOverdue),
	}
	if r.own.Timeout == shape.NoLimit && t.Max.Timeout == 0 {
		r.most.Timeout = shape.NoLimit
	}
	if r.own.Background == shape.NoLimit && t.Max.Background == 0 {
		r.most.Background = shape.NoLimit
	}

	switch after := t.ParkAfter; {
	case r.park == ParkNever || after < 0:
	case after > 0:
		r.parkAfter = after
	default:
		r.parkAfter = max(0, min(DefaultParkAfter, r.most.Background-ParkedTime))
	}

	return r
}

// MaxBackground returns the longest time limit of a background run.
func (r Rules) MaxBackground() time.Duration { return r.most.Background }

// Usual returns the limits, as callers see them, of a plugin's tool that requests none of
// its own.
func (r Rules) Usual() wire.ToolLimits {
	return r.shown(&abi.Tool{Hints: abi.Hints{SupportsBackground: true}}, true)
}

// limits returns the limits of one call.
func (r Rules) limits(wanted Limits, tool *abi.Tool) Limits {
	asked := Limits{
		Fuel: tool.Limits.Fuel, Memory: tool.Limits.MemoryBytes, Output: tool.Limits.OutputBytes,
		Timeout:    seconds(tool.Limits.TimeoutSeconds),
		Background: seconds(tool.Limits.BackgroundSeconds),
	}
	return wanted.or(asked).or(r.own).atMost(r.most)
}

// shown returns the limits of a tool as callers see them.
func (r Rules) shown(tool *abi.Tool, sandboxed bool) wire.ToolLimits {
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
func (r Rules) hint(tool *abi.Tool) string {
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

// Limit returns the limits of one call. The parameter wanted holds the limits that the caller
// wants.
func (t *Tool) Limit(wanted Limits) Limits { return t.Settings.Rules().limits(wanted, t.Tool) }

// Deadline returns the deadline of a background run: the one that the agent asked for, or
// else the tool's. Asking for more than the maximum is an error, because the agent relies on
// the time it asked for.
func (t *Tool) Deadline(asked time.Duration) (time.Duration, error) {
	if most := t.MaxBackground(); asked < 0 || asked > most {
		return 0, &background.FieldError{Field: "timeout_seconds", Problem: fmt.Sprintf("must be between 1 and %.0f", most.Seconds())}
	}
	return cmp.Or(asked, t.Limit(Limits{}).Background), nil
}

// MaxBackground returns the longest time limit of a background run.
func (t *Tool) MaxBackground() time.Duration { return t.Settings.Rules().MaxBackground() }

// Backgrounds reports whether the tool can run in the background.
func (t *Tool) Backgrounds() bool { return t.Tool.Hints.SupportsBackground || t.parks() }

// parks reports whether calls to the tool are parked.
func (t *Tool) parks() bool {
	r := t.Settings.Rules()
	return r.parkAfter > 0 && (r.park == ParkAll || t.Tool.Hints.SupportsBackground)
}

// parksOverdue reports whether calls to the tool are parked at the default time limit only.
// An author who set a time limit, or declared that the tool is never deferred, has decided
// otherwise.
func (t *Tool) parksOverdue() bool {
	r := t.Settings.Rules()
	return r.park == ParkOverdue && r.parkAfter > 0 && !t.Tool.Hints.SupportsBackground &&
		t.Tool.Limits.TimeoutSeconds == 0 && t.Tool.Deferrable != abi.DeferNever
}

// A Budget holds the time limits of a call that may be parked.
type Budget struct {
	Park     time.Duration // time after which the call continues in the background
	Deadline time.Duration // time after which the call ends
}

// Budget returns the time limits of a call that has these limits and belongs to a session. The
// parameters asked and parkAfter are the caller's own time limit and wait; 0 means none. It
// returns false for a call that is not parked, because its tool never is, or because the
// caller's own limit ends it first.
//
// The tool's manifest can only shorten the wait. A parked call has at least ParkedTime more,
// whatever the limits of calls that callers wait for.
func (t *Tool) Budget(limits Limits, asked, parkAfter time.Duration) (Budget, bool) {
	r := t.Settings.Rules()
	if t.parksOverdue() && asked == 0 {
		park := min(r.parkAfter, limits.Timeout) // sooner where calls are parked sooner
		return Budget{park, min(max(limits.Background, park+ParkedTime), r.most.Background)}, true
	}

	park := r.parkAfter
	for _, wanted := range []time.Duration{seconds(t.Tool.Limits.ParkAfterSeconds), parkAfter} {
		if wanted > 0 {
			park = min(park, wanted)
		}
	}

	if !t.parks() || asked > 0 && limits.Timeout <= park {
		return Budget{}, false
	}
	return Budget{park, min(max(limits.Timeout, limits.Background, park+ParkedTime), r.most.Background)}, true
}

// seconds returns n seconds, or the longest duration there is.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(1<<62/time.Second))) * time.Second
}
