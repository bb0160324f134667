package background

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Defaults of [Config], and limits of requests.
const (
	DefaultPerSession  = 5                  // active runs of one session
	DefaultPerHost     = 64                 // runs that one process works on
	DefaultParked      = 32                 // active parked calls of one session
	DefaultSchedules   = 5                  // enabled schedules of one session
	DefaultAttempts    = 3                  // attempts in a row without progress, after which a run is not started again
	DefaultGrace       = 5 * time.Second    // time from a stop to the cancellation of the run's context
	DefaultOutputCap   = output.DefaultCap  // bytes of output kept for a run
	DefaultTimeout     = 5 * time.Minute    // deadline of a run that sets none
	DefaultMaxTimeout  = time.Hour          // the longest deadline of a run
	DefaultRetention   = 24 * time.Hour     // how long an ended run is kept
	DefaultRetainRuns  = 500                // how many ended runs of a session are kept
	DefaultInterval    = time.Minute        // the shortest time between two firings of a schedule
	DefaultMisfire     = time.Hour          // how late a missed firing may still happen
	DefaultNoticeTTL   = 7 * 24 * time.Hour // how long an unacknowledged notice is kept
	DefaultRecordQuota = 256 << 20          // maximum size of all records together, in bytes
	MaxWait            = 9 * time.Minute    // maximum wait of one Check; longer ones are cut to it
	MaxIDs             = 20                 // maximum number of ids in one Check
	DefaultChars       = 2048               // characters of output in a Report
	MaxChars           = 16384              // maximum characters of output in a Report
	MaxCheckpoint      = 1 << 20            // maximum size of a checkpoint, in bytes
	MaxDepth           = 8                  // maximum number of ancestors of a run
	MaxChildren        = 64                 // maximum number of active children of one run
	HeartbeatEvery     = 2 * time.Second    // interval of lease renewals; a quarter of Config.LeaseTTL if that is shorter
)

const (
	leaseTTL   = engine.DefaultTTL // default of Config.LeaseTTL
	minLease   = time.Second
	maxTitle   = 120
	maxKey     = 128
	maxReason  = 200
	maxSummary = 1000
	maxMessage = 2000
	maxTerms   = 1 << 10
	pruneEvery = time.Minute
	flushEvery = 50 * time.Millisecond // how often changes in sinks are sent to the engine
	fullEvery  = time.Second           // the same, for a sink whose head is full
	maxDelay   = time.Second           // how long a slow engine may delay a stop
)

// An Executor does the work that the record of a run describes, and writes output, status and
// progress to sink. ctx ends when the run has to end immediately: its cause is [ErrStopped],
// [context.DeadlineExceeded], [ErrClosed] or [engine.ErrFenced]. Before a stop that is not
// forced, [output.Sink.Stopping] is closed for the grace period. What the Executor returns
// decides how the run ends:
//   - a nil error: succeeded, whatever Outcome.ExitCode is;
//   - an *[Error]: failed with its kind; Outcome's fields are kept;
//   - any other error after ctx has ended: failed with [engine.KindTimeout] or
//     [engine.KindInterrupted], depending on the cause;
//   - any other error, a panic, or [runtime.Goexit]: failed with [engine.KindInternal].
//
// After a stop request, an error without an Outcome.Result means that the work was stopped, and
// the run is canceled; a result is kept.
//
// An Executor is called on many goroutines at once, which do other work before and after: it
// must leave them as it found them, for example not locked to a thread. It must return soon
// after ctx is done, and must not use sink after that.
type Executor func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error)

// An Outcome is the result of a run's work.
type Outcome struct {
	Summary  string          // one or two sentences, cut to 1,000 characters; may be empty
	Result   json.RawMessage // any JSON value; nil for none
	Content  json.RawMessage // content shown next to the result or the error: any JSON value; nil for none
	ExitCode *int            // nil if the work has no exit code
	// Diagnosis says why the work failed, for operators only. It is cleaned and cut to
	// 4 KiB. If it is nil, the logged error is used, if there is one.
	Diagnosis *engine.Diagnosis
	// Suspend makes the run wait instead of ending, if the work returned a nil error.
	// The run then has no worker, slot or permit, and a stop ends it immediately. Later
	// the Executor is called again, see [StateOf]; the run's Timeout starts over.
	Suspend *Suspension
}

