// Package engine has the records of background runs and the interface of a store
// for them. It is to package background what database/sql/driver is to
// database/sql: programs that run work use background, and a store implements
// [Engine]. Package enginetest is the test suite of every engine.
//
// A worker is a process, or a part of one, that joined the engine. It has one lease
// for all its runs and renews it with a heartbeat. A worker that does not renew for
// its TTL is dead: others take its runs over, and its later writes are refused. A
// write is fenced by the worker's lease and by the run's attempt.
//
// A running run may be suspended: it waits without a worker until the end of a child,
// a message or its time returns it to the queue, see [Lease.Suspend].
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

// DefaultTTL is how long the lease of a worker lasts after it was last renewed.
const DefaultTTL = 30 * time.Second

// An Engine stores runs, their logs and artifacts, and schedules. It is safe for
// concurrent use, and may share the slices and pointers of records with its callers,
// who do not write to them. Each write is atomic, and as durable as the engine makes
// anything when the method returns nil. The id of an unknown run or schedule is an
// error matching [ErrNotFound]; once the storage is gone, every write returns one
// matching [ErrStorageLost]. An engine on a network returns errors matching
// [ErrUnavailable] while its storage is away. A write that finds no room on the disk
// returns one matching [ErrFull].
type Engine interface {
	// Join makes the caller a worker. An engine that only one worker can use
	// returns an error matching [ErrLocked] while there is one.
	Join(ctx context.Context, w WorkerInfo) (Worker, error)

	// Workers returns the workers that have not left, those that joined first come first.
	// Dead ones are among them for a while.
	Workers(ctx context.Context) ([]WorkerState, error)

	// Get returns a run without its payload (Args, Result and Content).
	Get(ctx context.Context, id string) (Run, error)

	// Payload returns one large part of a run, nil if it has none.
	Payload(ctx context.Context, id string, part Part) (json.RawMessage, error)

	// List returns the runs that match q without their payload, newest first.
	List(ctx context.Context, q Query) ([]Run, error)

	// Cancel records that a run is to end, and returns it without its payload. A
	// queued or waiting run ends with end and the status canceled; a running run keeps its
	// status, and its first cancellation, see [Run.Canceled]; a terminal run does not change.
	// With [Cancellation.Held] the error matches [ErrConflict] unless the run is queued and
	// held, and nothing changes.
	Cancel(ctx context.Context, id string, c Cancellation, end End) (Run, error)

	// Release lets a held, queued run be claimed, and returns it without its payload. For
	// any other run the error matches [ErrConflict], and nothing changes.
	Release(ctx context.Context, id string) (Run, error)

	// Tail reads up to max bytes of the log of the run's current attempt, from
	// offset on or, if offset is negative, from that many bytes before the end. It
	// never reads across dropped bytes: from among them it continues after them.
	Tail(ctx context.Context, id string, offset int64, max int) (Chunk, error)

	// Open opens an artifact of a terminal run's last attempt, [OutputLog] or
	// [ResultJSON]. The error matches [ErrNotFound] also if the run is not terminal
	// or the name is unknown.
	Open(ctx context.Context, id, name string) (Artifact, error)

	// Pending returns up to max runs of a session, all if max is 0, whose notice is
	// pending and that finished at since or later: those that finished first come
	// first. They have no payload. Total counts all of them.
	Pending(ctx context.Context, session string, since time.Time, max int) (runs []Run, total int, err error)

	// Acknowledge records that the notices of these runs were delivered. It
	// ignores unknown runs, those of other sessions and those without a notice.
	Acknowledge(ctx context.Context, session string, ids []string) error

	// Remove removes a terminal run with its log, its artifacts and its notice. The
	// error matches [ErrActive] if the run is not terminal.
	Remove(ctx context.Context, id string) error

	// Prune removes terminal runs that r does not keep, with their logs and
	// artifacts, and returns how many. It also removes such disabled schedules, and
	// values of sessions.
	Prune(ctx context.Context, r Retention) (int, error)

	// Schedules start runs at their times.
	Schedules

	// Values are what sessions store in addition to runs.
	Values

	// Watch returns the events of the runs and schedules of a session, or of all
	// sessions if session is "", from now on and on any worker. An engine may deliver
	// events late, twice, or drop some and send [EventMissed]. The channel is closed
	// after ctx is done.
	Watch(ctx context.Context, session string) <-chan Event

	// Now returns the time that leases and schedules go by.
	Now(ctx context.Context) (time.Time, error)

	// Recorded returns how many bytes records take now, as [Quota] counts them;
	// 0 before the first Join.
	Recorded() int64

	// Counts returns how many of the active runs have each status; nothing before the
	// first Join.
	Counts() map[Status]int
}

