package runs

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
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/calllog"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/shape"
)

// SuspendAfter is how long a run waits before it gives up its instance and its slot; if others
// need them, it gives them up at once. Only tests change it.
var SuspendAfter = 250 * time.Millisecond

// A Suspension lets a run give up its instance while it waits. If the run calls a tool
// that must not be called twice, the call becomes a child run, so that the host knows
// its outcome after a crash.
type Suspension struct {
	executor    *Executor
	ctx         context.Context // context of the run's work
	tool        *catalog.Tool
	caller      Attached // caller's end of a direct call; nil for a run from its start
	restartable bool     // the run may start over

	session  string
	locale   string
	ask      question.Func              // nil: nobody can be asked
	children map[int32]background.Child // children of operations that have not begun
	question atomic.Int32               // number of the operation whose open questions are stored; 0: none
	secret   bool                       // a tool was called with secret arguments
	kept     *background.Suspension     // state that the run continues from; nil before it is suspended
}

// An Attached is the caller's end of a direct call, which may have become a run.
type Attached interface {
	Into(call host.Call) host.Call  // returns a call that also reports to the caller, while the caller waits
	Park(ctx context.Context) error // makes the call a run, and returns once it is one
	Parked() <-chan struct{}        // closed when the call has become a run
}

// A ChildCall is a call that a tool makes and that may become a child run.
type ChildCall struct {
	Caller        *catalog.Tool
	Session, Tool string
	Args          json.RawMessage
	Timeout       time.Duration // time limit; 0: none of its own
	Fuel          int64         // the most fuel that it may use
	Locale        string
}

// A Child is a call that a tool makes, that has passed its checks, and that can become a child
// run.
type Child struct {
	Tool *catalog.Tool
	Args catalog.Args
	Run  func() (background.SpawnRequest, error) // returns the run that the call can become
}

// into lets a call be suspended, and continues it from where its run was last suspended.
func (s *Suspension) into(call host.Call) host.Call {
	s.session, s.locale, s.ask = call.Session, call.Locale, question.Checked(call.Ask)
	call.Suspend, call.Continue = s, background.StateOf(s.ctx)
	if call.Attempt > 1 && call.Continue == nil {
		if err := question.Forget(s.ctx); err != nil {
			s.executor.Log.Warn("what a run asked before it began again is kept", "task_id", s.name(), "error", err)
		}
	}
	return call
}

// Terms implements host.Suspension.
func (s *Suspension) Terms() host.SuspensionTerms {
	hints := s.tool.Tool.Hints
	return host.SuspensionTerms{
		After: SuspendAfter, Restartable: s.restartable, Repeats: hints.Readonly || hints.Idempotent, Asks: s.ask != nil,
	}
}

// Status implements host.Suspension.
func (s *Suspension) Status() host.SuspensionStatus {
	status := host.SuspensionStatus{Name: s.name(), Live: s.isRun(), UnderPressure: background.UnderPressure(s.ctx)}
	if s.caller != nil {
		status.Revived = s.caller.Parked()
	}
	return status
}

// isRun reports whether the call is a run that can be suspended. A run with secret
// arguments, or that called a tool with some, cannot: its state would contain them.
func (s *Suspension) isRun() bool {
	if s.caller != nil {
		select {
		case <-s.caller.Parked():
		default:
			return false
		}
	}
	run, ok := background.RunOf(s.ctx)
	return ok && !run.Secret && !s.secret
}

// Image returns the initial memory of the plugin that the run was suspended with.
func (s *Suspension) Image(digest string) ([]byte, error) {
	version, err := s.tool.Version()
	if err != nil {
		return nil, err
	}
	return s.executor.Versions.Image(s.ctx, version, digest)
}

// Outcome returns the outcome of a suspended run.
func (s *Suspension) Outcome(sink *output.Sink, r abi.Result) background.Outcome {
	sink.Cost(shape.CostOf(r.Usage))
	return background.Outcome{Suspend: s.kept}
}

