package server

import (
	"context"
	"errors"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// A Reason is what a caller may know of an error: every error of a [Service] has
// one, see [ReasonOf]. Transports translate its code, and add nothing.
type Reason struct {
	Code   wire.Code
	Text   string        // for users and agents: what failed, on what, and what to do
	Field  string        // of CodeInvalid: the JSON name of the field
	Max    int           // of CodeLimit: the limit; bytes for records
	Active []string      // of CodeLimit and CodeNotFound: active runs of the session
	Retry  time.Duration // after which a repeated request may succeed; 0: waiting alone does not help
}

// sentinels are the reasons of errors without evidence, the first match first.
// An empty text stands for that of the error.
var sentinels = []struct {
	err  error
	code wire.Code
	text string
}{
	{background.ErrNoSchedule, wire.CodeNotFound, background.ErrNoSchedule.Error()},
	{engine.ErrNotFound, wire.CodeNotFound, "there is nothing with that name"},
	{background.ErrKeyReused, wire.CodeConflict, "the idempotency key was used for another tool or other arguments: use a new one"},
	{engine.ErrConflict, wire.CodeConflict, "it has changed in the meantime: read it again"},
	{plugins.ErrNoTool, wire.CodeNotFound, ""},
	{host.ErrDenied, wire.CodeDenied, ""},
	{background.ErrClosed, wire.CodeClosing, textClosing},
	{engine.ErrClosed, wire.CodeClosing, textClosing},
	{host.ErrClosed, wire.CodeClosing, textClosing},
	{host.ErrFuel, wire.CodeFuel, ""},
	{host.ErrHostMemory, wire.CodeHostMemory, ""}, // matches ErrMemory too
	{host.ErrMemory, wire.CodeMemory, ""},
	{host.ErrOutput, wire.CodeOutput, ""},
	{context.DeadlineExceeded, wire.CodeTime, ""},
	{host.ErrBusy, wire.CodeBusy, ""},
	{host.ErrFiles, wire.CodeFiles, host.ErrFiles.Error()},
	{host.ErrTrap, wire.CodeTrap, abi.InternalMessage},
	{host.ErrABI, wire.CodePlugin, abi.InternalMessage},
	{context.Canceled, wire.CodeCanceled, "the call was canceled"},
}

const textClosing = "the server is shutting down"

// ReasonOf returns the reason of an error of a [Service]. What it does not know
// is wire.CodeInternal: its details are for the log, not for the caller.
func ReasonOf(err error) Reason {
	var (
		refusal Refusal
		args    *ArgsError
		answer  *AnswerError
		limit   *engine.LimitError
		missing *background.NotFoundError
		field   *background.FieldError
	)
	switch {
	case errors.As(err, &refusal):
		return Reason{Code: wire.CodeUnsupported, Text: string(refusal)}
	case errors.As(err, &args):
		return Reason{Code: wire.CodeInvalid, Field: "args", Text: args.Error()}
	case errors.As(err, &answer):
		return Reason{Code: wire.CodeInvalid, Field: "answers", Text: answer.Error()}
	case errors.As(err, &limit):
		return Reason{Code: wire.CodeLimit, Text: limitText(limit), Max: limit.Max, Active: limit.Active, Retry: retry(limit)}
	case errors.As(err, &missing):
		return Reason{Code: wire.CodeNotFound, Text: missing.Error(), Active: missing.Active}
	case errors.As(err, &field):
		return Reason{Code: wire.CodeInvalid, Field: field.Field, Text: field.Problem}
	}

	for _, s := range sentinels {
		if !errors.Is(err, s.err) {
			continue
		}

		r := Reason{Code: s.code, Text: s.text}
		if r.Text == "" {
			r.Text = textOf(err)
		}
		if r.Code == wire.CodeClosing {
			r.Retry = time.Second
		}
		return r
	}

	return Reason{Code: wire.CodeInternal, Text: abi.InternalMessage}
}

// retry is when a limit may be free again. Schedules do not end by themselves,
// and records are evicted only when somebody has seen the end of their run.
func retry(limit *engine.LimitError) time.Duration {
	if errors.Is(limit.Err, engine.ErrScheduleLimit) || errors.Is(limit.Err, engine.ErrRecordLimit) {
		return 0
	}
	return 5 * time.Second
}

// textOf is the text of an error for its caller, who knows which tool it called.
// Errors that name what only the operator may see have another text for that.
func textOf(err error) string {
	var call *host.CallError
	if errors.As(err, &call) {
		err = call.Err
	}
	var private interface{ Public() string }
	if errors.As(err, &private) {
		return private.Public()
	}
	return err.Error()
}

// explain turns an error into what the agent sees: what is wrong, and what to do
// about it. Errors that the agent can mend end here; the others are returned,
// for callers and logs.
func explain(err error) (abi.Result, error) {
	r := ReasonOf(err)
	var missing *background.NotFoundError
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
		if errors.As(err, &missing) {
			r.Text = notFound(missing)
		}
		if !errors.Is(err, plugins.ErrNoTool) {
			err = nil
		}
	case wire.CodeUnsupported, wire.CodeLimit, wire.CodeConflict:
		err = nil
	}

	return toolError("%s", r.Text), err
}

// notFound names runs the agent may have meant. It is the same for runs that
// never were, that are gone, and that belong to another session.
func notFound(err *background.NotFoundError) string { return named(err.Error(), err.Active) }
