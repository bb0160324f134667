// Package reason explains why a request is refused or has failed, in words for its caller.
package reason

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/wire"
)

// ErrLink means that a link is unknown, used or expired, or that its secret has been set
// in another way.
var ErrLink = errors.New("the link was used or has expired")

// ErrApproval means that no person has approved a call. It also matches host.ErrDenied.
var ErrApproval = fmt.Errorf("%w: the tool needs a person's approval", host.ErrDenied)

// ErrShutdown is the error of a call or a spawn after Close.
var ErrShutdown = fmt.Errorf("%w: it is shutting down", host.ErrClosed)

// A Reason is the part of an error that a caller may see. Every error of a Service has
// one, see [Of]. Transports only translate its code.
type Reason struct {
	Code   wire.Code
	Text   string        // text for users and agents: what failed, on what, and what to do
	Field  string        // JSON name of the field, for CodeInvalid
	Max    int           // the limit, for CodeLimit; in bytes for records
	Active []string      // active runs of the session, for CodeLimit and CodeNotFound
	Retry  time.Duration // time after which a repeated request may succeed; 0: waiting alone does not help
}

// Error is an error that consists only of its reason.
type Error struct {
	Reason
	Err error // error that it matches; may be nil
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.Err }

// Refuse returns an error that says why a request cannot be served, in words for the agent.
func Refuse(format string, args ...any) error {
	return &Error{Reason: Reason{Code: wire.CodeUnsupported, Text: fmt.Sprintf(format, args...)}}
}

// BadArgs returns an error about arguments that do not fit the schema of their tool,
// which a model can correct.
func BadArgs(tool string, problems []abi.Problem) error {
	return &Error{Reason: Reason{Code: wire.CodeInvalid, Field: "args",
		Text: fmt.Sprintf("the arguments of %s do not fit its schema: %s", tool, List(problems))}}
}

// sentinels are the reasons of errors without details. The first match applies. An empty
// text stands for the text of the error.
var sentinels = []struct {
	err  error
	code wire.Code
	text string
}{
	{background.ErrNoSchedule, wire.CodeNotFound, background.ErrNoSchedule.Error()},
	{background.ErrOverlap, wire.CodeConflict, "a run of the schedule is active: stop it, or wait for its end"},
	{engine.ErrNotFound, wire.CodeNotFound, "there is nothing with that name"},
	{background.ErrKeyReused, wire.CodeConflict, "the idempotency key was used for another tool or other arguments: use a new one"},
	{engine.ErrActive, wire.CodeConflict, "the run has not ended: stop it first, or wait for its end"},
	{background.ErrEnded, wire.CodeConflict, background.ErrEnded.Error() + ": read its result, or start another run"},
	{ErrLink, wire.CodeNotFound, ErrLink.Error()},
	{vault.ErrNoKeys, wire.CodeDenied, "secrets of users cannot be kept here: have the operator set secrets_key"},
	{engine.ErrConflict, wire.CodeConflict, "it has changed in the meantime: read it again"},
	{plugins.ErrNoTool, wire.CodeNotFound, ""},
	{host.ErrDenied, wire.CodeDenied, ""},
	{engine.ErrUnavailable, wire.CodeUnavailable, textUnavailable},
	{engine.ErrFull, wire.CodeUnavailable, textFull},
	{host.ErrSpace, wire.CodeUnavailable, host.ErrSpace.Error()},
	{background.ErrClosed, wire.CodeClosing, textClosing},
	{engine.ErrClosed, wire.CodeClosing, textClosing},
	{host.ErrClosed, wire.CodeClosing, textClosing},
	{host.ErrFuel, wire.CodeFuel, ""},
	{host.ErrHostMemory, wire.CodeHostMemory, ""}, // matches ErrMemory too
	{host.ErrMemory, wire.CodeMemory, ""},
	{host.ErrOutput, wire.CodeOutput, ""},
	{context.DeadlineExceeded, wire.CodeTime, ""},
	{host.ErrFiles, wire.CodeFiles, host.ErrFiles.Error()},
	{host.ErrTrap, wire.CodeTrap, abi.InternalMessage},
	{host.ErrABI, wire.CodePlugin, abi.InternalMessage},
	{context.Canceled, wire.CodeCanceled, "the call was canceled"},
}

