// Package wire has the JSON shape of each thing that HTTP, the Go client, the
// command, the page and events show: one type for each, used by all of them.
//
// The comments of types and fields are also the descriptions of the public API.
// The tag "schema" says what a request body must satisfy beyond its Go type.
package wire

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// Status is the state of a run.
type Status string

// The states of a run. The last three are final.
const (
	StatusQueued    Status = "queued"
	StatusRunning   Status = "running"
	StatusWaiting   Status = "waiting" // it has begun, and waits without taking up anything
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	StatusCanceled  Status = "canceled"
)

// Terminal reports whether a run in this state has ended.
func (s Status) Terminal() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusCanceled
}

// Origin says how a run came to be.
type Origin string

// The origins of runs.
const (
	OriginSpawned   Origin = "spawned"
	OriginParked    Origin = "parked"    // a call that took long, or one with an idempotency key
	OriginScheduled Origin = "scheduled" // a schedule fired
)

// ErrorKind says why a run failed.
type ErrorKind string

// The reasons a run fails for.
const (
	KindToolError          ErrorKind = "tool_error"          // the tool reported an error, or exited with another code than 0
	KindInternal           ErrorKind = "internal"            // the host failed; its log has the details
	KindTimeout            ErrorKind = "timeout"             // the run's deadline passed
	KindFuelExhausted      ErrorKind = "fuel_exhausted"      // the tool used up its fuel
	KindMemoryLimit        ErrorKind = "memory_limit"        // the tool asked for more memory than it may have
	KindOutputLimit        ErrorKind = "output_limit"        // the tool wrote more than it may
	KindTrap               ErrorKind = "trap"                // the tool crashed
	KindConnectionRequired ErrorKind = "connection_required" // the user has to connect an account first
	KindLimit              ErrorKind = "limit"               // a limit on runs was reached
	KindRejected           ErrorKind = "rejected"            // policy or schema refused the run when it started
	KindOrphaned           ErrorKind = "orphaned"            // the host died, and the run may not be repeated
	KindInterrupted        ErrorKind = "interrupted"         // the host shut down
)

// Wake says which ends of a run its session is notified of.
type Wake string

// The ends a session is notified of.
const (
	WakeEnd     Wake = "end"     // each
	WakeFailure Wake = "failure" // failed and canceled runs
	WakeNone    Wake = "none"    // none: the same as signal_on_completion false
)

// NoticeState says whether the session was notified of the end of a run.
type NoticeState string

// The states of a notice. It is empty for a run without a notice.
const (
	NoticePending NoticeState = "pending" // to be handed out
	NoticeSeen    NoticeState = "seen"    // acknowledged, or the end was seen otherwise
)

// The files of a run that has ended.
const (
	OutputLog  = "output.log"
	ResultJSON = "result.json"
)

// The forms of ids, as regular expressions.
const (
	RunIDForm      = "^bg_[a-z2-7]{26}(-[0-9]{1,10}){0,8}$" // a run that another one's call has become has the id of that one, and a number
	ScheduleIDForm = "^sc_[a-z2-7]{26}$"
)

var (
	runIDForm      = regexp.MustCompile(RunIDForm)
	scheduleIDForm = regexp.MustCompile(ScheduleIDForm)
)

// IsRunID reports whether id has the form of a run id.
func IsRunID(id string) bool { return runIDForm.MatchString(id) }

// IsScheduleID reports whether id has the form of a schedule id.
func IsScheduleID(id string) bool { return scheduleIDForm.MatchString(id) }

