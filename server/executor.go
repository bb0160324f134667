package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/telemetry"
)

// executor executes background runs for the manager of runs.
type executor struct{ service *Service }

// running is a run in execution.
type running struct {
	engine.Run
	terms terms
	sink  *output.Sink
	waits *suspension // set by begin
}

// execute calls the tool of a run, and attaches the run's sink. It depends only on the
// record, so that a run can be executed again.
func (x executor) execute(ctx context.Context, run engine.Run, sink *output.Sink) (background.Outcome, error) {
	select {
	case <-x.service.opened: // the manager may start runs of an earlier process before it is assigned
	case <-ctx.Done():
		return background.Outcome{}, context.Cause(ctx)
	}
	own, err := termsIn(run)
	if err != nil {
		return background.Outcome{}, err
	}
	if run.Attempt == 1 && background.StateOf(ctx) == nil {
		x.service.telemetry.RunStarted(time.Since(run.CreatedAt))
	}
	ctx, span := x.service.telemetry.StartRun(ctx, run.Tool, run.ID, own.Trace, run.Attempt)
	var ended telemetry.Ended
	defer func() { span.EndRun(ended) }()

	executed := &running{Run: run, terms: own, sink: sink}
	asked := Request{Session: run.Session, Tool: run.Tool, Args: run.Args, Limits: own.Limits, Locale: own.Locale}
	r, err := x.service.stages.run(ctx, call{Request: asked, run: executed, note: &record.Note{}})
	switch {
	case errors.Is(err, host.ErrSuspended):
		sink.Cost(shape.CostOf(r.Usage))
		ended = record.Ended(run.Tool, run.Plugin, abi.Result{Kind: abi.Success, Usage: r.Usage}, nil)
		return executed.waits.outcome(), nil
	case err != nil && r.Kind == "": // it has not begun
		ended = record.Ended(run.Tool, run.Plugin, abi.Result{Kind: abi.ToolError}, err)
		return background.Outcome{}, rejected(engine.KindRejected, "", err)
	}
	ended = record.Ended(run.Tool, run.Plugin, r, err)
	return outcome(ctx, sink, run.Timeout, r, err)
}

// toolOf looks up the tool of a run again, because its plugin may have been replaced since
// the run was admitted. A run that waited gets the version it waits with, if that was kept.
func (x executor) toolOf(ctx context.Context, c call) (*catalog.Tool, error) {
	return x.lookup(ctx, c.run.Run)
}

// unchanged is the stage that refuses a run whose plugin was replaced since the run was
// admitted or approved. A schedule accepts any plugin that has the tool. Any other run
// needs the version its arguments were checked against. So does a repeated one: its
// checkpoint is of that version.
func (x executor) unchanged(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		var err error
		if c.run.Schedule == "" || c.run.Attempt > 1 {
			err = c.tool.SameVersion(c.run.Run)
		}
		if err == nil {
			err = approval.Same(c.tool, c.run.Run)
		}
		if err != nil {
			return abi.Result{}, err
		}
		return next(ctx, c)
	}
}

// begin is the stage that attaches the sink of a run to the call.
func (x executor) begin(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		run := c.run
		c.work.ID, c.work.Attempt, c.work.Background = run.ID, run.Attempt, true
		c.allowed.Timeout, c.work.Policy.Timeout = run.Timeout, run.Timeout
		if run.terms.Asks {
			c.work.Ask = x.service.asked.ForRun(run.Run)
		}
		if run.Attempt > 1 {
			x.service.follower.withdrawEarlier(ctx, run.Run)
		}
		ctx, c, run.waits = x.attach(ctx, c, run.sink, nil)
		return next(ctx, c)
	}
}

// attach connects a call to the sink of its run, next to the caller that may still wait.
// The call may be suspended.
func (x executor) attach(ctx context.Context, c call, sink *output.Sink, caller *live) (context.Context, call, *suspension) {
	ctx = calllog.With(ctx, sink, max(1, c.work.Attempt))
	waits := &suspension{service: x.service, ctx: ctx, tool: c.tool, live: caller, anew: c.run != nil && c.run.Anew}
	c.work = x.withSink(c.work, sink)
	if caller != nil {
		c.work = caller.into(c.work)
	}
	c.work = waits.into(c.work)
	return ctx, c, waits
}

