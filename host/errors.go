package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/grant"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/host/internal/wasi"
)

// These are the reasons why a module is refused or a call ends. They come wrapped
// in a [*ModuleError] or a [*CallError]. A call that was canceled or timed out
// matches context.Canceled or context.DeadlineExceeded instead, and also the
// cause of its context.
var (
	ErrClosed = errors.New("the host is closed")
	ErrABI    = contract.ErrABI
	ErrFuel   = meter.ErrFuel
	ErrMemory = instance.ErrMemory
	ErrOutput = answer.ErrOutput
	ErrDenied = grant.ErrDenied
	ErrTrap   = errors.New("the plugin crashed")

	// ErrHostMemory means that the host's limit, Config.Memory, was reached. It also
	// matches ErrMemory.
	ErrHostMemory = instance.ErrHostMemory
	// ErrCompileLimit means that compiling the module takes more memory or time than
	// Config allows. ErrCompileCrash means that the module crashes the compiler. Both
	// match ErrABI.
	ErrCompileLimit = compiler.ErrLimit
	ErrCompileCrash = compiler.ErrCrash
	// ErrFiles means that the process or the system has reached its limit of open
	// files. The same call may succeed later.
	ErrFiles = wasi.ErrFiles
	// ErrSpace means that the disk has no room for the compiled code of the module. The
	// same call may succeed later.
	ErrSpace = compiler.ErrSpace
	// ErrCacheFolder means that a folder for compiled code belongs to another user,
	// is writable by others, or is a link. Others could make this process execute
	// their code.
	ErrCacheFolder = codecache.ErrUnsafe
)

// ErrNoManifest means that a plugin has no manifest.
var ErrNoManifest = contract.ErrNoManifest

// ModuleError says why a module was refused. It matches [ErrABI].
type ModuleError = contract.ModuleError

// CallError says why a call ended without a result from the tool.
type CallError struct {
	Plugin string
	Tool   string
	Name   string // the tool's name for agents; empty means the one that [abi.AgentName] returns
	Err    error
	Trace  string // stack of a crashed plugin, innermost frame first
	// LastWords is the end of the stderr of a plugin that crashed, on one line and
	// without invisible characters. The plugin controls this text, so show it to the
	// operator only.
	LastWords string
}

func (e *CallError) Error() string {
	name := cmp.Or(e.Name, e.Tool)
	if e.Name == "" && e.Plugin != "" {
		name = abi.AgentName(e.Plugin, e.Tool)
	}
	text := name + ": " + e.Err.Error()
	if e.LastWords != "" {
		text += "; its last words: " + e.LastWords
	}
	return text
}

// Unwrap returns the reason.
func (e *CallError) Unwrap() error { return e.Err }

// because returns an error with the text of a context's cause. It also
// matches the context's error.
func because(err, cause error) error {
	if errors.Is(cause, err) {
		return cause
	}
	return &causeError{err, cause}
}

type causeError struct{ err, cause error }

func (e *causeError) Error() string   { return e.cause.Error() }
func (e *causeError) Unwrap() []error { return []error{e.cause, e.err} }

// TimeoutError is the error of a call that reached its time limit.
type TimeoutError struct{ Limit time.Duration }

// TimeLimit returns the error of a call that reached its time limit: timeout, or
// [DefaultTimeout] if timeout is 0.
func TimeLimit(timeout time.Duration) TimeoutError {
	return TimeoutError{Policy{Timeout: timeout}.withDefaults().Timeout}
}

func (e TimeoutError) Error() string { return fmt.Sprintf("time limit of %v reached", e.Limit) }

// Is reports whether target is context.DeadlineExceeded.
func (e TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// WaitedError is the error of a call that ended while it was waiting to run, for one of its
// HTTP requests to begin, or for its user to answer a question.
type WaitedError = guestcall.WaitedError
