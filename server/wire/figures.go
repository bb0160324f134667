package wire

import (
	"time"

	"github.com/toolhost/toolhost/abi"
)

// A CallRecord is a finished call: a direct call, or one that a tool made. It never contains
// arguments or results.
type CallRecord struct {
	Tool           string     `json:"tool"`                     // name that the caller used, cut to 128 bytes
	CallID         string     `json:"call_id,omitempty"`        // id in logs; absent for the agent's own tools and for refused calls
	OuterID        string     `json:"outer_id,omitempty"`       // id of the call or run whose tool made this call, and whose cost includes it
	OuterTool      string     `json:"outer_tool,omitempty"`     // the tool that made this call
	Kind           string     `json:"kind,omitempty"`           // kind of tool, as in a run; absent for the agent's own tools and for unknown tools
	Plugin         string     `json:"plugin,omitempty"`         // plugin that provides the tool
	PluginVersion  string     `json:"plugin_version,omitempty"` // version that the plugin declares
	Session        string     `json:"session"`
	At             time.Time  `json:"at"`                // when the call began
	ElapsedSeconds float64    `json:"elapsed_seconds"`   // time until the caller had the result; for the first call of a plugin, this includes compiling it
	Outcome        abi.Kind   `json:"outcome"`           // how the call ended
	Code           Code       `json:"code,omitempty"`    // why the call was refused or returned no result
	TaskID         string     `json:"task_id,omitempty"` // id of the call's run, if the call is or became one
	Cost           *Cost      `json:"cost,omitempty"`
	Diagnosis      *Diagnosis `json:"diagnosis,omitempty"` // why the call returned no result; only for the operator
}

// Calls is the response body of GET /v1/calls: newest first.
type Calls struct {
	Calls []CallRecord `json:"calls"`
}

// ToolFigures are statistics of the calls to a tool since the host started: direct calls
// and those that tools made. The median and the 95th percentile are exact for up to eight
// calls, and accurate to 12.5 % for more.
type ToolFigures struct {
	Tool       string           `json:"tool"`
	Plugin     string           `json:"plugin,omitempty"`
	Calls      int64            `json:"calls"`
	Errors     map[string]int64 `json:"errors,omitempty"` // number of unsuccessful calls, by code or outcome
	P50Seconds float64          `json:"p50_seconds"`
	P95Seconds float64          `json:"p95_seconds"`
	MaxSeconds float64          `json:"max_seconds"`
	Fuel       int64            `json:"fuel"` // units of fuel used by all calls
	CPUSeconds float64          `json:"cpu_seconds"`
	LastAt     time.Time        `json:"last_at"` // when the latest call began
}

// ToolsFigures is the response body of GET /v1/stats/tools: most used tool first.
type ToolsFigures struct {
	Tools []ToolFigures `json:"tools"`
}

// A Minute holds the statistics of a host for one minute.
type Minute struct {
	At             time.Time `json:"at"`               // start of the minute
	RunsSpawned    int64     `json:"runs_spawned"`     // runs submitted
	RunsSucceeded  int64     `json:"runs_succeeded"`   // runs that succeeded
	RunsFailed     int64     `json:"runs_failed"`      // runs that failed
	RunsCanceled   int64     `json:"runs_canceled"`    // runs that were canceled
	RunsActive     int       `json:"runs_active"`      // largest number of runs that held a slot, sampled every 10 s
	RunsQueued     int       `json:"runs_queued"`      // largest number of queued runs, sampled every 10 s
	Calls          int64     `json:"calls"`            // calls that ended: direct calls and those that tools made
	CallErrors     int64     `json:"call_errors"`      // unsuccessful calls
	CallP50Seconds float64   `json:"call_p50_seconds"` // median duration of the calls, accurate to 12.5 %
	CallP95Seconds float64   `json:"call_p95_seconds"` // 95th percentile of the duration of the calls, accurate to 12.5 %
	Fuel           int64     `json:"fuel"`             // units of fuel used by calls and runs that ended
	CPUSeconds     float64   `json:"cpu_seconds"`      // processor time used by calls and runs that ended
	MemoryPeak     int64     `json:"memory_peak"`      // largest number of bytes that counted against the host's limit, sampled every 10 s
}

// History is the response body of GET /v1/stats/history: up to 61 minutes, oldest first.
// The last one is the current minute.
type History struct {
	Minutes []Minute `json:"minutes"`
}
