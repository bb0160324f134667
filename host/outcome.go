package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wasi"
	"github.com/toolhost/toolhost/internal/strictjson"
)

// outcome is the end of a call, as its caller sees it.
type outcome struct {
	*call
	abi.Result
}

// outcome turns the end of a run into the result and the error of Host.Call.
func (c *call) outcome(code int32, err error) (abi.Result, error) {
	o := outcome{c, abi.Result{Usage: c.usage()}}
	if rest := c.answer.Stderr.End(); len(rest) > 0 && c.Stderr != nil {
		_, _ = c.Stderr.Write(rest)
	}

	switch {
	case err != nil:
		err = o.ended(err)
	case o.isProgram():
		err = o.exited(0)
	default:
		err = o.answered(code)
	}
	if err == nil {
		if o.Kind == abi.ToolError && o.ExitCode == nil {
			o.Error += o.hint(o.Error)
		}
		return o.Result, nil
	}

	var callErr *CallError
	if !errors.As(err, &callErr) {
		callErr = &CallError{Err: err}
	}
	callErr.Plugin, callErr.Tool = c.Plugin, c.Tool
	if !o.Secret && (errors.Is(err, ErrTrap) || errors.Is(err, ErrABI)) {
		callErr.LastWords = o.answer.Stderr.LastWords()
	}
	o.classify(callErr)
	return o.Result, callErr
}

// usage returns the cost of the call.
func (c *call) usage() abi.Usage {
	computed, waited, ended := c.guest.Usage()
	if ended.IsZero() { // it never computed
		ended = time.Now()
	}
	inner := c.inner.Total()
	u := abi.Usage{
		Fuel: max(0, min(c.fuel+c.inner.Unpaid(), c.Policy.Fuel)-c.meter.Earlier), CPU: computed + inner.CPU, Wall: ended.Sub(c.started), Wait: c.waited + waited,
		MemoryPeak: max(c.peak, inner.MemoryPeak), OutputBytes: c.answer.Written,
	}
	if c.startFuel > 0 {
		u.StartupFuel, u.Startup = min(c.startFuel, u.Fuel), c.startTime
	}
	return u
}

// answered reads the response of a guest that returned.
func (o *outcome) answered(code int32) error {
	o.Content = o.answer.Content

	switch code {
	case abi.InvokeOK:
		o.Kind, o.Summary = abi.Success, o.answer.Summary
		return o.value(o.answer.Result)
	case abi.InvokeToolError:
		o.Kind, o.Error = abi.ToolError, cmp.Or(answer.Clean(o.answer.Error), "the tool reported an error without a message")
		o.Summary = o.answer.Summary
		return nil
	case abi.InvokePanic:
		return fmt.Errorf("%w: it panicked: %s", ErrTrap, cmp.Or(answer.Clean(o.answer.Error), "without a message"))
	case abi.InvokeConnection:
		connection, err := abi.DecodeConnection(o.answer.Error)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrABI, err)
		}
		o.Kind, o.Connection, o.Error = abi.ConnectionRequired, connection, "connect "+connection.Provider+" first"
		return nil
	}
	return fmt.Errorf("%w: toolhost_invoke returned %d, expected 0 to 3", ErrABI, code)
}

const errNoResult = "toolhost_invoke returned 0, but the plugin wrote neither a result nor content: " +
	"write the result to stream 0, or an empty one if the tool has none"

// isProgram reports whether the guest is a command that runs a tool.
func (o *outcome) isProgram() bool {
	return o.module.Info.Shape == contract.Command && !o.ops.Describing
}

// value reads a result: JSON from a reactor, any text from an Extism plugin, and, from a
// program, the format that its manifest declares.
func (o *outcome) value(result []byte) error {
	if o.isProgram() {
		return o.output(result)
	}
	shape := o.module.Info.Shape
	if len(result) == 0 && (shape == contract.Reactor || o.MCPTool != "") {
		if !o.answer.Given && len(o.answer.Content) == 0 && !o.ops.Describing {
			return fmt.Errorf("%w: %s", ErrABI, errNoResult)
		}
		return nil
	}

	switch o.Value = compactJSON(result); {
	case o.Value != nil:
	case shape == contract.Reactor:
		return fmt.Errorf("%w: the result is not JSON in UTF-8%s", ErrABI, answer.NotUTF8(result))
	default:
		o.Value = guestcall.JSON(answer.Valid(result, len(result)))
		if where := answer.NotUTF8(result); where != "" {
			o.Content = append(o.Content, abi.Block{Type: "text", Text: "The output is not text" + where + ". What is not was replaced by U+FFFD."})
		}
	}
	return nil
}

// compactJSON returns a JSON value without white space. It returns nil if the text is not
// JSON.
func compactJSON(text []byte) []byte {
	spaced, ok := strictjson.Valid(text)
	switch {
	case !ok:
		return nil
	case spaced:
		return strictjson.Compact(text)
	}
	return text
}

