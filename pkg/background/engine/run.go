package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Status is the state of a run.
type Status string

// The states of a run. Succeeded, Failed and Canceled are terminal.
const (
	StatusQueued    Status = "queued"
	StatusRunning   Status = "running"
	StatusWaiting   Status = "waiting" // suspended: the run has no worker, and holds no permit
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	StatusCanceled  Status = "canceled"
)

// Statuses lists the states of a run.
var Statuses = []Status{StatusQueued, StatusRunning, StatusWaiting, StatusSucceeded, StatusFailed, StatusCanceled}

// Terminal reports whether s is final: a run in a terminal state never changes.
func (s Status) Terminal() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusCanceled
}

// Origin says how a run was created.
type Origin string

// The origins.
const (
	OriginSpawned   Origin = "spawned"
	OriginParked    Origin = "parked"
	OriginScheduled Origin = "scheduled"
)

// ErrorKind says why a run failed. Programs that run work add their own kinds.
type ErrorKind string

// The kinds that package background itself uses.
const (
	KindToolError   ErrorKind = "tool_error"  // the work reported an error
	KindInternal    ErrorKind = "internal"    // an internal error; the log has the details
	KindTimeout     ErrorKind = "timeout"     // the run's deadline passed
	KindRejected    ErrorKind = "rejected"    // the run was not admitted
	KindOrphaned    ErrorKind = "orphaned"    // its worker died and it may not be run again
	KindInterrupted ErrorKind = "interrupted" // its worker shut down
)

// A Run is the record of one background run. It is a value: it does not change as the run
// continues. Do not write to its slices and pointers. Engines store its JSON form.
//
// Args, Result, Content and Calls are its payload, which may be megabytes. Methods that return
// runs leave it out; [Engine.Payload] returns one part of it.
type Run struct {
	ID                 string          `json:"task_id"`
	Session            string          `json:"session"`
	Tool               string          `json:"tool"`
	Args               json.RawMessage `json:"args"`
	Title              string          `json:"title"`
	Origin             Origin          `json:"origin"`
	IdempotencyKey     string          `json:"idempotency_key,omitempty"`
	SignalOnCompletion bool            `json:"signal_on_completion"`
	Wake               Wake            `json:"wake,omitempty"`         // with SignalOnCompletion: outcomes that make a notice
	By                 string          `json:"by,omitempty"`           // user or operator that spawned it; "": the session's agent
	Version            string          `json:"tool_version,omitempty"` // version of the tool
	Provider                           // plugin and kind of the tool
	Secret             bool            `json:"args_incomplete,omitempty"` // Args lack secrets: the run cannot be run again
	Terms              json.RawMessage `json:"terms,omitempty"`           // further input of the work, at most 1 KiB
	Schedule           string          `json:"schedule_id,omitempty"`     // id of the schedule that fired it
	ScheduledFor       time.Time       `json:"scheduled_for,omitzero"`    // time at which that firing was due
	After              string          `json:"after,omitempty"`           // id of the run that must end before this one is claimed
	Held               string          `json:"held,omitempty"`            // event that the run waits for before it can be claimed, such as an approval: see [Engine.Release]; "": none
	Parent             string          `json:"parent,omitempty"`          // id of the run of the same session that started it; the record of that run may be gone
	Depth              int             `json:"depth,omitempty"`           // number of ancestors
	Timeout            time.Duration   `json:"timeout_ns"`                // hard deadline, counted from StartedAt
	OutputCap          int             `json:"output_cap_bytes"`          // number of bytes of output to keep
	CreatedAt          time.Time       `json:"created_at"`

	Status      Status        `json:"status"`
	Attempt     int           `json:"attempt"`            // 0 while queued for the first time, then 1, 2, …
	Begun       int           `json:"begun,omitempty"`    // number of the last attempt that had no state to continue from
	SavedIn     int           `json:"saved_in,omitempty"` // number of the last attempt that saved a checkpoint other than the one it began with
	StartedAt   time.Time     `json:"started_at,omitzero"`
	HeartbeatAt time.Time     `json:"heartbeat_at,omitzero"` // last renewal of its worker's lease
	ParkedAt    time.Time     `json:"parked_at,omitzero"`    // time at which the call became a background run
	Cancel      *Cancellation `json:"cancel_requested,omitempty"`
	Notice      NoticeState   `json:"notice,omitempty"`
	Waiting                   // state to continue from
	Beat                      // last report of the work
	End                       // zero until the run is terminal, except Calls

	// Unsaved means that the run has ended but the engine failed to store that: the
	// end is lost if the worker dies. Engines do not set it.
	Unsaved bool `json:"-"`
}

