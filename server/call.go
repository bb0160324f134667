package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// MaxLocale bounds the locale of a call, in bytes.
const MaxLocale = 64

// Request is one call of a tool.
type Request struct {
	Session string          // whose call it is; background runs belong to it
	Tool    string          // as in Definitions
	Args    json.RawMessage // an object; nil is {}
	Parsed  Args            // the arguments of a caller that has read them already, instead of Args
	// Limits are the caller's own, and never go beyond the operator's maximum. A
	// parked call that is run again after its host has died has them too.
	Limits Limits
	Locale string // BCP 47, at most MaxLocale bytes; empty is none
	// DryRun lets spawn_background and stop_background only say what they
	// would do. Other tools do not know it: a call of one is refused unless it
	// is readonly.
	DryRun bool

	// ParkAfter is how long the caller waits before a call that may be parked
	// goes on in the background; 0 is as long as the service says, which is also
	// the longest.
	ParkAfter time.Duration
	// OnPark is called, before Call returns, with the run the call has become.
	// Nil ignores it: the result says so too.
	OnPark func(wire.Run)
	// Ask puts questions of the plugin to the user of the caller, and waits for
	// the answers: see host.Call. It is not called after Call has returned.
	// ErrAskAgain says that the caller ends the call, to make it again with the
	// answers. What it answers is checked as by CheckAnswer, and the plugin never
	// sees what does not fit. Nil denies all questions. With AskLater a call that was parked
	// asks all the same: [Service.Questions] and [Service.Answer] are for that.
	Ask      func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	AskLater bool

	// Stdout, Stderr and Progress follow a plugin's tool while it runs, see
	// host.Call.
	Stdout, Stderr io.Writer
	Progress       func(Progress)
}

// Progress is how far a call says it is.
type Progress = host.Progress

// Args are arguments that were read strictly: a JSON object in UTF-8 without
// repeated names. What gets them does not read them again to check that.
type Args = strictjson.Object

// ParseArgs reads arguments strictly. It keeps args, which must not change.
func ParseArgs(args []byte) (Args, error) { return strictjson.Parse(args) }

var noArgs, _ = ParseArgs([]byte("{}"))

// parseArgs returns the arguments of a call of a tool, which may have been read
// already. The error is for the agent.
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
		return Args{}, &ArgsError{tool, []abi.Problem{wrong.Problem}}
	}
	return parsed, err
}

// Call runs a tool, one of a plugin or one of the agent's own, and waits for
// it. A tool that may be parked (see [RunsConfig.Park]) is not waited for longer
// than that says: then it goes on as a background run of the session, and the
// value of the result is {"type":"background","task_id":…} with what an agent
// has to know. Nothing is written to req's Stdout, Stderr and Progress after
// Call has returned.
//
// The Result is what the agent is to see, valid in every case. The error is
// nil unless there was no result of the tool: it matches [plugins.ErrNoTool],
// [ErrApproval], one of the reasons of package host, or a context error.
// Arguments that do not fit are a tool error, so that a model can mend them.
func (s *Service) Call(ctx context.Context, req Request) (abi.Result, error) {
	var err error
	if req.Parsed, err = parseArgs(req.Tool, req.Parsed, req.Args); err != nil {
		return explain(err)
	}
	req.Args = req.Parsed.Raw()
	if len(req.Locale) > MaxLocale {
		return explain(&background.FieldError{Field: "locale", Problem: fmt.Sprintf("longer than %d bytes", MaxLocale)})
	}
	if a := s.agentTool(req.Tool); a != nil {
		return a.call(ctx, s, req)
	}
	for {
		r, err := s.callPlugin(ctx, req)
		if !errors.Is(err, plugins.ErrReplaced) { // else nothing has run, and there is another one
			return r, err
		}
	}
}

// callPlugin makes all checks before a call of a plugin's tool, and the call.
func (s *Service) callPlugin(ctx context.Context, req Request) (abi.Result, error) {
	if s.closed.Load() {
		return explain(errShutdown)
	}
	tool, err := s.registry.Lookup(req.Tool)
	if err != nil {
		return explain(err)
	}
	if req.DryRun && !tool.Tool.Hints.Readonly {
		return toolError("dry run: %s is not called, because it is not readonly", tool.Name), nil
	}
	if err := s.admit(tool, req.Parsed); err != nil {
		return explain(err)
	}
	if err := s.approve(ctx, tool, Approval{Session: req.Session, Args: req.Args}); err != nil {
		return explain(err)
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return explain(err)
	}

	limits := s.rules.limits(req.Limits, tool.Tool)
	call := host.Call{
		ID: "call_" + id.String(), Session: req.Session, Args: req.Args, Locale: req.Locale, Policy: limits.policy(),
		Observers: host.Observers{Stdout: req.Stdout, Stderr: req.Stderr, Progress: req.Progress}, Services: host.Services{Ask: req.Ask},
	}
	if budget, ok := s.rules.budget(tool, limits, req); ok {
		return s.callParking(ctx, tool, call, budget, req)
	}
	return s.run(ctx, tool, call)
}

// admit is the one set of checks before a plugin's tool runs, at every door,
// but for a person's approval.
func (s *Service) admit(tool *plugins.Tool, args Args) error {
	if problems := tool.CheckObject(args); len(problems) > 0 {
		return &ArgsError{tool.Name, problems}
	}
	if err := tool.Plugin.Denied(); err != nil {
		return &host.CallError{Plugin: tool.Plugin.Manifest.Name, Tool: tool.Tool.Name, Err: err}
	}
	return nil
}

// approve asks a person, if the tool wants that. It comes last: nobody is asked
// about a call that would be refused anyway.
func (s *Service) approve(ctx context.Context, tool *plugins.Tool, a Approval) error {
	if tool.Tool.Approval != abi.ApprovalRequired {
		return nil
	}
	if s.cfg.Approve == nil {
		return fmt.Errorf("%w, and nobody can be asked here", ErrApproval)
	}
	a.Tool = tool.Name
	if err := s.cfg.Approve(ctx, a); err != nil {
		return fmt.Errorf("%w: %w", ErrApproval, err)
	}
	return nil
}

// run runs an admitted tool and checks what it answers.
func (s *Service) run(ctx context.Context, tool *plugins.Tool, call host.Call) (abi.Result, error) {
	call.Ask = checkedAsk(call.Ask)
	r, err := tool.Call(ctx, call)
	if s.soon(err) {
		return explain(replacing(tool))
	}
	if err != nil || r.Kind != abi.Success {
		return r, err
	}
	if problems := tool.CheckResult(r.Value); len(problems) > 0 {
		err := fmt.Errorf("%w: the result of %s does not fit its output_schema: %s", host.ErrABI, tool.Name, list(problems))
		s.log.Error("the plugin broke", "plugin", tool.Plugin.Manifest.Name, "tool", tool.Tool.Name, "call", call.ID, "error", err)
		return abi.Result{Kind: abi.Internal, Error: abi.InternalMessage, Usage: r.Usage}, err
	}
	return r, nil
}
