package background

import (
	"context"
	"time"
)

// An Engine stores runs and the output of ended ones. It is safe for
// concurrent use. When a method that changes something returns nil, the change
// is as durable as the engine makes anything. Runs that go in and come out
// share no memory with the engine.
//
// Package enginetest checks an implementation against this contract.
type Engine interface {
	// Submit stores a new run, with the status queued. It returns an error
	// matching [ErrExists], and changes nothing, if the engine has a run with
	// that id.
	Submit(ctx context.Context, run Run) error

	// Get returns a run, or an error matching [ErrNotFound].
	Get(ctx context.Context, id string) (Run, error)

	// List returns the runs that match q, newest first.
	List(ctx context.Context, q Query) ([]Run, error)

	// Claim makes the caller the worker of a run: a queued one, or a running
	// one whose lease was not extended for [LeaseTTL]. The run is then running,
	// and its attempt is one higher; an earlier lease is fenced, and the new
	// attempt's log is empty. It returns an error matching [ErrNotClaimable]
	// for any other run, or [ErrNotFound].
	Claim(ctx context.Context, id string) (Lease, error)

	// Cancel records that the run's end is asked for and returns the run. A
	// queued run is canceled by that; a running run keeps its status; a
	// terminal one does not change. The first cancellation is kept. It returns
	// an error matching [ErrNotFound] if there is no such run.
	Cancel(ctx context.Context, id string, c Cancellation) (Run, error)

	// Tail reads the log of the run's current attempt as [Sink.Tail] does. It
	// returns an error matching [ErrNotFound] if there is no such run.
	Tail(ctx context.Context, id string, offset int64, max int) (Chunk, error)

	// Prune removes terminal runs that r does not keep, with their logs, and
	// returns how many. It never removes another run.
	Prune(ctx context.Context, r Retention) (int, error)
}

// A Lease is the right to work on a run. Its methods return an error matching
// [ErrFenced], and change nothing, when the lease is no longer the run's
// current one or the run is terminal or gone. A Lease is used by one goroutine
// at a time.
type Lease interface {
	// Run returns the run as it was claimed. Its Attempt is the fencing token.
	Run() Run

	// Extend keeps the lease for another [LeaseTTL] and records b. It returns
	// the cancellation of the run, nil if there is none.
	Extend(ctx context.Context, b Beat) (*Cancellation, error)

	// Append adds p to the log of this attempt. offset is where p begins in
	// the whole log: bytes between the end of what was appended before and
	// offset were dropped by the writer, and bytes before that end are ignored.
	// The log keeps its first and last bytes, at least Run.OutputCap of them.
	Append(ctx context.Context, offset int64, p []byte) error

	// Complete ends the run with a terminal status, and returns it as stored.
	Complete(ctx context.Context, status Status, b Beat, e End) (Run, error)
}

// A Query selects runs. Its zero value selects all.
type Query struct {
	Session        string // "": of every session
	IdempotencyKey string // "": with any or none
	Active         bool   // only runs that are not terminal
	Limit          int    // at most so many; 0: all
}

// A Retention says which terminal runs are kept.
type Retention struct {
	Session string    // "": applies to each session
	Before  time.Time // runs that finished before it are not kept
	Keep    int       // the newest Keep of a session are kept: by FinishedAt, then by submission
}

// A Chunk is a contiguous piece of a log.
type Chunk struct {
	Offset int64  // of the first byte of Data in the whole log
	Data   []byte // the caller's own copy
	End    int64  // length of the whole log so far, dropped bytes included
}
