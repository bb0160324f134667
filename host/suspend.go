package host

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wait"
)

var (
	// ErrSuspended is the error of a suspended call. [Suspension.Keep] has stored the state
	// of the call, and [Call.Continue] continues from that state.
	ErrSuspended = wait.ErrSuspended
	// ErrState means that a call cannot be continued from the state that it was given.
	ErrState = wait.ErrState
	// ErrWithdrawn is the cancellation cause of an abandoned operation: the plugin has
	// canceled it, or its call has ended.
	ErrWithdrawn = wait.ErrWithdrawn
)

// Suspension lets a waiting call give up its instance, and continue from its state, even
// after a crash. A call can be suspended while it only waits for things that it can
// wait for again: time, messages, the user, and [Detached] tool calls. It cannot be
// suspended while it uses folders, or if its module's state cannot be restored.
//
// The owner of a call implements it for that call. Ask and Await are called on goroutines
// of their own, several at a time. The other methods are called on the goroutine of
// [Host.Call], one at a time, but possibly while Ask and Await run.
type Suspension interface {
	// Terms returns the properties that hold for the whole call. It is called once,
	// when the call begins. It must not block.
	Terms() SuspensionTerms
	// Status returns the properties that may change during the call. It is called often:
	// when the call begins to wait, when it begins an operation, and for each state to
	// be stored. It must not block.
	Status() SuspensionStatus
	// Keep stores a state of the call durably before it returns nil. It is called when the
	// call is suspended, before at-most-once operations begin, from time to time in a long
	// wait, and when the host shuts down during a wait. The call then ends with
	// ErrSuspended, unless Hold is set. After an error the call stays in its instance for
	// now, and the operations that needed the state do not begin; a [*Refusal] gives the
	// plugin the reason. Keep may block for a write. Until it returns, the call can
	// occupy one of the host's processors.
	Keep(s SavedState) error
	// Drop removes the stored state durably before it returns nil. After a crash the call
	// then does not continue from it, and starts over only if its terms have Repeats set.
	// Drop is called before taking messages that no state can record, and after saving a
	// checkpoint in a call with Repeats. In other calls it is also called before
	// at-most-once operations that no state can record, and at the start of a call that can
	// never be suspended. It is not called if no state is stored. An error ends the call
	// before the operation; after saving a checkpoint, the plugin sees that saving failed.
	// Drop may block like Keep.
	Drop() error
	// Image returns what Encode returned for the [SavedState.Image] with this digest. It
	// is called when a call continues and its plugin starts up differently than when the
	// state was stored. After an error, which the host logs, the call ends with ErrState.
	// Image may block like Keep.
	Image(digest string) ([]byte, error)
	// Ask puts questions to the user instead of [Services.Ask], unless the plugin waits for
	// the answers in place. It is called only if [SuspensionTerms] has Asks set. If a call
	// continues from a state in which it was asking, Ask is called again with the same
	// operation and questions. It blocks until there are answers, and returns soon after
	// ctx is done. If ctx ends with a cause other than [ErrWithdrawn], the call is about to
	// be suspended, and Keep gets the operation in Asks. Errors are those of Services.Ask.
	Ask(ctx context.Context, operation int32, q abi.Questions) (abi.Answers, error)
	// CrashPolicy decides how a nested call survives a crash. It is called before the
	// nested call begins. operation is 0 if the plugin waits for the nested call in place;
	// Detached then counts as [LostOnCrash]. CrashPolicy may block like Keep.
	CrashPolicy(operation int32, t ToolCall) CrashPolicy
	// Await waits for a [Detached] call that Keep has begun, possibly in an earlier
	// process, and returns its outcome like [Services.CallTool]. It returns soon after ctx
	// is done. If ctx ends with the cause [ErrWithdrawn], the call was abandoned.
	Await(ctx context.Context, operation int32, t ToolCall) (abi.Result, error)
}

// SuspensionTerms are the properties of a call that never change:
//   - After is how long a call waits before it is suspended. 0 suspends it immediately.
//   - Restartable lets the call start over after a crash, as if its beginning were a
//     stored state.
//   - Repeats means that the whole call may be repeated: if no state is stored, it begins
//     again after a crash, from its checkpoint. False gives the call at-most-once
//     semantics: an operation with side effects begins only after a state that records it
//     is stored, or after Drop.
//   - Asks means that Ask can put questions to the user later. False means that a call
//     that asks keeps its instance.
type SuspensionTerms = wait.Terms

// SuspensionStatus holds the properties of a call that may change:
//   - Name is the owner's name for the call. A state can only continue a call of the same
//     name. An empty name is a name too.
//   - Live means that the call can be suspended now. While it is false, no state is stored.
//   - Revived is closed when Live may have become true. Nil means that Live does not
//     become true during a wait.
//   - UnderPressure means that waiting calls should be suspended immediately, because
//     others need their resources. Even if it is false, the host suspends them when other
//     calls wait for a slot of the module, or when most of the host's memory is in use.
type SuspensionStatus = wait.Status

// SavedState is a state to be stored by [Suspension.Keep]:
//   - State is the value for [Call.Continue].
//   - Until is when the first pending operation ends by itself. Zero means that none does.
//   - Begin lists the [Detached] operations to begin with this write.
//   - Await lists the Detached operations that have begun and not ended, including those
//     that begin with this write.
//   - Asks lists the operations that ask the user.
//   - Hold means that the call stays in its instance.
//   - Image is the base image: the state contains only the differences from it.
type SavedState = wait.SavedState

// Image is the initial memory of a plugin: its Digest, a SHA-256 in hex, and Encode, which
// returns the value for [Suspension.Image] and must not be called once [Suspension.Keep]
// has returned. Another version of the host may start the plugin up differently, so keep
// the image together with the state.
type Image = wait.Image

// Resident returns why the waiting calls of a module with this isolation keep their
// instances; folders says whether they are granted folders. The result is empty if they can
// be suspended, though a call can still prevent that: see [Suspension].
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
func (w waiter) Elapsed() int64               { return w.environment().Monotonic() }
func (w waiter) SetElapsed(ns int64)          { w.environment().Continue(ns) }
func (w waiter) Contended() bool              { return w.module.slots.Contended() }

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

// stateProblem returns why a call cannot be continued, in words for an agent.
func stateProblem(err error) string {
	if state, ok := errors.AsType[*wait.StateError](err); ok {
		return state.Error()
	}
	return ErrState.Error()
}
