package engine

import (
	"errors"
	"fmt"
	"strings"
)

// Errors to branch on with [errors.Is].
var (
	ErrNotFound = errors.New("no such background task in this session")
	ErrExists   = errors.New("run already exists") // with that id, or that idempotency key of the session
	ErrConflict = errors.New("changed in the meantime")
	ErrFenced   = errors.New("lease lost") // of the run or the worker: work on the run has to stop
	ErrLocked   = errors.New("data directory in use")
	ErrParent   = errors.New("the parent is not an active run of this session, or it is being stopped")
	ErrClosed   = errors.New("engine closed")
	// ErrUnavailable means that the engine cannot reach its storage now, and may again
	// later. The request may have taken effect.
	ErrUnavailable = errors.New("the storage cannot be reached now")
	// ErrStorageLost means that the engine stores nothing more until it is opened
	// again; what it seemed to store since the loss is not kept.
	ErrStorageLost = errors.New("the storage was deleted, replaced or damaged")

	// ErrFull means that nothing was stored because the disk is full. The engine works
	// again once there is room.
	ErrFull = errors.New("the disk is full")

	// ErrActive means that a run has not ended, and cannot be removed.
	ErrActive = errors.New("the run has not ended")

	ErrSessionLimit  = errors.New("session limit of background runs reached")
	ErrOwnerLimit    = errors.New("client limit of background runs reached")
	ErrParkedLimit   = errors.New("session limit of parked calls reached")
	ErrScheduleLimit = errors.New("session limit of schedules reached") // of enabled ones
	ErrChildLimit    = errors.New("limit of active children of a run reached")
	ErrValueCount    = errors.New("limit of the number of values reached")
	ErrValueBytes    = errors.New("limit of the size of all values reached")
	ErrRecordLimit   = errors.New("quota of records reached") // and too little may be evicted
	ErrQuota         = errors.New("quota of logs reached")    // of all runs
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
