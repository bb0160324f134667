// Package engine defines the records of background runs, and the interface of a store for
// them. It is to package background what database/sql/driver is to database/sql:
// programs that run work use background, and a store implements [Engine]. Package
// enginetest is the test suite of every engine.
//
// A worker is a process, or a part of one, that joined the engine. It has one lease
// for all its runs and renews it with a heartbeat. A worker that does not renew its
// lease within its TTL is dead: others take its runs over, and its later writes are
// refused. A write is fenced by the worker's lease and by the run's attempt.
//
// A running run may be suspended. It then waits without a worker until a child's end,
// a message or its wake time returns it to the queue, see [Lease.Suspend].
//
//	Submit ──► queued ──Claim──► queued, claimed ──Start──► running ──Complete──► ended
//	              ▲                 │ Abandon, Cancel           │ Abandon
//	              │                 ▼                           ▼
//	              │               ended                       ended
//	              └──────────────── Requeue ◄───────────────────┘
package engine

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// DefaultTTL is the default time for which a worker's lease lasts after a renewal.
const DefaultTTL = 30 * time.Second

// An Engine stores runs, their logs and artifacts, and schedules. It is safe for
// concurrent use, and may share the slices and pointers of records with its callers,
// who do not write to them. Each write is atomic, and when the method returns nil it
// is as durable as the engine's storage. If no run or schedule has the given id, the
// error matches [ErrNotFound]. Once the storage is gone, the error of every
// write matches [ErrStorageLost]. While the storage of a networked engine cannot be
// reached, errors match [ErrUnavailable]. If the disk is full, the error of a write
// matches [ErrFull].
type Engine interface {
	// Join makes the caller a worker. An engine for a single worker returns
	// an error matching [ErrLocked] while it has one.
	Join(ctx context.Context, w WorkerInfo) (Worker, error)

	// Workers returns the workers that have not left, in the order they joined. Dead ones
	// are included for a while.
	Workers(ctx context.Context) ([]WorkerState, error)

	// Get returns a run without its payload (Args, Result and Content).
	Get(ctx context.Context, id string) (Run, error)

	// Payload returns one large part of a run, or nil if it has none.
	Payload(ctx context.Context, id string, part Part) (json.RawMessage, error)

	// List returns the runs that match q without their payload, newest first.
	List(ctx context.Context, q Query) ([]Run, error)

	// Cancel records that a run should end, and returns it without its payload. A queued or
	// waiting run ends with end and the status canceled. A running run keeps its status and
	// its first cancellation, see [Run.Canceled]. A terminal run does not change. With
	// [Cancellation.Held] the error matches [ErrConflict] unless the run is queued and held,
	// and nothing changes.
	Cancel(ctx context.Context, id string, c Cancellation, end End) (Run, error)

	// Release lets a held, queued run be claimed, and returns it without its payload. For
	// any other run the error matches [ErrConflict], and nothing changes.
	Release(ctx context.Context, id string) (Run, error)

	// Tail reads up to max bytes of the log of the run's current attempt, from
	// offset on or, if offset is negative, from that many bytes before the end. It never reads
	// across dropped bytes: an offset among them reads from the first byte after them.
	Tail(ctx context.Context, id string, offset int64, max int) (Chunk, error)

	// Open opens an artifact of a terminal run's last attempt, [OutputLog] or
	// [ResultJSON]. If the run is not terminal or the name is unknown, the error
	// also matches [ErrNotFound].
	Open(ctx context.Context, id, name string) (Artifact, error)

	// Pending returns the runs of a session with a pending notice that finished at
	// since or later, in the order they finished and without their payload: up to
	// max, or all if max is 0. total counts all of them.
	Pending(ctx context.Context, session string, since time.Time, max int) (runs []Run, total int, err error)

	// Acknowledge records that the notices of these runs were delivered. It
	// ignores unknown runs, those of other sessions and those without a notice.
	Acknowledge(ctx context.Context, session string, ids []string) error

	// Remove removes a terminal run with its log, its artifacts and its notice. The
	// error matches [ErrActive] if the run is not terminal.
	Remove(ctx context.Context, id string) error

	// Prune removes the terminal runs that r does not keep, with their logs and
	// artifacts, and returns their number. It also removes disabled schedules and
	// session values that r does not keep.
	Prune(ctx context.Context, r Retention) (int, error)

	// Schedules stores the schedules, which start runs at certain times.
	Schedules

	// Values stores the values that sessions and their runs keep.
	Values

	// Watch returns the events of the runs and schedules of a session, or of all
	// sessions if session is "", from now on and on any worker. An engine may deliver
	// events late or twice, or drop some and send [EventMissed]. The channel is
	// closed after ctx is done.
	Watch(ctx context.Context, session string) <-chan Event

	// Now returns the current time of the clock that leases and schedules follow.
	Now(ctx context.Context) (time.Time, error)

	// Recorded returns the current size of all records in bytes, as [Quota] counts
	// it; 0 before the first Join.
	Recorded() int64

	// Counts returns the number of active runs by status; none before the first Join.
	Counts() map[Status]int
}

