package engine

import (
	"errors"
	"fmt"
	"strings"
)

// Errors to branch on with [errors.Is].
var (
	ErrNotFound = errors.New("no such background task in this session")
	ErrExists   = errors.New("run already exists") // one with the same id or idempotency key
	ErrConflict = errors.New("changed in the meantime")
	ErrFenced   = errors.New("lease lost") // by the run or the worker: work on the run has to stop
	ErrLocked   = errors.New("data directory in use")
	ErrParent   = errors.New("the parent is not an active run of this session, or it is being stopped")
	ErrClosed   = errors.New("engine closed")
	// ErrUnavailable means that the engine currently cannot reach its storage. It may
	// do so again later. The request may have taken effect.
	ErrUnavailable = errors.New("the storage cannot be reached now")
	// ErrStorageLost means that the engine stores nothing more until it is opened
	// again. Anything stored since the loss is gone.
	ErrStorageLost = errors.New("the storage was deleted or replaced while it was in use")

	// ErrFull means that nothing was stored because the disk is full. The engine works
	// again once there is space.
	ErrFull = errors.New("the disk is full")

	// ErrActive means that a run cannot be removed because it has not ended.
	ErrActive = errors.New("the run has not ended")

	ErrSessionLimit  = errors.New("session limit of background runs reached")
	ErrOwnerLimit    = errors.New("client limit of background runs reached")
	ErrParkedLimit   = errors.New("session limit of parked calls reached")
	ErrScheduleLimit = errors.New("session limit of schedules reached") // counts enabled schedules only
	ErrChildLimit    = errors.New("limit of active children of a run reached")
	ErrValueCount    = errors.New("limit of the number of values reached")
	ErrValueBytes    = errors.New("limit of the size of all values reached")
	ErrRecordLimit   = errors.New("quota of records reached") // even after eviction
	ErrQuota         = errors.New("quota of logs reached")    // a quota for the logs of all runs together
)

// A LimitError says which limit was reached. It matches the sentinel error in Err.
type LimitError struct {
	Err    error    // sentinel error of the limit, such as [ErrSessionLimit]
	Max    int      // the limit; in bytes for ErrRecordLimit
	Active []string // ids of the runs that hold the session's permits, sorted; nil for other limits
}

func (e *LimitError) Error() string {
	if len(e.Active) == 0 {
		return fmt.Sprintf("%v: at most %d", e.Err, e.Max)
	}
	return fmt.Sprintf("%v: at most %d (%s)", e.Err, e.Max, strings.Join(e.Active, ", "))
}

// Unwrap returns the sentinel.
func (e *LimitError) Unwrap() error { return e.Err }

// An ExistsError names the run of a session that already has an idempotency
// key. It matches [ErrExists].
type ExistsError struct{ ID string }

func (e *ExistsError) Error() string { return fmt.Sprintf("%v: %s", ErrExists, e.ID) }

// Unwrap returns [ErrExists].
func (e *ExistsError) Unwrap() error { return ErrExists }
