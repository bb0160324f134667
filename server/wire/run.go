// Package wire defines the JSON types that the HTTP API, its events, the Go client, the
// command and the page share.
//
// The comments of types and fields are the source of the descriptions in the OpenAPI
// document, which is edited by hand. The struct tag "schema" documents what a request
// body must satisfy beyond its Go type.
package wire

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Parts of a run's record that the API shows unchanged.
type (
	Status      = engine.Status      // state of a run
	Origin      = engine.Origin      // how a run was created
	ErrorKind   = engine.ErrorKind   // why a run failed
	NoticeState = engine.NoticeState // whether the session was notified of a run's end; empty without a notice
	Progress    = engine.Progress    // progress that a run reports
	RunError    = engine.RunError    // why a run failed, for a model
	Diagnosis   = engine.Diagnosis   // why a run or a call failed, never for a model
	Excerpt     = output.Excerpt     // latest output of a run, cleaned for a model
)

// The states of a run. The last three are final.
const (
	StatusQueued    = engine.StatusQueued
	StatusRunning   = engine.StatusRunning
	StatusWaiting   = engine.StatusWaiting
	StatusSucceeded = engine.StatusSucceeded
	StatusFailed    = engine.StatusFailed
	StatusCanceled  = engine.StatusCanceled
)

// Statuses lists the states of a run.
var Statuses = engine.Statuses

// The origins of runs.
const (
	OriginSpawned   = engine.OriginSpawned
	OriginParked    = engine.OriginParked
	OriginScheduled = engine.OriginScheduled
)

// The reasons why a run fails. The second group is for runs of tools only.
const (
	KindToolError   = engine.KindToolError
	KindInternal    = engine.KindInternal
	KindTimeout     = engine.KindTimeout
	KindRejected    = engine.KindRejected
	KindOrphaned    = engine.KindOrphaned
	KindInterrupted = engine.KindInterrupted

	KindFuelExhausted      ErrorKind = "fuel_exhausted"      // the tool used up its fuel
	KindMemoryLimit        ErrorKind = "memory_limit"        // the tool exceeded its memory limit
	KindOutputLimit        ErrorKind = "output_limit"        // the tool exceeded its output limit
	KindTrap               ErrorKind = "trap"                // the tool crashed
	KindConnectionRequired ErrorKind = "connection_required" // the user has to connect an account first
	KindLimit              ErrorKind = "limit"               // a limit on runs was reached
)

// Wake selects the outcomes of a run that its session is notified of.
type Wake string

// The outcomes that a session is notified of.
const (
	WakeEnd     Wake = "end"                    // every outcome; stored as an empty string
	WakeFailure      = Wake(engine.WakeFailure) // failed and canceled runs
	WakeNone    Wake = "none"                   // no outcome: the same as signal_on_completion false
)

// The states of a notice.
const (
	NoticePending = engine.NoticePending
	NoticeSeen    = engine.NoticeSeen
)

// The files of a run that has ended.
const (
	OutputLog  = engine.OutputLog
	ResultJSON = engine.ResultJSON
)