// A Run is a background run. What is absent is unknown yet, or does not exist.
type Run struct {
	DryRun         bool      `json:"dry_run,omitempty"` // it is only described: nothing was started, and it has no id
	TaskID         string    `json:"task_id,omitempty"`
	Session        string    `json:"session"`
	Tool           string    `json:"tool"`
	ToolVersion    string    `json:"tool_version,omitempty"`   // the digest of its plugin
	Kind           string    `json:"kind,omitempty"`           // of the tool: wasm, or go for one of the program
	Plugin         string    `json:"plugin,omitempty"`         // that has the tool
	PluginVersion  string    `json:"plugin_version,omitempty"` // as the plugin says it
	Title          string    `json:"title"`
	Args           string    `json:"args,omitempty"`            // shortened, values with the name of a secret left out; not in lists
	Held           string    `json:"held,omitempty"`            // what it waits for before it starts: approval
	ArgsIncomplete bool      `json:"args_incomplete,omitempty"` // secret arguments were not stored: the run cannot be repeated
	Origin         Origin    `json:"origin"`
	By             string    `json:"by,omitempty"` // who asked for it, if not the session's agent
	Status         Status    `json:"status"`
	Done           bool      `json:"done"`                // the status is final, and stored
	Unsaved        bool      `json:"unsaved,omitempty"`   // it has ended, and that is not stored yet, for example because the disk is full: a crash would lose it. Check again until it is done
	Stopping       *Stopping `json:"stopping,omitempty"`  // somebody asked for its end
	Attempt        int       `json:"attempt"`             // 0 until it starts
	Reused         bool      `json:"reused,omitempty"`    // of a spawn: it is the earlier run of the idempotency key
	Detail         string    `json:"detail,omitempty"`    // what it says it is doing
	Narration      string    `json:"narration,omitempty"` // a sentence for a person, on what it does or did, if its tool has one; at most 300 characters
	Progress       *Progress `json:"progress,omitempty"`

	CreatedAt       time.Time `json:"created_at"`
	StartedAt       time.Time `json:"started_at,omitzero"`
	ParkedAt        time.Time `json:"parked_at,omitzero"` // when the call became a background run
	FinishedAt      time.Time `json:"finished_at,omitzero"`
	ElapsedSeconds  float64   `json:"elapsed_seconds"`  // from its start to its end, or to now; rounded to a tenth
	DeadlineSeconds float64   `json:"deadline_seconds"` // how long it may take from its start
	WaitedSeconds   float64   `json:"waited_seconds,omitempty"`
	WaitsUntil      time.Time `json:"waits_until,omitzero"` // when a waiting run continues at the latest, if it waits for a time

	Cost      *Cost      `json:"cost,omitempty"`      // of all attempts so far
	Diagnosis *Diagnosis `json:"diagnosis,omitempty"` // why it failed; only for the operator, and only in GET /v1/runs/{run}

	OutputBytes  int64     `json:"output_bytes"` // written so far, kept or not
	LastOutputAt time.Time `json:"last_output_at,omitzero"`
	Output       *Excerpt  `json:"output,omitempty"` // if a tail was requested

	Questions map[string]abi.Question `json:"questions,omitempty"` // open questions to its user, by key; not in lists

	Result        json.RawMessage `json:"result,omitempty"`        // not in lists
	Content       []abi.Block     `json:"content,omitempty"`       // what the tool showed besides its result or its error; not in lists
	ResultBytes   int             `json:"result_bytes,omitempty"`  // size of a result that was left out: too large among several runs. Get the run alone to see it
	ContentBytes  int             `json:"content_bytes,omitempty"` // size of content that was left out, likewise
	ExitCode      *int            `json:"exit_code,omitempty"`
	Error         *RunError       `json:"error,omitempty"` // if it failed
	Summary       string          `json:"summary,omitempty"`
	ArtifactError string          `json:"artifact_error,omitempty"` // which part of it could not be stored

	SignalOnCompletion bool        `json:"signal_on_completion"`
	Wake               Wake        `json:"wake,omitempty"` // which ends its session is notified of, if not of each or of none
	Notice             NoticeState `json:"notice,omitempty"`
	IdempotencyKey     string      `json:"idempotency_key,omitempty"`
	Parent             string      `json:"parent,omitempty"`       // the run that started it
	ScheduleID         string      `json:"schedule_id,omitempty"`  // the schedule that fired it
	ScheduledFor       time.Time   `json:"scheduled_for,omitzero"` // when it was due
	LogPath            string      `json:"log_path"`               // below the data folder of the host
	ResultPath         string      `json:"result_path"`            // likewise; exists once the run has ended
}

// Progress is how far a run says it is.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // 0: unknown
	Unit    string  `json:"unit,omitempty"`  // of both, such as files
	Message string  `json:"message,omitempty"`
}

// Cost is what a run or a call used.
type Cost struct {
	Fuel        int64   `json:"fuel"`         // units
	CPUSeconds  float64 `json:"cpu_seconds"`  // on a processor of the host
	WaitSeconds float64 `json:"wait_seconds"` // for slots and processors, while it ran
	MemoryPeak  int64   `json:"memory_peak"`  // bytes of linear memory; of a run, those of the attempt that had most
}

// Diagnosis says why a run or a call failed. It may have secrets of the tool and
// internals of the host: never show it to a model.
type Diagnosis struct {
	Reason    string `json:"reason"`               // the internal error
	Trace     string `json:"trace,omitempty"`      // the stack of the plugin, innermost first
	LastWords string `json:"last_words,omitempty"` // the end of what the plugin wrote to its standard error
}

// RunError says why a run failed.
type RunError struct {
	Kind    ErrorKind `json:"kind"`
	Message string    `json:"message"`
}

