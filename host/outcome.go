package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
)

// maxError bounds the error text an agent is shown, in bytes.
const maxError = 8 << 10

// outcome turns the end of a run into the result and the error of Host.Call.
func (c *call) outcome(code int32, err error) (abi.Result, error) {
	r := abi.Result{Usage: c.usage()}
	if err == nil {
		err = c.answered(code, &r)
	} else {
		err = c.ended(err, &r)
	}
	if err == nil {
		return r, nil
	}

	var callErr *CallError
	if !errors.As(err, &callErr) {
		callErr = &CallError{Err: err}
	}
	callErr.Plugin, callErr.Tool = c.Plugin, c.Tool
	c.classify(callErr, &r)
	return r, callErr
}

// answered reads the answer of a guest that returned.
func (c *call) answered(code int32, r *abi.Result) error {
	r.Content = c.answer.content
	switch code {
	case abi.InvokeOK:
		r.Kind = abi.Success
		if c.module.Info.Shape == Command {
			r.Value = textOrJSON(c.answer.result)
			return nil
		}
		return c.value(r)
	case abi.InvokeToolError:
		r.Kind, r.Error = abi.ToolError, c.errorText("the tool reported an error and did not say which")
		return nil
	case abi.InvokePanic:
		return fmt.Errorf("%w: it panicked: %s", ErrTrap, c.errorText("without a message"))
	case abi.InvokeConnection:
		connection, err := abi.DecodeConnection(c.answer.errText)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrABI, err)
		}
		r.Kind, r.Connection, r.Error = abi.ConnectionRequired, connection, "connect "+connection.Provider+" first"
		return nil
	}
	return fmt.Errorf("%w: toolhost_invoke answered %d, expected 0 to 3", ErrABI, code)
}

func (c *call) value(r *abi.Result) error {
	if len(c.answer.result) == 0 {
		return nil
	}
	spaced, ok := checkJSON(c.answer.result)
	if !ok {
		return fmt.Errorf("%w: its result is not JSON in UTF-8", ErrABI)
	}
	if spaced {
		c.answer.result = compactJSON(c.answer.result)
	}
	r.Value = c.answer.result
	return nil
}

// ended reads the end of a guest that did not return. A command that exits is
// not an error of the call: 0 is a success, any other code a tool error.
func (c *call) ended(err error, r *abi.Result) error {
	trace, reason := c.reason(err)
	var exit *sys.ExitError
	if !errors.As(reason, &exit) {
		return &CallError{Err: reason, Trace: trace}
	}

	code := int(exit.ExitCode())
	switch {
	case code == 0 && c.module.Info.Shape == Command && c.purpose != describing:
		return c.answered(abi.InvokeOK, r)
	case code == 0:
		return fmt.Errorf("%w: it exited before it answered", ErrABI)
	}
	r.ExitCode = &code
	r.Kind, r.Error = abi.ToolError, fmt.Sprintf("exited with code %d", code)
	if said := clean(c.answer.stderr.bytes()); said != "" {
		r.Error += ": " + said
	}
	return nil
}

// classify says in the result what the error means for the agent. What broke
// inside is for the operator: it goes to the log, and the agent sees one
// sentence.
func (c *call) classify(err *CallError, r *abi.Result) {
	r.Kind, r.Error = abi.LimitReached, err.Err.Error()
	var mount *mountError
	switch {
	case errors.Is(err, ErrFuel):
		r.Limit = abi.LimitFuel
	case errors.Is(err, ErrMemory):
		r.Limit = abi.LimitMemory
	case errors.Is(err, ErrOutput):
		r.Limit = abi.LimitOutput
	case errors.Is(err, context.DeadlineExceeded):
		r.Limit = abi.LimitTime
	case errors.Is(err, ErrBusy):
		r.Kind = abi.ToolError
	case errors.Is(err, ErrFiles) && errors.As(err, &mount):
		r.Kind, r.Error = abi.Internal, mount.Public()
		c.host.log.Error("too many open files: raise the limit of the process (ulimit -n)", "plugin", err.Plugin, "tool", err.Tool, "call", c.ID, "error", mount.err)
	case errors.As(err, &mount):
		r.Kind, r.Error = abi.ToolError, mount.Public()
	case errors.Is(err, ErrTrap), errors.Is(err, ErrABI):
		r.Kind, r.Error = abi.Internal, abi.InternalMessage
		c.host.log.Error("the plugin broke", "plugin", err.Plugin, "tool", err.Tool, "call", c.ID, "error", err.Err, "trace", err.Trace)
	case errors.Is(err, context.Canceled), c.ctx.Err() != nil:
		r.Kind = abi.CanceledKind
	default:
		r.Kind, r.Error = abi.Internal, abi.InternalMessage
		c.host.log.Error("internal error", "plugin", err.Plugin, "tool", err.Tool, "call", c.ID, "error", err.Err, "trace", err.Trace)
	}
}

func (c *call) usage() abi.Usage {
	return abi.Usage{Fuel: c.fuel, Wall: time.Since(c.started), MemoryPeak: c.peak, OutputBytes: c.answer.written}
}

func (c *call) errorText(none string) string {
	if s := clean(c.answer.errText); s != "" {
		return s
	}
	return none
}

// clean makes text of a plugin fit for an agent: valid, bounded, trimmed.
func clean(text []byte) string {
	return clip(strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD")), maxError)
}

// clip cuts a valid text after at most n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// textOrJSON is the output of a command as a JSON value.
func textOrJSON(out []byte) json.RawMessage {
	if spaced, ok := checkJSON(out); ok {
		if spaced {
			out = compactJSON(out)
		}
		return out
	}
	text, _ := json.Marshal(strings.TrimRight(strings.ToValidUTF8(string(out), "\uFFFD"), "\n"))
	return text
}

// log logs what a plugin says to the operator. It never reaches the model.
func (c *call) log(stream abi.Stream, data []byte) {
	log := c.host.log.With("plugin", c.Plugin, "tool", c.Tool, "call", c.ID)
	before := c.answer.logged
	c.answer.logged += int64(len(data))
	switch {
	case c.answer.logged <= maxLogged:
		c.guest.Lend()
		defer c.guest.Reclaim()
		log.Log(&c.ctx, level(stream), clean(data))
	case before <= maxLogged:
		log.Warn("the plugin logs too much: the rest of this call is dropped", "bytes_allowed", maxLogged)
	}
}

func level(stream abi.Stream) slog.Level {
	switch stream {
	case abi.StreamDebug:
		return slog.LevelDebug
	case abi.StreamInfo:
		return slog.LevelInfo
	case abi.StreamWarn:
		return slog.LevelWarn
	}
	return slog.LevelError
}
