package background

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of [Config], and bounds of requests.
const (
	DefaultPerSession = 5                // active runs of one session
	DefaultPerHost    = 64               // active runs of all sessions
	DefaultGrace      = 5 * time.Second  // from a stop to the end of the run's context
	DefaultOutputCap  = 262_144          // bytes of output kept for a run
	DefaultTimeout    = 5 * time.Minute  // deadline of a run that names none
	DefaultMaxTimeout = time.Hour        // the longest deadline a run may name
	DefaultRetention  = 24 * time.Hour   // how long an ended run is kept
	DefaultRetainRuns = 100              // how many ended runs of a session are kept
	MaxWait           = 9 * time.Minute  // the longest wait of one Check; longer ones are cut to it
	MaxIDs            = 20               // ids in one Check
	DefaultChars      = 2048             // characters of output in a Report
	MaxChars          = 16384            // the most characters of output in a Report
	HeartbeatEvery    = 2 * time.Second  // how often a lease is extended
	LeaseTTL          = 30 * time.Second // how long a lease lasts after it was last extended
)

const (
	maxTitle   = 120
	maxKey     = 128
	maxReason  = 200
	maxDetail  = 200
	maxSummary = 1000
	maxMessage = 2000
	pruneEvery = time.Minute
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
	ExitCode *int            // nil if the work has no exit code
}

// A Config configures a [Manager]. Only Executor is required: the zero value
// of every other field is its default.
type Config struct {
	Executor   Executor      // does the work; required
	Engine     Engine        // stores runs; nil: a new MemoryEngine
	PerSession int           // active runs of one session; 0: DefaultPerSession
	PerHost    int           // active runs of all sessions; 0: DefaultPerHost
	Grace      time.Duration // from a stop to the end of the run's context; 0: DefaultGrace
	OutputCap  int           // bytes of output kept for a run; 0: DefaultOutputCap
	Timeout    time.Duration // deadline of a run that names none; 0: DefaultTimeout, or MaxTimeout if that is shorter
	MaxTimeout time.Duration // the longest deadline a run may name; 0: DefaultMaxTimeout
	Retention  time.Duration // how long an ended run is kept; 0: DefaultRetention
	RetainRuns int           // how many ended runs of a session are kept; 0: DefaultRetainRuns
	Logger     *slog.Logger  // nil: nothing is logged
}

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
	} {
		if err := fill(f.name, f.value, f.def); err != nil {
			return c, err
		}
	}
	if err := fill("Timeout", &c.Timeout, min(DefaultTimeout, c.MaxTimeout)); err != nil {
		return c, err
	}
	if c.Timeout > c.MaxTimeout {
		return c, &FieldError{"Timeout", fmt.Sprintf("%v is longer than MaxTimeout, %v", c.Timeout, c.MaxTimeout)}
	}
	return c, nil
}

// fill sets *v to def if it is 0, and refuses it if it is negative.
func fill[T int | time.Duration](name string, v *T, def T) error {
	if *v < 0 {
		return &FieldError{name, fmt.Sprintf("must not be negative, is %v", *v)}
	}
	if *v == 0 {
		*v = def
	}
	return nil
}
