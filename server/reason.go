package server

import (
	"errors"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// ErrDenied is why a call is refused that the operator has not granted.
var ErrDenied = host.ErrDenied

// ErrLocked is why Open fails while another process keeps its runs in the
// folder.
var ErrLocked = engine.ErrLocked

// ErrApproval is why a call is refused that no person has approved. It matches
// host.ErrDenied too.
var ErrApproval = reason.ErrApproval

// A Reason is what a caller may know of an error: every error of a [Service] has
// one, see [ReasonOf]. Transports translate its code, and add nothing.
type Reason = reason.Reason

// ReasonOf returns the reason of an error of a [Service]. What it does not know
// is wire.CodeInternal: its details are for the log, not for the caller.
func ReasonOf(err error) Reason { return reason.Of(err) }

// Broke reports whether an error of [Service.Call] says that a plugin or a handler broke.
// Those are in the log already, with the plugin, the tool and the trace.
func Broke(err error) bool { return errors.Is(err, host.ErrTrap) || errors.Is(err, host.ErrABI) }