// ended turns the error of a guest that did not return into an outcome. An exit is not an error of
// the call.
func (o *outcome) ended(err error) error {
	trace, reason := o.reason(err)
	if missing, ok := errors.AsType[*guestcall.MissingSecret](reason); ok {
		o.Kind, o.Connection, o.Error = abi.ConnectionRequired, &abi.Connection{Provider: missing.Name}, missing.Error()
		return nil
	}
	if failure, ok := errors.AsType[*guestcall.ToolFailure](reason); ok {
		o.Kind, o.Error = abi.ToolError, answer.Clean([]byte(failure.Message))
		return nil
	}
	var exit *sys.ExitError
	if !errors.As(reason, &exit) {
		if remedy := o.module.Info.Remedy; remedy != "" && errors.Is(reason, ErrTrap) {
			reason = fmt.Errorf("%w; %s", reason, remedy)
		}
		return &CallError{Err: o.ops.Waited(reason), Trace: trace}
	}

	if exit.ExitCode() == 0 && !o.isProgram() {
		return fmt.Errorf("%w: it exited before it returned a result", ErrABI)
	}
	return o.exited(int(exit.ExitCode()))
}

// reason turns an error of the runtime into the reason why the call ended, with
// the plugin's stack.
func (o *outcome) reason(err error) (trace string, reason error) {
	message, trace, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	var (
		exit *sys.ExitError
		stop *instance.Stop
	)
	exits := errors.As(err, &exit)

	switch {
	case errors.As(err, &stop):
		return trace, stop.Reason
	case o.failed != nil: // the guest trapped before its next check
		return trace, o.failed
	case exits && exit.ExitCode() == 0:
		return "", exit
	case o.refused != nil:
		return trace, o.refused
	case exits:
		return "", exit
	}

	message = strings.Replace(message, "wasm error: ", "", 1)
	if o.threw {
		message = strings.Replace(message, "unreachable", "uncaught exception", 1)
	}
	return trace, fmt.Errorf("%w: %s", ErrTrap, message)
}

// classify sets the result for the agent. Internal causes go to the operator's log;
// the agent sees one sentence.
func (o *outcome) classify(err *CallError) {
	log := o.logger()
	if o.ops.Describing { // its caller reports the error
		log = slog.New(slog.DiscardHandler)
	}
	o.Kind, o.Error = abi.LimitReached, err.Err.Error()
	var mount *wasi.MountError
	var busy *BusyError

	switch {
	case errors.As(err, &busy):
		o.Kind = abi.ToolError
	case errors.Is(err, ErrFuel):
		o.Limit = abi.LimitFuel
	case errors.Is(err, ErrMemory):
		o.Limit = abi.LimitMemory
	case errors.Is(err, ErrOutput):
		o.Limit = abi.LimitOutput
	case errors.Is(err, context.DeadlineExceeded):
		o.Limit = abi.LimitTime
	case errors.Is(err, ErrFiles) && errors.As(err, &mount):
		o.Kind, o.Error = abi.Internal, mount.Public.Error()
		log.Error("too many open files: raise the limit of the process (ulimit -n)", "error", mount.Cause)
	case errors.As(err, &mount):
		o.Kind, o.Error = abi.ToolError, mount.Public.Error()
	case errors.Is(err, ErrSuspended):
		o.Kind = abi.CanceledKind
	case errors.Is(err, ErrState):
		o.Kind, o.Error = abi.Internal, stateProblem(err)
		log.Warn("a call was not continued", "error", err.Err)
	case errors.Is(err, ErrTrap), errors.Is(err, ErrABI):
		o.Kind, o.Error = abi.Internal, abi.InternalMessage
		log.Error("the plugin broke", err.attributes()...)
	case errors.Is(err, context.Canceled), o.ctx.Err() != nil:
		o.Kind = abi.CanceledKind
	default:
		o.Kind, o.Error = abi.Internal, abi.InternalMessage
		log.Error("internal error", "error", err.Err, "trace", err.Trace)
	}
}

// logger returns a logger that adds the names of the call.
func (c *call) logger() *slog.Logger {
	return c.ops.Log.With("plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "session", c.Session)
}

// attributes returns the log attributes of the error, without those that are unknown.
func (e *CallError) attributes() []any {
	out := []any{"error", e.Err}
	if e.Trace != "" {
		out = append(out, "trace", e.Trace)
	}
	if e.LastWords != "" {
		out = append(out, "last_words", e.LastWords)
	}
	return out
}

// Explanations of tool errors that the sandbox causes.
const (
	hintReadonly = " (the tool has the hint readonly, so its folders are mounted read-only)"
	hintNetwork  = " (plugins have no network but the operation http: in Go, import guest/web)"
	hintFolders  = " (a plugin reaches only the folders that it was granted)"
	hintPlatform = " (plugins have no network, no threads and no other programs)"
)

// libraryErrors lists error texts with which libraries report features that the sandbox
// lacks, mostly without calling the host. They read as if the feature existed but was
// broken.
var libraryErrors = []struct{ text, hint string }{
	{"Connection refused", hintNetwork},                        // Go
	{"Connection reset by peer", hintNetwork},                  // Go, of a name server
	{"operation not supported on this platform", hintPlatform}, // Rust
	{"Capabilities insufficient", hintFolders},                 // C
}

// hint returns an explanation to append to a tool error, or nothing.
func (o *outcome) hint(text string) string {
	hint := ""
	switch {
	case o.unwritten && o.Readonly:
		hint = hintReadonly
	case o.wasi.Connected:
		hint = hintNetwork
	case o.wasi.Outside && strings.Contains(text, "No such file or directory"): // Go
		hint = hintFolders
	default:
		for _, e := range libraryErrors {
			if o.ops.Web == nil && strings.Contains(text, e.text) {
				hint = e.hint
				break
			}
		}
	}
	if strings.HasSuffix(text, hint) { // the plugin added it itself
		return ""
	}
	return hint
}
