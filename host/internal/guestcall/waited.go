package guestcall

import (
	"context"
	"errors"
)

// WaitedError is the error of a call that ended while it was waiting to run, for one of its
// HTTP requests to begin, or for its user to answer a question.
type WaitedError struct {
	Err error  // why the wait ended, usually a TimeoutError
	For string // what the call waited for, and the remedy
}

func (e *WaitedError) Error() string { return e.Err.Error() + " while the call waited: " + e.For }

// Unwrap returns the reason why the wait ended.
func (e *WaitedError) Unwrap() error { return e.Err }

// ToolFailure is the error of a call that ends with a tool error.
type ToolFailure struct{ Message string }

func (e *ToolFailure) Error() string { return e.Message }

// Waited adds to the error of a timed-out call what the call was waiting for, if anything.
func (c *Call) Waited(err error) error {
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case c.unanswered.Load():
		return &WaitedError{Err: err, For: "its user had not answered its question"}
	case c.Web != nil && c.Web.unsent.Load() != nil:
		return &WaitedError{Err: err, For: c.Web.unsent.Load().For}
	}
	return err
}
