// Package gotool makes tools from the program's own functions. They are called like the
// tools of plugins: with the same definitions, checks of arguments and results, approval,
// limits on time and output, background runs, schedules and notices. Register them with
// server.Config.Tools or server.Service.Register.
//
// The arguments are a struct. Its tags make the schema, as in package guest: json,
// desc, default, enum, min, max, pattern, format, example and secret.
//
// A handler is part of the program, and is not sandboxed. It has no fuel or memory limit,
// and can do whatever the program can. Its definition says so (unsandboxed).
package gotool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/internal/strictjson"
	"github.com/toolhost/toolhost/internal/typed"
)

// Tool is one of the program's own tools. Name, Description and Handler are required; the other
// fields have the defaults of a manifest. It must not change once it is registered.
type Tool struct {
	Name        string // name for agents: [a-z][a-z0-9_]*, at most [abi.MaxAgentName] characters
	Title       string
	Description string // all that a model knows about the tool
	Handler     Handler
	// Version identifies the behavior of the handler. A run that outlives its process
	// continues only if the next process registers the tool with the same Version and the
	// same definition. It may be empty.
	Version    string
	Hints      abi.Hints // effects of a call; without any hints, a tool counts as destructive
	Approval   abi.Approval
	Deferrable abi.Deferrable
	Limits     abi.Limits // limits on time and output
	Narration  abi.Narration
}

// Handler is the function of a tool. [Handle] makes one.
type Handler struct {
	in, out reflect.Type
	run     func(ctx context.Context, c *Call, args json.RawMessage) (json.RawMessage, error)
}

// None is the result type of a tool that has no result, or that returns only content
// blocks (see [Call.Content]).
type None struct{}

// Handle makes a handler from a function that takes arguments and returns a result. The
// arguments are checked against their schema first. In is a struct. Out is any type that
// encoding/json can write, or [None]; an [any] or [json.RawMessage] has no output schema.
//
// The context is done when the call has to end: at its time limit, when its caller
// leaves, or when somebody stops its run. The function should then return soon; a result
// without an error is still used. If it does not return within [LeaveTime], the caller
// gets an error result, a line is logged, and the call keeps its slot until the function
// returns.
//
// The model sees the text of an error. A panic ends only its call: the model sees that an
// internal error occurred, and the log has the stack. Other goroutines that the function
// starts must recover their own panics.
func Handle[In, Out any](f func(ctx context.Context, c *Call, in In) (Out, error)) Handler {
	return Handler{
		in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](),
		run: func(ctx context.Context, c *Call, args json.RawMessage) (json.RawMessage, error) {
			var in In
			if err := typed.Decode(args, &in); err != nil {
				return nil, fmt.Errorf("the arguments do not fit: %w", err)
			}
			out, err := f(ctx, c, in)
			if _, none := any(out).(None); err != nil || none {
				return nil, err
			}
			value, err := typed.Marshal(&out)
			if errors.Is(err, typed.ErrNotUTF8) { // depends on the data
				return nil, fmt.Errorf("the result: %w", err)
			}
			if err != nil {
				return nil, &brokenError{fmt.Errorf("its result cannot be written: %w", err)}
			}
			return value, nil
		},
	}
}

// brokenError is a fault of the handler that models do not see.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// ConnectionRequired returns the error that asks the user to connect something first. It
// counts neither as a success nor as a failure of the tool.
func ConnectionRequired(c abi.Connection) error { return &connectionError{c} }

type connectionError struct{ abi.Connection }

func (e *connectionError) Error() string { return "connect " + e.Provider + " first" }

// Loaded is a checked tool that can be called. It has the methods of plugins.Tool.
type Loaded struct {
	*abi.Tool
	input, output *schema.Schema
	version       string
	handler       Handler
	caller        *Caller
	serial        *fair.Semaphore // nil unless calls must not overlap
	stuck         stuck
}

// define returns the manifest's definition of the tool.
func (t *Tool) define() (abi.Tool, error) {
	def := abi.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description, Hints: t.Hints,
		Approval: t.Approval, Deferrable: t.Deferrable, Limits: t.Limits, Narration: t.Narration,
	}
	switch {
	case t.Handler.run == nil:
		return def, errors.New("it has no handler: make one with gotool.Handle")
	case t.Limits.Fuel != 0 || t.Limits.MemoryBytes != 0:
		return def, errors.New("limits of fuel and memory apply to plugins only")
	}

	var err error
	if def.InputSchema, err = typed.Input(t.Handler.in); err != nil {
		return def, fmt.Errorf("arguments: %w", err)
	}
	if t.Handler.out != reflect.TypeFor[None]() {
		if def.OutputSchema, err = typed.Output(t.Handler.out); err != nil {
			return def, fmt.Errorf("result: %w", err)
		}
	}
	return def, nil
}

// Load checks a tool and binds it to this caller.
func (c *Caller) Load(t Tool) (*Loaded, error) {
	l, err := c.load(t)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	return l, nil
}

func (c *Caller) load(t Tool) (*Loaded, error) {
	def, err := t.define()
	if err != nil {
		return nil, err
	}

	if problems := def.Check(); len(problems) > 0 {
		return nil, errors.New(problems[0].String())
	}
	l := &Loaded{Tool: &def, handler: t.Handler, caller: c}
	if l.input, err = schema.CompileArgs(l.InputSchema); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	if l.OutputSchema != nil {
		if l.output, err = schema.Compile(l.OutputSchema); err != nil {
			return nil, fmt.Errorf("result: %w", err)
		}
	}
	if l.Hints.Concurrency == abi.Serial {
		l.serial = fair.NewSerial()
	}

	document, err := json.Marshal(l.Tool)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append(append(document, 0), t.Version...))
	l.version = hex.EncodeToString(sum[:])
	return l, nil
}

// CheckObject returns the problems of arguments that do not fit the schema; nil if they
// fit.
func (l *Loaded) CheckObject(args strictjson.Object) []abi.Problem { return l.input.CheckObject(args) }

// Fit is like CheckObject, but corrects arguments where it can. It returns the arguments
// that fit, and how many values in them were corrected.
func (l *Loaded) Fit(args strictjson.Object) (fit strictjson.Object, corrected int, problems []abi.Problem) {
	return l.input.Fit(args)
}

// ShownSchemas returns the schemas of arguments and results in the form that models
// and clients accept. The output is nil if the tool has no output schema.
func (l *Loaded) ShownSchemas() (input, output json.RawMessage) {
	return l.input.Shown(), l.output.Shown()
}

// PublicArgs returns the arguments without secret values, so that they may be stored. It
// also reports whether there were secret values.
func (l *Loaded) PublicArgs(args json.RawMessage) (public json.RawMessage, secret bool) {
	return l.input.Public(args)
}

// CheckResult returns the problems of a result that does not fit the output schema; nil
// if it fits.
func (l *Loaded) CheckResult(value json.RawMessage) []abi.Problem {
	if l.output == nil {
		return nil
	}
	if value == nil {
		value = json.RawMessage("null")
	}
	return l.output.Check(value)
}

// Version returns a digest of the definition and of [Tool].Version.
func (l *Loaded) Version() (string, error) { return l.version, nil }

// Denied returns nil: the program's own tools need no grants.
func (l *Loaded) Denied() error { return nil }

// Refused returns an error while too many handlers of the tool are still running after their
// calls have ended. Until enough of them return, the tool is not called.
func (l *Loaded) Refused() error { return l.stuck.refusal(l.Name) }