// Schedules stores schedules: which runs to submit, and when.
type Schedules interface {
	// PutSchedule stores a schedule and returns it with its new Revision. Revision 0
	// makes a new schedule, and evicts records as Submit does; the error matches
	// [ErrExists] if the id is taken. Otherwise the stored schedule is replaced; the
	// error matches [ErrConflict] if it has another Revision. If the session already
	// has max other enabled schedules, an enabled one is refused with a
	// *[LimitError] matching [ErrScheduleLimit].
	PutSchedule(ctx context.Context, s Schedule, max int) (Schedule, error)

	// GetSchedule returns a schedule.
	GetSchedule(ctx context.Context, id string) (Schedule, error)

	// RemoveSchedule removes a schedule, enabled or not. Submit then refuses new runs of the
	// schedule; runs that were already submitted stay.
	RemoveSchedule(ctx context.Context, id string) error

	// Schedules returns the schedules of a session, or of all sessions if
	// session is "", newest first and without their Args. If enabled is set, it
	// returns only enabled schedules.
	Schedules(ctx context.Context, session string, enabled bool) ([]Schedule, error)

	// Due returns up to max enabled schedules whose NextAt is not after now,
	// earliest first and without their Args. next is the time at which the first
	// of the others is due: zero if there are none.
	Due(ctx context.Context, now time.Time, max int) (due []Schedule, next time.Time, err error)
}

