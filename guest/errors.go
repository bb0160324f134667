package guest

import (
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
)

// Errors to branch on with [errors.Is].
var (
	ErrCanceled = errors.New("canceled")            // the call is being stopped: finish soon; output and result still count
	ErrRefused  = errors.New("refused by the host") // matched by each [*WriteError]
	ErrDenied   = errors.New("not granted")         // matched by a [*HostError]: the operator has not granted the capability
	ErrLimit    = errors.New("limit reached")       // matched by a [*HostError]: the operator allows no more
	ErrConflict = errors.New("changed meanwhile")   // matched by a [*HostError]: the stored value has a different version from the expected one
	ErrUnknown  = errors.New("unknown capability")  // matched by a [*HostError]: this host does not have the capability
	ErrLost     = errors.New("lost")                // matched by a [*HostError]: the operation had begun when its host died, and may have taken effect
)

// Errorf makes a tool error. It is the same as [fmt.Errorf]: a tool may return any other error
// too.
func Errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// Connection names the account or service that the user must connect before the tool can work.
type Connection = abi.Connection

// ConnectionRequired makes the error that asks the user to connect something
// first. It is neither a success nor a failure of the tool.
func ConnectionRequired(c Connection) error { return &connectionError{c} }

type connectionError struct{ Connection }

func (e *connectionError) Error() string { return "connection required: " + e.Provider }

// WriteError says which write or progress report the host refused. It matches
// [ErrRefused].
type WriteError struct {
	Stream abi.Stream // stream that the tool wrote to; -1 for progress
	Code   int32      // one of abi's Refused codes
	Reason string     // reason for refusing a content block, or empty
}

func (e *WriteError) Error() string {
	switch e.Code {
	case abi.RefusedOutput:
		return "output limit reached"
	case abi.RefusedStream:
		return fmt.Sprintf("stream %d refused by the host", e.Stream)
	case abi.RefusedContent:
		if e.Reason != "" {
			return "refused by the host: " + e.Reason
		}
		return "content block refused by the host"
	case abi.RefusedProgress:
		return "progress refused by the host"
	}
	return fmt.Sprintf("write refused by the host with code %d", e.Code)
}

// Is makes the error match [ErrRefused].
func (e *WriteError) Is(target error) bool { return target == ErrRefused }

// HostError is the failure of a host capability. Depending on its code, it matches [ErrDenied],
// [ErrUnknown], [ErrConflict], [ErrLimit], [ErrCanceled] or [ErrLost].
type HostError struct {
	Op      string
	Code    string // denied, unknown, invalid, failed, limit, canceled, conflict or lost
	Message string
}

func (e *HostError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Op, e.Code, e.Message) }

// Is makes the error match the sentinel for its code.
func (e *HostError) Is(target error) bool {
	sentinels := map[string]error{"denied": ErrDenied, "unknown": ErrUnknown, "conflict": ErrConflict, "limit": ErrLimit, "canceled": ErrCanceled, "lost": ErrLost}
	return sentinels[e.Code] == target
}
