package background

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of [Config], and bounds of requests.
const (
	DefaultPerSession = 5               // active runs of one session
	DefaultPerHost    = 64              // active runs of all sessions
	DefaultParked     = 32              // active parked calls of one session
	DefaultSchedules  = 5               // enabled schedules of one session
	DefaultAttempts   = 3               // how often a run is started at most
	DefaultGrace      = 5 * time.Second // from a stop to the end of the run's context
	DefaultOutputCap  = 262_144         // bytes of output kept for a run
	DefaultTimeout    = 5 * time.Minute // deadline of a run that names none
	DefaultMaxTimeout = time.Hour       // the longest deadline a run may name
	DefaultRetention  = 24 * time.Hour  // how long an ended run is kept
	DefaultRetainRuns = 500             // how many ended runs of a session are kept
	DefaultInterval   = time.Minute     // the shortest time between two firings of a schedule
	DefaultMisfire    = time.Hour       // how late a missed firing is still caught up
	DefaultNoticeTTL  = 7 * 24 * time.Hour
	// DefaultRecordQuota is how many bytes records take at most, as they do in memory.
	DefaultRecordQuota = 256 << 20
	MaxWait            = 9 * time.Minute  // the longest wait of one Check; longer ones are cut to it
	MaxIDs             = 20               // ids in one Check
	DefaultChars       = 2048             // characters of output in a Report
	MaxChars           = 16384            // the most characters of output in a Report
	MaxCheckpoint      = 1 << 20          // bytes of a checkpoint
	HeartbeatEvery     = 2 * time.Second  // how often a lease is extended
	LeaseTTL           = 30 * time.Second // how long a lease lasts after it was last extended
)

const (
	maxTitle   = 120
	maxKey     = 128
	maxReason  = 200
	maxDetail  = 200
	maxSummary = 1000
	maxMessage = 2000
	pruneEvery = time.Minute
	flushEvery = 50 * time.Millisecond // from something new in a sink to its way to the engine
	patientFor = time.Second           // how long a stop waits for a slow engine
)

// An Executor does the work of a run. It is given the run's record and decides
// by Tool and Args what to do, so that a run can be executed again from its
// record alone. It writes output, status and progress to sink.
//
// ctx ends when the run has to end at once: its cause is [ErrStopped],
// [context.DeadlineExceeded], [ErrClosed] or [ErrFenced]. Before a stop that
// is not forced, [Sink.Stopping] is closed for the grace period.
//
// What it returns decides how the run ends:
//   - a nil error: succeeded, or failed with [KindToolError] if Outcome.ExitCode is not 0;
//   - an *[Error]: failed with its kind; Outcome's fields are kept;
//   - any other error after ctx has ended: what the cause says, failed with
//     [KindTimeout] or [KindInterrupted];
//   - any other error, a panic, or [runtime.Goexit]: failed with [KindInternal].
//
// After a stop request, an error without an Outcome.Result means that the work
// gave way, and the run is canceled; a result is kept as it is.
//
// An Executor is called from many goroutines at once. It must return soon
// after ctx is done, and must not use sink afterwards.
type Executor func(ctx context.Context, run Run, sink *Sink) (Outcome, error)

// An Outcome is what the work of a run gave.
type Outcome struct {
	Summary  string          // one or two sentences, cut to 1,000 characters; may be empty
	Result   json.RawMessage // any JSON value; nil for none
	Content  json.RawMessage // what is shown beside the result, or beside the error: any JSON value; nil for none
	ExitCode *int            // nil if the work has no exit code
}

