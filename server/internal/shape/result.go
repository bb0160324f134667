package shape

import (
	"cmp"
	"errors"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// TextUnknown is the end of the message about a call whose outcome its host did not see.
const TextUnknown = ". It is not known whether the tool took effect: check that before you call it again"

// Result returns the result of a call from the record of its run.
func Result(run engine.Run) abi.Result {
	r := abi.Result{
		Kind: abi.Success, Value: run.Result, Content: Blocks(run.Content), Summary: run.Summary, ExitCode: run.ExitCode,
		Usage: abi.Usage{
			Fuel: run.Cost.Fuel, CPU: run.Cost.CPU, Wait: run.Cost.Wait, MemoryPeak: run.Cost.MemoryPeak,
			Wall: run.Elapsed(time.Now()), OutputBytes: run.OutputBytes,
		},
	}
	switch {
	case run.Status == engine.StatusCanceled:
		r.Kind, r.Value, r.Error = abi.CanceledKind, nil, "the call was canceled"
		if run.Cancel != nil {
			r.Error = cmp.Or(run.Cancel.Reason, r.Error)
		}
	case run.Error != nil:
		r.Kind, r.Limit = resultKind(run.Error.Kind)
		r.Value, r.Error = nil, run.Error.Message
		if k := run.Error.Kind; k == engine.KindOrphaned || k == engine.KindInterrupted {
			r.Error += TextUnknown
		}
	}
	return r
}

// resultKind returns the kind of a failed call's result from the record of its run.
func resultKind(kind wire.ErrorKind) (abi.Kind, abi.Limit) {
	switch kind {
	case wire.KindToolError, wire.KindRejected:
		return abi.ToolError, ""
	case wire.KindConnectionRequired:
		return abi.ConnectionRequired, ""
	case wire.KindTimeout:
		return abi.LimitReached, abi.LimitTime
	}
	for limit, k := range limitKinds {
		if k == kind {
			return abi.LimitReached, limit
		}
	}
	return abi.Internal, ""
}

// limitKinds are the kinds of errors of runs that reached a limit.
var limitKinds = map[abi.Limit]wire.ErrorKind{
	abi.LimitFuel: wire.KindFuelExhausted, abi.LimitMemory: wire.KindMemoryLimit, abi.LimitOutput: wire.KindOutputLimit,
}

// ErrorKind derives the reason why a run failed from the end of its call.
func ErrorKind(r abi.Result, err error) wire.ErrorKind {
	switch {
	case r.Kind == abi.ToolError && (err == nil || errors.Is(err, host.ErrABI)): // the latter is a plugin that cannot be compiled
		return wire.KindToolError
	case r.Kind == abi.ConnectionRequired:
		return wire.KindConnectionRequired
	case errors.Is(err, host.ErrDenied):
		return wire.KindRejected
	case errors.Is(err, host.ErrState):
		return wire.KindOrphaned
	case errors.Is(err, host.ErrFiles):
		return wire.KindLimit
	case errors.Is(err, host.ErrTrap):
		return wire.KindTrap
	}
	return cmp.Or(limitKinds[r.Limit], wire.KindInternal)
}
