// Package runs connects the server to background runs: it executes and suspends them, and
// waits for the runs that calls become.
package runs

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/calllog"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/versions"
	"github.com/toolhost/toolhost/server/telemetry"
)

// An Executor executes background runs for the manager of runs.
type Executor struct {
	Catalog   *catalog.Catalog
	Settings  func() catalog.Settings // settings in force
	Versions  *versions.Store
	Checker   *approval.Checker
	Questions *question.Registry
	Audit     approval.Audit
	Telemetry *telemetry.Telemetry
	Log       *slog.Logger

	// Opened is closed once the fields below are set. The manager, which they depend on, may
	// start runs of an earlier process before that.
	Opened   chan struct{}
	Follower *Follower
	// Call makes the call of a run.
	Call func(ctx context.Context, x *Execution) (abi.Result, error)
	// Child makes the checks of a call that a tool makes, except for a person's approval.
	Child func(ctx context.Context, c ChildCall) (Child, error)
}

// An Execution is a run that is being executed.
type Execution struct {
	engine.Run
	Requested Terms // terms that the caller requested

	sink  *output.Sink
	waits *Suspension // suspension of the run; set by Begin
}

// Execute calls the tool of a run, and attaches the run's sink. It uses nothing but the record
// of the run, so that a run can be executed again.
func (x *Executor) Execute(ctx context.Context, run engine.Run, sink *output.Sink) (background.Outcome, error) {
	select {
	case <-x.Opened:
	case <-ctx.Done():
		return background.Outcome{}, context.Cause(ctx)
	}
	terms, err := termsOf(run)
	if err != nil {
		return background.Outcome{}, err
	}
	if run.Attempt == 1 && background.StateOf(ctx) == nil {
		x.Telemetry.RunStarted(time.Since(run.CreatedAt))
	}
	ctx, span := x.Telemetry.StartRun(ctx, run.Tool, run.ID, terms.Trace, run.Attempt)
	var ended telemetry.Ended
	defer func() { span.EndRun(ended) }()

	executed := &Execution{Run: run, Requested: terms, sink: sink}
	r, err := x.Call(ctx, executed)
	switch {
	case errors.Is(err, host.ErrSuspended):
		ended = record.Ended(run.Tool, run.Plugin, abi.Result{Kind: abi.Success, Usage: r.Usage}, nil)
		return executed.waits.Outcome(sink, r), nil
	case err != nil && r.Kind == "": // it has not begun
		ended = record.Ended(run.Tool, run.Plugin, abi.Result{Kind: abi.ToolError}, err)
		return background.Outcome{}, Rejected(engine.KindRejected, "", err)
	}
	ended = record.Ended(run.Tool, run.Plugin, r, err)
	return Outcome(ctx, sink, run.Timeout, r, err)
}

// Unchanged returns an error if the plugin of a run was replaced since the run was admitted or
// approved. A run that a schedule fires may use any plugin that has the tool. Any other run
// needs the version that its arguments were checked against. A run that is executed again also
// needs its version, because its checkpoint was made by that version.
func (x *Execution) Unchanged(tool *catalog.Tool) error {
	if x.Schedule == "" || x.Attempt > 1 {
		if err := tool.SameVersion(x.Run); err != nil {
			return err
		}
	}
	return approval.Same(tool, x.Run)
}

// Begin attaches the sink of a run to its call.
func (x *Executor) Begin(ctx context.Context, run *Execution, tool *catalog.Tool, call host.Call) (context.Context, host.Call) {
	call.ID, call.Attempt, call.Background, call.Policy.Timeout = run.ID, run.Attempt, true, run.Timeout
	if run.Requested.Asks {
		call.Ask = x.Questions.ForRun(run.Run)
	}
	if run.Attempt > 1 {
		x.Follower.withdrawEarlier(ctx, run.Run)
	}
	ctx, call, run.waits = x.Attach(ctx, run.sink, tool, call, nil)
	run.waits.restartable = run.Restartable
	return ctx, call
}

// Attach connects a call to the sink of the run that it is or may become, and to the caller
// that may still wait for it. The parameter caller is nil if the call was a run from the
// start. The call may be suspended as a run.
func (x *Executor) Attach(ctx context.Context, sink *output.Sink, tool *catalog.Tool, call host.Call, caller Attached) (context.Context, host.Call, *Suspension) {
	ctx = calllog.With(ctx, sink, max(1, call.Attempt))
	waits := &Suspension{executor: x, ctx: ctx, tool: tool, caller: caller}
	call = withSink(call, sink, x.Log)
	if caller != nil {
		call = caller.Into(call)
	}
	return ctx, waits.into(call), waits
}