// Schedules store when runs are to be submitted, and with what.
type Schedules interface {
	// PutSchedule stores a schedule and returns it with its new Revision. With
	// Revision 0 it is new, and makes room as in Submit; the error matches
	// [ErrExists] if the id is taken. Else it replaces the stored one, and the error
	// matches [ErrConflict] if that has another Revision. The session's (max+1)th
	// enabled schedule is a *[LimitError] matching [ErrScheduleLimit].
	PutSchedule(ctx context.Context, s Schedule, max int) (Schedule, error)

	// GetSchedule returns a schedule.
	GetSchedule(ctx context.Context, id string) (Schedule, error)

	// RemoveSchedule removes a schedule, enabled or not. From then on Submit refuses
	// its runs; those that were submitted stay.
	RemoveSchedule(ctx context.Context, id string) error

	// Schedules returns the schedules of a session, or of all if session is "",
	// newest first and without their Args; only enabled ones if enabled is set.
	Schedules(ctx context.Context, session string, enabled bool) ([]Schedule, error)

	// Due returns up to max enabled schedules whose NextAt is not after now,
	// earliest first and without their Args, and when the next of the others is
	// due: zero if none is.
	Due(ctx context.Context, now time.Time, max int) (due []Schedule, next time.Time, err error)
}

// A Worker is the right to work on an engine's runs. It is safe for concurrent
// use.
//
// A write to a run that is not this worker's, or not in that attempt any more, and
// every write after the worker's lease has ended, changes nothing and returns an
// error matching [ErrFenced]. Runs are returned without their payload.
type Worker interface {
	// ID is that of its [WorkerState].
	ID() string

	// Submit stores a new queued run: in the queue that all workers share if permits
	// is nil or says so, else claimed by this worker. The error matches [ErrExists] if the id is
	// taken, and is an *[ExistsError] if the session has a run with its idempotency
	// key. It is a *[LimitError] matching [ErrSessionLimit] or [ErrOwnerLimit] if no
	// permit is left, or [ErrRecordLimit] if evicting records makes too little room.
	// The parent of a run must be active, of its session and not canceled, else the
	// error matches [ErrParent]. With too many active children it matches [ErrChildLimit].
	// The schedule of a new run must be stored, else the error matches [ErrNotFound].
	Submit(ctx context.Context, run Run, permits *Permits) error

	// Adopt stores a run that this worker already works on, in its first attempt and
	// since run.StartedAt. It refuses as Submit does, with [ErrParkedLimit] in place
	// of [ErrSessionLimit].
	Adopt(ctx context.Context, run Run, permits Permits) (Lease, error)

	// Offer replaces what the worker can start. Runs that it has claimed stay its own.
	Offer(ctx context.Context, o Offer) error

	// Claim takes up to max runs out of the shared queue for this worker: the oldest
	// first, of sessions and owners with a permit left, not before the run named by
	// After has ended, and none that is Held. A claimed run holds its permits and is
	// still queued. It takes a run that it does not offer only if that was submitted its
	// Patience ago, and no worker with a lease has offered it since then. An engine that
	// only one worker can use gives it each run at once.
	Claim(ctx context.Context, max int, permits Permits) ([]Run, error)

	// Start makes a run that this worker claimed running: its attempt is one
	// higher, and the log of that attempt is empty, or with a state, that of the
	// attempt before cut to what belongs to it. Of its Beat only Cost is kept. A woken run continues
	// its attempt, its log and its Beat.
	Start(ctx context.Context, id string) (Lease, error)

	// Wake queues up to max waiting runs whose time has come at now, which [Engine.Now]
	// has returned: the earliest first. It returns how many, and when the next one is
	// due: zero if none is. In an engine of one process, an [Alarm] says when that is.
	Wake(ctx context.Context, now time.Time, max int) (woken int, next time.Time, err error)

	// Renew is the heartbeat. It renews the lease of this worker and records the
	// beats of all runs it works on, which a crash may lose. An error matching
	// [ErrFenced] means that the lease has ended. It has also ended for a worker
	// whose last successful Renew was sent its TTL ago.
	Renew(ctx context.Context, held map[string]Beat) (Renewal, error)

	// Orphans takes over up to max running runs of dead workers, for Requeue or
	// Abandon. Runs that a dead worker had only claimed return to the queue by
	// themselves. An engine that several processes share gives orphans only to a
	// worker that has renewed without a gap for its TTL: after an outage of the
	// store all workers get the same time to come back.
	Orphans(ctx context.Context, max int) ([]Run, error)

	// Requeue returns a run of this worker, in that attempt, to the shared queue.
	Requeue(ctx context.Context, id string, attempt int) error

	// Abandon is [Lease.Complete] for a run of this worker, in that attempt, that was
	// claimed or taken over.
	Abandon(ctx context.Context, id string, attempt int, status Status, b Beat, e End) (Run, error)

	// Notices takes up to max pending notices that no live worker has taken, in the
	// order the runs ended, and returns their runs.
	Notices(ctx context.Context, max int) ([]Run, error)

	// Leave ends the lease. Its running runs are orphans at once.
	Leave(ctx context.Context) error
}

