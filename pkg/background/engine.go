package background

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// An Engine stores runs, their logs and artifacts, and schedules. It is safe
// for concurrent use. When a method that changes something returns nil, the
// change is as durable as the engine makes anything. Runs that go in and come
// out share no memory with the engine.
//
// One write is one method, so that an engine can make it atomic: what has to
// be stored together is never spread over two.
//
// An engine whose storage is gone returns errors matching [ErrStorageLost] from
// all that changes something.
//
// Package enginetest checks an implementation against this contract.
type Engine interface {
	// Limit says what records may take from now on, and counts those there are.
	// Before that there is no limit. A [Manager] calls it first of all.
	Limit(ctx context.Context, q Quota) error

	// Recorded returns how many bytes records take now, as [Quota] counts them; 0
	// before Limit. What an engine keeps of a run in another place than
	// its log counts too.
	Recorded() int64

	// Submit stores a new run, with the status queued. It returns an error
	// matching [ErrExists], and changes nothing, if the engine has a run with
	// that id. If there is no room for its record, others that may go are
	// removed in the same step, as by Prune; where that is not enough the error
	// is a *[LimitError] that matches [ErrRecordLimit], and nothing is changed.
	Submit(ctx context.Context, run Run) error

	// Adopt stores a new run whose work already goes on: it is running, in its
	// first attempt, and the caller holds its lease. run.StartedAt is kept. It
	// returns an error matching [ErrExists], and changes nothing, if the engine
	// has a run with that id. It makes room as Submit does.
	Adopt(ctx context.Context, run Run) (Lease, error)

	// Get returns a run, or an error matching [ErrNotFound].
	Get(ctx context.Context, id string) (Run, error)

	// List returns the runs that match q, newest first, without their Args,
	// Result and Content.
	List(ctx context.Context, q Query) ([]Run, error)

	// Claim makes the caller the worker of a run: a queued one, or a running
	// one whose lease has ended: it was not extended for [LeaseTTL], or the
	// engine knows that its holder is gone. The run is then running, and its
	// attempt is one higher; an earlier lease is fenced, and the new attempt's
	// log is empty. It returns an error matching [ErrNotClaimable] for any
	// other run, or [ErrNotFound].
	Claim(ctx context.Context, id string) (Lease, error)

	// Requeue makes a running run queued again, to be claimed later: its work
	// has ended without an end of its own, or its worker is gone. attempt is
	// that of the run as the caller knows it; its lease is fenced. It returns
	// an error matching [ErrFenced], and changes nothing, if the run is not
	// running in that attempt, or [ErrNotFound].
	Requeue(ctx context.Context, id string, attempt int) error

	// Abandon ends a run that nobody works on: a queued one that is not to be
	// started, or a running one whose worker is gone. attempt is that of the
	// run as the caller knows it; its lease is fenced. The log stays as it is,
	// and the artifacts, the end and the run's notice are stored as by
	// [Lease.Complete]. It returns an error matching [ErrFenced], and changes
	// nothing, if the run is terminal or in another attempt, or [ErrNotFound].
	Abandon(ctx context.Context, id string, attempt int, status Status, b Beat, e End) (Run, error)

	// Cancel records that the run's end is asked for and returns the run. A
	// queued run is canceled by that; a running run keeps its status; a
	// terminal one does not change. The first cancellation is kept. It returns
	// an error matching [ErrNotFound] if there is no such run.
	Cancel(ctx context.Context, id string, c Cancellation) (Run, error)

	// Tail reads the log of the run's current attempt as [Sink.Tail] does. It
	// returns an error matching [ErrNotFound] if there is no such run.
	Tail(ctx context.Context, id string, offset int64, max int) (Chunk, error)

	// Open opens an artifact of a terminal run's last attempt: [OutputLog] or
	// [ResultJSON]. The caller closes it. It returns an error matching
	// [ErrNotFound] if there is no such run, the run is not terminal, or the
	// name is another.
	Open(ctx context.Context, id, name string) (Artifact, error)

	// Acknowledge records that the notices of these runs were taken. Runs of
	// another session, without a notice, or unknown are left as they are.
	Acknowledge(ctx context.Context, session string, ids []string) error

	// Prune removes terminal runs that r does not keep, with their logs and
	// artifacts, and returns how many. It never removes another run. It also
	// removes disabled schedules r does not keep, and does not count them.
	Prune(ctx context.Context, r Retention) (int, error)

	// PutSchedule stores a schedule and returns it with its new Revision. With
	// Revision 0 it is a new one, and the error matches [ErrExists] if there
	// is one with that id. Otherwise it replaces the one that is stored if
	// that has the same Revision; if not, the error matches [ErrConflict], or
	// [ErrNotFound] if there is none. A schedule that would be the session's
	// (max+1)th enabled one, and was not enabled before, is refused with a
	// *[LimitError] that matches [ErrScheduleLimit]; counting and storing are
	// one step. For a new one it makes room as Submit does.
	PutSchedule(ctx context.Context, s Schedule, max int) (Schedule, error)

	// GetSchedule returns a schedule, or an error matching [ErrNotFound].
	GetSchedule(ctx context.Context, id string) (Schedule, error)

	// Schedules returns the schedules of a session, or of all if session is
	// "", newest first, without their Args; enabled ones only if enabled is set.
	Schedules(ctx context.Context, session string, enabled bool) ([]Schedule, error)

	// Watch returns what happens to the runs and schedules of a session, or of
	// all if session is "", from now on: see [Feed.Watch].
	Watch(ctx context.Context, session string) <-chan Event
}

