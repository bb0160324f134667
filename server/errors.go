package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// ErrDenied is why a call is refused that the operator has not granted.
var ErrDenied = host.ErrDenied

// ErrLocked is why Open fails while another process keeps its runs in the
// folder.
var ErrLocked = engine.ErrLocked

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
