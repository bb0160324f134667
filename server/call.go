package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/strictjson"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// MaxArgs bounds the arguments of a call, in bytes.
const MaxArgs = 8 << 20

// MaxKey bounds the idempotency key of a call, in characters.
const MaxKey = 128

// Request is one call of a tool.
type Request struct {
	Session string          // the session of the call; background runs belong to it
	Tool    string          // as in Definitions
	Args    json.RawMessage // an object; nil is {}
	Parsed  Args            // set it instead of Args if the arguments are parsed already
	Limits  Limits          // the caller's own, cut to the operator's maximum; they apply to later attempts of a parked call too
	Locale  string          // BCP 47, at most MaxLocale bytes; empty if unknown
	// DryRun makes a call that changes nothing, as one with the context of [WithDryRun].
	DryRun bool
	note   *callNote // of this call
	// Unnamed says that nobody named the session: later calls of the caller may be in
	// another one, so nothing is promised of them.
	Unnamed bool
	// Decide asks the caller's user about calls that are held for approval: this one, and
	// those that its tool makes. Nil asks nobody: they stay held until an operator decides.
	Decide DecideFunc
	// OneRequest says that the session is of this request alone, so that no approval can be
	// kept for it.
	OneRequest bool
	// Connected says that the session ends with the caller's connection, which is the only
	// one of this process.
	Connected bool
	// Resumes is the id of the run that an earlier request with the same tool and arguments
	// has become, and that was answered with [ErrAskAgain]. The call continues with it.
	Resumes string

	// Key is an idempotency key of at most MaxKey characters, made by the program that
	// calls, never by a model; empty means no key. Such a call is a run of the session from
	// its start. A repeat with the key, the tool and the arguments waits for that run, or
	// returns its result, as long as the run is kept, and nothing runs twice: also after
	// a crash. The key with another tool or other arguments is an error of the code
	// [wire.CodeConflict]. The end of the context only leaves the call, see [ErrCancel].
	Key string

	// ParkAfter is how long the caller waits before a call that may be parked
	// continues in the background. It can only shorten Config.ParkAfter, which
	// is its default. It also limits the wait of check_background.
	ParkAfter time.Duration
	// FileName says how the caller's model reads a file of a run, [wire.OutputLog] or
	// [wire.ResultJSON]: such as by a URI. Nil is the path below Config.DataDir.
	FileName func(task, file string) string
	// OnPark is called with the run that the call has become, before Call returns.
	// It may be nil: the result names the run too.
	OnPark func(wire.Run)
	// Ask asks the caller's user the plugin's questions, and waits for the answers,
	// which are checked with CheckAnswer before the plugin sees them. It is not
	// called after Call has returned. It returns ErrAskAgain if the caller ends the
	// call, and repeats it with the answers. Nil denies all questions. With AskLater
	// a parked call may ask too: see [Session.Questions].
	Ask      func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	AskLater bool
	// Connect asks the caller's user to set a secret on a page, and waits until it is set.
	// The call is made again then, from its beginning. It returns ErrAskAgain if the caller
	// ends the call, and repeats it. Nil asks nobody: the result requires a connection.
	Connect func(ctx context.Context, need SecretNeed) error

	// Stdout, Stderr and Progress follow a plugin's tool while it runs, see
	// host.Call.
	Stdout, Stderr io.Writer
	Progress       func(Progress)
}

// Progress is a progress report of a call.
type Progress = host.Progress

// Args are arguments that were parsed strictly: a JSON object in UTF-8 without
// repeated names. They are not validated again.
type Args = strictjson.Object

var noArgs, _ = strictjson.Parse([]byte("{}"))

// parseArgs returns the arguments of a call, which may have been parsed already.
// The error is for the agent.
func parseArgs(tool string, parsed Args, raw json.RawMessage) (Args, error) {
	size := max(len(raw), len(parsed.Raw()))
	switch {
	case size > MaxArgs:
		return Args{}, refuse("the arguments have %d bytes, and at most %d are allowed", size, MaxArgs)
	case parsed.Raw() != nil:
		return parsed, nil
	case len(raw) == 0:
		return noArgs, nil
	}

	parsed, err := strictjson.Parse(raw)
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		err = badArgs(tool, []abi.Problem{wrong.Problem})
	}
	return parsed, err
}

