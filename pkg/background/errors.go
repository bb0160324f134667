package background

import (
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Errors to branch on with [errors.Is], in addition to those of package engine.
var (
	// ErrHostLimit means that this process has reached its limit of runs.
	ErrHostLimit = errors.New("host limit of background runs reached")
	// ErrDepthLimit means that the parent of a run already has [MaxDepth] ancestors.
	ErrDepthLimit = errors.New("limit of the depth of runs reached")
	// ErrNoSchedule means that the session has no such schedule.
	ErrNoSchedule = errors.New("no such schedule in this session")
	// ErrOverlap means that a schedule skips a firing, because an earlier run of it is active.
	ErrOverlap = errors.New("a run of the schedule is active")
	// ErrInvalid means that a request or a configuration has an invalid field.
	ErrInvalid = errors.New("invalid")
	// ErrKeyReused means that an idempotency key was used with another tool or other arguments.
	ErrKeyReused = errors.New("idempotency key already used with another tool or other arguments")
	// ErrClosed means that the manager is closing or closed. It is also the
	// cancellation cause of runs that closing the manager interrupts.
	ErrClosed = errors.New("background manager closed")
	// ErrStillRunning means that runs ignored the end of their context when the manager closed.
	ErrStillRunning = errors.New("background runs did not end")
	// ErrStopped is the cancellation cause of a run that was stopped.
	ErrStopped = errors.New("background run stopped")
)

// An Error is what an [Executor] returns to say why its run failed. Message is shown to
// the model, cleaned and cut to 2,000 characters. With the kind [engine.KindInternal],
// or none, it goes to the log instead, and the model is shown [Config.InternalText].
// Errors of other types are handled the same way.
type Error struct {
	Kind    engine.ErrorKind
	Message string
	Err     error // the cause, for the log; may be nil
}

func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// shown returns what a model may see of e, or nil if it may see nothing. e may be nil.
func (e *Error) shown() *engine.RunError {
	if e == nil || e.Kind == "" || e.Kind == engine.KindInternal {
		return nil
	}
	return &engine.RunError{Kind: e.Kind, Message: output.Shorten(e.Message, maxMessage)}
}

// A NotFoundError names requested ids that a session does not have, and some of its
// active runs. It matches [engine.ErrNotFound]. Its text depends only on its fields.
type NotFoundError struct {
	IDs    []string // requested ids that the session does not have
	Active []string // up to 5 ids of the session's active runs, newest first
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%v: %s", engine.ErrNotFound, strings.Join(e.IDs, ", "))
}

// Unwrap returns [engine.ErrNotFound].
func (e *NotFoundError) Unwrap() error { return engine.ErrNotFound }

// add returns e, which may be nil, with the ids of more.
func (e *NotFoundError) add(more *NotFoundError) *NotFoundError {
	if e == nil {
		return more
	}
	e.IDs = append(e.IDs, more.IDs...)
	return e
}

// A FieldError says which field of a request or configuration is invalid, and
// why. It matches [ErrInvalid].
type FieldError struct {
	Field   string // its JSON name for a request, its Go name for a Config
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Unwrap returns [ErrInvalid].
func (e *FieldError) Unwrap() error { return ErrInvalid }

// fenced reports whether err means that this worker may not write the run.
func fenced(err error) bool {
	return errors.Is(err, engine.ErrFenced) || errors.Is(err, engine.ErrNotFound)
}

// stalled reports whether err means that the storage currently stores nothing, but will
// again without a restart.
func stalled(err error) bool {
	return errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrFull)
}
