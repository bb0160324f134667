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
	return outcome(ctx, sink, r, err)
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
			err = sameVersion(c.tool, c.run.Run)
		}
		if err == nil {
			err = sameApproval(c.tool, c.run.Run)
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
	if run.StateSize == 0 || err == nil && sameVersion(tool, run) == nil {
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
		err = x.approved(ctx, tool, run)
	}

	switch {
	case err == nil:
		return nil
	case again:
		return rejected(engine.KindOrphaned, "The host went down, and the run is not run again: ", err)
	}
	return rejected(engine.KindRejected, "", err)
}

// approved returns an error unless a run that is about to start was approved. A held run
// was released for the code and the grants that were asked about; any other run was
// approved when it was requested, and a firing is approved now. Nothing starts that the
// policy now denies.
func (x executor) approved(ctx context.Context, tool *catalog.Tool, run engine.Run) error {
	t, err := termsIn(run)
	switch {
	case err != nil:
		return err
	case t.Approval != "":
		if decision, why := configOf(tool).Approvals.rule(tool); decision == DecideDeny {
			return refusedByPolicy(tool, why)
		}
		return sameApproval(tool, run)
	case run.Schedule == "":
		return nil
	}
	return x.service.Approvals().approve(ctx, tool, Approval{Session: run.Session, Args: run.Args})
}

// sameApproval returns an error if a run was approved for other code or other grants.
func sameApproval(tool *catalog.Tool, run engine.Run) error {
	t, err := termsIn(run)
	if err == nil && t.Approval != "" && t.Approval != fingerprint(tool) {
		err = reason.Refuse("the plugin of %s, or what it may use, has changed since somebody was asked to approve it", run.Tool)
	}
	return err
}

// hold holds a run that a schedule fires, if a person has to approve it.
func (x executor) hold(ctx context.Context, run *engine.Run) {
	s := x.service
	tool, err := s.catalog.Lookup(run.Tool)
	if err != nil {
		return // it is refused when it starts
	}
	run.Anew = tool.Restartable()
	if !configOf(tool).Approvals.Ask || configOf(tool).Approve != nil {
		return
	}
	a := Approval{Session: run.Session, Tool: run.Tool, Args: run.Args, run: run.ID}
	if configOf(tool).Approvals.decide(tool) != DecideAsk || s.Approvals().kept(ctx, tool, a) {
		return
	}
	t, err := termsIn(*run)
	if t.Approval = fingerprint(tool); err != nil || t.Approval == "" {
		return // likewise
	}
	run.Held, run.Terms = heldForApproval, t.encode()
	s.audit.Decided(audit.Asked, a.held(), "", "")
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
	return sameVersion(tool, run)
}

// sameVersion returns an error if a tool is not the one a run was made for.
func sameVersion(tool *catalog.Tool, run engine.Run) error {
	version, err := tool.Version()
	if err == nil && run.Version != version || errors.Is(err, plugins.ErrReplaced) || errors.Is(err, plugins.ErrChanged) {
		err = anotherPlugin(run.Tool)
	}
	return err
}

func anotherPlugin(tool string) error {
	return reason.Refuse("the plugin of %s was replaced in the meantime", tool)
}

// terms are what a caller requested besides the arguments and the deadline. The record of
// the run stores them, for later attempts of a parked call.
type terms struct {
	Limits
	Locale string `json:"locale,omitempty"`
	// Approval is the fingerprint that a person was asked to approve; empty if the run
	// was never held.
	Approval string `json:"approval,omitempty"`
	// Host is the process that has the secret arguments of a ticket.
	Host string `json:"host,omitempty"`
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

// outcome turns the end of a call into the end of its run.
func outcome(ctx context.Context, sink *output.Sink, r abi.Result, err error) (background.Outcome, error) {
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
	if err != nil && ctx.Err() != nil {
		return out, err // the manager knows why it ended the run
	}

	return out, &background.Error{Kind: engine.ErrorKind(shape.ErrorKind(r, err)), Message: r.Error, Err: err}
}