// A Config configures a [Manager]. Only Executor is required: the zero value
// of every other field is its default.
type Config struct {
	Executor   Executor      // does the work; required
	Engine     engine.Engine // stores runs; nil: a new one in memory
	PerSession int           // active runs of one session, parked calls not counted; 0: DefaultPerSession
	PerOwner   int           // active runs of all sessions of one client, parked calls counted; 0: PerHost
	PerHost    int           // runs that this process works on, parked calls counted; 0: DefaultPerHost
	Parked     int           // active parked calls of one session; 0: DefaultParked
	Schedules  int           // enabled schedules of one session; 0: DefaultSchedules; negative: no schedules allowed
	Attempts   int           // attempts in a row without progress, after which a run is not started again; 0: DefaultAttempts
	Grace      time.Duration // time from a stop to the cancellation of the run's context; 0: DefaultGrace
	OutputCap  int           // bytes of output kept for a run; 0: DefaultOutputCap
	Timeout    time.Duration // deadline of a run that sets none; 0: DefaultTimeout, or MaxTimeout if that is shorter
	MaxTimeout time.Duration // the longest deadline of a run; 0: DefaultMaxTimeout
	Retention  time.Duration // how long an ended run is kept; 0: DefaultRetention
	RetainRuns int           // how many ended runs of a session are kept; 0: DefaultRetainRuns
	NoticeTTL  time.Duration // how long an unacknowledged notice and its run, and unchanged session values, are kept; 0: DefaultNoticeTTL

	// Ephemeral reports whether a session can never be resumed. If so, its values are
	// removed a day after the last change, unless it has an active run. Nil means that
	// every session can be resumed.
	Ephemeral func(session string) bool

	// RecordQuota is how many bytes the records of all runs and schedules may take, and
	// OwnerQuota those of one client: [engine.Quota] says what counts, and which
	// records are evicted to make room.
	RecordQuota int64 // 0: DefaultRecordQuota
	OwnerQuota  int64 // at most RecordQuota; 0: RecordQuota

	// LeaseTTL is how long this process may be out of contact with the engine before
	// its runs are ended and others take them over; 0: [engine.DefaultTTL]. It must be
	// at least a second, and longer than a database failover.
	LeaseTTL time.Duration

	// Offer returns which queued runs this process can start: see [engine.Offer]. It is
	// called at each heartbeat, and by [Manager.Reoffer]. Nil means every run. Patience
	// is how long the runs outside the offer wait for another worker that offers them,
	// before this one claims and rejects them; 0: not at all.
	Offer    func() engine.Offer
	Patience time.Duration

	EndSession SessionEnd // effect of a session's end on its runs; "": EndParked

	MinInterval time.Duration // the shortest time between two firings of a schedule; 0: DefaultInterval
	Misfire     time.Duration // how late a missed firing may still happen; 0: DefaultMisfire

	// Readmit decides whether a run from the queue may start: a run of a schedule,
	// or a run that waited when its worker died (Attempt 0), or one that was running
	// then (Attempt >= 1). With a nil error it starts. With an *[Error] it fails
	// with its kind and message. Any other error is logged, and the run fails with
	// [engine.KindRejected], or [engine.KindOrphaned] if it was running before. Nil
	// admits runs with Attempt 0. It is called from many goroutines.
	Readmit func(ctx context.Context, run engine.Run) error

	// Version returns the current version of a tool, for the runs of a schedule. If it
	// is nil or returns "", they get the version stored in the schedule.
	Version func(tool string) string

	// Provider returns the plugin that a tool belongs to, and the tool's kind. Both are
	// stored with each run, for display. Nil means unknown. It is called from many
	// goroutines.
	Provider func(tool string) engine.Provider

	// Hold can set Held and Terms of a run of a schedule, if the run must wait for
	// something before it starts: see [SpawnRequest]. Nil holds no run. It is called
	// from many goroutines.
	Hold func(ctx context.Context, run *engine.Run)

	// OnNotice is called with each run whose end makes a notice, one run at a time and
	// in the order in which they ended, once the end is stored. It is not called for an
	// end that an agent has already seen. After a restart it is called again with all
	// runs whose notices are unacknowledged. It may block, which delays only later
	// notices.
	OnNotice func(engine.Run)

	// OnEnd is called with each run that this process has ended, once its end is
	// stored. It is called from many goroutines, and must not block.
	OnEnd func(engine.Run)

	// Owner returns the client that a session belongs to, for PerOwner and OwnerQuota.
	// The result must depend on the session alone, and Owner is called with locks held.
	// Nil makes each session a client of its own.
	Owner func(session string) string

	// CanAccess reports whether a session can access the runs and schedules of another
	// one by their ids. Lists and events do not show them. Nil means never.
	CanAccess func(session, other string) bool

	// InternalText is the text that a model sees of a run that failed with an
	// internal error; "": "An internal error occurred".
	InternalText string

	Logger *slog.Logger // nil: nothing is logged
}

