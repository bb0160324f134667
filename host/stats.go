package host

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/sched"
	wasmstate "github.com/toolhost/toolhost/internal/snapshot"
)

// Mode is how a host makes an instance clean for each call.
type Mode string

// The modes.
const (
	// Reset: once a plugin has started up, its memory and globals are saved, and
	// an instance is put back to them after each call.
	Reset Mode = "reset"
	// Fresh: each call has a new instance.
	Fresh Mode = "fresh"
)

// Isolation is how the calls of a module are kept apart, and why so.
type Isolation struct {
	Mode Mode   `json:"mode"`
	Why  string `json:"why"`
}

// isolation chooses a mode.
func isolation(info *Info, why string) Isolation {
	switch {
	case why != "":
		return Isolation{Fresh, why}
	case info.Shape == Command:
		return Isolation{Fresh, "a command runs once and exits"}
	}
	return Isolation{Reset, "its memory and its globals are all that changes"}
}

// ProcessorStats are figures of who computes on a host.
type ProcessorStats = sched.Stats

// Counts are what the calls of a module, or of all, are doing and did.
type Counts struct {
	Running int `json:"running"` // calls that have a place, and an instance or soon one
	Waiting int `json:"waiting"` // calls that wait for a turn or a place
	// How many calls had to wait, those that gave up included, and for how long
	// together.
	Waited   int64         `json:"waited"`
	WaitTime time.Duration `json:"wait_ns"`
	// How many calls had an instance that was warm, that was made from a
	// snapshot, and that started up for them.
	Warm     int64 `json:"warm"`
	Restored int64 `json:"restored"`
	Started  int64 `json:"started"`

	Outcomes Outcomes `json:"outcomes"`
}

// Outcomes are how many calls ended how. Each call is in one of them.
type Outcomes struct {
	Success            int64 `json:"success"`
	ToolError          int64 `json:"tool_error"`
	ConnectionRequired int64 `json:"connection_required"`
	Canceled           int64 `json:"canceled"`
	Fuel               int64 `json:"fuel"`
	Time               int64 `json:"time"`
	Memory             int64 `json:"memory"`      // the limit of the call
	HostMemory         int64 `json:"host_memory"` // the limit of the host
	Output             int64 `json:"output"`
	Busy               int64 `json:"busy"`     // see ErrBusy
	Internal           int64 `json:"internal"` // the plugin or the host broke
}

// Stats are figures for operators, of one module or of a host. They are taken
// one after another while calls go on, so that they need not add up to the last
// one.
type Stats struct {
	Counts
	Instances   int          `json:"instances"`    // that exist, the warm ones included
	Idle        int          `json:"idle"`         // warm instances that wait for a call
	Memory      int64        `json:"memory"`       // bytes that count against the limit
	MemoryPeak  int64        `json:"memory_peak"`  // most there ever was
	MemoryLimit int64        `json:"memory_limit"` // of the host, for all modules
	MemoryOf    MemoryOf     `json:"memory_of"`    // what Memory is made of
	Compiled    CompileStats `json:"compiled"`     // of a host
	// Processors is who computes on a host.
	Processors ProcessorStats `json:"processors"`
	// Startup is why calls of a module start it up anew although its isolation
	// is Reset. It is known once one has done so, and empty for a host.
	Startup string `json:"startup,omitempty"`
}

// MemoryOf says what takes memory, in bytes.
type MemoryOf struct {
	Instances int64 `json:"instances"` // linear memory and what is beside it, of warm instances too
	Images    int64 `json:"images"`    // what instances start with: data of modules, and snapshots
	Stacks    int64 `json:"stacks"`    // of guests that recurse deeply
	Buffers   int64 `json:"buffers"`   // arguments and results of running calls, where they are large
}

// CompileStats are how modules were compiled.
type CompileStats struct {
	Cached int64         `json:"cached"` // whose code was found in the cache
	Anew   int64         `json:"anew"`   // whose code was not
	Time   time.Duration `json:"time_ns"`
}

// counter is one of the figures of a tally.
type counter int

