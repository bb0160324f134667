package guestcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/calltree"
	"github.com/toolhost/toolhost/host/internal/meter"
)

// ToolCall is a plugin's call to another tool.
type ToolCall struct {
	Tool    string           // name of a granted tool, as agents know it
	Args    json.RawMessage  // the plugin's arguments; nil means {}
	Timeout time.Duration    // time limit; 0 means the tool's own
	Fuel    int64            // maximum fuel of the nested call in units, even if that call is [Detached]
	Caller  *calltree.Caller // value for Call.Caller, unless the nested call is [Detached]
}

// toolOperations call other tools, and find them.
var toolOperations = map[string]Operation{
	"tool.call":   {allowed: func(*Call) bool { return true }, begin: toolOperation},
	"tool.search": {allowed: func(*Call) bool { return true }, begin: searchOperation},
}

const (
	// maxToolRequest is the largest request: the arguments and the fields around them.
	maxToolRequest = abi.MaxToolArgs + 1<<10
	// parseCost is the extra cost of parsing JSON, compared with copying it.
	parseCost = 4 * meter.BytesPerUnit
	// lateTime is how long a nested call may take to end after the first call was asked
	// to stop. The first call then has time left to finish with partial results. Each
	// caller gives its nested call lateStep less than it has itself.
	lateTime = time.Second
	lateStep = 100 * time.Millisecond
)

// errLate is the cause that ends a nested call that did not stop in time.
var errLate = fmt.Errorf("%w: the call that waits for it is being stopped", context.Canceled)

// toolOperation takes {"tool", "args", "timeout_ms"}, calls another tool, and answers
// with its outcome. The call's time limit keeps running.
func toolOperation(c *Call, request []byte) (Work, int32) {
	if len(request) > maxToolRequest {
		return nil, c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("the arguments of a tool have at most %d bytes", abi.MaxToolArgs))
	}
	if !c.Tree.First().Count() {
		return nil, c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("at most %d calls of tools may begin with one call", abi.MaxToolCalls))
	}
	c.Meter.Charge(readCost + parseCost*len(request))
	t, err := ReadToolCall(request)
	if err != nil {
		return nil, c.Refuse(abi.CallInvalid, "invalid", err.Error())
	}

	if code := c.refuseTool(t.Tool); code != 0 {
		return nil, code
	}
	left := c.Fuel - c.Meter.Used()
	c.Tree.Allow(left, int64(c.Meter.Memory.Peak))
	t.Caller, t.Fuel = c.Tree, left
	c.Effect.survive(c, t)
	return func(ctx context.Context) End {
		r, err := c.makeCall(ctx, t)
		canceled := ctx.Err() != nil
		return End{Bytes: len(r.Value), Cut: canceled && r.Kind == abi.CanceledKind, Finish: func() int32 { return c.FinishTool(t.Tool, r, err, canceled) }}
	}, 0
}

// survive decides how a nested call survives a crash.
func (b *Effect) survive(c *Call, t ToolCall) {
	policy, suspendable := c.Suspension.CrashPolicy(b.ID, t)
	if !suspendable {
		return
	}
	b.AtMostOnce, b.Detached = policy != RepeatedOnCrash, policy == Detached && b.ID > 0
}

// ReadToolCall reads the request of the operation tool.call.
func ReadToolCall(request []byte) (ToolCall, error) {
	var in struct {
		Tool      string          `json:"tool"`
		Args      json.RawMessage `json:"args"`
		TimeoutMS int64           `json:"timeout_ms"`
	}
	if decodeStrict(request, &in) != nil || !utf8.Valid(request) || in.Tool == "" || in.TimeoutMS < 0 {
		return ToolCall{}, errors.New(`expected {"tool": name, "args": object, "timeout_ms": milliseconds}, where the last two are optional`)
	}
	return ToolCall{Tool: in.Tool, Args: in.Args, Timeout: time.Duration(min(in.TimeoutMS, 1<<40)) * time.Millisecond}, nil
}

// FinishTool responds to the operation tool.call. The guest pays for the usage of the tool.
func (c *Call) FinishTool(name string, ended abi.Result, err error, canceled bool) int32 {
	c.Tree.Pay() // a call that has to end ends here
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return c.Refuse(refusal.Code, RefusalNames[refusal.Code], refusal.Message)
	}
	if ended.Kind == abi.CanceledKind && (c.IsStopping() || canceled) {
		return c.RefuseCanceled()
	}
	return c.answerTool(name, ended)
}

