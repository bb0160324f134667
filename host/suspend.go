package host

import (
	"errors"

	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wait"
)

var (
	// ErrSuspended is the error of a suspended call. Suspend.Keep has stored its state,
	// and [Call.Continue] continues from it.
	ErrSuspended = wait.ErrSuspended
	// ErrState means that a call cannot be continued from a state.
	ErrState = wait.ErrState
	// ErrWithdrawn is the cancellation cause of an abandoned operation: the plugin has
	// canceled it, or its call has ended.
	ErrWithdrawn = wait.ErrWithdrawn
)

// Suspend is [Services.Suspend].
type Suspend = wait.Suspend

// SavedState is a state to be stored by [Suspend.Keep].
type SavedState = wait.SavedState

// Image is the initial memory of a plugin. Another version of the host may start the
// plugin up differently, so keep the image together with the state.
type Image = wait.Image

// Resident returns why waiting calls of a module keep their instances; folders reports
// whether they are granted folders. It is empty if they can be suspended, which a call can
// still prevent: see [Suspend].
func Resident(i Isolation, folders bool) string {
	switch {
	case i.Mode != Reset:
		return i.Why
	case folders:
		return "it may have open files in its folders"
	}
	return ""
}

// waiter is a call as package wait sees it.
type waiter struct{ *call }

func (w waiter) Instance() *instance.Instance { return w.instance }
func (w waiter) Elapsed() int64               { return w.environment().elapsed() }
func (w waiter) Begin(elapsed int64)          { w.environment().begin(elapsed) }
func (w waiter) Contended() bool              { return w.module.slots.Contended() }
func (w waiter) Compute() error               { return w.compute() }
func (w waiter) Interrupted() error           { return w.interrupted() }

func (w waiter) environment() *environment { return w.instance.Guest.(*environment) }

// Bound implements wait.Call.
func (w waiter) Bound() string {
	if why := Resident(w.module.Isolation, len(w.Policy.Files) > 0); why != "" {
		return why
	}
	if w.start.tainted {
		return "it may have open files"
	}
	return ""
}

// stateProblem returns why a call cannot be continued, for an agent.
func stateProblem(err error) string {
	if state, ok := errors.AsType[*wait.StateError](err); ok {
		return state.Error()
	}
	return ErrState.Error()
}
