package background

import (
	"errors"
	"fmt"
	"strings"
)

// Errors to branch on with [errors.Is].
var (
	// ErrNotFound: the session has no such run. It never had it, it belongs to
	// another session, or its record is gone.
	ErrNotFound = errors.New("no such background task in this session")
	// ErrSessionLimit: the session already runs as many runs as it may.
	ErrSessionLimit = errors.New("session limit of background runs reached")
	// ErrOwnerLimit: the sessions of the owner together already have as many
	// active runs as they may.
	ErrOwnerLimit = errors.New("limit of background runs of all sessions of an owner reached")
	// ErrHostLimit: the host already runs as many runs as it may.
	ErrHostLimit = errors.New("host limit of background runs reached")
	// ErrParkedLimit: the session already has as many parked calls as it may.
	ErrParkedLimit = errors.New("session limit of parked calls reached")
	// ErrRecordLimit: the records of runs and schedules take as much room as
	// they may, or those of one owner do, and none of them may go.
	ErrRecordLimit = errors.New("quota of records reached")
	// ErrScheduleLimit: the session already has as many schedules as it may.
	ErrScheduleLimit = errors.New("session limit of schedules reached")
	// ErrNoSchedule: the session has no such schedule.
	ErrNoSchedule = errors.New("no such schedule in this session")
	// ErrInvalid: a request or a configuration has a bad field.
	ErrInvalid = errors.New("invalid")
	// ErrKeyReused: an idempotency key came again with another tool or other arguments.
	ErrKeyReused = errors.New("idempotency key already used with another tool or other arguments")
	// ErrClosed: the manager is closing or closed. It is also the cause of the
	// context of a run that was interrupted by that.
	ErrClosed = errors.New("background manager closed")
	// ErrStillRunning: runs ignored the end of their context when the manager closed.
	ErrStillRunning = errors.New("background runs did not end")
	// ErrStopped is the cause of the context of a run that was stopped.
	ErrStopped = errors.New("background run stopped")

	// ErrNoRun: the work of a sink is no run yet, so that there is nothing to
	// keep a checkpoint with.
	ErrNoRun = errors.New("not a background run")

	// ErrExists: an engine already has a run with that id.
	ErrExists = errors.New("run already exists")
	// ErrConflict: a schedule was changed by somebody else in the meantime.
	ErrConflict = errors.New("changed in the meantime")
	// ErrLocked: another process uses the data directory of an engine.
	ErrLocked = errors.New("data directory in use")
	// ErrStorageLost: what an engine stores in was deleted or replaced while it
	// was in use. It stores nothing any more, until it is opened again; what it
	// seems to have stored is not kept.
	ErrStorageLost = errors.New("the storage was deleted or replaced while it was in use")
	// ErrQuota: the logs of all runs take as much room as they may.
	ErrQuota = errors.New("quota of logs reached")
	// ErrNotClaimable: the run is terminal, or another worker holds its lease.
	ErrNotClaimable = errors.New("run cannot be claimed")
	// ErrFenced: the lease is no longer the run's current one, or the run is
	// terminal. The worker has to stop. It is also the cause of the context of
	// a run that lost its lease.
	ErrFenced = errors.New("lease lost")
)

// An Error is what an [Executor] returns to say why its run failed. Message is
// shown to the model as it is, cleaned and cut to 2,000 characters, except for
// [KindInternal]: then it goes to the log, and the model is shown one generic
// sentence. An error that is no *Error is treated as KindInternal.
type Error struct {
	Kind    ErrorKind
	Message string
	Err     error // the cause, for the log; may be nil
}

func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A LimitError says which limit refused a spawn, ended a call that was to be
// parked, or refused a schedule. It matches [ErrSessionLimit], [ErrOwnerLimit],
// [ErrHostLimit], [ErrParkedLimit], [ErrScheduleLimit] or [ErrRecordLimit].
type LimitError struct {
	Err    error    // the sentinel
	Max    int      // the limit; bytes for ErrRecordLimit
	Active []string // the ids that hold the session's slots, sorted; nil for the limits of owner, host and records
}

func (e *LimitError) Error() string {
	switch {
	case errors.Is(e.Err, ErrHostLimit):
		return fmt.Sprintf("this host already runs the maximum of %d background runs; try again when one has ended", e.Max)
	case errors.Is(e.Err, ErrRecordLimit):
		return fmt.Sprintf("there is no room to keep another background run or schedule: records may take %d bytes; "+
			"check the runs that have ended, as a record goes only when the end of its run was seen, or have the operator raise background.record_quota", e.Max)
	case errors.Is(e.Err, ErrOwnerLimit):
		return fmt.Sprintf("your sessions together already have the maximum of %d background runs; wait for one to end or stop one", e.Max)
	case errors.Is(e.Err, ErrParkedLimit):
		return fmt.Sprintf("this session already has the maximum of %d calls that went on in the background (%s); wait for one to end or stop one",
			e.Max, strings.Join(e.Active, ", "))
	case errors.Is(e.Err, ErrScheduleLimit):
		return fmt.Sprintf("this session already has the maximum of %d active schedules (%s); stop one first",
			e.Max, strings.Join(e.Active, ", "))
	}
	return fmt.Sprintf("this session already has the maximum of %d active background runs (%s); wait for one to end or stop one",
		e.Max, strings.Join(e.Active, ", "))
}

// Unwrap returns the sentinel.
func (e *LimitError) Unwrap() error { return e.Err }

// A NotFoundError names the ids a session does not have, and some it does. It
// matches [ErrNotFound]. Its text depends on nothing but these.
type NotFoundError struct {
	IDs    []string // the ids asked for
	Active []string // up to 5 ids of the session's active runs, newest first
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%v: %s", ErrNotFound, strings.Join(e.IDs, ", "))
}

// Unwrap returns [ErrNotFound].
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// A FieldError says which field of a request or configuration is bad, and how.
// It matches [ErrInvalid].
type FieldError struct {
	Field   string // its JSON name for a request, its Go name for a Config
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Unwrap returns [ErrInvalid].
func (e *FieldError) Unwrap() error { return ErrInvalid }