// Call runs a tool of a plugin or of the agent, and waits for it. A call that may
// be parked, see [Config], continues as a background run of the session after that
// time. Then the value of the result is {"type":"background","task_id":…}. Nothing
// is written to req's Stdout, Stderr and Progress after Call has returned.
//
// The Result is for the agent, and valid in every case. The error is nil if the
// tool gave a result. Otherwise it matches [plugins.ErrNoTool], [ErrApproval], an
// error of package host, or a context error. Arguments that do not fit are a tool
// error, so that a model can correct them.
func (s *Service) Call(ctx context.Context, req Request) (abi.Result, error) {
	began, note := time.Now(), callNote{tool: req.Tool}
	req.note = &note
	from := originOf(ctx)
	if from != nil {
		note.outer, note.by, note.unlisted = from.call.ID, from.tool.Name, from.listed.Add(1) > maxListed
	}
	ctx, span := s.telemetry.StartCall(ctx, from != nil)
	r, err := s.call(ctx, req)
	counted := r
	if note.followed {
		counted.Usage = abi.Usage{}
	}
	s.figures.add(note, req.Session, began, counted, err)
	span.End(note.ended(counted, err))
	s.audit.call(note, req, began, counted, err)
	if ctx.Err() != nil && from == nil {
		logUnresolved(ctx, s.log, req, r)
	}
	return r, err
}

// logUnresolved logs a call whose caller has left without its answer: its connection was
// closed or timed out, or it canceled the call.
func logUnresolved(ctx context.Context, log *slog.Logger, req Request, r abi.Result) {
	if errors.Is(context.Cause(ctx), ErrAskAgain) { // it is there, and asks its user
		return
	}
	became := "canceled"
	if r.Kind == abi.Success || r.Kind == abi.ToolError {
		became = "finished, not delivered"
	}
	log.Info("the caller left before the call was answered", "tool", clip(req.Tool, maxProblem), "session", req.Session, "call", req.note.id, "became", became, "cause", context.Cause(ctx))
}

func (s *Service) call(ctx context.Context, req Request) (abi.Result, error) {
	if req.DryRun = req.DryRun || InDryRun(ctx); req.DryRun {
		ctx = WithDryRun(ctx)
	}
	var err error
	if req.Parsed, err = parseArgs(req.Tool, req.Parsed, req.Args); err != nil {
		return explain(err)
	}

	if req.Args = req.Parsed.Raw(); CheckLocale(req.Locale) != nil {
		return explain(CheckLocale(req.Locale))
	}
	if err := checkKey(req); req.Key != "" && err != nil {
		return explain(err)
	}
	if a := s.agentTool(req.Tool, s.runs); a != nil {
		req.note.known = true
		return a.call(ctx, s, req)
	}
	for {
		r, err := s.callPlugin(ctx, req)
		if !errors.Is(err, plugins.ErrReplaced) { // else it has not run: call the new plugin
			return r, err
		}
	}
}

// callPlugin checks and makes a call of a plugin's tool.
func (s *Service) callPlugin(ctx context.Context, req Request) (abi.Result, error) {
	from := originOf(ctx)
	if s.closed.Load() && from == nil { // what runs may finish
		return explain(errShutdown)
	}

	tool, err := s.lookup(req.Tool)
	if err != nil {
		tool, err = s.lookup(req.Tool, s.offeredNames(s.runs)...)
	}
	if err != nil {
		return explain(err)
	}
	req.note.known, req.note.provider = true, tool.provider()
	if s.audit.log != nil {
		req.note.version, _ = tool.Version() // an error is found when it is called
	}
	if err := s.admit(tool, req.Parsed); err != nil {
		return explain(err)
	}
	if from != nil {
		if err := from.admit(tool, s.annotate(tool)); err != nil {
			return explain(err)
		}
	}

	c := toolCall{s, tool, req}
	if req.Resumes != "" {
		if r, found, err := c.resume(ctx); found {
			return r, err
		}
	}
	if req.DryRun && !tool.Tool.Hints.Readonly {
		return c.describe(ctx)
	}
	if req.Key != "" && !req.DryRun {
		if r, found, err := c.repeatKeyed(ctx); found {
			return r, err
		}
	}
	return c.perform(ctx)
}

