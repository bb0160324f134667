package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/httpapi"
)

// The exit codes. They are part of the command's contract.
const (
	exitOK          = 0
	exitToolError   = 1 // the tool failed, or the plugin broke
	exitUsage       = 2 // usage or configuration
	exitLimit       = 3 // fuel, memory, time or output
	exitDenied      = 4
	exitNotFound    = 5
	exitInterrupted = 130
)

// usageError is a fault of the command line or the configuration.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// toolFailed is the end of a tool that ran and reported an error.
type toolFailed struct{ result abi.Result }

func (e *toolFailed) Error() string { return e.result.Error }

// diagnosis is an error as a user and a script see it.
type diagnosis struct {
	exit    int
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// diagnose maps every error to a code, once and here.
func diagnose(ctx context.Context, err error) diagnosis {
	d := diagnosis{exit: exitToolError, Code: "failed", Message: err.Error()}
	var usage *usageError
	var failed *toolFailed
	var ended *runEnded
	var refused *httpapi.Problem
	var away *unreachable
	switch {
	case errors.As(err, &usage):
		d.exit, d.Code, d.Hint = exitUsage, "usage", usage.hint
	case errors.As(err, &failed):
		d.Code = string(failed.result.Kind)
	case errors.As(err, &ended):
		d.exit, d.Code = ended.code()
	case errors.As(err, &refused):
		d.exit, d.Code, d.Hint = refusal(refused)
	case errors.As(err, &away):
		d.exit, d.Code = exitUsage, "no_server"
		if away.none {
			d.Hint = "start one with toolhost serve, or name one with --addr"
		}
	case errors.Is(err, host.ErrFuel):
		d.exit, d.Code, d.Hint = exitLimit, "fuel", "raise it with --fuel"
	case errors.Is(err, host.ErrHostMemory): // matches ErrMemory too
		d.exit, d.Code, d.Hint = exitLimit, "memory", "raise host.memory in the configuration"
	case errors.Is(err, host.ErrMemory):
		d.exit, d.Code, d.Hint = exitLimit, "memory", "raise it with --memory"
	case errors.Is(err, host.ErrOutput):
		d.exit, d.Code, d.Hint = exitLimit, "output", "raise limits.output in the configuration"
	case errors.Is(err, context.DeadlineExceeded):
		d.exit, d.Code, d.Hint = exitLimit, "time", "raise it with --timeout"
	case errors.Is(err, host.ErrFiles):
		d.exit, d.Code, d.Hint = exitLimit, "files", "raise the limit of open files: ulimit -n"
	case errors.Is(err, host.ErrDenied):
		d.exit, d.Code, d.Hint = exitDenied, "denied", "grants stand in the configuration, see toolhost config"
	case errors.Is(err, plugins.ErrNoTool):
		d.exit, d.Code, d.Hint = exitNotFound, "not_found", "toolhost list shows the tools"
	case errors.Is(err, host.ErrCacheFolder):
		d.exit, d.Code, d.Hint = exitUsage, "usage", "or choose another folder with --data"
	case errors.Is(err, fs.ErrNotExist):
		d.exit, d.Code = exitNotFound, "not_found"
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		d.exit, d.Code, d.Message = exitInterrupted, "interrupted", "interrupted"
	case errors.Is(err, host.ErrTrap):
		d.Code = "trap"
	case errors.Is(err, host.ErrABI):
		d.Code = "plugin"
	}
	return d
}

// refusal is what a server's refusal is to a script, and what to do about it.
func refusal(p *httpapi.Problem) (exit int, code, hint string) {
	code = string(p.Code)
	switch p.Code {
	case httpapi.CodeLimit:
		return exitLimit, code, "toolhost tasks --active shows what runs, toolhost schedules what is scheduled"
	case httpapi.CodeUnauthorized:
		return exitDenied, code, "set TOOLHOST_TOKEN to the token of the server, or to an access token for it"
	case httpapi.CodeDenied, httpapi.CodeForbidden, httpapi.CodeScope:
		return exitDenied, code, ""
	case httpapi.CodeNotFound:
		return exitNotFound, code, "toolhost tasks and toolhost schedules show what a session has, toolhost list the tools"
	case httpapi.CodeInternal, httpapi.CodeClosing, httpapi.CodeIssuer:
		return exitToolError, code, ""
	}
	return exitUsage, code, ""
}