// admit checks the call of a run, whose record may be old.
func (x executor) admit(tool *catalog.Tool, run engine.Run) error {
	args, err := catalog.ParseArgs(run.Tool, Args{}, run.Args)
	if err != nil {
		return err
	}
	return tool.AdmitStored(args)
}

// lookup returns the tool of a run. A run that waits with another version of its plugin
// gets that one, any other the current one.
func (x executor) lookup(ctx context.Context, run engine.Run) (*catalog.Tool, error) {
	s := x.service
	tool, err := s.catalog.Find(ctx, run.Tool)
	if run.StateSize == 0 || err == nil && tool.SameVersion(run) == nil {
		return tool, err
	}

	kept, problem := s.versions.Tool(ctx, run)
	switch {
	case problem == nil:
		return catalog.OfPlugin(kept, s.now()), nil
	case errors.Is(problem, plugins.ErrNotAccepted):
		return nil, reason.Refuse("the plugin of %s was replaced in the meantime, and toolhost.lock has only the new version", run.Tool)
	case !errors.Is(problem, fs.ErrNotExist):
		s.log.Warn("a run that waits cannot continue with the version of its plugin", "task_id", run.ID, "version", run.Version, "error", problem)
	}
	return tool, err
}

// readmit decides whether a run may start that was not just admitted: a schedule fired
// it, or an earlier process left it. Everything is checked again, because the tool may be
// missing, replaced, or no longer granted.
func (x executor) readmit(ctx context.Context, run engine.Run) error {
	again := run.Attempt > 0
	tool, err := x.lookup(ctx, run)
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
		err = x.admit(tool, run)
	}
	if err == nil && !again {
		err = x.service.checker.Start(ctx, tool, run)
	}

	switch {
	case err == nil:
		return nil
	case again:
		return rejected(engine.KindOrphaned, "The host went down, and the run is not run again: ", err)
	}
	return rejected(engine.KindRejected, "", err)
}

// hold holds a run that a schedule fires, if a person has to approve it.
func (x executor) hold(ctx context.Context, run *engine.Run) {
	s := x.service
	tool, err := s.catalog.Lookup(run.Tool)
	if err != nil {
		return // it is refused when it starts
	}
	run.Anew = tool.Restartable()
	verdict, _ := s.checker.Judge(ctx, tool, approval.Call{Session: run.Session, Tool: run.Tool, Args: run.Args})
	if verdict != approval.Held {
		return
	}
	bound, err := approval.Bind(tool)
	if err != nil {
		return // likewise
	}
	if terms, err := bind(run.Terms, bound); err == nil {
		run.Held, run.Terms = approval.HeldFor, terms
		s.audit.Decided(audit.Asked, record.Held{Session: run.Session, Tool: run.Tool, Run: run.ID}, "", "")
	}
}

// rejected is the error of a run that was not started.
func rejected(kind engine.ErrorKind, prefix string, err error) error {
	r, _ := reason.Explain(err)
	return &background.Error{Kind: kind, Message: prefix + r.Error, Err: err}
}

// version returns the version of a tool that a schedule is about to run; empty if the
// tool is missing or being replaced.
func (x executor) version(name string) string {
	tool, err := x.service.catalog.Lookup(name)
	if err != nil {
		return ""
	}
	version, _ := tool.Version()
	return version
}

// provider returns what a tool belongs to; zero if the tool is missing.
func (x executor) provider(name string) engine.Provider {
	tool, err := x.service.catalog.Lookup(name)
	if err != nil {
		return engine.Provider{}
	}
	return tool.Provider()
}

// mayRunAgain returns an error if a run may not be executed twice.
func mayRunAgain(tool *catalog.Tool, run engine.Run) error {
	if hints := tool.Tool.Hints; !hints.Idempotent && !hints.Readonly && run.StateSize == 0 && !run.Anew { // otherwise it continues from its state
		return reason.Refuse("%s is neither idempotent nor readonly", run.Tool)
	}
	if err := tool.Refused(); err != nil {
		return reason.Refuse("%v", err)
	}
	return tool.SameVersion(run)
}

// terms are what a caller requested besides the arguments and the deadline. The record of
// the run stores them, for later attempts of a parked call.
type terms struct {
	Limits
	Locale string `json:"locale,omitempty"`
	// Binding is what the run is bound to, if it was held.
	approval.Binding
	// Asks means that the run may ask its user, see [Session.Questions].
	Asks bool `json:"asks,omitempty"`
	// Trace is the span that spawned the run, see [telemetry.Link].
	Trace string `json:"trace,omitempty"`
}