// toolCall is a call whose tool was found. Its methods are the steps of [Service.Call]
// from there.
type toolCall struct {
	*Service
	tool *callable
	req  Request
}

// perform makes a call that was checked, once a person has approved it.
func (c toolCall) perform(ctx context.Context) (abi.Result, error) {
	asked := Approval{Session: c.req.Session, Args: c.req.Args}
	from := originOf(ctx)
	if from != nil {
		asked.Caller = from.tool.Name
	}
	switch err := ApprovalsOf(c.Service).approve(ctx, c.tool, asked); {
	case errors.Is(err, errWaits):
		return c.hold(ctx, asked)
	case err != nil:
		return explain(err)
	}

	limits := c.tool.rules.limits(c.req.Limits, c.tool.Tool)
	call := host.Call{
		ID: "call_" + uuid.NewString(), Session: c.req.Session, Args: c.req.Args, Locale: c.req.Locale, Policy: limits.policy(),
		Observers: host.Observers{Stdout: c.req.Stdout, Stderr: c.req.Stderr, Progress: c.req.Progress}, Services: host.Services{Ask: c.req.Ask},
	}
	c.req.note.id = call.ID
	if from != nil {
		return c.run(ctx, c.tool, from.of(call))
	}
	budget, ok := c.tool.rules.budget(c.tool, limits, c.req)
	if !ok {
		budget.deadline = limits.Timeout
	}
	holds := c.tool.calls() && c.req.Session != "" && limits.Timeout <= c.tool.rules.most.Background // it becomes a run if it makes a call that is held
	return c.connecting(ctx, func() (abi.Result, error) {
		if (ok || holds || c.req.Key != "") && !c.req.DryRun {
			return c.callParking(ctx, call, budget)
		}
		return c.run(ctx, c.tool, call)
	})
}

// admit makes the checks before a plugin's tool runs, except for a person's
// approval.
func (s *Service) admit(tool *callable, args Args) error {
	if problems := tool.CheckObject(args); len(problems) > 0 {
		return badArgs(tool.Name, problems)
	}
	if err := tool.Denied(); err != nil {
		return &host.CallError{Plugin: tool.source(), Tool: tool.Tool.Name, Name: tool.Name, Err: err}
	}
	return nil
}

// run runs an admitted tool, checks its result and reports its narration.
func (s *Service) run(ctx context.Context, tool *callable, call host.Call) (abi.Result, error) {
	call, narrate := narrated(tool, call)
	r, err := s.runChecked(ctx, tool, call)
	if !errors.Is(err, plugins.ErrReplaced) { // else nothing has run
		narrate(r)
	}
	if originOf(ctx) != nil { // a link is for a user, and no plugin's business; the caller's cost includes its own
		return r, err
	}
	s.telemetry.Used(tool.Name, r.Usage.Fuel, r.Usage.CPU)
	return s.links.explain(ctx, tool, call.Session, r), err
}

// runChecked runs an admitted tool and checks its result.
func (s *Service) runChecked(ctx context.Context, tool *callable, call host.Call) (abi.Result, error) {
	call.Ask, call.Values, call.KV = checkedAsk(call.Ask), s.valuesFor(call, s.log), s.kvFor(tool, call, s.log)
	call.Secrets, call.May = secretsFor(s, tool, call), background.MayAct
	refused := newRefusals(s.audit, tool, call)
	defer refused.write()
	call.CallTool = s.callTool(tool, call, refused)
	if tool.plugin != nil {
		call.SearchTools = s.searchFor(tool)
	}
	call.Ungranted = refused.add
	call.HTTP = func(x host.Exchange) { s.audit.exchange(tool, call, x) }

	r, err := tool.Call(ctx, call)
	if s.soon(err) {
		return explain(replacing(tool))
	}
	if err != nil || r.Kind != abi.Success {
		return r, err
	}

	if problems := tool.CheckResult(r.Value); len(problems) > 0 {
		err := fmt.Errorf("%w: the result of %s does not fit its output_schema: %s", host.ErrABI, tool.Name, list(problems))
		s.log.Error("the plugin broke", "plugin", tool.source(), "tool", tool.Tool.Name, "call", call.ID, "error", err)
		return abi.Result{Kind: abi.Internal, Error: abi.InternalMessage, Usage: r.Usage}, err
	}
	return r, nil
}
