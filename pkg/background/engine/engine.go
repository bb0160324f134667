// Package engine has the records of background runs and what a store of them
// must do. It is to package background what database/sql/driver is to
// database/sql: programs that run work use background, those who write a store
// implement [Engine].
//
// An engine is used by workers: one for each [Worker] that joined, in one
// process or in several. A worker has one lease for all its runs and renews it
// with a heartbeat. A worker that does not renew for its TTL is dead: others
// take its runs over, and all it writes after that is refused. Two numbers
// fence a write: the run's attempt, and the worker's epoch, which is never used
// again.
//
// A run goes through these states:
//
//	Submit ──► queued ──Claim──► queued, claimed ──Start──► running ──Complete──► ended
//	              ▲                 │ Abandon, Cancel           │ Abandon
//	              │                 ▼                           ▼
//	              │               ended                       ended
//	              └──────────────── Requeue ◄───────────────────┘
//
// Package memory has an engine without a disk, package sqlite one on a disk, and
// package enginetest the suite that every engine passes.
package engine

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// DefaultTTL is how long the lease of a worker lasts after it was last renewed.
const DefaultTTL = 30 * time.Second

// An Engine stores runs, their logs and artifacts, and schedules. It is safe
// for concurrent use.
//
// One write is one method, so that an engine can make it atomic. When a method
// that changes something returns nil, the change is as durable as the engine
// makes anything. Values that go in and come out share no memory with the
// engine.
//
// An engine whose storage is gone returns errors matching [ErrStorageLost] from
// every method that writes.
type Engine interface {
	// Join makes the caller a worker. An engine that only one worker can use
	// returns an error matching [ErrLocked] while there is one.
	Join(ctx context.Context, w WorkerInfo) (Worker, error)

	// Get returns a run without its payload (Args, Result and Content), or an
	// error matching [ErrNotFound].
	Get(ctx context.Context, id string) (Run, error)

	// Payload returns one large part of a run, nil if it has none, or an error
	// matching [ErrNotFound].
	Payload(ctx context.Context, id string, part Part) (json.RawMessage, error)

	// List returns the runs that match q without their payload, newest first.
	List(ctx context.Context, q Query) ([]Run, error)

	// Cancel records that a run is to end, and returns it without its payload.
	// A queued run ends with end and the status canceled; a running run keeps its
	// status, and its worker hears of it; a terminal run does not change. The
	// first cancellation of a run is kept. The error matches [ErrNotFound] if
	// there is no such run.
	Cancel(ctx context.Context, id string, c Cancellation, end End) (Run, error)

	// Tail reads up to max bytes of the log of the run's current attempt, from
	// offset on or, if offset is negative, from that many bytes before the end.
	// It never reads across the gap between the kept head and tail: from inside
	// the gap it continues at the tail. The error matches [ErrNotFound] if there
	// is no such run.
	Tail(ctx context.Context, id string, offset int64, max int) (Chunk, error)

	// Open opens an artifact of a terminal run's last attempt: [OutputLog] or
	// [ResultJSON]. The caller closes it. The error matches [ErrNotFound] if
	// there is no such run, the run is not terminal, or the name is unknown.
	Open(ctx context.Context, id, name string) (Artifact, error)

	// Acknowledge records that the notices of these runs were delivered. It
	// ignores unknown runs, those of other sessions and those without a notice.
	Acknowledge(ctx context.Context, session string, ids []string) error

	// Prune removes terminal runs that r does not keep, with their logs and
	// artifacts, and returns how many. It also removes disabled schedules that r
	// does not keep, and does not count them.
	Prune(ctx context.Context, r Retention) (int, error)

	// PutSchedule stores a schedule and returns it with its new Revision. With
	// Revision 0 it is a new one, and the error matches [ErrExists] if the id is
	// taken. Otherwise it replaces the stored one if that has the same Revision;
	// if not the error matches [ErrConflict], or [ErrNotFound] if there is none.
	//
	// A schedule that would become the session's (max+1)th enabled one is refused
	// with a *[LimitError] that matches [ErrScheduleLimit]; counting and storing
	// are one step. A new schedule makes room for its record as Submit does.
	PutSchedule(ctx context.Context, s Schedule, max int) (Schedule, error)

	// GetSchedule returns a schedule, or an error matching [ErrNotFound].
	GetSchedule(ctx context.Context, id string) (Schedule, error)

	// Schedules returns the schedules of a session, or of all if session is "",
	// newest first and without their Args; only enabled ones if enabled is set.
	Schedules(ctx context.Context, session string, enabled bool) ([]Schedule, error)

	// Due returns up to max enabled schedules whose NextAt is not after now, the
	// earliest first and without their Args, and when the next of the others is
	// due: zero if none is.
	Due(ctx context.Context, now time.Time, max int) (due []Schedule, next time.Time, err error)

	// Watch returns what happens to the runs and schedules of a session, or of
	// all if session is "", from now on, on whatever worker. Events are hints: an
	// engine may deliver them late, twice, or drop some and send [EventMissed].
	// The channel is closed after ctx is done.
	Watch(ctx context.Context, session string) <-chan Event

	// Now returns the time that leases and schedules go by.
	Now(ctx context.Context) (time.Time, error)

	// Recorded returns how many bytes records take now, as [Quota] counts them;
	// 0 before the first Join.
	Recorded() int64
}