// Stopping says who asked for the end of a run, when and why.
type Stopping struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// An Excerpt is the latest output of a run, cleaned for a model.
type Excerpt struct {
	Text         string    `json:"text"`
	Cursor       string    `json:"cursor"`                  // pass it to the next check to see what follows Text
	OmittedBytes int64     `json:"omitted_bytes,omitempty"` // between the cursor, or the beginning, and Text
	PendingBytes int64     `json:"pending_bytes,omitempty"` // after Text, not shown yet
	LastOutputAt time.Time `json:"last_output_at,omitzero"`
	Note         string    `json:"note,omitempty"`
}

// Output is the data of an event "output" of GET /v1/runs/{run}/output.
type Output struct {
	Attempt int    `json:"attempt"`           // of the run; each attempt has its own log
	Offset  int64  `json:"offset"`            // of the first byte in the whole log
	Omitted int64  `json:"omitted,omitempty"` // bytes before it that were not kept
	Text    string `json:"text,omitempty"`
	Base64  []byte `json:"base64,omitempty"` // instead of Text, if the output is not valid UTF-8
}

// Runs is the answer of GET /v1/runs.
type Runs struct {
	Runs    []Run    `json:"runs"`
	Next    string   `json:"next,omitempty"`    // the value of before for the next page
	Missing []string `json:"missing,omitempty"` // requested ids that the session does not have
}

// Stopped is what became of a request to stop a run.
type Stopped struct {
	TaskID          string          `json:"task_id"`
	Status          Status          `json:"status"`
	Stopped         bool            `json:"stopped"`                    // the run was canceled, and its work has ended
	AlreadyFinished bool            `json:"already_finished,omitempty"` // the run ended by itself, before the stop took effect
	Stopping        bool            `json:"stopping,omitempty"`         // the run was asked to end, and has not ended yet
	Unsaved         bool            `json:"unsaved,omitempty"`          // the run has ended, and that is not stored yet
	DryRun          bool            `json:"dry_run,omitempty"`          // nothing was stopped
	Next            string          `json:"next,omitempty"`             // advice, if it is unsaved
	Result          json.RawMessage `json:"result,omitempty"`
	Content         json.RawMessage `json:"content,omitempty"` // what the tool showed besides its result or its error
	Error           *RunError       `json:"error,omitempty"`
}

// A Notice says that a run has ended.
type Notice struct {
	TaskID         string    `json:"task_id"`
	Session        string    `json:"session"`
	Tool           string    `json:"tool"`
	Title          string    `json:"title"`
	Status         Status    `json:"status"`
	ErrorKind      ErrorKind `json:"error_kind,omitempty"`
	ElapsedSeconds float64   `json:"elapsed_seconds"`
	ExitCode       *int      `json:"exit_code,omitempty"`
	Summary        string    `json:"summary,omitempty"`   // the tool's own
	Narration      string    `json:"narration,omitempty"` // a sentence for a person
	Text           string    `json:"text"`                // the whole notice in one line, with the result or its beginning, at most 1,000 characters; not escaped
	ResultPath     string    `json:"result_path"`
	LogPath        string    `json:"log_path,omitempty"` // below the data folder of the host, for its operator; absent if it keeps runs in memory
	At             time.Time `json:"at"`                 // when the run ended
}

// Notices is the answer of GET /v1/notices.
type Notices struct {
	Notices []Notice `json:"notices"`
	More    int      `json:"more,omitempty"` // notices that are pending besides these
	Text    string   `json:"text,omitempty"` // the notices as a text to put before a model
}

// EventKind says what happened.
type EventKind string

// What happens to runs, schedules and tools.
const (
	EventQueued    EventKind = "queued"    // a run was submitted, or queued again
	EventHeld      EventKind = "held"      // a run was submitted, and waits until a person has approved it; then it is queued
	EventStarted   EventKind = "started"   // a run started, or a call became a run
	EventBeat      EventKind = "beat"      // a running run reported progress
	EventStopping  EventKind = "stopping"  // a running run was asked to end
	EventEnded     EventKind = "ended"     // a run has ended
	EventMessage   EventKind = "message"   // a run was sent a message
	EventSeen      EventKind = "seen"      // the notice of a run was acknowledged
	EventPurged    EventKind = "purged"    // the record of a run or schedule was removed
	EventScheduled EventKind = "scheduled" // a schedule was stored or changed
	EventMissed    EventKind = "missed"    // events were dropped because the watcher was too slow: read everything again
	EventTools     EventKind = "tools"     // plugins were reloaded: GET /v1/tools may have another answer
)

// An Event is the data of an event of GET /v1/events.
type Event struct {
	Kind     EventKind `json:"kind"`
	Run      *Run      `json:"run,omitempty"`      // after the change, as lists show it
	Schedule *Schedule `json:"schedule,omitempty"` // after the change
}