// The forms of ids, as regular expressions.
const (
	RunIDForm      = "^bg_[a-z2-7]{26}(-[0-9]{1,10}){0,8}$" // if a nested call is a run of its own, its id is the calling run's id and a number
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

// A Run is a background run. Absent fields are not known yet or do not apply.
type Run struct {
	DryRun         bool      `json:"dry_run,omitempty"` // nothing was started: this only describes the run, which has no id
	TaskID         string    `json:"task_id,omitempty"`
	Session        string    `json:"session"`
	Tool           string    `json:"tool"`
	ToolVersion    string    `json:"tool_version,omitempty"`   // digest of the plugin's file
	Kind           string    `json:"kind,omitempty"`           // kind of tool: wasm for a plugin's, go for one of the embedding program
	Plugin         string    `json:"plugin,omitempty"`         // plugin that provides the tool
	PluginVersion  string    `json:"plugin_version,omitempty"` // version that the plugin declares
	Title          string    `json:"title"`
	Args           string    `json:"args,omitempty"`            // shortened, with secret values redacted; not in lists
	Held           string    `json:"held,omitempty"`            // what the run waits for before it starts: approval
	ArgsIncomplete bool      `json:"args_incomplete,omitempty"` // secret arguments were not stored: the run cannot be repeated
	Origin         Origin    `json:"origin"`
	By             string    `json:"by,omitempty"` // the requester, unless it is the session's agent
	Status         Status    `json:"status"`
	Done           bool      `json:"done"`                // the status is final, and stored
	Unsaved        bool      `json:"unsaved,omitempty"`   // ended, but the outcome is not stored yet, for example because the disk is full, and a crash would lose it. Check again until done is true
	Stopping       *Stopping `json:"stopping,omitempty"`  // set once a stop was requested
	Attempt        int       `json:"attempt"`             // number of the current attempt; 0 until the run starts
	Reused         bool      `json:"reused,omitempty"`    // in the response to a spawn: the run of an earlier request with the same idempotency key
	Detail         string    `json:"detail,omitempty"`    // status text that the tool reports
	Narration      string    `json:"narration,omitempty"` // status text for people, if the tool has one; at most 300 characters
	Progress       *Progress `json:"progress,omitempty"`

	CreatedAt       time.Time `json:"created_at"`
	StartedAt       time.Time `json:"started_at,omitzero"`
	ParkedAt        time.Time `json:"parked_at,omitzero"` // when the call became a background run
	FinishedAt      time.Time `json:"finished_at,omitzero"`
	ElapsedSeconds  float64   `json:"elapsed_seconds"`  // time from the start to the end, or until now; rounded to a tenth
	DeadlineSeconds float64   `json:"deadline_seconds"` // longest duration from the start; 0 for none
	WaitedSeconds   float64   `json:"waited_seconds,omitempty"`
	WaitsUntil      time.Time `json:"waits_until,omitzero"` // time by which a waiting run will continue, if its wait is limited

	Cost      *Cost      `json:"cost,omitempty"`      // cost of all attempts so far
	Diagnosis *Diagnosis `json:"diagnosis,omitempty"` // why the run failed; only for the operator, and only in GET /v1/runs/{run}

	OutputBytes  int64     `json:"output_bytes"` // bytes written so far, including dropped ones
	LastOutputAt time.Time `json:"last_output_at,omitzero"`
	Output       *Excerpt  `json:"output,omitempty"` // latest output, if the request asked for a tail

	Questions map[string]abi.Question `json:"questions,omitempty"` // open questions to the user, by key; not in lists

	Result        json.RawMessage `json:"result,omitempty"`        // not in lists
	Content       []abi.Block     `json:"content,omitempty"`       // content that the tool returned in addition to its result or error; not in lists
	ResultBytes   int             `json:"result_bytes,omitempty"`  // size of a result that is too large for a response with several runs: get the run alone to see it
	ContentBytes  int             `json:"content_bytes,omitempty"` // size of content that is too large for a response with several runs: get the run alone to see it
	ExitCode      *int            `json:"exit_code,omitempty"`
	Error         *RunError       `json:"error,omitempty"` // set if the run failed
	Summary       string          `json:"summary,omitempty"`
	ArtifactError string          `json:"artifact_error,omitempty"` // which part of the run could not be stored

	SignalOnCompletion bool        `json:"signal_on_completion"`
	Wake               Wake        `json:"wake,omitempty"` // which outcomes the session is notified of, if neither all nor none
	Notice             NoticeState `json:"notice,omitempty"`
	IdempotencyKey     string      `json:"idempotency_key,omitempty"`
	Parent             string      `json:"parent,omitempty"`       // id of the parent run
	ScheduleID         string      `json:"schedule_id,omitempty"`  // id of the schedule that started the run
	ScheduledFor       time.Time   `json:"scheduled_for,omitzero"` // when the schedule was due
	LogPath            string      `json:"log_path"`               // path below the host's data folder
	ResultPath         string      `json:"result_path"`            // path below the host's data folder; the file exists once the run has ended
}

// Cost is the resource usage of a run or a call.
type Cost struct {
	Fuel        int64   `json:"fuel"`         // units of fuel used
	CPUSeconds  float64 `json:"cpu_seconds"`  // processor time on the host
	WaitSeconds float64 `json:"wait_seconds"` // time spent waiting for slots and processors after the start
	MemoryPeak  int64   `json:"memory_peak"`  // bytes of linear memory; for a run, the maximum of its attempts
}

// Stopping describes a request to stop a run: the requester, the time and the reason.
type Stopping struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// Output is the data of an output event of GET /v1/runs/{run}/output.
type Output struct {
	Attempt int    `json:"attempt"`           // attempt of the run; each attempt has its own log
	Offset  int64  `json:"offset"`            // offset of the first byte in the complete log
	Omitted int64  `json:"omitted,omitempty"` // bytes before the offset that were dropped
	Text    string `json:"text,omitempty"`
	Base64  []byte `json:"base64,omitempty"` // replaces text if the output is not valid UTF-8
}

// Runs is the response body of GET /v1/runs.
type Runs struct {
	Runs    []Run    `json:"runs"`
	Next    string   `json:"next,omitempty"`    // value of `before` for the next page
	Missing []string `json:"missing,omitempty"` // requested ids for which the session has no run
}

// Stopped is the result of a request to stop a run.
type Stopped struct {
	TaskID          string          `json:"task_id"`
	Status          Status          `json:"status"`
	Stopped         bool            `json:"stopped"`                    // the run is canceled, and its work has ended
	AlreadyFinished bool            `json:"already_finished,omitempty"` // the run ended by itself before the stop took effect
	Stopping        bool            `json:"stopping,omitempty"`         // the run was asked to stop, and has not ended yet
	Unsaved         bool            `json:"unsaved,omitempty"`          // the run has ended, but the outcome is not stored yet
	DryRun          bool            `json:"dry_run,omitempty"`          // nothing was stopped
	Next            string          `json:"next,omitempty"`             // what to do next, if unsaved is true
	Result          json.RawMessage `json:"result,omitempty"`
	Content         json.RawMessage `json:"content,omitempty"` // content that the tool returned in addition to its result or error
	Error           *RunError       `json:"error,omitempty"`
}

// A Notice reports the end of a run.
type Notice struct {
	TaskID         string    `json:"task_id"`
	Session        string    `json:"session"`
	Tool           string    `json:"tool"`
	Title          string    `json:"title"`
	Status         Status    `json:"status"`
	ErrorKind      ErrorKind `json:"error_kind,omitempty"`
	ElapsedSeconds float64   `json:"elapsed_seconds"`
	ExitCode       *int      `json:"exit_code,omitempty"`
	Summary        string    `json:"summary,omitempty"`   // summary that the tool reported
	Narration      string    `json:"narration,omitempty"` // sentence for people
	Text           string    `json:"text"`                // the notice on one line, with the result or its beginning; at most 1,000 characters, not escaped
	ResultPath     string    `json:"result_path"`
	LogPath        string    `json:"log_path,omitempty"` // path below the host's data folder, only for the operator; absent if runs are kept in memory
	At             time.Time `json:"at"`                 // when the run ended
}

// Notices is the response body of GET /v1/notices.
type Notices struct {
	Notices []Notice `json:"notices"`
	More    int      `json:"more,omitempty"` // number of further pending notices
	Text    string   `json:"text,omitempty"` // the notices as a text for a model
}

// EventKind says what happened.
type EventKind = engine.EventKind

// The kinds of events of runs, schedules and tools.
const (
	EventQueued    = engine.EventQueued
	EventStarted   = engine.EventStarted
	EventBeat      = engine.EventBeat
	EventWaiting   = engine.EventWaiting
	EventStopping  = engine.EventStopping
	EventEnded     = engine.EventEnded
	EventMessage   = engine.EventMessage
	EventSeen      = engine.EventSeen
	EventPurged    = engine.EventPurged
	EventScheduled = engine.EventScheduled
	EventMissed    = engine.EventMissed

	EventHeld  EventKind = "held"  // a run was submitted and waits for a person's approval; once approved, it is queued
	EventTools EventKind = "tools" // plugins were reloaded: GET /v1/tools may return a different list
)

// An Event is the data of an event of GET /v1/events.
type Event struct {
	Kind     EventKind `json:"kind"`
	Run      *Run      `json:"run,omitempty"`      // the run after the change, with the fields that lists show
	Schedule *Schedule `json:"schedule,omitempty"` // the schedule after the change
}
