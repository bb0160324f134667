package wire

import (
	"encoding/json"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// A Call is the body of POST /v1/calls. The answer is an abi.Result, also for a
// tool that failed or ran into a limit. Only a call that was refused is answered
// with a [Problem].
type Call struct {
	Tool   string          `json:"tool" schema:"minLength=1"`
	Args   json.RawMessage `json:"args,omitempty" schema:"type=object"`    // absent means {}
	Limits CallLimits      `json:"limits,omitzero"`                        // absent ones are the tool's
	Locale string          `json:"locale,omitempty" schema:"maxLength=64"` // BCP 47
	DryRun bool            `json:"dry_run,omitempty"`                      // spawn_background, stop_background and message_background only report what they would do; other tools are called only if they are readonly
}

// CallLimits are the caller's own limits. They never exceed the operator's.
type CallLimits struct {
	Fuel           int64   `json:"fuel,omitempty" schema:"minimum=0"`         // units
	MemoryBytes    int64   `json:"memory_bytes,omitempty" schema:"minimum=0"` // of linear memory
	OutputBytes    int64   `json:"output_bytes,omitempty" schema:"minimum=0"` // written to all streams
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" schema:"minimum=0,maximum=2147483647"`
}

// A Spawn is the body of POST /v1/runs.
type Spawn struct {
	Tool               string          `json:"tool" schema:"minLength=1"`
	Args               json.RawMessage `json:"args,omitempty" schema:"type=object"`                             // absent means {}
	Title              string          `json:"title,omitempty" schema:"maxLength=120"`                          // absent means the tool's
	SignalOnCompletion *bool           `json:"signal_on_completion,omitempty" schema:"default=true"`            // whether the session is notified when it ends
	Wake               Wake            `json:"wake,omitempty" schema:"default=end"`                             // which ends the session is notified of, more precisely than signal_on_completion
	TimeoutSeconds     float64         `json:"timeout_seconds,omitempty" schema:"minimum=0,maximum=2147483647"` // deadline of the run; absent means the tool's
	Parent             string          `json:"parent,omitempty" schema:"form=run_id"`                           // an active run of the session that becomes its parent: stopping that stops this run too. Not for a schedule
	Locale             string          `json:"locale,omitempty" schema:"maxLength=64"`                          // BCP 47: of the sentences for people that the tool's manifest has
}

// A Stop is the body of POST /v1/runs/{run}/stop.
type Stop struct {
	Force  bool   `json:"force,omitempty"`  // end it at once, without a grace period
	Reason string `json:"reason,omitempty"` // kept with the run, cut to 200 characters
	Alone  bool   `json:"alone,omitempty"`  // leave its children running
}

// A Send is the body of POST /v1/runs/{run}/messages.
type Send struct {
	Message json.RawMessage `json:"message"` // at most 16 KiB
}

// MessageOf returns the message for a text that a person typed: its JSON, or else a JSON
// string.
func MessageOf(text string) json.RawMessage {
	if message := json.RawMessage(text); json.Valid(message) {
		return message
	}
	message, _ := json.Marshal(text) // any string can be encoded
	return message
}

// A Message was sent to a run.
type Message struct {
	ID      int64           `json:"id"` // grows with each message of the run
	SentAt  time.Time       `json:"sent_at"`
	By      string          `json:"by,omitempty"` // who sent it, if not the session's agent
	Message json.RawMessage `json:"message"`
}

// Messages is the answer of GET /v1/runs/{run}/messages.
type Messages struct {
	Messages []Message `json:"messages"` // that the tool has not taken yet, in the order they were sent
}

// Answers is the body of POST /v1/runs/{run}/answers.
type Answers struct {
	Answers map[string]abi.Answer `json:"answers"` // by the keys of the run's questions; some may be left for later
}

// Seen is the body of POST /v1/notices/ack.
type Seen struct {
	TaskIDs []string `json:"task_ids" schema:"minItems=1,maxItems=1000,form=run_id"`
}

// NewSchedule is the body of POST /v1/schedules. Set exactly one of Cron and At.
type NewSchedule struct {
	Spawn
	Cron     string  `json:"cron_expression,omitempty"`                        // five fields: minute, hour, day of the month, month, day of the week
	At       string  `json:"scheduled_at,omitempty" schema:"format=date-time"` // once, in the form of RFC 3339
	Timezone string  `json:"timezone,omitempty" schema:"default=UTC"`          // an IANA name
	Overlap  Overlap `json:"overlap,omitempty" schema:"default=skip"`          // what to do if the run of the firing before is still active
}

// Overlap says what a schedule does when it fires while its last run is active.
type Overlap string

// The ways to overlap.
const (
	OverlapSkip   Overlap = "skip"            // skip the firing
	OverlapQueue  Overlap = "queue"           // start the run when the earlier one has ended; while one waits, skip firings
	OverlapCancel Overlap = "cancel_previous" // stop the earlier run, and start the new one when it has ended
)

// A Schedule starts runs of a tool, repeatedly or once.
type Schedule struct {
	DryRun             bool      `json:"dry_run,omitempty"` // it is only described: nothing was stored or changed
	ScheduleID         string    `json:"schedule_id"`
	Session            string    `json:"session"`
	Tool               string    `json:"tool"`
	ToolVersion        string    `json:"tool_version,omitempty"`
	Title              string    `json:"title"`
	Args               string    `json:"args,omitempty"` // shortened, values with the name of a secret left out; not in lists
	SignalOnCompletion bool      `json:"signal_on_completion"`
	Wake               Wake      `json:"wake,omitempty"`   // as of its runs
	DeadlineSeconds    float64   `json:"deadline_seconds"` // of each run
	Type               string    `json:"schedule_type"`    // cron or once
	Cron               string    `json:"cron_expression,omitempty"`
	At                 time.Time `json:"scheduled_at,omitzero"`
	Timezone           string    `json:"timezone"`
	Overlap            Overlap   `json:"overlap"`
	Enabled            bool      `json:"enabled"`
	DisabledReason     string    `json:"disabled_reason,omitempty"`
	CreatedAt          time.Time `json:"created_at"`
	NextTriggerAt      time.Time `json:"next_trigger_at,omitzero"`
	LastTriggeredAt    time.Time `json:"last_triggered_at,omitzero"`
	LastTaskID         string    `json:"last_task_id,omitempty"`
	TriggerCount       int       `json:"trigger_count"`
	RejectedInARow     int       `json:"rejected_in_a_row,omitempty"`
}

// Schedules is the answer of GET /v1/schedules.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
}

