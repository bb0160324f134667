package server

import (
	"errors"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/runs"
)

// ErrDenied means that the operator has not granted what a call needs.
var ErrDenied = host.ErrDenied

// ErrLocked is the error of [Open] while another process uses the same Config.DataDir.
var ErrLocked = engine.ErrLocked

// ErrApproval means that no person has approved a call. It also matches host.ErrDenied.
var ErrApproval = reason.ErrApproval

// ErrCancel is the cancellation cause that stops a call with a Key. If its context ends
// in any other way, the call continues without the caller: a client that has lost its
// connection repeats the call with the same key.
var ErrCancel = runs.ErrCancel

// ErrClosing is the cancellation cause when the server shuts down. A held call stays
// held, and can be decided on after a restart.
var ErrClosing = runs.ErrClosing

// ErrAskAgain is returned by [Request]'s Ask if the caller ends the call, to repeat it with
// the answers.
var ErrAskAgain = question.ErrAskAgain

// MaxAskAgain is the time that a caller has to repeat a call after [ErrAskAgain]: an hour.
const MaxAskAgain = question.MaxAskAgain

// A Reason is the part of an error that a caller may see. Every error of a [Service] has
// one, see [ReasonOf]. Transports only translate its code.
type Reason = reason.Reason

// ReasonOf returns the reason for an error of a [Service], and the zero Reason for nil. An
// unknown error gets wire.CodeInternal: its details are for the log, not for the caller.
func ReasonOf(err error) Reason { return reason.Of(err) }

// Broke reports whether an error of [Service.Call] means that a plugin, or the handler of one
// of the program's own tools, malfunctioned. Such errors are in the log already, with the
// plugin, the tool and the trace.
func Broke(err error) bool { return errors.Is(err, host.ErrTrap) || errors.Is(err, host.ErrABI) }