// Lookup returns the tool of a run. Its plugin may have been replaced since the run was
// admitted. A waiting run whose state is of another version gets that version, if it was kept;
// any other run gets the current one.
func (x *Executor) Lookup(ctx context.Context, run engine.Run) (*catalog.Tool, error) {
	tool, err := x.Catalog.Find(ctx, run.Tool)
	if run.StateSize == 0 || err == nil && tool.SameVersion(run) == nil {
		return tool, err
	}

	kept, problem := x.Versions.Tool(ctx, run)
	switch {
	case problem == nil:
		return catalog.OfPlugin(kept, x.Settings()), nil
	case errors.Is(problem, plugins.ErrNotAccepted):
		return nil, reason.Refuse("the plugin of %s was replaced in the meantime, and toolhost.lock has only the new version", run.Tool)
	case !errors.Is(problem, fs.ErrNotExist):
		x.Log.Warn("a run that waits cannot continue with the version of its plugin", "task_id", run.ID, "version", run.Version, "error", problem)
	}
	return tool, err
}

// Readmit decides whether to start a run that was not admitted just now, but was fired by a
// schedule or left behind by an earlier process. Everything is checked again, because the tool
// may be missing, replaced, or no longer granted.
func (x *Executor) Readmit(ctx context.Context, run engine.Run) error {
	again := run.Attempt > 0
	tool, err := x.Lookup(ctx, run)
	switch {
	case err != nil:
	case run.Secret:
		err = reason.Refuse("its arguments contained a secret, which was not stored")
	case again:
		err = mayRunAgain(tool, run)
	case !tool.Tool.Hints.SupportsBackground && run.Origin != engine.OriginParked:
		err = reason.Refuse("%s does not support background runs", run.Tool)
	}

	if err == nil {
		err = admit(tool, run)
	}
	if err == nil && !again {
		err = x.Checker.Start(ctx, tool, run)
	}

	switch {
	case err == nil:
		return nil
	case again:
		return Rejected(engine.KindOrphaned, "The host went down, and the run is not run again: ", err)
	}
	return Rejected(engine.KindRejected, "", err)
}

// admit checks the call of a run, whose record may be old.
func admit(tool *catalog.Tool, run engine.Run) error {
	args, err := catalog.ParseArgs(run.Tool, catalog.Args{}, run.Args)
	if err != nil {
		return err
	}
	return tool.AdmitStored(args)
}

// Hold holds a run that a schedule fires, if a person has to approve it.
func (x *Executor) Hold(ctx context.Context, run *engine.Run) {
	tool, err := x.Catalog.Lookup(run.Tool)
	if err != nil {
		return // it is refused when it starts
	}
	run.Restartable = tool.Restartable()
	verdict, _ := x.Checker.Judge(ctx, tool, approval.Call{Session: run.Session, Tool: run.Tool, Args: run.Args})
	if verdict != approval.Held {
		return
	}
	bound, err := approval.Bind(tool)
	if err != nil {
		return // likewise
	}
	if terms, err := bind(run.Terms, bound); err == nil {
		run.Held, run.Terms = approval.HeldFor, terms
		x.Audit.Decided(audit.Asked, record.Held{Session: run.Session, Tool: run.Tool, Run: run.ID}, "", "")
	}
}

// Rejected returns the error of a run that was not started.
func Rejected(kind engine.ErrorKind, prefix string, err error) error {
	r, _ := reason.Explain(err)
	return &background.Error{Kind: kind, Message: prefix + r.Error, Err: err}
}

// Version returns the version of a tool that a schedule is about to run; empty if the
// tool is missing or being replaced.
func (x *Executor) Version(name string) string {
	tool, err := x.Catalog.Lookup(name)
	if err != nil {
		return ""
	}
	version, _ := tool.Version()
	return version
}

// Provider returns the plugin or the program that a tool belongs to; zero if the tool is
// missing.
func (x *Executor) Provider(name string) engine.Provider {
	tool, err := x.Catalog.Lookup(name)
	if err != nil {
		return engine.Provider{}
	}
	return tool.Provider()
}

// mayRunAgain returns an error if a run may not be executed twice.
func mayRunAgain(tool *catalog.Tool, run engine.Run) error {
	if hints := tool.Tool.Hints; !hints.Idempotent && !hints.Readonly && run.StateSize == 0 && !run.Restartable { // otherwise it continues from its state
		return reason.Refuse("%s is neither idempotent nor readonly", run.Tool)
	}
	if err := tool.Refused(); err != nil {
		return reason.Refuse("%v", err)
	}
	return tool.SameVersion(run)
}
