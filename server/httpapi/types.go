package httpapi

import (
	"encoding/json"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

// The comments beside the fields here, and in the packages these types come
// from, are the descriptions of the OpenAPI document. What a body has to fit
// beside its type is in the tag "schema"; go generate after each change.

// Tools is the answer of GET /v1/tools.
type Tools struct {
	Tools []server.Definition `json:"tools"`
}

// A Call is the body of POST /v1/calls. The answer is an abi.Result, also of a
// tool that failed and of one that ran into a limit. Only a call that was
// refused is answered with a [Problem].
type Call struct {
	Tool   string          `json:"tool" schema:"minLength=1"`
	Args   json.RawMessage `json:"args,omitempty" schema:"type=object"`    // absent is {}
	Limits CallLimits      `json:"limits,omitzero"`                        // absent ones are the tool's
	Locale string          `json:"locale,omitempty" schema:"maxLength=64"` // BCP 47
	DryRun bool            `json:"dry_run,omitempty"`                      // spawn_background and stop_background only say what they would do; of other tools only readonly ones are called
}

// CallLimits are the caller's own limits, never beyond the operator's.
type CallLimits struct {
	Fuel           int64   `json:"fuel,omitempty" schema:"minimum=0"`         // units
	MemoryBytes    int64   `json:"memory_bytes,omitempty" schema:"minimum=0"` // of linear memory
	OutputBytes    int64   `json:"output_bytes,omitempty" schema:"minimum=0"` // written to all streams
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" schema:"minimum=0,maximum=2147483647"`
}

// A Spawn is the body of POST /v1/runs.
type Spawn struct {
	Tool               string          `json:"tool" schema:"minLength=1"`
	Args               json.RawMessage `json:"args,omitempty" schema:"type=object"`                             // absent is {}
	Title              string          `json:"title,omitempty" schema:"maxLength=120"`                          // absent is the tool's
	SignalOnCompletion *bool           `json:"signal_on_completion,omitempty" schema:"default=true"`            // whether the session is told when it ends
	TimeoutSeconds     float64         `json:"timeout_seconds,omitempty" schema:"minimum=0,maximum=2147483647"` // deadline of the run; absent is the tool's
}

// A Run is a background run. What is absent is not known yet, or there is none.
type Run struct {
	TaskID      string               `json:"task_id"`
	Session     string               `json:"session"`
	Tool        string               `json:"tool"`
	ToolVersion string               `json:"tool_version,omitempty"`
	Title       string               `json:"title"`
	Args        string               `json:"args,omitempty"` // shortened, without what has the name of a secret; not in lists
	Origin      background.Origin    `json:"origin"`
	By          string               `json:"by,omitempty"` // who asked for it, if not the session's agent
	Status      background.Status    `json:"status"`
	Done        bool                 `json:"done"`               // the status is final: it is terminal, and stored
	Unsaved     bool                 `json:"unsaved,omitempty"`  // it has ended, and that is not stored yet, because the disk is full for example: a crash would lose it. Ask again until it is done
	Stopping    *Stopping            `json:"stopping,omitempty"` // its end was asked for
	Attempt     int                  `json:"attempt"`            // 0 until it starts
	Reused      bool                 `json:"reused,omitempty"`   // of a spawn: it is the earlier run of the idempotency key
	Detail      string               `json:"detail,omitempty"`   // what it said it is doing
	Progress    *background.Progress `json:"progress,omitempty"`

	CreatedAt       time.Time `json:"created_at"`
	StartedAt       time.Time `json:"started_at,omitzero"`
	ParkedAt        time.Time `json:"parked_at,omitzero"` // when the call became a background run
	FinishedAt      time.Time `json:"finished_at,omitzero"`
	ElapsedSeconds  float64   `json:"elapsed_seconds"`  // since the start, to the end; to a tenth
	DeadlineSeconds float64   `json:"deadline_seconds"` // from the start: it is ended then
	WaitedSeconds   float64   `json:"waited_seconds,omitempty"`

	OutputBytes  int64                    `json:"output_bytes"` // written so far, kept or not
	LastOutputAt time.Time                `json:"last_output_at,omitzero"`
	Output       *background.OutputReport `json:"output,omitempty"` // if a tail was asked for

	Questions map[string]abi.Question `json:"questions,omitempty"` // what it waits for its user to answer, by key; not in lists

	Result        json.RawMessage      `json:"result,omitempty"`        // not in lists
	Content       []abi.Block          `json:"content,omitempty"`       // what the tool showed beside its result or its error; not in lists
	ResultBytes   int                  `json:"result_bytes,omitempty"`  // of a result that is left out: it was too large among several runs, and the run alone has it
	ContentBytes  int                  `json:"content_bytes,omitempty"` // of content that is left out, likewise
	ExitCode      *int                 `json:"exit_code,omitempty"`
	Error         *background.RunError `json:"error,omitempty"` // if it failed
	Summary       string               `json:"summary,omitempty"`
	ArtifactError string               `json:"artifact_error,omitempty"` // what of it could not be stored

	SignalOnCompletion bool                   `json:"signal_on_completion"`
	Notice             background.NoticeState `json:"notice,omitempty"`
	IdempotencyKey     string                 `json:"idempotency_key,omitempty"`
	ScheduleID         string                 `json:"schedule_id,omitempty"`  // the schedule that fired it
	ScheduledFor       time.Time              `json:"scheduled_for,omitzero"` // when it was due
	LogPath            string                 `json:"log_path"`               // below the folder the host keeps runs in
	ResultPath         string                 `json:"result_path"`            // likewise; there when it has ended
}

// Stopping says who asked for the end of a run, when and why.
type Stopping = background.Cancellation

// newRun is a run as it is told to a client.
func newRun(c identity.Caller, r background.Run, now time.Time) Run {
	return Run{
		TaskID: r.ID, Session: c.SessionName(r.Session), Tool: r.Tool, ToolVersion: r.Version, Title: r.Title,
		Origin: r.Origin, By: r.By, Status: r.Status, Done: r.Final(), Unsaved: r.Unsaved, Stopping: r.Cancel, Attempt: r.Attempt,
		Detail: r.Detail, Progress: r.Progress,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, ParkedAt: r.ParkedAt, FinishedAt: r.FinishedAt,
		ElapsedSeconds:  tenths(r.Elapsed(now)),
		DeadlineSeconds: r.Timeout.Seconds(),
		OutputBytes:     r.OutputBytes, LastOutputAt: r.LastOutputAt,
		Result: r.Result, Content: server.Content(r), ExitCode: r.ExitCode, Error: r.Error, Summary: r.Summary, ArtifactError: r.ArtifactError,
		SignalOnCompletion: r.SignalOnCompletion, Notice: r.Notice, IdempotencyKey: r.IdempotencyKey,
		ScheduleID: r.Schedule, ScheduledFor: r.ScheduledFor,
		LogPath: r.LogPath(), ResultPath: r.ResultPath(),
	}
}

func tenths(d time.Duration) float64 {
	return float64(d.Round(100*time.Millisecond)/(100*time.Millisecond)) / 10
}

// Runs is the answer of GET /v1/runs.
type Runs struct {
	Runs    []Run    `json:"runs"`
	Next    string   `json:"next,omitempty"`    // the value of before for the next page
	Missing []string `json:"missing,omitempty"` // of the ids asked for, those the session does not have
}

// A Stop is the body of POST /v1/runs/{run}/stop.
type Stop struct {
	Force  bool   `json:"force,omitempty"`  // end it at once, without a chance to give way
	Reason string `json:"reason,omitempty"` // kept with the run, cut to 200 characters
}

// Answers is the body of POST /v1/runs/{run}/answers.
type Answers struct {
	Answers map[string]abi.Answer `json:"answers"` // by the keys of the run's questions; some may be left for later
}

// Notices is the answer of GET /v1/notices.
type Notices struct {
	Notices []background.Notice `json:"notices"`
	More    int                 `json:"more,omitempty"` // notices there are beside these
	Text    string              `json:"text,omitempty"` // the notices as a text to put before a model
}

// Seen is the body of POST /v1/notices/ack.
type Seen struct {
	TaskIDs []string `json:"task_ids" schema:"minItems=1,maxItems=1000,form=run_id"` // of the runs
}

// NewSchedule is the body of POST /v1/schedules. Exactly one of Cron and At is
// to be set.
type NewSchedule struct {
	Spawn
	Cron     string             `json:"cron_expression,omitempty"`                        // five fields: minute, hour, day of the month, month, day of the week
	At       string             `json:"scheduled_at,omitempty" schema:"format=date-time"` // once, as of RFC 3339
	Timezone string             `json:"timezone,omitempty" schema:"default=UTC"`          // an IANA name
	Overlap  background.Overlap `json:"overlap,omitempty" schema:"default=skip"`          // what to do if the run of the firing before is still active
}

// A Schedule starts runs of a tool, again and again or once.
type Schedule struct {
	ScheduleID         string             `json:"schedule_id"`
	Session            string             `json:"session"`
	Tool               string             `json:"tool"`
	ToolVersion        string             `json:"tool_version,omitempty"`
	Title              string             `json:"title"`
	Args               string             `json:"args,omitempty"` // shortened, without what has the name of a secret; not in lists
	SignalOnCompletion bool               `json:"signal_on_completion"`
	DeadlineSeconds    float64            `json:"deadline_seconds"` // of each run
	Cron               string             `json:"cron_expression,omitempty"`
	At                 time.Time          `json:"scheduled_at,omitzero"`
	Timezone           string             `json:"timezone"`
	Overlap            background.Overlap `json:"overlap"`
	Enabled            bool               `json:"enabled"`
	DisabledReason     string             `json:"disabled_reason,omitempty"`
	CreatedAt          time.Time          `json:"created_at"`
	NextTriggerAt      time.Time          `json:"next_trigger_at,omitzero"`
	LastTriggeredAt    time.Time          `json:"last_triggered_at,omitzero"`
	LastTaskID         string             `json:"last_task_id,omitempty"`
	TriggerCount       int                `json:"trigger_count"`
	RejectedInARow     int                `json:"rejected_in_a_row,omitempty"`
}

// newScheduleAnswer is a schedule as it is told to a client.
func newScheduleAnswer(c identity.Caller, s background.Schedule) Schedule {
	return Schedule{
		ScheduleID: s.ID, Session: c.SessionName(s.Session), Tool: s.Tool, ToolVersion: s.Version, Title: s.Title,
		SignalOnCompletion: s.SignalOnCompletion, DeadlineSeconds: s.Timeout.Seconds(),
		Cron: s.Cron, At: s.At, Timezone: s.Timezone, Overlap: s.Overlap,
		Enabled: s.Enabled, DisabledReason: s.Disabled, CreatedAt: s.CreatedAt,
		NextTriggerAt: s.NextAt, LastTriggeredAt: s.LastAt, LastTaskID: s.LastRun,
		TriggerCount: s.Fired, RejectedInARow: s.Rejected,
	}
}

// Schedules is the answer of GET /v1/schedules.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
}