const (
	textClosing     = "the server is shutting down"
	textFull        = "the disk of the server is full, so nothing can be stored: try again when the operator has made room, with the same idempotency key if there was one"
	textUnavailable = "background runs cannot be reached at the moment: try again in a few seconds, with the same idempotency key if there was one"
)

// retryUnavailable is the time after which an unavailable store of runs may be back.
const retryUnavailable = 2 * time.Second

// refusals are the codes of refusals to a plugin.
var refusals = map[int32]wire.Code{abi.CallDenied: wire.CodeDenied, abi.CallLimit: wire.CodeLimit}

// Of returns the reason of an error of a Service. An unknown error is wire.CodeInternal:
// its details are for the log, not for the caller.
func Of(err error) Reason {
	if err == nil {
		return Reason{}
	}
	if r, ok := errors.AsType[*Error](err); ok {
		return r.Reason
	}
	if e, ok := errors.AsType[*engine.LimitError](err); ok {
		return Reason{Code: wire.CodeLimit, Text: LimitText(e), Max: e.Max, Active: e.Active, Retry: retry(e)}
	}
	if e, ok := errors.AsType[*background.NotFoundError](err); ok {
		return Reason{Code: wire.CodeNotFound, Text: e.Error(), Active: e.Active}
	}
	if e, ok := errors.AsType[*background.FieldError](err); ok {
		return Reason{Code: wire.CodeInvalid, Field: e.Field, Text: e.Problem}
	}

	if e, ok := errors.AsType[*host.Refusal](err); ok {
		return Reason{Code: cmp.Or(refusals[e.Code], wire.CodeInternal), Text: e.Message}
	}
	if e, ok := errors.AsType[*host.BusyError](err); ok {
		return Reason{Code: wire.CodeConflict, Text: e.Error(), Retry: time.Second}
	}

	for _, s := range sentinels {
		if !errors.Is(err, s.err) {
			continue
		}

		r := Reason{Code: s.code, Text: cmp.Or(s.text, TextOf(err))}
		switch r.Code {
		case wire.CodeClosing:
			r.Retry = time.Second
		case wire.CodeUnavailable:
			r.Retry = retryUnavailable
		}
		return r
	}
	return Reason{Code: wire.CodeInternal, Text: abi.InternalMessage}
}

// retry returns the time after which a request that reached a limit may succeed; 0 if
// waiting alone does not help. Schedules do not end by themselves, and a record is evicted
// only after somebody has seen the end of its run.
func retry(limit *engine.LimitError) time.Duration {
	if errors.Is(limit.Err, engine.ErrValueCount) || errors.Is(limit.Err, engine.ErrValueBytes) {
		return 0
	}
	if errors.Is(limit.Err, engine.ErrScheduleLimit) || errors.Is(limit.Err, engine.ErrRecordLimit) || errors.Is(limit.Err, background.ErrDepthLimit) {
		return 0
	}
	return 5 * time.Second
}

// TextOf returns the text of an error as the caller of a tool sees it: without the name of the
// tool, which the caller knows. Errors that name things only the operator may see have a
// separate text.
func TextOf(err error) string {
	if call, ok := errors.AsType[*host.CallError](err); ok {
		err = call.Err
	}
	if private, ok := errors.AsType[interface {
		error
		Public() string
	}](err); ok {
		return private.Public()
	}
	return err.Error()
}