// refuseTool refuses a tool call that is not allowed, or returns 0.
func (c *Call) refuseTool(name string) int32 {
	if !c.Grant.AllowsTool(name) {
		name = answer.Clip(name, abi.MaxAgentName)
		c.beyond.count(name)
		return c.deny(fmt.Sprintf("the tool %q is not granted to this plugin: have the operator add it to grants.%s.tools, and name it in the plugin's needs", name, c.Plugin))
	}

	switch {
	case c.CallTool == nil:
		return c.deny("no other tools can be called here")
	case c.IsStopping():
		return c.RefuseStopped()
	case c.Tree.Depth() >= abi.MaxToolDepth:
		return c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("at most %d tools can call each other in turn", abi.MaxToolDepth))
	}
	return 0
}

// maxUngranted is the number of ungranted tools that are reported by name in one call.
// otherTools stands for the rest.
const (
	maxUngranted = 16
	otherTools   = "(others)"
)

// ungranted counts the calls to ungranted tools, by name.
type ungranted struct {
	names []string // tools, in the order of their first calls
	times map[string]int
}

func (u *ungranted) count(name string) {
	if u.times == nil {
		u.times = map[string]int{}
	}
	if u.times[name] == 0 && len(u.names) >= maxUngranted {
		name = otherTools
	}
	if u.times[name]++; u.times[name] == 1 {
		u.names = append(u.names, name)
	}
}

// ReportUngranted reports to the operator which tools the plugin called without a grant,
// one line per tool.
func (c *Call) ReportUngranted() {
	for _, name := range c.beyond.names {
		times := c.beyond.times[name]
		c.Log.Warn("a plugin called a tool that it was not granted", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "session", c.Session,
			"wants", name, "times", times, "grant", fmt.Sprintf("grants.%s.tools", c.Plugin))
		if c.OnUngranted != nil {
			c.OnUngranted(name, times)
		}
	}
}

// makeCall calls a tool, and ends that call soon after this call was asked to stop.
func (c *Call) makeCall(parent context.Context, t ToolCall) (abi.Result, error) {
	ctx, done := c.UntilLate(parent)
	defer done()
	return c.CallTool(ctx, t)
}

// UntilLate returns a context that ends soon after the call is asked to stop, or when done
// is called.
func (c *Call) UntilLate(parent context.Context) (_ context.Context, done func()) {
	if c.Stopping == nil {
		return parent, func() {}
	}

	ctx, cancel := context.WithCancelCause(parent)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-c.Stopping:
		case <-ctx.Done():
			return
		}
		late := time.AfterFunc(lateTime-time.Duration(c.Tree.Depth())*lateStep, func() { cancel(errLate) })
		defer late.Stop()
		<-ctx.Done()
	}()
	return ctx, func() {
		cancel(nil)
		<-watching
	}
}

// answerTool responds with the outcome of a tool call, if the guest has room for it.
func (c *Call) answerTool(name string, ended abi.Result) int32 {
	answer := abi.ToolAnswer{Kind: ended.Kind, Content: ended.Content, Error: ended.Error, Limit: ended.Limit, Connection: ended.Connection}
	if ended.Kind == abi.Success {
		answer.Value = ended.Value
	}
	if int64(len(answer.Value)) > c.Memory {
		return c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("the answer of %s has more than %d bytes, the memory limit of this plugin's call", name, c.Memory))
	}
	c.Meter.Charge(parseCost * len(answer.Value))
	response := JSON(answer)
	if int64(len(response)) > c.Memory {
		return c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("the answer of %s has more than %d bytes, the memory limit of this plugin's call", name, c.Memory))
	}
	if err := c.Meter.Hold(len(response)); err != nil {
		return c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("the answer of %s has %d bytes, and the host has no memory for it now", name, len(response)))
	}
	return c.respond(response)
}

// CrashPolicy is the crash policy of a nested call in a call that can be suspended.
type CrashPolicy int

// The crash policies.
const (
	LostOnCrash     CrashPolicy = iota // part of the call that makes it, and made at most once: it begins only after a state that records it is stored, and a crash loses it
	RepeatedOnCrash                    // part of the call that makes it, and repeated when that call continues
	Detached                           // a separate call, which the owner of its state waits for
)