// A WorkerInfo describes a worker that joins.
type WorkerInfo struct {
	Name  string        // for operators; need not be unique
	TTL   time.Duration // of its lease; 0: DefaultTTL
	Quota Quota         // of records, from now on; the zero Quota bounds nothing
}

// A Worker is one process's lease on an engine. It is safe for concurrent use.
//
// A write whose run is not this worker's, or not in that attempt any more,
// changes nothing and returns an error matching [ErrFenced]. So does every write
// after the worker's lease has ended.
type Worker interface {
	// Epoch identifies this lease. No other worker of the engine, past or future,
	// has the same.
	Epoch() string

	// Submit stores a new queued run. If permits is nil, the run waits in the
	// queue that all workers share. Otherwise it is claimed by this worker, and
	// refused with a *[LimitError] that matches [ErrSessionLimit] or
	// [ErrOwnerLimit] if permits has none left for it.
	//
	// The error matches [ErrExists] if the id is taken, and is an *[ExistsError]
	// if the session already has a run with its idempotency key. If there is no
	// room for the record, others that may go are evicted in the same step; where
	// that is not enough the error is a *[LimitError] that matches
	// [ErrRecordLimit]. After an error nothing has changed.
	Submit(ctx context.Context, run Run, permits *Permits) error

	// Adopt stores a run that this worker already works on: it is running, in its
	// first attempt. run.StartedAt is kept. It refuses as Submit does, with
	// [ErrParkedLimit] in place of [ErrSessionLimit].
	Adopt(ctx context.Context, run Run, permits Permits) (Lease, error)

	// Claim takes up to max runs out of the shared queue for this worker, without
	// their payload: those that waited longest first, of sessions and owners with
	// a permit left, and not before the run named by After has ended. A claimed
	// run holds its permits. It is still queued: this worker starts it, ends it
	// with Abandon, or gives it back with Requeue.
	Claim(ctx context.Context, max int, permits Permits) ([]Run, error)

	// Start makes a run that this worker claimed running: its attempt is one
	// higher, and the log of that attempt is empty. The error matches
	// [ErrNotClaimable] if the run is not queued and claimed by this worker, as
	// after a cancellation, or [ErrNotFound].
	Start(ctx context.Context, id string) (Lease, error)

	// Renew is the heartbeat. It renews the lease of this worker and stores the
	// beats of the runs it works on; held has all of them. An engine may store
	// beats later than it returns: a crash may lose the last ones.
	//
	// An error matching [ErrFenced] means that the lease has ended. A worker for
	// whom no Renew succeeded for its TTL, counted from when it was sent, must
	// consider its lease ended too.
	Renew(ctx context.Context, held map[string]Beat) (Renewal, error)

	// Orphans takes over up to max running runs of dead workers, and returns them
	// without their payload: same attempt, this worker's epoch. The caller queues
	// each again with Requeue or ends it with Abandon. Runs that a dead worker
	// had only claimed return to the shared queue by themselves. An engine that
	// several processes share grants no orphans to a worker that has not itself
	// renewed without a gap for its TTL: after an outage of the store every lease
	// has ended, and all workers get the same time to come back.
	Orphans(ctx context.Context, max int) ([]Run, error)

	// Requeue returns a run that is this worker's to the shared queue. attempt is
	// that of the run as the caller knows it; its lease is fenced.
	Requeue(ctx context.Context, id string, attempt int) error

	// Abandon ends a run that nobody works on: one that is queued, or one taken
	// over. attempt is that of the run as the caller knows it; its lease is
	// fenced. The log stays as it is, and the artifacts, the end and the notice
	// are stored as by [Lease.Complete].
	Abandon(ctx context.Context, id string, attempt int, status Status, b Beat, e End) (Run, error)

	// Notices takes up to max pending notices that no live worker has taken, in
	// the order the runs ended, and returns their runs without payload. They are
	// this worker's to deliver until they are acknowledged or its lease ends.
	Notices(ctx context.Context, max int) ([]Run, error)

	// Hints returns hints to look at something before the next Renew. They may
	// be late, double or lost. The channel is closed after Leave.
	Hints() <-chan Hint

	// Leave ends the lease. Its running runs are orphans at once.
	Leave(ctx context.Context) error
}