// A Lease is the right to work on a run. Its methods return an error matching
// [ErrFenced], and change nothing, when the lease is no longer the run's
// current one or the run is terminal or gone. A Lease is used by one goroutine
// at a time.
type Lease interface {
	// Run returns the run as it was claimed. Its Attempt is the fencing token.
	Run() Run

	// Checkpoint returns what an earlier attempt of the run saved last; nil if
	// nothing.
	Checkpoint() []byte

	// Extend keeps the lease for another [LeaseTTL] and records b. It returns
	// the cancellation of the run, nil if there is none. An engine may store a
	// beat later than it returns: a crash may lose the last ones.
	Extend(ctx context.Context, b Beat) (*Cancellation, error)

	// Append adds p to the log of this attempt. offset is where p begins in
	// the whole log: bytes between the end of what was appended before and
	// offset were dropped by the writer, and bytes before that end are ignored.
	// The log keeps its first and last bytes, at least Run.OutputCap of them;
	// the artifact [OutputLog] keeps that many. An error matching [ErrQuota]
	// means that there is no room for more output now: p may be dropped, or
	// appended again later. After any error, a part of p may have been
	// appended. What was appended outlives the process, and after Complete the
	// machine.
	Append(ctx context.Context, offset int64, p []byte) error

	// Save stores data as the run's checkpoint, in place of an earlier one.
	Save(ctx context.Context, data []byte) error

	// Complete ends the run with a terminal status, and returns it as stored.
	// The log, the artifacts, the end and the run's notice, if it is to have
	// one, are stored by this one call. An artifact that cannot be written
	// does not keep the run from its end: End.ArtifactError says so.
	Complete(ctx context.Context, status Status, b Beat, e End) (Run, error)
}

// The artifacts of an attempt, and their names in a run's folder.
const (
	OutputLog  = "output.log"  // the raw output, with a line for what was dropped
	ResultJSON = "result.json" // how the run ended: an [Envelope]
)

// An Artifact is an open file of a run.
type Artifact interface {
	io.ReadSeekCloser
	io.ReaderAt
}

// An Envelope is what [ResultJSON] holds, whatever became of the run.
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

// A Query selects runs. Its zero value selects all.
type Query struct {
	Session        string // "": of every session
	IdempotencyKey string // "": with any or none
	Schedule       string // the schedule that fired them; "": any or none
	Active         bool   // only runs that are not terminal
	Notice         bool   // only runs whose notice is pending
	Before         string // only runs submitted before the one with this id; "": all. Of an id unknown in Session, none
	Limit          int    // at most so many; 0: all
}

// matches reports whether q selects the run, but for Session, Before and Limit.
func (q Query) matches(r Run) bool {
	return (!q.Active || !r.Status.Terminal()) &&
		(!q.Notice || r.Notice == NoticePending) &&
		(q.IdempotencyKey == "" || q.IdempotencyKey == r.IdempotencyKey) &&
		(q.Schedule == "" || q.Schedule == r.Schedule)
}

// A Retention says which terminal runs are kept, and which schedules that are
// not enabled: for these, the time of their last change stands for FinishedAt.
type Retention struct {
	Session string    // "": applies to each session
	Before  time.Time // runs that finished before it are not kept
	Keep    int       // the newest Keep of a session are kept: by FinishedAt, then by submission
	Notices time.Time // runs whose notice is pending are kept all the same, unless they finished before this; zero: always
}

// A Chunk is a contiguous piece of a log.
type Chunk struct {
	Offset int64  // of the first byte of Data in the whole log
	Data   []byte // the caller's own copy
	End    int64  // length of the whole log so far, dropped bytes included

	// Attempt is whose log it is, as [Manager.Tail] tells. Engines leave it 0.
	Attempt int
}
