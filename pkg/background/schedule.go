package background

import (
	"encoding/json"
	"time"
)

// Overlap says what a schedule does when it fires while a run of an earlier
// firing is still active.
type Overlap string

// What a schedule does on overlap. The zero value is OverlapSkip.
const (
	OverlapSkip   Overlap = "skip"            // nothing: the firing is left out
	OverlapQueue  Overlap = "queue"           // the run waits until the earlier one has ended
	OverlapCancel Overlap = "cancel_previous" // the earlier run is stopped, the new one starts when it has ended
)

// A Schedule starts runs of a tool: again and again, by a cron expression, or
// once. It is a value, as a [Run] is. Its JSON form is what engines store.
type Schedule struct {
	ID                 string          `json:"schedule_id"` // "sc_" and 26 characters, as a run's
	Session            string          `json:"session"`
	Tool               string          `json:"tool"`
	Version            string          `json:"tool_version,omitempty"`
	Args               json.RawMessage `json:"args"`
	Title              string          `json:"title"`
	SignalOnCompletion bool            `json:"signal_on_completion"`
	Timeout            time.Duration   `json:"timeout_ns"`
	CreatedAt          time.Time       `json:"created_at"`

	Cron     string    `json:"cron_expression,omitempty"` // five fields; "" for a one-shot
	At       time.Time `json:"scheduled_at,omitzero"`     // zero for a recurring one
	Timezone string    `json:"timezone"`                  // an IANA name
	Overlap  Overlap   `json:"overlap"`

	Enabled  bool      `json:"enabled"`
	Disabled string    `json:"disabled_reason,omitempty"` // why it is not enabled
	NextAt   time.Time `json:"next_trigger_at,omitzero"`  // zero if it will not fire again
	LastAt   time.Time `json:"last_triggered_at,omitzero"`
	LastRun  string    `json:"last_task_id,omitempty"`
	Fired    int       `json:"trigger_count"`
	Rejected int       `json:"rejected_in_a_row,omitempty"` // firings refused since one was not
	Revision int64     `json:"revision"`                    // counts the changes; set by the engine
}

func (s Schedule) clone() Schedule {
	s.Args = append(json.RawMessage(nil), s.Args...)
	return s
}