// A Config configures a [Manager]. Only Executor is required: the zero value
// of every other field is its default.
type Config struct {
	Executor   Executor      // does the work; required
	Engine     Engine        // stores runs; nil: a new MemoryEngine
	PerSession int           // active runs of one session, parked calls not counted; 0: DefaultPerSession
	PerOwner   int           // active runs of all sessions of one owner, parked calls counted; 0: PerHost
	PerHost    int           // active runs of all sessions, parked calls counted; 0: DefaultPerHost
	Parked     int           // active parked calls of one session; 0: DefaultParked
	Schedules  int           // enabled schedules of one session; 0: DefaultSchedules
	Attempts   int           // how often a run is started at most; 0: DefaultAttempts
	Grace      time.Duration // from a stop to the end of the run's context; 0: DefaultGrace
	OutputCap  int           // bytes of output kept for a run; 0: DefaultOutputCap
	Timeout    time.Duration // deadline of a run that names none; 0: DefaultTimeout, or MaxTimeout if that is shorter
	MaxTimeout time.Duration // the longest deadline a run may name; 0: DefaultMaxTimeout
	Retention  time.Duration // how long an ended run is kept; 0: DefaultRetention
	RetainRuns int           // how many ended runs of a session are kept; 0: DefaultRetainRuns
	NoticeTTL  time.Duration // how long a notice nobody took is kept, and its run with it; 0: DefaultNoticeTTL

	// RecordQuota is how many bytes the records of all runs and schedules may
	// take, and OwnerQuota those of one owner: see [Quota] for what counts, and
	// for which records go before that to make room.
	RecordQuota int64 // 0: DefaultRecordQuota
	OwnerQuota  int64 // at most RecordQuota; 0: RecordQuota

	EndSession SessionEnd // what the end of a session does to its runs; "": EndParked

	MinInterval time.Duration // the shortest time between two firings of a schedule; 0: DefaultInterval
	Misfire     time.Duration // how late a missed firing is still caught up; 0: DefaultMisfire

	// Readmit is asked whether a run may start that nobody waits for at the
	// door: the firing of a schedule, a run that was queued when its host went
	// down (Attempt 0), and one that was running then (Attempt >= 1). With nil
	// it starts. With an *[Error] it ends as failed, with its kind and message;
	// with another error, which is logged, as failed with [KindRejected], or
	// [KindOrphaned] if it was running before. A Readmit that is nil lets in
	// those with Attempt 0, and no others. It is called from many goroutines.
	Readmit func(ctx context.Context, run Run) error

	// Version returns the version of a tool now. It is recorded with each run a
	// schedule fires, as the schedule may have been made with another one. With
	// nil, and where it returns "", that is the schedule's.
	Version func(tool string) string

	// OnNotice is called with the notice of a run after its end was stored,
	// one at a time and in the order the ends were stored. It is not called
	// for an end that an agent saw by then. Notices nobody acknowledged are
	// handed to it again when a manager is made anew: a notice may come twice,
	// with the same ID. It may block without holding up anything but later
	// notices.
	OnNotice func(Notice)

	// Owner says whose a session is, for PerOwner and OwnerQuota. It is a function of the
	// session alone, and called under locks. With nil each session is an owner by
	// itself.
	Owner func(session string) string

	Logger *slog.Logger // nil: nothing is logged

	clock func() time.Time // what schedules go by, for tests; nil: time.Now
}

// A SessionEnd says what the end of a session does to its active runs.
type SessionEnd string

// What the end of a session does.
const (
	EndParked SessionEnd = "parked" // parked calls are stopped, all other runs go on
	EndAll    SessionEnd = "all"    // all runs are stopped
)

// withDefaults returns c with its defaults filled in, or a *FieldError.
func (c Config) withDefaults() (Config, error) {
	if c.Executor == nil {
		return c, &FieldError{"Executor", "required"}
	}
	if c.Engine == nil {
		c.Engine = NewMemoryEngine()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"PerSession", &c.PerSession, DefaultPerSession},
		{"PerHost", &c.PerHost, DefaultPerHost},
		{"PerOwner", &c.PerOwner, cmp.Or(c.PerHost, DefaultPerHost)},
		{"Parked", &c.Parked, DefaultParked},
		{"Schedules", &c.Schedules, DefaultSchedules},
		{"Attempts", &c.Attempts, DefaultAttempts},
		{"OutputCap", &c.OutputCap, DefaultOutputCap},
		{"RetainRuns", &c.RetainRuns, DefaultRetainRuns},
	} {
		if err := fill(f.name, f.value, f.def); err != nil {
			return c, err
		}
	}
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Grace", &c.Grace, DefaultGrace},
		{"MaxTimeout", &c.MaxTimeout, DefaultMaxTimeout},
		{"Retention", &c.Retention, DefaultRetention},
		{"NoticeTTL", &c.NoticeTTL, DefaultNoticeTTL},
		{"MinInterval", &c.MinInterval, DefaultInterval},
		{"Misfire", &c.Misfire, DefaultMisfire},
	} {
		if err := fill(f.name, f.value, f.def); err != nil {
			return c, err
		}
	}
	if err := fill("RecordQuota", &c.RecordQuota, DefaultRecordQuota); err != nil {
		return c, err
	}
	if err := fill("OwnerQuota", &c.OwnerQuota, c.RecordQuota); err != nil {
		return c, err
	}
	if err := fill("Timeout", &c.Timeout, min(DefaultTimeout, c.MaxTimeout)); err != nil {
		return c, err
	}
	if c.Timeout > c.MaxTimeout {
		return c, &FieldError{"Timeout", fmt.Sprintf("%v is longer than MaxTimeout, %v", c.Timeout, c.MaxTimeout)}
	}
	if c.OwnerQuota > c.RecordQuota {
		return c, &FieldError{"OwnerQuota", fmt.Sprintf("%d is more than RecordQuota, %d", c.OwnerQuota, c.RecordQuota)}
	}
	switch c.EndSession {
	case "":
		c.EndSession = EndParked
	case EndParked, EndAll:
	default:
		return c, &FieldError{"EndSession", fmt.Sprintf("must be %q or %q, is %q", EndParked, EndAll, c.EndSession)}
	}
	return c, nil
}

// fill sets *v to def if it is 0, and refuses it if it is negative.
func fill[T int | int64 | time.Duration](name string, v *T, def T) error {
	if *v < 0 {
		return &FieldError{name, fmt.Sprintf("must not be negative, is %v", *v)}
	}
	if *v == 0 {
		*v = def
	}
	return nil
}
