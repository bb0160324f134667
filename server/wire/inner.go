package wire

import (
	"time"

	"github.com/toolhost/toolhost/abi"
)

// MaxInnerCalls is how many calls that a run has made are kept with it, the first.
const MaxInnerCalls = 200

// CallLost is the error of a call of which only a host knew that has ended since: it may have taken effect.
const CallLost = "lost"

// InnerCalls is the answer of GET /v1/runs/{run}/calls: what the tool of a run has called, by itself and through the tools that it called, each after its caller, and those of the same caller in the order in which they began. The calls of runs that it has made are among them.
type InnerCalls struct {
	Attempt int         `json:"attempt,omitempty"` // of the run, that has made them
	Calls   []InnerCall `json:"calls"`
	More    int         `json:"more,omitempty"` // calls that began later and were not kept
}

// An InnerCall is a call of a tool that the tool of a run has made. It never has arguments or results. Its cost is part of the run's.
type InnerCall struct {
	Number         int       `json:"number"`            // from 1, in this answer
	Within         int       `json:"within,omitempty"`  // the number of the call whose tool has made it; absent: the run's own tool has
	Depth          int       `json:"depth"`             // how many calls it is within, and 1
	Tool           string    `json:"tool"`              // as its caller named it, at most 40 characters
	At             time.Time `json:"at"`                // when it began
	ElapsedSeconds float64   `json:"elapsed_seconds"`   // until it ended, or until now
	Outcome        abi.Kind  `json:"outcome,omitempty"` // how it ended; absent while it runs, and if nobody knows
	Error          string    `json:"error,omitempty"`   // why it had no result: a code of calls, or lost
	Fuel           int64     `json:"fuel,omitempty"`    // units
	TaskID         string    `json:"task_id,omitempty"` // the run that the call is: one that must not be made twice is a run of its own
}

// Open reports whether the call has not ended, as far as is known.
func (c InnerCall) Open() bool { return c.Outcome == "" && c.Error == "" }