// A Worker is the right to work on an engine's runs. It is safe for concurrent
// use.
//
// A write to a run that this worker does not have, or whose attempt has changed,
// changes nothing and returns an error matching [ErrFenced]. So does every write
// after the worker's lease has ended. Runs are returned without their payload.
type Worker interface {
	// ID returns the worker's id, the ID of its [WorkerState].
	ID() string

	// Submit stores a new queued run. If permits is nil, or its Queue is set, the run goes to
	// the queue that all workers share; otherwise this worker has claimed it. The error matches
	// [ErrExists] if the id is taken, and is an *[ExistsError] if the session has a run with the
	// same idempotency key. If no permit is left, it is a *[LimitError] matching
	// [ErrSessionLimit] or [ErrOwnerLimit], or [ErrRecordLimit] if evicting records frees too
	// little space. A parent must be active, of the same session and not canceled, or the error
	// matches [ErrParent]. If it has too many active children, the error matches
	// [ErrChildLimit]. The schedule of a new run must be stored, or the error matches
	// [ErrNotFound].
	Submit(ctx context.Context, run Run, permits *Permits) error

	// Adopt stores a run that this worker has already been working on, in its first
	// attempt, since run.StartedAt. It refuses runs as Submit does, with [ErrParkedLimit] in
	// place of [ErrSessionLimit].
	Adopt(ctx context.Context, run Run, permits Permits) (Lease, error)

	// Offer replaces the set of runs that the worker can start. It keeps the runs that it
	// has claimed.
	Offer(ctx context.Context, o Offer) error

	// Claim takes up to max runs out of the shared queue for this worker, oldest first. It skips
	// runs that are Held, runs whose After run has not ended, and those whose session or owner
	// has no permit left. A claimed run holds its permits and is still queued. Claim takes a run
	// that the worker does not offer only if it was submitted at least the worker's Patience
	// ago, and no worker with a lease has offered it since then. A single-worker engine lets its
	// worker claim every run immediately.
	Claim(ctx context.Context, max int, permits Permits) ([]Run, error)

	// Start makes a run that this worker claimed running. Its attempt increases by one, and only
	// Cost of its Beat is kept. The new attempt's log is empty, or, if the run has a state, the part
	// of the previous log that belongs to the state. A woken run continues its attempt, its log and
	// its Beat.
	Start(ctx context.Context, id string) (Lease, error)

	// Wake queues up to max waiting runs whose wake time is not after now, a time returned
	// by [Engine.Now], earliest first. It returns their number, and the time at which the
	// next one is due: zero if none is. An engine of a single process uses an [Alarm].
	Wake(ctx context.Context, now time.Time, max int) (woken int, next time.Time, err error)

	// Renew is the heartbeat. It renews the lease of this worker and records the
	// beats of all its runs. A crash may lose beats. An error matching
	// [ErrFenced] means that the lease has ended. A worker must also consider
	// its lease ended if its last successful Renew was sent more than its TTL
	// ago.
	Renew(ctx context.Context, held map[string]Beat) (Renewal, error)

	// Orphans takes over up to max running runs of dead workers, for Requeue or
	// Abandon. Runs that a dead worker had only claimed return to the queue by
	// themselves. An engine shared by several processes gives orphans only to a
	// worker that has renewed without a gap for its TTL, so that after an outage
	// of the store all workers get the same time to come back.
	Orphans(ctx context.Context, max int) ([]Run, error)

	// Requeue returns a run of this worker to the shared queue. The run must be in the given
	// attempt.
	Requeue(ctx context.Context, id string, attempt int) error

	// Abandon is like [Lease.Complete], but for a run that this worker claimed or took over. The
	// run must be in the given attempt.
	Abandon(ctx context.Context, id string, attempt int, status Status, b Beat, e End) (Run, error)

	// Notices takes up to max pending notices that no live worker has taken, in the
	// order the runs ended, and returns their runs.
	Notices(ctx context.Context, max int) ([]Run, error)

	// Leave ends the worker's lease. The worker's running runs become orphans immediately.
	Leave(ctx context.Context) error
}

// A Renewal is the result of a heartbeat.
type Renewal struct {
	Stops   []string // ids of this worker's running runs that were canceled
	Strays  []string // ids of this worker's running runs that held lacks: the answer to their Start was lost
	Queued  bool     // whether there may be runs to Claim
	Orphans bool     // whether there may be Orphans to take over
	Notices bool     // whether there may be Notices to take
}

// Permits are limits on the claimed and running runs of all workers together. 0 means no
// limit. [Quota.Owner] returns the owner of a session.
type Permits struct {
	Session int // maximum number of claimed and running runs of one session, without parked calls
	Parked  int // maximum number of parked calls of one session
	Owner   int // maximum number of claimed and running runs of all sessions of an owner, including parked calls
	// Children is the maximum number of active children of one run; Claim does not check it.
	Children int
	// Queue makes Submit store the run in the queue that all workers share. All runs in
	// it, except Held ones, then count as claimed. A single-worker engine ignores it.
	Queue bool
}

