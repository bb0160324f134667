package background

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
	StatusQueued        Status = "queued"
	StatusRunning       Status = "running"
	StatusSucceeded     Status = "succeeded"
	StatusFailed        Status = "failed"
	StatusCanceled      Status = "canceled"
	StatusAwaitingInput Status = "awaiting_input" // reserved: no run is in it yet
)

// Terminal reports whether s is final: a run in a terminal state never changes.
func (s Status) Terminal() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusCanceled
}

// Origin is the door a run came in by.
type Origin string

// The doors a run comes in by.
const (
	OriginSpawned   Origin = "spawned"
	OriginParked    Origin = "parked"
	OriginScheduled Origin = "scheduled"
)

// ErrorKind says why a run failed.
type ErrorKind string

// The reasons a run fails for.
const (
	KindToolError          ErrorKind = "tool_error"          // the tool said so, or ended with a non-zero exit code
	KindInternal           ErrorKind = "internal"            // a fault of the host; details are in its log only
	KindTimeout            ErrorKind = "timeout"             // the run's deadline passed
	KindFuelExhausted      ErrorKind = "fuel_exhausted"      // the tool used up its fuel
	KindMemoryLimit        ErrorKind = "memory_limit"        // the tool asked for more memory than it may have
	KindOutputLimit        ErrorKind = "output_limit"        // the tool's result is larger than it may be
	KindTrap               ErrorKind = "trap"                // the tool crashed
	KindConnectionRequired ErrorKind = "connection_required" // the user has to connect an account first
	KindLimit              ErrorKind = "limit"               // no room for the run
	KindRejected           ErrorKind = "rejected"            // policy or schema refused it at the start
	KindOrphaned           ErrorKind = "orphaned"            // its host died and it may not be run again
	KindInterrupted        ErrorKind = "interrupted"         // its host shut down
)

func (k ErrorKind) valid() bool {
	switch k {
	case KindToolError, KindInternal, KindTimeout, KindFuelExhausted, KindMemoryLimit, KindOutputLimit, KindTrap,
		KindConnectionRequired, KindLimit, KindRejected, KindOrphaned, KindInterrupted:
		return true
	}
	return false
}

// A Run is the record of one background run. It is a value: a Run a method
// returned does not change when the run goes on. Its JSON form is what engines
// store; what an agent is shown is a [Report].
//
// The slices and pointers of a Run must not be written to.
type Run struct {
	ID                 string          `json:"task_id"` // of the form RunIDForm
	Session            string          `json:"session"`
	Tool               string          `json:"tool"`
	Args               json.RawMessage `json:"args"`
	Title              string          `json:"title"`
	Origin             Origin          `json:"origin"`
	IdempotencyKey     string          `json:"idempotency_key,omitempty"`
	SignalOnCompletion bool            `json:"signal_on_completion"`
	By                 string          `json:"by,omitempty"`              // who asked for it; "": the session's agent
	Version            string          `json:"tool_version,omitempty"`    // of the tool, as [SpawnRequest] says it
	Secret             bool            `json:"args_incomplete,omitempty"` // Args lack what must not be stored: the run cannot be run again
	Terms              json.RawMessage `json:"terms,omitempty"`           // of a call that was parked, see [RunRequest]
	Schedule           string          `json:"schedule_id,omitempty"`     // the schedule that fired it
	ScheduledFor       time.Time       `json:"scheduled_for,omitzero"`    // when it was due
	Timeout            time.Duration   `json:"timeout_ns"`                // hard deadline, counted from StartedAt
	OutputCap          int             `json:"output_cap_bytes"`          // bytes of output kept
	CreatedAt          time.Time       `json:"created_at"`

	Status      Status        `json:"status"`
	Attempt     int           `json:"attempt"` // 0 while queued for the first time, then 1, 2, …; the fencing token
	StartedAt   time.Time     `json:"started_at,omitzero"`
	HeartbeatAt time.Time     `json:"heartbeat_at,omitzero"` // when the lease was last extended
	ParkedAt    time.Time     `json:"parked_at,omitzero"`    // when the call became a background run
	Cancel      *Cancellation `json:"cancel_requested,omitempty"`
	Notice      NoticeState   `json:"notice,omitempty"`
	Beat                      // what the work last said of itself
	End                       // zero until the run is terminal, but for Status

	// Unsaved: the end is not stored yet, because the engine fails: if the host
	// dies now, the run ends differently. It is of the moment, and no part of the
	// record.
	Unsaved bool `json:"-"`
}

// Final reports whether the run has ended, and will always have ended so.
func (r Run) Final() bool { return r.Status.Terminal() && !r.Unsaved }

// A Beat is what a running run says of itself.
type Beat struct {
	Detail       string    `json:"detail,omitempty"`
	Progress     *Progress `json:"progress,omitempty"`
	LastOutputAt time.Time `json:"last_output_at,omitzero"`
	OutputBytes  int64     `json:"output_bytes,omitempty"` // bytes written to the log so far, kept or not
}

