package server

import (
	"cmp"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
)

// Limits bound one call. A zero field leaves the choice to somebody else: the
// caller's to the tool's manifest, that one's to the operator, and the
// operator's to the host.
type Limits struct {
	Fuel       int64         // units
	Memory     int64         // bytes of linear memory
	Output     int64         // bytes written to all streams
	Timeout    time.Duration // of a call that is waited for
	Background time.Duration // of a background run
}

// The most a tool may ask for, unless the operator says otherwise. The times are
// [background.DefaultMaxTimeout].
const (
	DefaultMaxFuel   = 10_000_000_000_000 // units
	DefaultMaxMemory = 1 << 30            // bytes of linear memory
	DefaultMaxOutput = 256 << 20          // bytes written to all streams
)

var defaultMaxLimits = Limits{
	Fuel:       DefaultMaxFuel,
	Memory:     DefaultMaxMemory,
	Output:     DefaultMaxOutput,
	Timeout:    background.DefaultMaxTimeout,
	Background: background.DefaultMaxTimeout,
}

// or fills in the fields that are zero.
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

// limits are those of one call: the caller's, else what the tool asks for, else
// the operator's, else the host's; never more than the operator's maximum.
func (s *Service) limits(wanted Limits, tool *abi.Tool) Limits {
	asked := Limits{
		Fuel: tool.Limits.Fuel, Memory: tool.Limits.MemoryBytes, Output: tool.Limits.OutputBytes,
		Timeout:    seconds(tool.Limits.TimeoutSeconds),
		Background: seconds(tool.Limits.BackgroundSeconds),
	}
	defaults := Limits{
		Fuel: host.DefaultFuel, Memory: host.DefaultMemory, Output: host.DefaultOutput,
		Timeout: host.DefaultTimeout, Background: background.DefaultTimeout,
	}
	return wanted.or(asked).or(s.cfg.Limits).or(defaults).atMost(s.maxLimits())
}

func (s *Service) maxLimits() Limits { return s.cfg.MaxLimits.or(defaultMaxLimits) }

// deadline is the deadline of a background run: what the agent asks for, else
// the tool's. An agent is told of a maximum rather than cut to it, for it would
// count on what it asked.
func (s *Service) deadline(asked time.Duration, tool *abi.Tool) (time.Duration, error) {
	most := s.maxLimits().Background
	if asked < 0 || asked > most {
		return 0, &background.FieldError{Field: "timeout_seconds", Problem: fmt.Sprintf("must be between 1 and %.0f", most.Seconds())}
	}
	return cmp.Or(asked, s.limits(Limits{}, tool).Background), nil
}

// duration is a number of seconds from JSON, where 60.0 is whole and 1e300 is a
// number. A negative one is 0.
func duration(n float64) time.Duration { return seconds(int64(max(0, min(n, 1e9)))) }

// seconds is n seconds, or the longest duration there is.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(1<<62/time.Second))) * time.Second
}

// policy is the policy of a call with these limits. What the plugin may touch
// is added where the plugin is known.
func (l Limits) policy() host.Policy {
	return host.Policy{Fuel: l.Fuel, Memory: l.Memory, Output: l.Output, Timeout: l.Timeout}
}
