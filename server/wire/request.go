package wire

import (
	"encoding/json"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A Call is the request body of POST /v1/calls. The response is an abi.Result, even if
// the tool failed or reached a limit. The response is a [Problem] only if the call was
// refused.
type Call struct {
	Tool   string          `json:"tool" schema:"minLength=1"`
	Args   json.RawMessage `json:"args,omitempty" schema:"type=object"`    // absent means {}
	Limits CallLimits      `json:"limits,omitzero"`                        // limits of this call; an absent one defaults to the tool's limit
	Locale string          `json:"locale,omitempty" schema:"maxLength=64"` // BCP 47 language tag
	DryRun bool            `json:"dry_run,omitempty"`                      // only readonly tools are called; for all others, the result says what the call would do
}

// CallLimits are the limits that the caller asks for. They are capped at the operator's
// maximum.
type CallLimits struct {
	Fuel           int64   `json:"fuel,omitempty" schema:"minimum=0"`         // units of fuel
	MemoryBytes    int64   `json:"memory_bytes,omitempty" schema:"minimum=0"` // linear memory
	OutputBytes    int64   `json:"output_bytes,omitempty" schema:"minimum=0"` // bytes written to all streams
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" schema:"minimum=0,maximum=2147483647"`
}

// A Spawn is the request body of POST /v1/runs.
type Spawn struct {
	Tool               string          `json:"tool" schema:"minLength=1"`
	Args               json.RawMessage `json:"args,omitempty" schema:"type=object"`                       // absent means {}
	Title              string          `json:"title,omitempty" schema:"maxLength=120"`                    // absent means the tool's title
	SignalOnCompletion *bool           `json:"signal_on_completion,omitempty" schema:"default=true"`      // notify the session when the run ends
	Wake               Wake            `json:"wake,omitempty" schema:"default=end"`                       // which outcomes notify the session; an alternative to signal_on_completion
	TimeoutSeconds     float64         `json:"timeout_seconds,omitempty" schema:"minimum=0,maximum=3600"` // deadline of the run; absent means the tool's deadline. The operator sets the maximum, an hour by default
	Parent             string          `json:"parent,omitempty" schema:"form=run_id"`                     // id of an active run of the session: stopping the parent stops this run too. Not allowed for schedules
	Locale             string          `json:"locale,omitempty" schema:"maxLength=64"`                    // BCP 47 language tag for the texts for people in the tool's manifest
}

// A Stop is the request body of POST /v1/runs/{run}/stop.
type Stop struct {
	Force  bool   `json:"force,omitempty"`  // stop at once, without a grace period
	Reason string `json:"reason,omitempty"` // stored with the run, cut to 200 characters
	Alone  bool   `json:"alone,omitempty"`  // do not stop the run's children
}

// A Send is the request body of POST /v1/runs/{run}/messages.
type Send struct {
	Message json.RawMessage `json:"message"` // at most 16 KiB
}

// MessageOf converts a text that a person typed to a message. Valid JSON stays unchanged,
// and any other text becomes a JSON string.
func MessageOf(text string) json.RawMessage {
	if message := json.RawMessage(text); json.Valid(message) {
		return message
	}
	message, _ := json.Marshal(text) // any string can be encoded
	return message
}

// A Message is a message that was sent to a run.
type Message struct {
	ID      int64           `json:"id"` // increases with each message of the run
	SentAt  time.Time       `json:"sent_at"`
	By      string          `json:"by,omitempty"` // the sender, unless it is the session's agent
	Message json.RawMessage `json:"message"`
}

// Messages is the response body of GET /v1/runs/{run}/messages.
type Messages struct {
	Messages []Message `json:"messages"` // unread messages, in the order in which they were sent
}

// Answers is the request body of POST /v1/runs/{run}/answers.
type Answers struct {
	Answers map[string]abi.Answer `json:"answers"` // by question key; the remaining questions can be answered later
}

// Seen is the request body of POST /v1/notices/ack.
type Seen struct {
	TaskIDs []string `json:"task_ids" schema:"minItems=1,maxItems=1000,form=run_id"`
}

// NewSchedule is the request body of POST /v1/schedules. Set exactly one of Cron and At.
type NewSchedule struct {
	Spawn
	Cron     string  `json:"cron_expression,omitempty"`                        // five fields: minute, hour, day of the month, month, day of the week
	At       string  `json:"scheduled_at,omitempty" schema:"format=date-time"` // RFC 3339 time of a schedule that fires once
	Timezone string  `json:"timezone,omitempty" schema:"default=UTC"`          // name of an IANA time zone
	Overlap  Overlap `json:"overlap,omitempty" schema:"default=skip"`          // what to do if the previous run is still active
}

// Overlap says what a schedule does when it fires while its previous run is active.
type Overlap = engine.Overlap

// The policies for overlapping runs.
const (
	OverlapSkip   = engine.OverlapSkip
	OverlapQueue  = engine.OverlapQueue
	OverlapCancel = engine.OverlapCancel
)

// A Schedule starts runs of a tool, repeatedly or once.
type Schedule struct {
	DryRun             bool      `json:"dry_run,omitempty"` // nothing was stored or changed: this only describes the schedule
	ScheduleID         string    `json:"schedule_id"`
	Session            string    `json:"session"`
	Tool               string    `json:"tool"`
	ToolVersion        string    `json:"tool_version,omitempty"`
	Title              string    `json:"title"`
	Args               string    `json:"args,omitempty"` // shortened, with secret values redacted; not in lists
	SignalOnCompletion bool      `json:"signal_on_completion"`
	Wake               Wake      `json:"wake,omitempty"`   // which outcomes of its runs notify the session
	DeadlineSeconds    float64   `json:"deadline_seconds"` // deadline of each run; 0 for none
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

// Schedules is the response body of GET /v1/schedules.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
}

// A Value is a value that the tools of a session share, or one in a key-value store.
type Value struct {
	Key       string          `json:"key"`
	Version   int64           `json:"version"` // increases with each write
	Bytes     int             `json:"bytes"`
	WrittenAt time.Time       `json:"written_at"`
	ExpiresAt time.Time       `json:"expires_at,omitzero"` // in a key-value store: when the value expires
	Value     json.RawMessage `json:"value,omitempty"`     // not in lists
}

// A KVStore is a key-value store of a plugin. Its counts may include expired values.
type KVStore struct {
	Plugin    string    `json:"plugin"`
	Session   string    `json:"session,omitempty"` // session that owns the store; absent if all sessions share it
	Keys      int       `json:"keys"`
	Bytes     int64     `json:"bytes"` // size of keys and values
	ChangedAt time.Time `json:"changed_at"`
}

// KVStores is the response body of GET /v1/kv.
type KVStores struct {
	Stores []KVStore `json:"stores"` // sorted by session and plugin
}

// Values is the response body of GET /v1/session/values and GET /v1/kv/{plugin}.
type Values struct {
	Values []Value `json:"values"` // sorted by key
}

// SetValue is the request body of PUT /v1/session/values/{key}.
type SetValue struct {
	Value json.RawMessage `json:"value"` // at most 64 KiB
	// Version is the expected version of the stored value; 0 means that it must not exist.
	// If absent, the value is stored unconditionally.
	Version *int64 `json:"version,omitempty" schema:"minimum=0"`
}

// Session is the response body of GET /v1/session.
type Session struct {
	Session  string `json:"session"`
	Snapshot string `json:"snapshot"` // summary of the active runs for a model whose conversation was truncated; at most 1,000 characters
}

// Health is the response body of GET /healthz and GET /readyz.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
	// Warnings are problems that need the operator's attention but do not stop the server.
	// They are public.
	Warnings []string `json:"warnings,omitempty"`
}