// A Value is a value that the tools of a session share.
type Value struct {
	Key       string          `json:"key"`
	Version   int64           `json:"version"` // each write gives it a higher one
	Bytes     int             `json:"bytes"`
	WrittenAt time.Time       `json:"written_at"`
	ExpiresAt time.Time       `json:"expires_at,omitzero"` // of a key-value store: when it will be missing
	Value     json.RawMessage `json:"value,omitempty"`     // not in lists
}

// KVStore is a key-value store of a plugin. Values that have expired may be counted.
type KVStore struct {
	Plugin    string    `json:"plugin"`
	Session   string    `json:"session,omitempty"` // whose it is; absent if all sessions share it
	Keys      int       `json:"keys"`
	Bytes     int64     `json:"bytes"` // of keys and values
	ChangedAt time.Time `json:"changed_at"`
}

// KVStores is the answer of GET /v1/kv.
type KVStores struct {
	Stores []KVStore `json:"stores"` // by session and plugin
}

// Values is the answer of GET /v1/session/values and /v1/kv/{plugin}.
type Values struct {
	Values []Value `json:"values"` // by key
}

// SetValue is the body of PUT /v1/session/values/{key}.
type SetValue struct {
	Value json.RawMessage `json:"value"` // at most 64 KiB
	// Version is the version that the stored value must have, 0 for none; absent stores in any case.
	Version *int64 `json:"version,omitempty" schema:"minimum=0"`
}

// Session is the answer of GET /v1/session.
type Session struct {
	Session  string `json:"session"`
	Snapshot string `json:"snapshot"` // the active runs, for a model whose conversation was cut; at most 1,000 characters
}

// Health is the answer of GET /healthz and /readyz.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
}
