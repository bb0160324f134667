package main

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/internal/signature"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/wire"
)

// The exit codes, which are part of the command's contract.
const (
	exitOK          = 0
	exitToolError   = 1 // the tool reported an error, or the plugin broke
	exitUsage       = 2 // mistake on the command line or in the configuration
	exitLimit       = 3 // limit on fuel, memory, time or output reached
	exitDenied      = 4
	exitNotFound    = 5
	exitInterrupted = 130
)

// usageError is a mistake on the command line or in the configuration.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// reportedError is an error that the command has already printed.
type reportedError struct{ error }

func (e *reportedError) Unwrap() error { return e.error }

// hintError is an error that comes with a hint.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }

// toolError is the error for a tool that ran and reported an error.
type toolError struct{ result abi.Result }

func (e *toolError) Error() string { return e.result.Error }

// diagnosis is an error in the form shown to users and scripts.
type diagnosis struct {
	exit    int
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// reasons maps the codes of a service's errors, in this process or behind a
// server, to exit codes and hints. Codes that are not listed are mistakes in a
// request.
var reasons = map[wire.Code]struct {
	exit int
	hint string
}{
	wire.CodeFuel:         {exitLimit, "raise it with --fuel"},
	wire.CodeMemory:       {exitLimit, "raise it with --memory"},
	wire.CodeHostMemory:   {exitLimit, "raise host.memory in the configuration"},
	wire.CodeOutput:       {exitLimit, "raise limits.output in the configuration"},
	wire.CodeTime:         {exitLimit, "raise it with --timeout"},
	wire.CodeFiles:        {exitLimit, "raise the limit of open files: ulimit -n"},
	wire.CodeLimit:        {exitLimit, "toolhost tasks --active lists active runs, toolhost schedules lists schedules"},
	wire.CodeTooLarge:     {exitLimit, ""},
	wire.CodeDenied:       {exitDenied, ""}, // a grant or an approval is missing: the message says which one
	wire.CodeForbidden:    {exitDenied, ""},
	wire.CodeScope:        {exitDenied, ""},
	wire.CodeUnauthorized: {exitDenied, "set TOOLHOST_TOKEN to the token of the server, or to an access token for it"},
	wire.CodeNotFound:     {exitNotFound, "toolhost list shows the tools; toolhost tasks and toolhost schedules show what the session has, and --session names another"},
	wire.CodeTrap:         {exitToolError, ""},
	wire.CodePlugin:       {exitToolError, ""},
	wire.CodeInternal:     {exitToolError, ""},
	wire.CodeUnavailable:  {exitToolError, ""},
	wire.CodeClosing:      {exitToolError, ""},
	wire.CodeIssuer:       {exitToolError, ""},
}

// diagnose determines the exit code and the hint for an error.
func diagnose(ctx context.Context, err error) diagnosis {
	var (
		usage   *usageError
		failed  *toolError
		ended   *runError
		refused *wire.Problem
		address *client.AddressError
		lost    *client.Unreachable
	)
	d := diagnosis{exit: exitToolError, Code: "failed", Message: err.Error()}

	switch {
	case errors.Is(err, engine.ErrFull), errors.Is(err, syscall.ENOSPC):
		d.Code, d.Hint = string(wire.CodeUnavailable), "make room on that disk, and try again"
	case errors.As(err, &usage):
		d.exit, d.Code, d.Hint = exitUsage, "usage", usage.hint
	case errors.As(err, &address):
		d.exit, d.Code, d.Hint = exitUsage, "usage", "check the address: --addr, TOOLHOST_ADDR or addr in the configuration"
	case errors.As(err, &failed):
		d.Code = string(failed.result.Kind)
	case errors.As(err, &ended):
		d.exit, d.Code = ended.code()
		d.Hint = ended.hint()
	case errors.As(err, &lost):
		d.exit, d.Code = exitUsage, "no_server"
		if lost.Refused {
			d.Hint = "start one with toolhost serve, or name one with --addr"
		}
	case errors.As(err, &refused):
		d.set(refused.Code)
	case errors.Is(err, registry.ErrReference):
		d.exit, d.Code, d.Hint = exitUsage, "usage", "a reference is oci://HOST/NAME:TAG"
	case errors.Is(err, registry.ErrDenied):
		d.exit, d.Code = exitDenied, "denied"
	case errors.Is(err, registry.ErrNotFound):
		d.exit, d.Code = exitNotFound, "not_found"
	case errors.Is(err, server.ErrDamaged):
		d.Code, d.Hint = "damaged", "move that folder away, then restore a backup with toolhost restore, or start with an empty folder"
	case errors.Is(err, host.ErrCacheFolder):
		d.exit, d.Code, d.Hint = exitUsage, "usage", "fix this, or choose another folder with --data"
	case errors.Is(err, signature.ErrUnsigned), errors.Is(err, signature.ErrUntrusted), errors.Is(err, signature.ErrInvalid):
		d.exit, d.Code = exitDenied, "signature"
	case errors.Is(err, audit.ErrNoLog):
		d.exit, d.Code, d.Hint = exitNotFound, "not_found", "toolhost serve keeps its log in the folder audit of the data folder, unless audit.enabled is false"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoPlugin):
		d.exit, d.Code = exitNotFound, "not_found"
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		d.exit, d.Code, d.Message = exitInterrupted, "interrupted", "interrupted"
	default:
		if code := server.ReasonOf(err).Code; code != wire.CodeInternal && code != wire.CodeCanceled {
			d.set(code)
		}
		if errors.Is(err, plugins.ErrNoTool) {
			d.Hint = "toolhost list shows the tools"
		}
	}
	if own, ok := errors.AsType[*hintError](err); ok {
		d.Hint = own.hint
	}
	return d
}

func (d *diagnosis) set(code wire.Code) {
	d.exit, d.Code = exitUsage, string(code)
	if reason, ok := reasons[code]; ok {
		d.exit, d.Hint = reason.exit, reason.hint
	}
}