// A SessionEnd says what the end of a session does to its active runs.
type SessionEnd string

// The values of SessionEnd.
const (
	EndParked SessionEnd = "parked" // parked calls are stopped, all other runs continue
	EndAll    SessionEnd = "all"    // all runs are stopped
)

// withDefaults returns c with defaults in place of zero values, or a *FieldError.
func (c Config) withDefaults() (Config, error) {
	if c.Executor == nil {
		return c, &FieldError{"Executor", "required"}
	}
	if c.Engine == nil {
		c.Engine = memory.New()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}

	c.InternalText = cmp.Or(c.InternalText, "An internal error occurred")
	c.EndSession = cmp.Or(c.EndSession, EndParked)
	c.Schedules = max(-1, cmp.Or(c.Schedules, DefaultSchedules))

	err := cmp.Or(
		fill("PerSession", &c.PerSession, DefaultPerSession),
		fill("PerHost", &c.PerHost, DefaultPerHost),
		fill("PerOwner", &c.PerOwner, c.PerHost),
		fill("Parked", &c.Parked, DefaultParked),
		fill("Attempts", &c.Attempts, DefaultAttempts),
		fill("OutputCap", &c.OutputCap, DefaultOutputCap),
		fill("RetainRuns", &c.RetainRuns, DefaultRetainRuns),
		fill("LeaseTTL", &c.LeaseTTL, leaseTTL),
		fill("Grace", &c.Grace, DefaultGrace),
		fill("MaxTimeout", &c.MaxTimeout, DefaultMaxTimeout),
		fill("Timeout", &c.Timeout, min(DefaultTimeout, c.MaxTimeout)),
		fill("Retention", &c.Retention, DefaultRetention),
		fill("NoticeTTL", &c.NoticeTTL, DefaultNoticeTTL),
		fill("Patience", &c.Patience, 0),
		fill("MinInterval", &c.MinInterval, DefaultInterval),
		fill("Misfire", &c.Misfire, DefaultMisfire),
		fill("RecordQuota", &c.RecordQuota, DefaultRecordQuota),
		fill("OwnerQuota", &c.OwnerQuota, c.RecordQuota),
	)

	switch {
	case err != nil:
		return c, err
	case c.Timeout > c.MaxTimeout:
		return c, &FieldError{"Timeout", fmt.Sprintf("%v is longer than MaxTimeout, %v", c.Timeout, c.MaxTimeout)}
	case c.OwnerQuota > c.RecordQuota:
		return c, &FieldError{"OwnerQuota", fmt.Sprintf("%d is more than RecordQuota, %d", c.OwnerQuota, c.RecordQuota)}
	case c.LeaseTTL < minLease:
		return c, &FieldError{"LeaseTTL", fmt.Sprintf("must be at least %v, is %v", minLease, c.LeaseTTL)}
	case c.EndSession != EndParked && c.EndSession != EndAll:
		return c, &FieldError{"EndSession", fmt.Sprintf("must be %q or %q, is %q", EndParked, EndAll, c.EndSession)}
	}

	return c, nil
}

// fill sets *v to def if it is 0. It returns an error if *v is negative.
func fill[T int | int64 | time.Duration](name string, v *T, def T) error {
	if *v < 0 {
		return &FieldError{name, fmt.Sprintf("must not be negative, is %v", *v)}
	}
	if *v == 0 {
		*v = def
	}
	return nil
}

// offer returns the runs that this process can start now.
func (c Config) offer() engine.Offer {
	if c.Offer == nil {
		return engine.Offer{}
	}
	return c.Offer()
}

// heartbeatEvery returns how often the lease is renewed.
func (c Config) heartbeatEvery() time.Duration { return min(HeartbeatEvery, c.LeaseTTL/4) }

// permits returns the limits that the engine applies across all workers.
func (c Config) permits() engine.Permits {
	return engine.Permits{Session: c.PerSession, Parked: c.Parked, Owner: c.PerOwner, Children: MaxChildren}
}