// A Renewal is what a worker learns from a heartbeat.
type Renewal struct {
	Stops   []string // running runs of this worker whose end was asked for
	Strays  []string // running runs of this worker that held did not name: a Start whose answer was lost
	Queued  bool     // there may be runs to Claim
	Orphans bool     // there may be Orphans to take over
	Notices bool     // there may be Notices to take
}

// A Hint says that something is worth looking at.
type Hint struct {
	Kind HintKind
	Run  string // of HintStop
}

// A HintKind says what to look at.
type HintKind string

// What a hint may say.
const (
	HintQueue    HintKind = "queue"    // there is a run to claim
	HintStop     HintKind = "stop"     // the end of a run of this worker was asked for
	HintNotice   HintKind = "notice"   // there is a notice to deliver
	HintSchedule HintKind = "schedule" // a schedule was stored: it may be due earlier than thought
)

// Permits bound the runs that hold permits at the same time: those that are
// claimed or running, over all workers. 0 is no limit. An owner is what
// [Quota.Owner] says of a session.
type Permits struct {
	Session int // of one session, parked calls not counted
	Parked  int // parked calls of one session
	Owner   int // of all sessions of an owner, parked calls counted
}

// A Lease is the right to work on a run. Its methods return an error matching
// [ErrFenced], and change nothing, when it is no longer the run's current one. A
// Lease is used by one goroutine at a time.
type Lease interface {
	// Run returns the run as it was started or adopted, with its Args.
	Run() Run

	// Checkpoint returns what an earlier attempt of the run saved last; nil if
	// nothing.
	Checkpoint() []byte

	// Report records b before the next Renew does. An engine may store it later
	// than it returns.
	Report(ctx context.Context, b Beat) error

	// Append adds p to the log of this attempt. offset is where p begins in the
	// whole log: bytes between the end of what was appended before and offset
	// were dropped by the writer, and bytes before that end are ignored. The log
	// keeps its first and last bytes, at least Run.OutputCap of them. An error
	// matching [ErrQuota] means that there is no room for more output now: p may
	// be dropped, or appended again later. After any error, a part of p may have
	// been appended. What was appended outlives the process, and after Complete
	// the machine.
	Append(ctx context.Context, offset int64, p []byte) error

	// Save stores data as the run's checkpoint, in place of an earlier one.
	Save(ctx context.Context, data []byte) error

	// Complete ends the run with a terminal status and returns it as stored,
	// without its payload. The log, the artifacts, the end and the notice are
	// stored by this one call. An artifact that cannot be written does not keep
	// the run from its end: End.ArtifactError says so.
	Complete(ctx context.Context, status Status, b Beat, e End) (Run, error)
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

// Matches reports whether q selects the run, apart from Session, Before and
// Limit.
func (q Query) Matches(r Run) bool {
	return (!q.Active || !r.Status.Terminal()) &&
		(!q.Notice || r.Notice == NoticePending) &&
		(q.IdempotencyKey == "" || q.IdempotencyKey == r.IdempotencyKey) &&
		(q.Schedule == "" || q.Schedule == r.Schedule)
}

// A Retention says which terminal runs are kept, and which disabled schedules:
// for these, the time of their last change stands for FinishedAt.
type Retention struct {
	Session string    // "": applies to each session
	Before  time.Time // runs that finished before it are not kept
	Keep    int       // the newest Keep of a session are kept: by FinishedAt, then by submission
	Notices time.Time // runs whose notice is pending are kept as well, unless they finished before this; zero: always
}

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
