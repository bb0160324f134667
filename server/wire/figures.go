package wire

import (
	"time"

	"github.com/toolhost/toolhost/abi"
)

// A CallRecord is a direct call, or a call that a tool has made, that has ended. It never has arguments or results.
type CallRecord struct {
	Tool           string     `json:"tool"`                     // as its caller named it, at most 128 bytes
	CallID         string     `json:"call_id,omitempty"`        // its id in logs; not for the agent's own tools and for calls that were refused
	OuterID        string     `json:"outer_id,omitempty"`       // the id of the call or run whose tool has made it; its cost is part of that one's
	OuterTool      string     `json:"outer_tool,omitempty"`     // that tool
	Kind           string     `json:"kind,omitempty"`           // of the tool, as in a run; empty for the agent's own tools and unknown ones
	Plugin         string     `json:"plugin,omitempty"`         // that has the tool
	PluginVersion  string     `json:"plugin_version,omitempty"` // as the plugin says it
	Session        string     `json:"session"`
	At             time.Time  `json:"at"`                // when it began
	ElapsedSeconds float64    `json:"elapsed_seconds"`   // until its caller had the answer; a first call compiles its plugin
	Outcome        abi.Kind   `json:"outcome"`           // how it ended
	Code           Code       `json:"code,omitempty"`    // why it was refused, or had no result of the tool
	TaskID         string     `json:"task_id,omitempty"` // the run it continues as
	Cost           *Cost      `json:"cost,omitempty"`
	Diagnosis      *Diagnosis `json:"diagnosis,omitempty"` // why it had no result; only for the operator
}

// Calls is the answer of GET /v1/calls: the latest first.
type Calls struct {
	Calls []CallRecord `json:"calls"`
}

// ToolFigures are figures of the direct calls of a tool since the host started. The
// median and the 95th percentile are exact to 10 %.
type ToolFigures struct {
	Tool       string           `json:"tool"`
	Plugin     string           `json:"plugin,omitempty"`
	Calls      int64            `json:"calls"`
	Errors     map[string]int64 `json:"errors,omitempty"` // calls without success, by code or outcome
	P50Seconds float64          `json:"p50_seconds"`
	P95Seconds float64          `json:"p95_seconds"`
	MaxSeconds float64          `json:"max_seconds"`
	Fuel       int64            `json:"fuel"` // units, of all calls
	CPUSeconds float64          `json:"cpu_seconds"`
	LastAt     time.Time        `json:"last_at"` // when the latest call began
}

// ToolsFigures is the answer of GET /v1/stats/tools: the most used tool first.
type ToolsFigures struct {
	Tools []ToolFigures `json:"tools"`
}

// A Minute is what happened in one minute on a host.
type Minute struct {
	At            time.Time `json:"at"`             // its beginning
	RunsSpawned   int64     `json:"runs_spawned"`   // runs that came in
	RunsSucceeded int64     `json:"runs_succeeded"` // runs that ended so
	RunsFailed    int64     `json:"runs_failed"`    // runs that ended so
	RunsCanceled  int64     `json:"runs_canceled"`  // runs that ended so
	RunsActive    int       `json:"runs_active"`    // the most that held a slot, of six samples
	RunsQueued    int       `json:"runs_queued"`    // the most that waited, of six samples
	Calls         int64     `json:"calls"`          // direct calls that ended
	CallErrors    int64     `json:"call_errors"`    // those without success
	Fuel          int64     `json:"fuel"`           // units, of calls and runs that ended
	CPUSeconds    float64   `json:"cpu_seconds"`    // likewise
	MemoryPeak    int64     `json:"memory_peak"`    // bytes that counted against the limit of the host, of six samples
}

// History is the answer of GET /v1/stats/history: up to 61 minutes, the oldest first. The
// last one has just begun.
type History struct {
	Minutes []Minute `json:"minutes"`
}