const (
	countRunning counter = iota
	countWaiting
	countWaited
	countWaitTime // nanoseconds
	countWarm
	countRestored
	countStarted
	countInstances
	countImages  // bytes
	countStacks  // bytes
	countBuffers // bytes
	countCached
	countAnew
	countCompileTime // nanoseconds
	countSuccess
	countToolError
	countConnection
	countCanceled
	countFuel
	countTime
	countMemory
	countHostMemory
	countOutput
	countBusy
	countInternal
	counters
)

// tally is what is counted of a module or a host.
type tally [counters]atomic.Int64

// count adds to a figure of a module and of its host.
func (a *account) count(f counter, n int64) {
	a.tally[f].Add(n)
	a.pool.tally[f].Add(n)
}

func (c *call) count(f counter, n int64) { c.module.account.count(f, n) }

// countCompile counts a module that was compiled.
func (h *Host) countCompile(f counter, begin time.Time) {
	h.pool.tally[f].Add(1)
	h.pool.tally[countCompileTime].Add(int64(time.Since(begin)))
}

// countEnd counts how a call ended.
func (c *call) countEnd(r abi.Result, err error) { c.count(ending(r, err), 1) }

func ending(r abi.Result, err error) counter {
	switch r.Kind {
	case abi.Success:
		return countSuccess
	case abi.ConnectionRequired:
		return countConnection
	case abi.CanceledKind:
		return countCanceled
	case abi.ToolError:
		if errors.Is(err, ErrBusy) {
			return countBusy
		}
		return countToolError
	case abi.LimitReached:
		if errors.Is(err, ErrHostMemory) {
			return countHostMemory
		}
		return map[abi.Limit]counter{abi.LimitFuel: countFuel, abi.LimitTime: countTime, abi.LimitMemory: countMemory, abi.LimitOutput: countOutput}[r.Limit]
	}
	return countInternal
}

func (t *tally) counts() Counts {
	get := func(f counter) int64 { return t[f].Load() }
	return Counts{
		Running: int(get(countRunning)), Waiting: int(get(countWaiting)), Waited: get(countWaited), WaitTime: time.Duration(get(countWaitTime)),
		Warm: get(countWarm), Restored: get(countRestored), Started: get(countStarted),
		Outcomes: Outcomes{
			Success: get(countSuccess), ToolError: get(countToolError), ConnectionRequired: get(countConnection), Canceled: get(countCanceled),
			Fuel: get(countFuel), Time: get(countTime), Memory: get(countMemory), HostMemory: get(countHostMemory), Output: get(countOutput),
			Busy: get(countBusy), Internal: get(countInternal),
		},
	}
}

// stats are the figures of a tally beside those of the ledger.
func (t *tally) stats(memory, peak, ceiling int64, idle int) Stats {
	get := func(f counter) int64 { return t[f].Load() }
	of := MemoryOf{Images: get(countImages), Stacks: get(countStacks), Buffers: get(countBuffers)}
	of.Instances = max(0, memory-of.Images-of.Stacks-of.Buffers)
	return Stats{
		Counts: t.counts(), Instances: int(get(countInstances)), Idle: idle,
		Memory: memory, MemoryPeak: peak, MemoryLimit: ceiling, MemoryOf: of,
		Compiled: CompileStats{get(countCached), get(countAnew), time.Duration(get(countCompileTime))},
	}
}

// Stats returns the figures of a module.
func (m *Module) Stats() Stats {
	m.mu.Lock()
	startup := m.startup
	m.mu.Unlock()
	a := m.account
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	s := a.tally.stats(a.memory, a.peak, a.pool.ceiling, a.idle)
	s.Startup = startup
	return s
}

// Stats returns the figures of all modules together.
func (h *Host) Stats() Stats {
	p := &h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.tally.stats(p.memory, p.peak, p.ceiling, p.idle.Len())
	s.Processors = h.cpus.Stats()
	return s
}

// Isolation says how the calls of a plugin would be kept apart. It does not
// compile. What cannot be read is a [*ModuleError].
func (h *Host) Isolation(wasm []byte) (Isolation, error) {
	info, err := h.Inspect(wasm)
	if err != nil {
		return Isolation{}, err
	}
	why, err := wasmstate.Why(wasm)
	if err != nil {
		return Isolation{}, &ModuleError{Part: "module", Err: err}
	}
	return isolation(info, why), nil
}