// A Lease is the right to work on a run. It is used by one goroutine at a time.
// Once it is no longer the run's current lease, its methods change nothing and
// return an error matching [ErrFenced].
type Lease interface {
	// Run returns the run as it was when it was started or adopted, with its Args.
	Run() Run

	// Checkpoint returns the last checkpoint that an earlier attempt of the run saved, or
	// nil if there is none.
	Checkpoint() []byte

	// Report records b as Renew does. If only the output has grown, an engine may publish that
	// immediately and record it with the next Renew.
	Report(ctx context.Context, b Beat) error

	// Append adds p, which begins at offset of the stream, to the log of this attempt.
	// The bytes between the end of the log and offset were dropped by the writer; bytes
	// before that end are ignored. The log keeps its first and last bytes, at least
	// Run.OutputCap of them. They survive a crash of the process and, after Complete, also a
	// crash of the machine. After an error, a part of p may have been appended. The error
	// matches [ErrQuota] if the quota currently allows no more output.
	Append(ctx context.Context, offset int64, p []byte) error

	// Save stores data as the run's checkpoint, replacing an earlier one, together
	// with the last report.
	Save(ctx context.Context, data []byte) error

	// State returns the state with which the run was last suspended, or nil if it was not.
	State() []byte

	// Suspend stores the state of a run and its children in one write, makes the run
	// wait, and ends the lease. With Hold the run and the lease continue instead. It
	// returns the run without its payload: waiting; queued if what it waits for has
	// already happened; running with Hold. If the run is canceled, the error matches
	// [ErrStopping]. If the quota has no space for the state or the children, it
	// matches [ErrRecordLimit]; then nothing is stored and the run keeps running.
	Suspend(ctx context.Context, s Suspension) (Run, error)

	// Complete ends the run with a terminal status and returns it without its
	// payload. It stores the log, the artifacts, the end and the notice. If an
	// artifact cannot be written, End.ArtifactError says so.
	Complete(ctx context.Context, status Status, b Beat, e End) (Run, error)
}

// A Query selects runs. Its zero value selects all.
type Query struct {
	Session        string // session of the runs; "": any session
	IdempotencyKey string // idempotency key of the runs; "": any key, or none
	Schedule       string // id of the schedule that fired the runs; "": any schedule, or none
	Parent         string // id of the run that started the runs; "": any run, or none
	Active         bool   // whether to select only runs that are not terminal
	Before         string // id of a run: only runs submitted before it; "": no bound. An id that Session lacks selects no run
	Limit          int    // maximum number of runs; 0: no limit
	Filter                // conditions on other properties of the runs
}

// Matches reports whether q selects the run, apart from Session, Before and
// Limit.
func (q Query) Matches(r Run) bool {
	return (!q.Active || !r.Status.Terminal()) &&
		(q.IdempotencyKey == "" || q.IdempotencyKey == r.IdempotencyKey) &&
		(q.Schedule == "" || q.Schedule == r.Schedule) &&
		(q.Parent == "" || q.Parent == r.Parent) &&
		q.Filter.Matches(r)
}

// A Retention says which terminal runs and which disabled schedules are kept. A schedule
// counts as finished when it last changed.
type Retention struct {
	Before  time.Time // earliest finish of a run that is kept
	Keep    int       // number of runs kept per session: the newest by FinishedAt, then by submission
	Notices time.Time // earliest finish of a run that is kept just because its notice is pending; zero: any
	Values  time.Time // earliest last change of a session whose values are kept; zero: any

	// Ephemeral reports whether a session can never be resumed; nil: every session can. The
	// values of all scopes of such a session are kept only if one of them was changed since
	// EphemeralValues, or a run of the session is active.
	Ephemeral       func(session string) bool
	EphemeralValues time.Time
}

// KeepsValues reports whether the values of the scope are kept, given the time of its last
// change. It ignores the exception for ephemeral sessions with an active run. The values of a
// run are removed when it ends.
func (r Retention) KeepsValues(at Scope, changed time.Time) bool {
	switch {
	case at.Session == "" || at.Run != "":
		return true
	case r.IsEphemeral(at.Session):
		return !changed.Before(r.EphemeralValues)
	}
	return at.Name != "" || !changed.Before(r.Values)
}

// IsEphemeral reports whether a session can never be resumed.
func (r Retention) IsEphemeral(session string) bool {
	return r.Ephemeral != nil && r.Ephemeral(session)
}

// A Chunk is a contiguous piece of a log.
type Chunk struct {
	Offset  int64  // offset of Data in the whole log
	Data    []byte // bytes of the log; a copy that belongs to the caller
	End     int64  // length of the whole log so far, dropped bytes included
	Attempt int    // number of the attempt that wrote the log
}

// The artifacts of an attempt, and their names.
const (
	OutputLog  = "output.log"  // raw output, with a line in place of dropped bytes
	ResultJSON = "result.json" // description of how the run ended: an [Envelope]
)

// An Artifact is an open file of a run.
type Artifact interface {
	io.ReadSeekCloser
	io.ReaderAt
}
