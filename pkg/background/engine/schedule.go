package engine

import (
	"encoding/json"
	"time"
)

// Overlap says what a schedule does when it fires while an earlier run of
// it is active.
type Overlap string

// The values of Overlap; "" is OverlapSkip.
const (
	OverlapSkip   Overlap = "skip"            // skip the firing
	OverlapQueue  Overlap = "queue"           // queue the new run until the earlier one has ended; while one is queued, skip firings
	OverlapCancel Overlap = "cancel_previous" // stop the earlier run, and start the new one when it has ended
)

// Reasons why a schedule is not enabled.
const (
	DisabledStopped  = "stopped"                                    // by its session or an operator
	DisabledFired    = "it has fired"                               // a one-shot
	DisabledMissed   = "the host was down when it was due"          // a one-shot
	DisabledRejected = "its runs were refused three times in a row" // when they were to start
	DisabledOver     = "it does not fire again within 10 years"     // a cron expression
	DisabledZone     = "its time zone is unknown to the host"       // or the host cannot parse its cron expression any more
)

// A Schedule starts runs of a tool, repeatedly by a cron expression or once. It is a value, like
// a [Run]. Engines store its JSON form.
//
// Its cron expression is read as in crontab(5): five fields, minute hour
// day-of-month month day-of-week, of "*", numbers, names of months and weekdays,
// ranges, steps and lists; a day matches by both of its fields, or by one of them
// if neither has a "*". It follows the clock of its time zone. A time that the
// clock skips fires at the first minute after the gap; a time that occurs twice
// fires only the first time. With a "*" in its hour field it is an interval, as in
// cron(8): it fires whenever the clock shows a time that matches.
type Schedule struct {
	ID                 string          `json:"schedule_id"`
	Session            string          `json:"session"`
	Tool               string          `json:"tool"`
	Version            string          `json:"tool_version,omitempty"`
	Args               json.RawMessage `json:"args"`
	Terms              json.RawMessage `json:"terms,omitempty"` // terms of its runs, see Run.Terms
	Title              string          `json:"title"`
	By                 string          `json:"by,omitempty"` // user or operator that made it; "": the session's agent
	SignalOnCompletion bool            `json:"signal_on_completion"`
	Wake               Wake            `json:"wake,omitempty"`
	Timeout            time.Duration   `json:"timeout_ns"`
	CreatedAt          time.Time       `json:"created_at"`

	Cron     string    `json:"cron_expression,omitempty"` // five fields; "" for a one-shot
	At       time.Time `json:"scheduled_at,omitzero"`     // time at which a one-shot is due; zero for a recurring schedule
	Timezone string    `json:"timezone"`                  // IANA name of the time zone
	Overlap  Overlap   `json:"overlap"`

	Enabled  bool      `json:"enabled"`
	Disabled string    `json:"disabled_reason,omitempty"` // why it is disabled: one of the Disabled constants
	NextAt   time.Time `json:"next_trigger_at,omitzero"`  // next time at which it fires; zero: never again
	LastAt   time.Time `json:"last_triggered_at,omitzero"`
	LastRun  string    `json:"last_task_id,omitempty"`
	Fired    int       `json:"trigger_count"`
	Rejected int       `json:"rejected_in_a_row,omitempty"` // number of firings in a row that were refused, up to now
	Revision int64     `json:"revision"`                    // number of changes; set by the engine
}
