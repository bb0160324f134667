package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/internal/calllog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
)

// maxListed bounds how many calls within one call are among the latest calls, so that
// they do not displace all others.
const maxListed = 50

// origin is a call of a plugin's tool that makes another call and waits for it.
type origin struct {
	tool   *callable
	call   host.Call // the outer call
	caller *host.Caller
	listed *atomic.Int64 // calls within the outermost call
	number int           // number of the inner call in the log of its run, see calllog
	fuel   int64         // the most that the inner call may use
	outer  *origin       // call that made the outer one; nil for an agent's
}

type originKey struct{}

// CallPath returns the names of the tools whose calls led to this context, the agent's
// first; nil without any.
func CallPath(ctx context.Context) (path []string) {
	for from := originOf(ctx); from != nil; from = from.outer {
		path = append(path, from.tool.Name)
	}
	slices.Reverse(path)
	return path
}

// originOf returns the tool call that makes the calls of this context, directly or
// through tools of the program; nil if no tool does.
func originOf(ctx context.Context) *origin {
	from, _ := ctx.Value(originKey{}).(*origin)
	return from
}

// inLog returns the number of the inner call in the log of its run; 0 is the run itself.
func (from *origin) inLog() int {
	if from == nil {
		return 0
	}
	return from.number
}

// callTool makes the nested calls of a tool's call: with the checks of an agent's call,
// in the same session.
func (s *Service) callTool(tool *callable, call host.Call, refused *record.Refusals) func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
	return func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
		log, outer := calllog.Of(ctx), originOf(ctx)
		number := log.Begin(outer.inLog(), t.Tool, "")
		if slices.Contains(agentNames, t.Tool) {
			refused.Add(t.Tool, 1)
			log.End(number, abi.Result{}, host.ErrDenied)
			return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: t.Tool + " is a tool of the agent, which no other tool can call"}
		}
		from := &origin{tool: tool, call: call, caller: t.Caller, listed: new(atomic.Int64), number: number, fuel: t.Fuel, outer: outer}
		if outer != nil {
			from.listed = outer.listed
		}

		r, err := s.Call(context.WithValue(ctx, originKey{}, from), Request{
			Session: call.Session, Tool: t.Tool, Args: t.Args, Limits: Limits{Timeout: t.Timeout}, Locale: call.Locale, Ask: call.Ask,
		})
		log.End(number, r, err)
		if errors.Is(err, host.ErrDenied) {
			err = &host.Refusal{Code: abi.CallDenied, Message: reason.Clip(strings.TrimPrefix(reason.Of(err).Text, host.ErrDenied.Error()+": "), reason.MaxText)}
		}
		if IsDryRun(r) {
			err = &host.Refusal{Code: abi.CallDenied, Message: "this is a dry run: " + t.Tool + " was not called, because it is not readonly"}
		}
		return r, err
	}
}

// admit refuses a nested call that may do what the hints of the calling tool exclude:
// agents and people rely on those hints.
func (from *origin) admit(tool *callable, may Annotations) error {
	hints := from.tool.Tool.Hints
	if hints.Readonly && !may.ReadOnly {
		return fmt.Errorf("%w: %s is readonly, so it can call readonly tools only, and %s is not", host.ErrDenied, from.tool.Name, tool.Name)
	}
	if closed(hints) && may.OpenWorld {
		return fmt.Errorf("%w: %s says open_world: false, so it cannot call %s, which reaches the network", host.ErrDenied, from.tool.Name, tool.Name)
	}
	return nil
}

// calls reports whether a tool may call others, which a person may have to approve.
func (t *callable) calls() bool { return t.plugin == nil || len(t.plugin.Grant.Tools) > 0 }

// closed reports whether a tool declares that it reaches nothing outside of the host.
func closed(h abi.Hints) bool { return h.OpenWorld != nil && !*h.OpenWorld }

// of adds to a call what it inherits from its caller.
func (from *origin) of(call host.Call) host.Call {
	call.Caller, call.Stopping, call.Background = from.caller, from.call.Stopping, from.call.Background
	return call
}

// reach returns what a call of a tool can do outside of its sandbox, directly and through
// the tools that its plugin may call. seen holds the names already visited.
func (s *toolset) reach(t *callable, seen map[string]bool) (writes, open bool) {
	hints := t.Tool.Hints
	if t.plugin == nil { // all that is known of a tool of the program is what it declares
		return !hints.Readonly, hints.OpenWorld == nil || *hints.OpenWorld
	}

	writes = t.plugin.Grant.Writes()
	if slices.Contains(t.plugin.Grant.Tools, abi.EveryTool) {
		writes, open = true, true
	}
	for _, name := range t.plugin.Grant.Tools {
		if seen[name] {
			continue
		}
		seen[name] = true
		if other, err := s.lookup(name); err == nil {
			w, o := s.reach(other, seen)
			writes, open = writes || w, open || o
		}
	}
	return writes && !hints.Readonly, t.plugin.Grant.Public() || open && !closed(hints)
}
