package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
)

// suspendAfter is how long a run waits before it gives up its instance and its place, unless
// others need them. Only tests change it.
var suspendAfter = 250 * time.Millisecond

// A suspension lets a run give up its instance while it waits. The tools that it calls and
// that must not be called twice are runs of their own, its children, so that the host
// knows after a crash what became of them.
type suspension struct {
	service *Service
	ctx     context.Context // of the run's work
	tool    *callable
	live    *live // the caller's end of a direct call; nil: it is a run from its start
	anew    bool  // the run may begin anew

	session  string
	children map[int32]background.Child // of operations that have not begun
	question atomic.Int32               // the operation whose open questions are kept; 0: none has
	secret   bool                       // it has called a tool with secret arguments
	kept     *background.Suspension     // what the run continues from; nil before it is suspended
}

// into lets a call be suspended, and has it continue from where its run was suspended last.
func (s *suspension) into(call host.Call) host.Call {
	s.session, s.children = call.Session, map[int32]background.Child{}
	call.Continue = background.StateOf(s.ctx)

	call.Suspend = &host.Suspend{After: suspendAfter, Name: s.name, Anew: s.anew, Live: s.isRun, Short: s.short, Keep: s.keep, Tool: s.manner, Await: s.await, Image: s.image}
	if s.live != nil {
		call.Suspend.Revived = s.live.parked
	}
	if ask := call.Ask; ask != nil {
		call.Suspend.Ask = func(ctx context.Context, op int32, q abi.Questions) (abi.Answers, error) {
			return checkedAsk(ask)(context.WithValue(ctx, askingKey{}, &asking{operation: op, open: &s.question}), q)
		}
	}
	hints := s.tool.Tool.Hints
	call.Suspend.Repeats = hints.Readonly || hints.Idempotent
	call.Suspend.Drop = func() error { return background.DropState(s.ctx) }
	if call.Attempt > 1 && call.Continue == nil {
		s.forget()
	}
	return call
}

// forget removes what the run asked before it began again: its operations have other
// numbers now.
func (s *suspension) forget() {
	for {
		asked, version, err := background.Question(s.ctx)
		if err == nil && asked != nil {
			err = background.SaveQuestion(s.ctx, json.RawMessage("[]"), version)
		}
		switch {
		case errors.Is(err, engine.ErrConflict): // an answer came meanwhile
			continue
		case err != nil:
			s.service.log.Warn("what a run asked before it began again is kept", "task_id", s.name(), "error", err)
		}
		return
	}
}

// anew reports whether a run of the tool may begin anew after a crash while it has done
// nothing that must not be done twice: the host knows of all that its plugin does.
func (t *callable) anew() bool { return t.plugin != nil && len(t.plugin.Grant.Files) == 0 }

// isRun reports whether the call is a run that can be suspended. The state of one with
// secret arguments, or that has called a tool with some, would contain them.
func (s *suspension) isRun() bool {
	run, ok := background.RunOf(s.ctx)
	return ok && !run.Secret && !s.secret && (s.live == nil || isClosed(s.live.parked))
}

// short reports whether other runs need the place of this one.
func (s *suspension) short() bool { return background.Crowded(s.ctx) }

// image is how the plugin of the run started when the run was suspended.
func (s *suspension) image(digest string) ([]byte, error) {
	version, err := s.tool.Version()
	if err != nil {
		return nil, err
	}
	return s.service.versions.image(s.ctx, version, digest)
}

// outcome is the end of the work of a run that was suspended.
func (s *suspension) outcome() background.Outcome { return background.Outcome{Suspend: s.kept} }

// keep stores a state, and the runs that begin with it.
func (s *suspension) keep(k host.Kept) error {
	if err := s.service.versions.keep(s.ctx, s.tool.plugin, k.Image); err != nil {
		if !k.Hold {
			return fmt.Errorf("keeping its plugin: %w", err)
		}
		s.service.log.Warn("a run continues after a crash only with the plugin's file as it is: it was not kept", "task_id", s.name(), "plugin", s.tool.source(), "error", err)
	}
	if !k.Hold && len(k.Asks) > 0 && !slices.Contains(k.Asks, s.question.Load()) {
		return errors.New("what it asks was not kept")
	}
	stored := background.Suspension{State: k.State}
	for _, op := range k.Begin {
		stored.Children = append(stored.Children, s.children[op])
		callLogOf(s.ctx).begin(0, s.children[op].Tool, s.id(op)) // the state that is stored has it
	}
	err := background.SaveState(s.ctx, stored)
	if limit, ok := errors.AsType[*engine.LimitError](err); ok {
		err = &host.Refusal{Code: abi.CallLimit, Message: reason.LimitText(limit)}
	}
	if err != nil {
		for _, op := range k.Begin {
			callLogOf(s.ctx).endRun(s.id(op), abi.Result{}, err)
		}
		return err
	}

	for _, op := range k.Begin {
		s.asked(s.children[op])
		delete(s.children, op)
	}
	if !k.Hold {
		s.kept = &background.Suspension{Wake: k.Until}
		for _, op := range k.Await {
			s.kept.Await = append(s.kept.Await, s.id(op))
		}
	}
	return nil
}

// asked says that a child waits for approval, if it does.
func (s *suspension) asked(child background.Child) {
	if child.Held == "" {
		return
	}
	id := background.ChildID(s.name(), child.Op)
	s.service.audit.Decided(audit.Asked, record.Held{Session: s.session, Tool: child.Tool, Run: id}, "", "")
	s.service.log.Warn("a call waits for approval: toolhost approve shows it", "task_id", id, "tool", child.Tool, "session", s.session)
}

