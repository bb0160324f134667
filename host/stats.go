package host

import wasmstate "github.com/toolhost/toolhost/internal/snapshot"

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

// Counts are what the calls of a module, or of all, are doing and had.
type Counts struct {
	Running int `json:"running"` // calls that have an instance
	Waiting int `json:"waiting"` // calls that wait for one
	// How many calls had an instance that was warm, that was made from a
	// snapshot, and that started up for them.
	Warm     int64 `json:"warm"`
	Restored int64 `json:"restored"`
	Started  int64 `json:"started"`
}

// Stats are figures for operators, of one module or of a host.
type Stats struct {
	Counts
	Idle        int   `json:"idle"`         // warm instances that wait for a call
	Memory      int64 `json:"memory"`       // bytes of linear memory that instances have
	MemoryPeak  int64 `json:"memory_peak"`  // most there ever was
	MemoryLimit int64 `json:"memory_limit"` // of the host, for all modules
	// Startup is why calls of a module start it up anew although its isolation
	// is Reset. It is known once one has done so, and empty for a host.
	Startup string `json:"startup,omitempty"`
}

// Stats returns the figures of a module.
func (m *Module) Stats() Stats {
	m.mu.Lock()
	startup := m.startup
	m.mu.Unlock()
	a := m.account
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	return Stats{Counts: a.counts, Idle: a.idle, Memory: a.memory, MemoryPeak: a.peak, MemoryLimit: a.pool.ceiling, Startup: startup}
}

// Stats returns the figures of all modules together.
func (h *Host) Stats() Stats {
	p := &h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Counts: p.counts, Idle: p.idle.Len(), Memory: p.memory, MemoryPeak: p.peak, MemoryLimit: p.ceiling}
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