// Keep stores a state of the run, together with the child runs that begin with it.
func (s *Suspension) Keep(k host.SavedState) error {
	if err := s.executor.Versions.Keep(s.ctx, s.tool.Plugin, k.Image); err != nil {
		if !k.Hold {
			return fmt.Errorf("keeping its plugin: %w", err)
		}
		s.executor.Log.Warn("a run continues after a crash only with the plugin's file as it is: it was not kept", "task_id", s.name(), "plugin", s.tool.PluginName(), "error", err)
	}
	if !k.Hold && len(k.Asks) > 0 && !slices.Contains(k.Asks, s.question.Load()) {
		return errors.New("what it asks was not kept")
	}
	stored := background.Suspension{State: k.State}
	for _, op := range k.Begin {
		stored.Children = append(stored.Children, s.children[op])
		calllog.Of(s.ctx).Begin(0, s.children[op].Tool, s.id(op)) // the stored state includes it
	}
	err := background.SaveState(s.ctx, stored)
	if limit, ok := errors.AsType[*engine.LimitError](err); ok {
		err = &host.Refusal{Code: abi.CallLimit, Message: reason.LimitText(limit)}
	}
	if err != nil {
		for _, op := range k.Begin {
			calllog.Of(s.ctx).EndRun(s.id(op), abi.Result{}, err)
		}
		return err
	}

	for _, op := range k.Begin {
		s.notifyHeld(s.children[op])
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

// Drop removes the stored state of the run.
func (s *Suspension) Drop() error { return background.DropState(s.ctx) }

// Ask asks the user on behalf of an operation, so that its questions are kept while the
// run is suspended.
func (s *Suspension) Ask(ctx context.Context, op int32, q abi.Questions) (abi.Answers, error) {
	return s.ask(question.WithOperation(ctx, op, &s.question), q)
}

// notifyHeld notifies operators that a child waits for approval, if it does.
func (s *Suspension) notifyHeld(child background.Child) {
	if child.Held != "" {
		s.executor.Follower.Approvals.NotifyHeld(engine.Run{ID: background.ChildID(s.name(), child.Op), Session: s.session, Tool: child.Tool})
	}
}

// name returns the id of the run.
func (s *Suspension) name() string {
	run, _ := background.RunOf(s.ctx)
	return run.ID
}

// id returns the id of the child run that an operation starts.
func (s *Suspension) id(op int32) string { return background.ChildID(s.name(), s.number(op)) }

// number returns a number that no operation had in attempts from before the run started
// over.
func (s *Suspension) number(op int32) int64 {
	run, _ := background.RunOf(s.ctx)
	return int64(max(1, run.Begun)-1)<<31 + int64(op)
}

// CrashPolicy implements host.Suspension. It decides how a nested call survives a crash, and
// plans the child run of one that is detached. Calls that would be refused are left to fail
// when they are made.
func (s *Suspension) CrashPolicy(op int32, t host.ToolCall) host.CrashPolicy {
	tool, err := s.executor.Catalog.Lookup(t.Tool)
	if slices.Contains(agent.Names, t.Tool) || err != nil {
		return host.RepeatedOnCrash
	}
	if decision, _ := s.executor.Checker.Rules(tool).Policy.Rule(tool); !s.isRun() && decision != approval.Ask {
		return host.LostOnCrash
	}
	child, err := s.child(t)
	if err != nil {
		return host.RepeatedOnCrash
	}

	if _, secret := child.Tool.PublicArgs(child.Args.Raw()); secret {
		s.secret = true
	}
	hints, with := child.Tool.Tool.Hints, host.LostOnCrash
	if hints.Readonly || hints.Idempotent {
		with = host.RepeatedOnCrash
	}
	verdict, err := s.judge(child)
	asks := verdict == approval.Held
	if asks && err == nil && op > 0 && s.caller != nil {
		err = s.caller.Park(s.ctx)
	}
	if !s.isRun() {
		return host.LostOnCrash
	}
	if err != nil || op == 0 || with == host.RepeatedOnCrash && !asks && !hints.SupportsBackground {
		return with
	}
	if !s.detach(op, child, verdict) {
		return with
	}
	return host.Detached
}

// detach plans a call as a child run, which is stored with the next state. It reports whether
// the call can be one.
func (s *Suspension) detach(op int32, child Child, verdict approval.Verdict) bool {
	run, err := child.Run()
	if err != nil || run.Stored != nil {
		return false
	}
	if verdict == approval.Held {
		bound, err := s.executor.Follower.Approvals.Bind(s.ctx, s.session, run.Tool, run.Stored != nil)
		if err != nil {
			return false
		}
		if run, err = held(run, bound); err != nil {
			return false
		}
	}

	if verdict == approval.Covered { // a call that is not detached records it itself
		s.executor.Audit.Decided(audit.Approved, record.Held{Session: s.session, Tool: run.Tool}, "", "kept")
	}
	if s.children == nil {
		s.children = map[int32]background.Child{}
	}
	s.children[op] = background.Child{Op: s.number(op), SpawnRequest: run}
	return true
}

// judge returns the verdict on a call to a tool. An error means that it is refused, or that
// the program decides.
func (s *Suspension) judge(c Child) (approval.Verdict, error) {
	verdict, _ := s.executor.Checker.Judge(s.ctx, c.Tool, approval.Call{Session: s.session, Tool: c.Tool.Name, Args: c.Args.Raw(), Caller: s.tool.Name})
	switch verdict {
	case approval.Free, approval.Covered, approval.Held:
		return verdict, nil
	}
	return verdict, reason.ErrApproval
}

// child passes a call through its checks.
func (s *Suspension) child(t host.ToolCall) (Child, error) {
	return s.executor.Child(s.ctx, ChildCall{Caller: s.tool, Session: s.session, Tool: t.Tool, Args: t.Args, Timeout: t.Timeout, Fuel: t.Fuel, Locale: s.locale})
}

// Await waits until the child run that an operation started has ended. It stops an
// abandoned child, unless the run will wait for it later.
func (s *Suspension) Await(ctx context.Context, op int32, _ host.ToolCall) (abi.Result, error) {
	id, follow := s.id(op), s.executor.Follower
	r, err := follow.awaitChild(ctx, s.session, id)
	if ctx.Err() == nil || question.Withdrawn(ctx) {
		calllog.Of(s.ctx).EndRun(id, r, err)
	}
	if question.Withdrawn(ctx) {
		follow.abandon(ctx, s.session, id)
	}
	return r, err
}