// Clone returns a copy that shares no memory with b. It is there for engines.
func (b Beat) Clone() Beat {
	b.Progress = clonePointer(b.Progress)
	return b
}

// Equal reports whether b and c say the same. It is there for engines.
func (b Beat) Equal(c Beat) bool {
	same := b.Progress == c.Progress || b.Progress != nil && c.Progress != nil && *b.Progress == *c.Progress
	return same && b.Detail == c.Detail && b.LastOutputAt.Equal(c.LastOutputAt) && b.OutputBytes == c.OutputBytes
}

// Progress is how far a run is, in units of its own choice.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // 0: unknown
	Message string  `json:"message,omitempty"`
}

// An End is how a run ended.
type End struct {
	Summary       string          `json:"summary,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
	Content       json.RawMessage `json:"content,omitempty"` // what the work showed beside Result or Error
	ExitCode      *int            `json:"exit_code,omitempty"`
	Error         *RunError       `json:"error,omitempty"`          // set if and only if the run failed
	ArtifactError string          `json:"artifact_error,omitempty"` // what of the run could not be stored
	FinishedAt    time.Time       `json:"finished_at,omitzero"`
}

// A RunError says why a run failed, in words fit for a model.
type RunError struct {
	Kind    ErrorKind `json:"kind"`
	Message string    `json:"message"`
}

// A Cancellation says who asked for the end of a run, when and why. The first
// one of a run is kept.
type Cancellation struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// NoticeState says what became of the notice of a run's end.
type NoticeState string

// The states of a notice. A run that has not ended, or that ended without one
// to be told, has none.
const (
	NoticeNone    NoticeState = ""
	NoticePending NoticeState = "pending" // to be handed out
	NoticeSeen    NoticeState = "seen"    // acknowledged, or the end was seen otherwise
)

// Elapsed returns how long the run has been running, or ran. It is 0 for a run
// that never started.
func (r Run) Elapsed(now time.Time) time.Duration {
	if r.StartedAt.IsZero() {
		return 0
	}
	if !r.FinishedAt.IsZero() {
		now = r.FinishedAt
	}
	return max(0, now.Sub(r.StartedAt))
}

// Clone returns a copy that shares no memory with r. It is there for engines.
func (r Run) Clone() Run {
	r.Args = bytes.Clone(r.Args)
	r.Terms = bytes.Clone(r.Terms)
	r.Result = bytes.Clone(r.Result)
	r.Content = bytes.Clone(r.Content)
	r.Cancel = clonePointer(r.Cancel)
	r.Beat = r.Beat.Clone()
	r.ExitCode = clonePointer(r.ExitCode)
	r.Error = clonePointer(r.Error)
	return r
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Ended returns the run with its end filled in, and its notice pending if it
// is to have one. It is there for engines.
func (r Run) Ended(status Status, b Beat, e End) Run {
	r.Status, r.Beat, r.End = status, b, e
	if r.SignalOnCompletion {
		r.Notice = NoticePending
	}
	return r
}

// Canceled returns a queued run as it is after a cancellation, see
// [Engine.Cancel]. It is there for engines.
func (r Run) Canceled(c Cancellation) Run {
	return r.Ended(StatusCanceled, r.Beat, End{Summary: summaryCanceled, FinishedAt: c.At})
}

// Folder returns the name of the folder of a run's attempt: its id for the
// first one, "{id}.{attempt}" for a later one.
func (r Run) Folder() string {
	if r.Attempt <= 1 {
		return r.ID
	}
	return fmt.Sprintf("%s.%d", r.ID, r.Attempt)
}

// LogPath returns the name of the run's [OutputLog] below the place where the
// engine keeps runs.
func (r Run) LogPath() string { return "runs/" + r.Folder() + "/" + OutputLog }

// ResultPath returns the name of the run's [ResultJSON] below the place where
// the engine keeps runs. The file is there when the run has ended.
func (r Run) ResultPath() string { return "runs/" + r.Folder() + "/" + ResultJSON }

// ResultFile returns [ResultJSON] of an ended run: its Envelope, on one line. It
// is there for engines. It has no indentation, which takes many times the room
// of a result that is nested deeply, and no escapes a browser would need.
func (r Run) ResultFile() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(r.Envelope())
	return b.Bytes(), err
}

// Envelope returns what [ResultJSON] of an ended run holds.
func (r Run) Envelope() Envelope {
	return Envelope{
		TaskID: r.ID, Attempt: r.Attempt, Tool: r.Tool, Title: r.Title, Status: r.Status,
		Result: r.Result, Content: r.Content, Error: r.Error, ExitCode: r.ExitCode, Summary: r.Summary,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		OutputBytes: r.OutputBytes, OutputTruncated: r.OutputBytes > int64(r.OutputCap),
	}
}