// name is the id of the run.
func (s *suspension) name() string {
	run, _ := background.RunOf(s.ctx)
	return run.ID
}

// id is the id of the child that an operation begins.
func (s *suspension) id(op int32) string { return background.ChildID(s.name(), s.number(op)) }

// number tells an operation from those of attempts before the run began again.
func (s *suspension) number(op int32) int64 {
	run, _ := background.RunOf(s.ctx)
	return int64(max(1, run.Begun)-1)<<31 + int64(op)
}

// manner says how a call of a tool is made. What is refused is refused when it is called.
func (s *suspension) manner(op int32, t host.ToolCall) host.Manner {
	tool, err := s.service.lookup(t.Tool)
	if slices.Contains(agentNames, t.Tool) || err != nil {
		return host.Again
	}
	if !s.isRun() && tool.cfg.Approvals.decide(tool) != DecideAsk {
		return host.Once
	}
	args, err := parseArgs(t.Tool, Args{}, t.Args)
	if err == nil {
		err = tool.admit(args)
	}
	if err == nil {
		err = (&origin{tool: s.tool}).admit(tool, s.service.annotate(tool))
	}
	if err != nil {
		return host.Again
	}

	if _, secret := tool.PublicArgs(args.Raw()); secret {
		s.secret = true
	}
	hints, with := tool.Tool.Hints, host.Once
	if hints.Readonly || hints.Idempotent {
		with = host.Again
	}
	asks, err := s.asks(tool, args)
	if asks && err == nil && op > 0 {
		err = s.live.park(s.ctx)
	}
	if !s.isRun() {
		return host.Once
	}
	if err != nil || op == 0 || with == host.Again && !asks && !hints.SupportsBackground {
		return with
	}
	child, err := s.child(tool, args, t)
	if err == nil && asks {
		child, err = s.service.Approvals().held(s.ctx, s.session, child)
	}
	if err != nil || child.Stored != nil {
		return with
	}
	if !asks && tool.cfg.Approvals.decide(tool) == DecideAsk { // any other manner is a call, which says so itself
		s.service.audit.Decided(audit.Approved, record.Held{Session: s.session, Tool: tool.Name}, "", "kept")
	}
	s.children[op] = background.Child{Op: s.number(op), SpawnRequest: child}
	return host.Apart
}

// asks reports whether a call of a tool waits until a person has approved it. The error
// says that it is refused, or that the program decides.
func (s *suspension) asks(tool *callable, args Args) (bool, error) {
	cfg := tool.cfg
	switch cfg.Approvals.decide(tool) {
	case DecideAllow:
		return false, nil
	case DecideDeny:
		return false, ErrApproval
	}
	if s.service.Approvals().kept(s.ctx, tool, Approval{Session: s.session, Tool: tool.Name, Args: args.Raw(), Caller: s.tool.Name}) {
		return false, nil
	}
	if cfg.Approve != nil || !cfg.Approvals.Ask {
		return false, ErrApproval
	}
	return true, nil
}

// child is the run of a call that was checked.
func (s *suspension) child(tool *callable, args Args, t host.ToolCall) (background.SpawnRequest, error) {
	version, err := s.service.version(tool)
	if err != nil {
		return background.SpawnRequest{}, err
	}
	run, _ := background.RunOf(s.ctx)
	own, err := termsIn(run)
	if err != nil {
		return background.SpawnRequest{}, err
	}
	c := call{tool: tool, outer: &origin{tool: s.tool, fuel: t.Fuel}}
	c.Args, c.Limits.Timeout, c.Locale = args.Raw(), t.Timeout, own.Locale
	return c.limited().asLaterRun(s.ctx, version), nil
}

// await waits for the end of the child that an operation has begun. A child that nobody waits
// for any more is stopped, unless the run waits for it later.
func (s *suspension) await(ctx context.Context, op int32, _ host.ToolCall) (abi.Result, error) {
	id, follow := s.id(op), s.service.follower
	r, err := follow.awaitChild(ctx, s.session, id)
	if ctx.Err() == nil || withdrawn(ctx) {
		callLogOf(s.ctx).endRun(id, r, err)
	}
	if withdrawn(ctx) {
		follow.withdraw(ctx, s.session, id, "parent", "the run that called it does not wait for it any more")
	}
	return r, err
}

// withdrawn reports whether a context ended because its operation is not waited for any more.
func withdrawn(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, host.ErrWithdrawn) || errors.Is(cause, context.DeadlineExceeded)
}

// ofChild is the end of a child for the run that waits for it.
func ofChild(run engine.Run) (abi.Result, error) {
	if run.Held != "" {
		return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: keptResult(run).Error}
	}
	if run.Error != nil {
		switch run.Error.Kind {
		case engine.KindOrphaned, engine.KindInterrupted:
			return abi.Result{}, lost(run.Error.Message)
		case engine.KindRejected:
			return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: run.Error.Message}
		}
	}
	return keptResult(run), nil
}

// lost is the end of a call of which only its host knew whether it took effect.
func lost(why string) error {
	return &host.Refusal{Code: abi.CallLost, Message: fmt.Sprintf("the call had begun when its host ended (%s)%s", why, textUnknown)}
}
