package engine

import (
	"errors"
	"fmt"
	"strings"
)

// Errors to branch on with [errors.Is].
var (
	// ErrNotFound: there is no such run or schedule.
	ErrNotFound = errors.New("no such background task in this session")
	// ErrExists: the engine already has a run or schedule with that id, or the
	// session one with that idempotency key.
	ErrExists = errors.New("run already exists")
	// ErrConflict: a schedule was changed since it was read.
	ErrConflict = errors.New("changed in the meantime")
	// ErrFenced: the run is not this worker's (any more), or the worker's lease
	// has ended. Work on the run has to stop.
	ErrFenced = errors.New("lease lost")
	// ErrLocked: another worker uses a store that takes only one.
	ErrLocked = errors.New("data directory in use")
	// ErrClosed: the engine was closed.
	ErrClosed = errors.New("engine closed")
	// ErrStorageLost: the storage was deleted or replaced while it was in use.
	// The engine stores nothing more until it is opened again; what it seemed to
	// store since is not kept.
	ErrStorageLost = errors.New("the storage was deleted or replaced while it was in use")
	// ErrQuota: the logs of all runs take as much room as they may.
	ErrQuota = errors.New("quota of logs reached")

	// ErrSessionLimit: the session has as many runs as it may.
	ErrSessionLimit = errors.New("session limit of background runs reached")
	// ErrOwnerLimit: the sessions of the owner together have as many runs as they may.
	ErrOwnerLimit = errors.New("limit of background runs of all sessions of an owner reached")
	// ErrParkedLimit: the session has as many parked calls as it may.
	ErrParkedLimit = errors.New("session limit of parked calls reached")
	// ErrScheduleLimit: the session has as many enabled schedules as it may.
	ErrScheduleLimit = errors.New("session limit of schedules reached")
	// ErrRecordLimit: there is no room for another record, and too little may be evicted.
	ErrRecordLimit = errors.New("quota of records reached")
)

// A LimitError says which limit refused something. It matches its sentinel.
type LimitError struct {
	Err    error    // the sentinel
	Max    int      // the limit; bytes for ErrRecordLimit
	Active []string // the ids that hold the session's permits, sorted; nil for limits that are not a session's
}

func (e *LimitError) Error() string {
	if len(e.Active) == 0 {
		return fmt.Sprintf("%v: at most %d", e.Err, e.Max)
	}
	return fmt.Sprintf("%v: at most %d (%s)", e.Err, e.Max, strings.Join(e.Active, ", "))
}

// Unwrap returns the sentinel.
func (e *LimitError) Unwrap() error { return e.Err }

// An ExistsError says which run of a session already has an idempotency key. It
// matches [ErrExists].
type ExistsError struct{ ID string }

func (e *ExistsError) Error() string { return fmt.Sprintf("%v: %s", ErrExists, e.ID) }

// Unwrap returns [ErrExists].
func (e *ExistsError) Unwrap() error { return ErrExists }