// A Provider describes the plugin and the kind of a tool, for display. All fields may be
// empty.
type Provider struct {
	Kind          string `json:"kind,omitempty"`           // kind of tool, such as "wasm"
	Plugin        string `json:"plugin,omitempty"`         // name of the plugin
	PluginVersion string `json:"plugin_version,omitempty"` // the plugin's own version
}

// Final reports whether the run has ended and its end is stored.
func (r Run) Final() bool { return r.Status.Terminal() && !r.Unsaved }

// A Part names a large part of a run.
type Part string

// The parts of a run's payload.
const (
	PartArgs    Part = "args"
	PartResult  Part = "result"
	PartContent Part = "content"
	PartCalls   Part = "calls"
)

// Part returns a part of the payload of r; nil if r does not have it.
func (r Run) Part(p Part) json.RawMessage {
	return map[Part]json.RawMessage{PartArgs: r.Args, PartResult: r.Result, PartContent: r.Content, PartCalls: r.Calls}[p]
}

// Light returns r without its payload.
func (r Run) Light() Run {
	r.Args, r.Result, r.Content, r.Calls = nil, nil, nil, nil
	return r
}

// A Beat is a status update of a running run.
type Beat struct {
	Detail       string    `json:"detail,omitempty"`    // current activity
	Narration    string    `json:"narration,omitempty"` // current activity, in a sentence for people
	Progress     *Progress `json:"progress,omitempty"`
	LastOutputAt time.Time `json:"last_output_at,omitzero"`
	OutputBytes  int64     `json:"output_bytes,omitempty"` // bytes written to the log so far, kept or not
	Cost         Cost      `json:"cost,omitzero"`          // resources used by all attempts so far
}

// Equal reports whether b and c are equal.
func (b Beat) Equal(c Beat) bool {
	same := b.Progress == c.Progress || b.Progress != nil && c.Progress != nil && *b.Progress == *c.Progress
	return same && b.Detail == c.Detail && b.Narration == c.Narration && b.LastOutputAt.Equal(c.LastOutputAt) && b.OutputBytes == c.OutputBytes && b.Cost == c.Cost
}

// A Cost measures the resources that a run's work used. If an attempt ended in a crash, the
// resources that it used after its last checkpoint may be missing.
type Cost struct {
	Fuel       int64         `json:"fuel,omitempty"`
	CPU        time.Duration `json:"cpu_ns,omitempty"`      // processor time
	Wait       time.Duration `json:"wait_ns,omitempty"`     // time that the run spent waiting for slots and processors after its start
	MemoryPeak int64         `json:"memory_peak,omitempty"` // peak memory of the attempt that used the most, in bytes
}

// Add returns the sum of two costs.
func (c Cost) Add(d Cost) Cost {
	return Cost{c.Fuel + d.Fuel, c.CPU + d.CPU, c.Wait + d.Wait, max(c.MemoryPeak, d.MemoryPeak)}
}

// Progress is the progress of a run, in units that the run chooses.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // 0: unknown
	Unit    string  `json:"unit,omitempty"`  // unit of Done and Total, such as "files"
	Message string  `json:"message,omitempty"`
}