// EventTools is the kind of the event that says that GET /v1/tools may have
// another answer: plugins were reloaded.
const EventTools background.EventKind = "tools"

// An Event is the data of an event of GET /v1/events.
type Event struct {
	Kind     background.EventKind `json:"kind"`
	Run      *Run                 `json:"run,omitempty"`
	Schedule *Schedule            `json:"schedule,omitempty"`
}

// Session is the answer of GET /v1/session.
type Session struct {
	Session  string `json:"session"`
	Snapshot string `json:"snapshot"` // for a model whose conversation was cut: the active runs, at most 1,000 characters
}

// Stats is the answer of GET /v1/stats: counts of all sessions.
type Stats struct {
	server.Stats
	OpenAnswers int `json:"open_answers"` // waits and streams of clients
}

// Health is the answer of GET /healthz and /readyz.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
}

// Output is the data of an event "output" of GET /v1/runs/{run}/output.
type Output struct {
	Attempt int    `json:"attempt"`           // of the run; another one has a log of its own
	Offset  int64  `json:"offset"`            // of the first byte in the whole log
	Omitted int64  `json:"omitted,omitempty"` // bytes before it that were not kept
	Text    string `json:"text,omitempty"`
	Base64  []byte `json:"base64,omitempty"` // in place of Text, if it is no UTF-8
}
