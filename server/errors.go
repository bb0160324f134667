package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
)

// ErrApproval is why a call was refused that a person has to agree to. It
// matches host.ErrDenied too.
var ErrApproval = fmt.Errorf("%w: the tool needs a person's approval", host.ErrDenied)

// errShutdown is why a call or a spawn was refused after Close.
var errShutdown = fmt.Errorf("%w: it is shutting down", host.ErrClosed)

// Refusal is why something cannot be done as it was asked for, in words for the
// agent. It is no fault of anybody's code.
type Refusal string

func (r Refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// ArgsError says what in the arguments of a call does not fit the schema of its
// tool, for a model to mend.
type ArgsError struct {
	Tool     string
	Problems []abi.Problem
}

func (e *ArgsError) Error() string {
	return fmt.Sprintf("the arguments of %s do not fit its schema: %s", e.Tool, list(e.Problems))
}

// explain turns the error of a door into what the agent is told: what is
// wrong, and what to do about it. Errors that the agent can mend end here; the
// others are returned, for callers and logs. What nothing here knows is not the
// agent's business.
func explain(err error) (abi.Result, error) {
	var (
		refused Refusal
		args    *ArgsError
		limit   *background.LimitError
		missing *background.NotFoundError
		field   *background.FieldError
		place   *host.CallError
	)
	switch {
	case errors.As(err, &refused):
		return toolError("%v", refused), nil
	case errors.As(err, &args):
		return toolError("%v", args), nil
	case errors.As(err, &limit):
		return toolError("%v", limit), nil
	case errors.As(err, &missing):
		return toolError("%s", notFound(missing)), nil
	case errors.As(err, &field):
		return toolError("%v", field), nil
	case errors.Is(err, background.ErrNoSchedule):
		return toolError("%v", background.ErrNoSchedule), nil
	case errors.Is(err, background.ErrKeyReused):
		return toolError("idempotency_key: it was used for another tool or other arguments: take a new one"), nil
	case errors.Is(err, host.ErrDenied) && errors.As(err, &place):
		return toolError("%v", place.Err), err // the agent knows which tool it called
	case errors.Is(err, plugins.ErrNoTool), errors.Is(err, host.ErrDenied):
		return toolError("%v", err), err
	case errors.Is(err, background.ErrClosed), errors.Is(err, host.ErrClosed):
		return toolError("the host is shutting down"), err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return abi.Result{Kind: abi.CanceledKind, Error: "the call was canceled"}, err
	}
	return abi.Result{Kind: abi.Internal, Error: abi.InternalMessage}, err
}

// notFound says which runs there are in place of those that are not. It is the
// same for runs that never were, that are gone and that are somebody else's.
func notFound(err *background.NotFoundError) string { return named(err.Error(), err.Active) }

// named adds to a text the ids an agent may have meant.
func named(text string, active []string) string {
	text = clip(text, maxText)
	if len(active) == 0 {
		return text + "; none is active"
	}
	return text + "; active: " + strings.Join(active[:min(len(active), 5)], ", ")
}

// toolError is a text for the agent. Much of what it says may be what a model
// or a plugin said first, so that it is cut.
func toolError(format string, args ...any) abi.Result {
	return abi.Result{Kind: abi.ToolError, Error: clip(fmt.Sprintf(format, args...), maxText)}
}

// maxText bounds an error text that is made here, in bytes.
const maxText = 4 << 10

// clip cuts a text of more than so many bytes.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// list is one line of problems. A problem may quote what is wrong, however long
// it is.
func list(problems []abi.Problem) string {
	const most = 300 // bytes of one problem
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = clip(p.String(), most)
	}
	return strings.Join(lines, "; ")
}

// decode reads arguments that were checked against their schema: what does not
// fit now is a number that no Go type holds.
func decode[T any](args json.RawMessage) (in T, err error) {
	err = json.Unmarshal(args, &in)
	var number *json.UnmarshalTypeError
	if errors.As(err, &number) {
		return in, &background.FieldError{Field: number.Field, Problem: "the number is out of range"}
	}
	return in, err
}