// traced encodes the terms with the span of a context.
func (t terms) traced(ctx context.Context) json.RawMessage {
	t.Trace = telemetry.Link(ctx)
	return t.encode()
}

func (t terms) encode() json.RawMessage {
	data, _ := json.Marshal(t) // numbers and strings
	if string(data) == "{}" {
		return nil
	}
	return data
}

// termsIn decodes the terms of a run.
func termsIn(run engine.Run) (t terms, err error) {
	if run.Terms != nil {
		if err := json.Unmarshal(run.Terms, &t); err != nil {
			return t, fmt.Errorf("reading the terms of %s: %w", run.ID, err)
		}
	}
	return t, nil
}

// bind returns terms with what their run is bound to.
func bind(raw json.RawMessage, to approval.Binding) (json.RawMessage, error) {
	t, err := termsIn(engine.Run{Terms: raw})
	t.Binding = to
	return t.encode(), err
}

// withSink lets the sink of a run follow the call, store its checkpoints, and ask it to stop.
func (x executor) withSink(call host.Call, sink *output.Sink) host.Call {
	call.Stdout, call.Stderr, call.Stopping = sink.Stdout(), sink.Stderr(), sink.Stopping()
	call.Progress = func(p host.Progress) {
		if p.Narration != "" {
			sink.Narrate(p.Narration)
		}
		if p.Status != "" {
			sink.Status(p.Status)
		}
		if p.Counted() {
			sink.Unit(p.Unit)
			sink.Progress(p.Done, max(p.Total, 0), p.Message)
		}
	}
	call.Used = func(soFar func() abi.Usage) { sink.Meter(func() engine.Cost { return shape.CostOf(soFar()) }) }
	call.Checkpoint = &host.Checkpoint{Load: sink.Restore, Save: func(ctx context.Context, data []byte) error {
		err := sink.Checkpoint(ctx, data)
		switch {
		case errors.Is(err, output.ErrNoRun):
			return fmt.Errorf("%w: %w", host.ErrDenied, err)
		case err != nil && ctx.Err() == nil:
			x.service.log.Warn("checkpoint not stored", "call", call.ID, "session", call.Session, "error", err)
		}
		return err
	}}
	call.Receive = func(ctx context.Context, after int64, wait time.Duration) ([]host.Message, error) {
		found, err := background.Receive(ctx, after, wait)
		switch {
		case errors.Is(err, output.ErrNoRun):
			return nil, fmt.Errorf("%w: %w", host.ErrDenied, err)
		case err != nil && ctx.Err() == nil:
			x.service.log.Warn("messages not received", "call", call.ID, "session", call.Session, "error", err)
		}
		all := make([]host.Message, len(found))
		for i, m := range found {
			all[i] = host.Message{ID: m.ID, At: m.At, By: m.By, Data: m.Data}
		}
		return all, err
	}
	return call
}

// maxSummary bounds the summary that a tool gives its run, in characters.
const maxSummary = 500

// outcome turns the end of a call into the end of its run, which has a time limit.
func outcome(ctx context.Context, sink *output.Sink, limit time.Duration, r abi.Result, err error) (background.Outcome, error) {
	sink.Cost(shape.CostOf(r.Usage))
	out := background.Outcome{ExitCode: r.ExitCode, Summary: output.Shorten(r.Summary, maxSummary), Diagnosis: shape.DiagnosisOf(err)}
	if len(r.Content) > 0 && (r.Kind == abi.Success || r.Kind == abi.ToolError) { // the agent does not see what a broken plugin left
		content, err := shape.JSON(r.Content)
		if err != nil {
			return out, err
		}
		out.Content = content
	}

	if r.Kind == abi.Success {
		out.Result = r.Value
		return out, nil
	}

	if r.Limit == abi.LimitTime {
		<-ctx.Done() // the run's own deadline, which is now
	}
	if waited, ok := errors.AsType[*host.WaitedError](err); ok && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return out, &background.Error{Kind: engine.KindTimeout, Message: fmt.Sprintf("The run's deadline of %v passed while it waited: %s", limit, waited.For), Err: err}
	}
	if err != nil && ctx.Err() != nil {
		return out, err // the manager knows why it ended the run
	}

	return out, &background.Error{Kind: engine.ErrorKind(shape.ErrorKind(r, err)), Message: r.Error, Err: err}
}
