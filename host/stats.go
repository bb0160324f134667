package host

import (
	"errors"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/sched"
)

// Mode is the way in which a host provides a clean instance for each call.
type Mode string

// The modes.
const (
	// Reset saves the memory and globals of a plugin once it has started up, and
	// restores them after each call.
	Reset Mode = "reset"
	// Fresh makes a new instance for each call.
	Fresh Mode = "fresh"
)

// Isolation says how the calls of a module are isolated from each other, and why.
type Isolation struct {
	Mode Mode   `json:"mode"`
	Why  string `json:"why"`
}

// isolation chooses a mode.
func isolation(info *contract.Info, why string) Isolation {
	switch {
	case why != "":
		return Isolation{Fresh, why}
	case info.Shape == contract.Command:
		return Isolation{Fresh, "a command runs once and exits"}
	}
	return Isolation{Reset, "its memory and its globals are all that changes"}
}

// ProcessorStats are statistics about the calls of a host that are computing.
type ProcessorStats = sched.Stats

// Counts are the statistics of the calls of one module or of all modules.
type Counts struct {
	Running int `json:"running"` // calls that hold their slots
	Waiting int `json:"waiting"` // calls that wait for a slot, or for another call of their session
	// Calls that had to wait, including those that gave up, and their total waiting time.
	Waited   int64         `json:"waited"`
	WaitTime time.Duration `json:"wait_ns"`
	// Calls by where their instance came from: a warm instance, one from a snapshot, or one
	// that was started up for the call.
	Warm     int64 `json:"warm"`
	Restored int64 `json:"restored"`
	Started  int64 `json:"started"`
	// Usage of the finished calls.
	Fuel int64         `json:"fuel"`
	CPU  time.Duration `json:"cpu_ns"`

	Outcomes Outcomes `json:"outcomes"`
}

// Outcomes count calls by how they ended. Each call counts once.
type Outcomes struct {
	Success            int64 `json:"success"`
	ToolError          int64 `json:"tool_error"`
	ConnectionRequired int64 `json:"connection_required"`
	Canceled           int64 `json:"canceled"`
	Fuel               int64 `json:"fuel"`
	Time               int64 `json:"time"`
	Memory             int64 `json:"memory"`      // calls that reached their own memory limit
	HostMemory         int64 `json:"host_memory"` // calls that reached the host's memory limit
	Output             int64 `json:"output"`
	Internal           int64 `json:"internal"` // failures of the plugin or the host
}

// Stats are statistics for operators, of one module or of a host. They are read
// one after another while calls run, so they may be slightly inconsistent.
type Stats struct {
	Counts
	Instances   int          `json:"instances"`    // all instances, warm ones included
	Idle        int          `json:"idle"`         // warm instances that wait for a call
	Memory      int64        `json:"memory"`       // bytes that count against the limit
	MemoryPeak  int64        `json:"memory_peak"`  // highest Memory so far
	MemoryLimit int64        `json:"memory_limit"` // the host's limit for all modules together
	MemoryOf    MemoryOf     `json:"memory_of"`    // Memory by use
	Compiled    CompileStats `json:"compiled"`     // compiled modules; set only for a host
	// Processors holds statistics about the calls that are computing. It is set only for a
	// host.
	Processors ProcessorStats `json:"processors"`
	// Startup says why every call has to start the module anew even though its
	// isolation is Reset. The first such call sets it. It is empty for a host.
	Startup string `json:"startup,omitempty"`
}

// MemoryOf is the memory in use, broken down by kind, in bytes.
type MemoryOf struct {
	Instances int64 `json:"instances"` // linear memory and overhead, including warm instances
	Images    int64 `json:"images"`    // initial memory of instances: data of modules, and snapshots
	Stacks    int64 `json:"stacks"`    // stacks of deeply recursive guests
	Buffers   int64 `json:"buffers"`   // large arguments and results of running calls
}

// CompileStats count the compiled modules of a host.
type CompileStats struct {
	Cached int64         `json:"cached"` // modules loaded from the cache
	Anew   int64         `json:"anew"`   // modules compiled by this process
	Time   time.Duration `json:"time_ns"`
}

// tally counts calls.
type tally struct {
	mu sync.Mutex
	Counts
}

// count changes the counts.
func (t *tally) count(change func(*Counts)) {
	t.mu.Lock()
	change(&t.Counts)
	t.mu.Unlock()
}

func (t *tally) counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Counts
}

// add adds the counts of another module.
func (n *Counts) add(o Counts) {
	n.Running += o.Running
	n.Waiting += o.Waiting
	n.Waited += o.Waited
	n.WaitTime += o.WaitTime
	n.Warm += o.Warm
	n.Restored += o.Restored
	n.Started += o.Started
	n.Fuel += o.Fuel
	n.CPU += o.CPU
	for i, to := range n.Outcomes.all() {
		*to += *o.Outcomes.all()[i]
	}
}

func (o *Outcomes) all() []*int64 {
	return []*int64{&o.Success, &o.ToolError, &o.ConnectionRequired, &o.Canceled, &o.Fuel, &o.Time, &o.Memory, &o.HostMemory, &o.Output, &o.Internal}
}

// of returns the counter of calls with this outcome.
func (o *Outcomes) of(r abi.Result, err error) *int64 {
	switch {
	case r.Kind == abi.Success:
		return &o.Success
	case r.Kind == abi.ConnectionRequired:
		return &o.ConnectionRequired
	case r.Kind == abi.CanceledKind:
		return &o.Canceled
	case r.Kind == abi.ToolError:
		return &o.ToolError
	case r.Kind != abi.LimitReached:
		return &o.Internal
	case errors.Is(err, ErrHostMemory):
		return &o.HostMemory
	}

	return map[abi.Limit]*int64{abi.LimitFuel: &o.Fuel, abi.LimitTime: &o.Time, abi.LimitMemory: &o.Memory, abi.LimitOutput: &o.Output}[r.Limit]
}

// stats adds memory statistics to counts.
func stats(counts Counts, f instance.Figures, limit int64) Stats {
	return Stats{
		Counts: counts, Instances: f.Instances, Idle: f.Idle, Memory: f.Total(), MemoryPeak: f.Peak, MemoryLimit: limit,
		MemoryOf: MemoryOf{f.Held[instance.Linear], f.Held[instance.Images], f.Held[instance.Stacks], f.Held[instance.Buffers]},
	}
}