// A Renewal is what a worker learns from a heartbeat.
type Renewal struct {
	Stops   []string // running runs of this worker that were canceled
	Strays  []string // running runs of this worker that held did not name: a Start whose answer was lost
	Queued  bool     // there may be runs to Claim
	Orphans bool     // there may be Orphans to take over
	Notices bool     // there may be Notices to take
}

// Permits bound the runs that are claimed or running at the same time, over all
// workers. 0 is no limit. [Quota.Owner] names the owner of a session.
type Permits struct {
	Session int // of one session, parked calls not counted
	Parked  int // parked calls of one session
	Owner   int // of all sessions of an owner, parked calls counted
	// Children bounds the active children of one run; Claim does not check it.
	Children int
	// Queue has Submit store the run in the queue that all workers share. Then the runs
	// that wait there, but those that are Held, count as claimed. An engine that only one
	// worker can use ignores it.
	Queue bool
}

// A Lease is the right to work on a run, for one goroutine at a time. When it is no
// longer the run's current one, its methods change nothing and return an error
// matching [ErrFenced].
type Lease interface {
	// Run returns the run as it was started or adopted, with its Args.
	Run() Run

	// Checkpoint returns what an earlier attempt of the run saved last, or nil.
	Checkpoint() []byte

	// Report records b as Renew does. If only the output has grown, an engine may publish that
	// at once and record it with the next Renew.
	Report(ctx context.Context, b Beat) error

	// Append adds p, which begins at offset of the stream, to the log of this
	// attempt. The bytes between the end of the log and offset were dropped by the
	// writer; bytes before that end are ignored. The log keeps its first and last bytes,
	// at least Run.OutputCap of them. They outlive the process, and after Complete
	// the machine. After an error, a part of p may have been appended; one matching
	// [ErrQuota] means that the quota allows no more output now.
	Append(ctx context.Context, offset int64, p []byte) error

	// Save stores data as the run's checkpoint, in place of an earlier one.
	Save(ctx context.Context, data []byte) error

	// State returns what the run was suspended with last, or nil.
	State() []byte

	// Suspend stores what the run continues from, its children and that it waits, in
	// one write, and ends the lease; with Hold it keeps the run and the lease. It
	// returns the run without its payload: waiting; queued again if what it waits for
	// has happened already; running with Hold. The error matches [ErrStopping] if the
	// run is canceled, and [ErrRecordLimit] if the quota has no space for the state or
	// the children: then nothing is stored and the run keeps running.
	Suspend(ctx context.Context, s Suspension) (Run, error)

	// Complete ends the run with a terminal status and returns it without its
	// payload. It stores the log, the artifacts, the end and the notice. If an
	// artifact cannot be written, End.ArtifactError says so.
	Complete(ctx context.Context, status Status, b Beat, e End) (Run, error)
}

// A Query selects runs. Its zero value selects all.
type Query struct {
	Session        string // "": of every session
	IdempotencyKey string // "": with any or none
	Schedule       string // the schedule that fired them; "": any or none
	Parent         string // the run that started them; "": any or none
	Active         bool   // only runs that are not terminal
	Before         string // only runs submitted before the one with this id; "": all. Of an id unknown in Session, none
	Limit          int    // at most so many; 0: all
	Filter                // selects by what they are
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

// A Retention says which terminal runs are kept, and which disabled schedules,
// whose last change counts as FinishedAt.
type Retention struct {
	Before  time.Time // runs that finished before it are not kept
	Keep    int       // the newest Keep of a session are kept: by FinishedAt, then by submission
	Notices time.Time // runs whose notice is pending are kept as well, unless they finished before this; zero: always
	Values  time.Time // the values of a session are kept unless none was written or deleted since; zero: always

	// Brief reports whether nobody can come back to a session; nil: to each. The values
	// of all scopes of such a session are kept only if one was written or deleted since
	// BriefValues, or a run of the session is active.
	Brief       func(session string) bool
	BriefValues time.Time
}

// KeepsValues reports whether the values of a scope that was last changed at a time are
// kept, unless its session is brief and has an active run. Those of runs end with them.
func (r Retention) KeepsValues(at Scope, changed time.Time) bool {
	switch {
	case at.Session == "" || at.Run != "":
		return true
	case r.IsBrief(at.Session):
		return !changed.Before(r.BriefValues)
	}
	return at.Name != "" || !changed.Before(r.Values)
}

// IsBrief reports whether nobody can come back to a session.
func (r Retention) IsBrief(session string) bool { return r.Brief != nil && r.Brief(session) }

// A Chunk is a contiguous piece of a log.
type Chunk struct {
	Offset  int64  // of the first byte of Data in the whole log
	Data    []byte // the caller's own copy
	End     int64  // length of the whole log so far, dropped bytes included
	Attempt int    // whose log it is
}

// The artifacts of an attempt, and their names.
const (
	OutputLog  = "output.log"  // the raw output, with a line for what was dropped
	ResultJSON = "result.json" // how the run ended: an [Envelope]
)

// An Artifact is an open file of a run.
type Artifact interface {
	io.ReadSeekCloser
	io.ReaderAt
}