// LimitText returns the text that an agent sees if its run was refused because of a limit.
func LimitText(e *engine.LimitError) string {
	active := strings.Join(e.Active, ", ")
	switch {
	case errors.Is(e.Err, background.ErrHostLimit):
		return fmt.Sprintf("this host already runs the maximum of %d background runs; try again when one has ended", e.Max)
	case errors.Is(e.Err, engine.ErrRecordLimit):
		return fmt.Sprintf("the record quota of %d bytes is full, so no background run or schedule can be added; "+
			"check the runs that have ended, because the record of a run is evicted only after its end was seen, or ask the operator to raise background.record_quota", e.Max)
	case errors.Is(e.Err, engine.ErrValueCount):
		return fmt.Sprintf("this session already has the maximum of %d values; delete one first", e.Max)
	case errors.Is(e.Err, engine.ErrValueBytes):
		return fmt.Sprintf("the values of this session would take more than the maximum of %d bytes together; delete or shorten one first", e.Max)
	case errors.Is(e.Err, background.ErrDepthLimit):
		return fmt.Sprintf("a run may have at most %d ancestors, and this parent already has as many: use a parent further up", e.Max)
	case errors.Is(e.Err, engine.ErrChildLimit):
		return fmt.Sprintf("this parent already has the maximum of %d active children; wait for one to end or stop one", e.Max)
	case errors.Is(e.Err, engine.ErrOwnerLimit):
		return fmt.Sprintf("your sessions together already have the maximum of %d background runs; wait for one to end or stop one", e.Max)
	case errors.Is(e.Err, engine.ErrParkedLimit):
		return fmt.Sprintf("this session already has the maximum of %d calls that are runs (%s); wait for one to end or stop one", e.Max, active)
	case errors.Is(e.Err, engine.ErrScheduleLimit) && e.Max == 0:
		return "this host has no schedules: spawn the run when it is due"
	case errors.Is(e.Err, engine.ErrScheduleLimit):
		return fmt.Sprintf("this session already has the maximum of %d active schedules (%s); stop one first", e.Max, active)
	}
	return fmt.Sprintf("this session already has the maximum of %d active background runs (%s); wait for one to end or stop one", e.Max, active)
}

// Explain turns an error into what the agent sees: what is wrong, and what to do about it.
// Errors that the agent can correct are not returned; others are, for callers and logs.
func Explain(err error) (abi.Result, error) {
	r := Of(err)
	switch r.Code {
	case wire.CodeInternal, wire.CodeTrap, wire.CodePlugin:
		return abi.Result{Kind: abi.Internal, Error: abi.InternalMessage}, err
	case wire.CodeCanceled, wire.CodeTime:
		return abi.Result{Kind: abi.CanceledKind, Error: "the call was canceled"}, err
	case wire.CodeInvalid:
		if r.Field != "args" && r.Field != "answers" { // their texts say so
			r.Text = r.Field + ": " + r.Text
		}
		err = nil
	case wire.CodeNotFound:
		if missing, ok := errors.AsType[*background.NotFoundError](err); ok {
			r.Text = NotFound(missing)
		}
		if !errors.Is(err, plugins.ErrNoTool) {
			err = nil
		}
	case wire.CodeUnsupported, wire.CodeLimit, wire.CodeConflict:
		err = nil
	}
	return ToolError("%s", r.Text), err
}

// NotFound returns a text that names the runs that the agent may have meant. The text is the
// same for runs that never existed, that were removed, and that belong to another session.
func NotFound(err *background.NotFoundError) string { return Named(err.Error(), err.Active) }

// Named returns a text with the ids of active runs added, because the agent may have meant one
// of them.
func Named(text string, active []string) string {
	text = Clip(text, MaxText)
	if len(active) == 0 {
		return text + "; none is active"
	}
	return text + "; active: " + strings.Join(active[:min(len(active), 5)], ", ")
}

// ToolError returns a text for the agent as a tool error. The text is cut, because it may
// quote a model or a plugin.
func ToolError(format string, args ...any) abi.Result {
	return abi.Result{Kind: abi.ToolError, Error: Clip(fmt.Sprintf(format, args...), MaxText)}
}

// Maximum sizes of the error texts that this package makes, in bytes.
const (
	MaxText    = 4 << 10
	MaxProblem = 300 // text of one of several problems
)

// Clip cuts a text to a maximum number of bytes.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// List returns the problems as a text of one line.
func List(problems []abi.Problem) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = Clip(p.String(), MaxProblem)
	}
	return strings.Join(lines, "; ")
}