// An End describes how a run ended.
type End struct {
	Summary       string          `json:"summary,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
	ResultStart   string          `json:"result_start,omitempty"` // the first 400 characters of Result, if the run has a notice
	ResultSize    int             `json:"result_size,omitempty"`  // size of Result in bytes, if the run has a notice
	Content       json.RawMessage `json:"content,omitempty"`      // content shown next to Result or Error
	Calls         json.RawMessage `json:"calls,omitempty"`        // calls that the work made, for people; nil: those stored with the last suspension
	ExitCode      *int            `json:"exit_code,omitempty"`
	Error         *RunError       `json:"error,omitempty"`          // set if and only if the run failed
	ArtifactError string          `json:"artifact_error,omitempty"` // message about artifacts that could not be stored
	FinishedAt    time.Time       `json:"finished_at,omitzero"`
	Diagnosis     *Diagnosis      `json:"diagnosis,omitempty"` // why the run failed, for operators
	Shown         bool            `json:"shown,omitempty"`     // whether a waiting caller was shown the end, which therefore makes no notice
}

// A Diagnosis says why a run failed. Only operators may see it: it may contain
// secrets of the work and internals of the host.
type Diagnosis struct {
	Reason    string `json:"reason"`               // the internal error
	Trace     string `json:"trace,omitempty"`      // stack of the work, innermost frame first
	LastWords string `json:"last_words,omitempty"` // the end of the work's standard error
}

// A RunError says why a run failed, in words fit for a model.
type RunError struct {
	Kind    ErrorKind `json:"kind"`
	Message string    `json:"message"`
}

// A Cancellation records who stopped a run, when and why.
type Cancellation struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Alone  bool      `json:"alone,omitempty"` // whether the children of the run continue
	Force  bool      `json:"force,omitempty"` // whether the work gets no grace period
	Held   bool      `json:"-"`               // whether to cancel the run only if it is queued and held
}

// Undecided reports whether the run is queued and held, so that it can still be released
// or refused.
func (r Run) Undecided() bool { return r.Status == StatusQueued && r.Held != "" }

// Canceled returns r with a cancellation. If r already has one, c can only add Force.
func (r Run) Canceled(c Cancellation) Run {
	switch {
	case r.Cancel == nil:
		r.Cancel = &c
	case c.Force && !r.Cancel.Force:
		first := *r.Cancel
		first.Force = true
		r.Cancel = &first
	}
	return r
}

// NoticeState is the state of a run's notice.
type NoticeState string

// The states of a notice.
const (
	NoticeNone    NoticeState = ""        // the run has not ended, or ended without a notice
	NoticePending NoticeState = "pending" // the notice has to be delivered
	NoticeSeen    NoticeState = "seen"    // the notice was acknowledged, or the end was seen in another way
)

// Elapsed returns how long the run has been running, or ran: 0 if it never started.
func (r Run) Elapsed(now time.Time) time.Duration {
	if r.StartedAt.IsZero() {
		return 0
	}
	if !r.FinishedAt.IsZero() {
		now = r.FinishedAt
	}

	return max(0, now.Sub(r.StartedAt))
}

// Wake says which outcomes of a run make a notice that wakes its session.
type Wake string

// The values of Wake.
const (
	WakeEnd     Wake = ""        // every outcome
	WakeFailure Wake = "failure" // every outcome but success
)

// Finish returns the run with its end, and with a pending notice if the end
// makes one.
func (r Run) Finish(status Status, b Beat, e End) Run {
	if e.Calls == nil {
		e.Calls = r.Calls
	}
	r.Status, r.Beat, r.End, r.Waiting = status, b, e, Waiting{}
	if r.SignalOnCompletion && !e.Shown && (r.Wake != WakeFailure || status != StatusSucceeded) {
		r.Notice = NoticePending
	}

	return r
}

// Folder returns the folder name of a run's attempt: its id for the first one,
// "{id}.{attempt}" for a later one.
func (r Run) Folder() string {
	if r.Attempt > 1 {
		return fmt.Sprintf("%s.%d", r.ID, r.Attempt)
	}
	return r.ID
}

// Path returns the path of an artifact of the run, relative to the folder of the engine.
func (r Run) Path(artifact string) string { return "runs/" + r.Folder() + "/" + artifact }

// An Envelope is the content of [ResultJSON]. It says how a run ended, whatever its outcome.
type Envelope struct {
	TaskID          string          `json:"task_id"`
	Attempt         int             `json:"attempt"`
	Tool            string          `json:"tool"`
	Title           string          `json:"title"`
	Status          Status          `json:"status"`
	Result          json.RawMessage `json:"result,omitempty"`
	Content         json.RawMessage `json:"content,omitempty"`
	Error           *RunError       `json:"error,omitempty"`
	ExitCode        *int            `json:"exit_code,omitempty"`
	Summary         string          `json:"summary,omitempty"`
	StartedAt       time.Time       `json:"started_at,omitzero"`
	FinishedAt      time.Time       `json:"finished_at"`
	OutputBytes     int64           `json:"output_bytes"`
	OutputTruncated bool            `json:"output_truncated"`
}

// ResultFile returns the [ResultJSON] of an ended run with its payload: its
// [Envelope] on one line, without indentation or HTML escapes, which would make a
// deeply nested result many times larger.
func (r Run) ResultFile() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)

	err := enc.Encode(Envelope{
		TaskID: r.ID, Attempt: r.Attempt, Tool: r.Tool, Title: r.Title, Status: r.Status,
		Result: r.Result, Content: r.Content, Error: r.Error, ExitCode: r.ExitCode, Summary: r.Summary,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		OutputBytes: r.OutputBytes, OutputTruncated: r.OutputBytes > int64(r.OutputCap),
	})

	return b.Bytes(), err
}
