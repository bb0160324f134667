package wire

import (
	"time"

	"github.com/toolhost/toolhost/abi"
)

// MaxInnerCalls is the maximum number of calls that are stored with the run that made
// them. Further calls are only counted.
const MaxInnerCalls = 200

// CallLost is the error of a call whose outcome is unknown because its host went away. The
// call may have taken effect.
const CallLost = "lost"

// InnerCalls is the response body of GET /v1/runs/{run}/calls: the calls that the tool of a
// run made, directly or through other tools. Each call follows its caller, and calls of the
// same caller are in the order in which they began. If a call is a run of its own, the calls
// of that run are included.
type InnerCalls struct {
	Attempt int         `json:"attempt,omitempty"` // attempt of the run that made the calls
	Calls   []InnerCall `json:"calls"`
	More    int         `json:"more,omitempty"` // number of further calls, which are not listed
}

// An InnerCall is a call that the tool of a run made. It never contains arguments or
// results. The cost of the run includes it.
type InnerCall struct {
	Number         int       `json:"number"`            // position in this list, from 1
	Within         int       `json:"within,omitempty"`  // number of the call whose tool made this one; absent if the run's own tool did
	Depth          int       `json:"depth"`             // nesting depth: 1 if the run's own tool made the call
	Tool           string    `json:"tool"`              // name that the caller used, cut to 40 bytes
	At             time.Time `json:"at"`                // when the call began
	ElapsedSeconds float64   `json:"elapsed_seconds"`   // time until the call ended, or until now
	Outcome        abi.Kind  `json:"outcome,omitempty"` // how the call ended; absent while it runs, or if unknown
	Error          string    `json:"error,omitempty"`   // why the call returned no result: a code, or lost
	Fuel           int64     `json:"fuel,omitempty"`    // units of fuel used by the call
	TaskID         string    `json:"task_id,omitempty"` // id of the call's own run, for a call that must not be made twice
}

// Open reports whether the call is still in progress, as far as the host knows.
func (c InnerCall) Open() bool { return c.Outcome == "" && c.Error == "" }
