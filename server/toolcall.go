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
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
)

// maxListed is how many of the calls that begin with one call are among the latest calls,
// so that one cannot push out all others.
const maxListed = 50

// origin is the call of a plugin's tool that makes another call and waits for it.
type origin struct {
	tool   *callable
	call   host.Call // of it
	caller *host.Caller
	listed *atomic.Int64 // of the calls that begin with the same one
	number int           // of that other call in the log of its run, see callLog
	fuel   int64         // the most that it may use
	outer  *origin       // the call that has made this one; nil: an agent's
}

type originKey struct{}

// CallPath returns the names of the tools whose calls have led to what is done with this
// context, the agent's first; nil without any.
func CallPath(ctx context.Context) (path []string) {
	for from := originOf(ctx); from != nil; from = from.outer {
		path = append(path, from.tool.Name)
	}
	slices.Reverse(path)
	return path
}

// originOf returns the call of a plugin's tool that makes the calls with this context, by
// itself or through tools of the program; nil if no tool does.
func originOf(ctx context.Context) *origin {
	from, _ := ctx.Value(originKey{}).(*origin)
	return from
}

// inLog is the number of the call that is made, in the log of its run; 0 is the run itself.
func (from *origin) inLog() int {
	if from == nil {
		return 0
	}
	return from.number
}

// callTool makes the calls of other tools for a call of a tool: with the same checks as
// calls of an agent, in the same session.
func (s *Service) callTool(tool *callable, call host.Call, refused *record.Refusals) func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
	return func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
		log, outer := callLogOf(ctx), originOf(ctx)
		number := log.begin(outer.inLog(), t.Tool, "")
		if slices.Contains(agentNames, t.Tool) {
			refused.Add(t.Tool, 1)
			log.end(number, abi.Result{}, host.ErrDenied)
			return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: t.Tool + " is a tool of the agent, which no other tool can call"}
		}
		from := &origin{tool: tool, call: call, caller: t.Caller, listed: new(atomic.Int64), number: number, fuel: t.Fuel, outer: outer}
		if outer != nil {
			from.listed = outer.listed
		}

		r, err := s.Call(context.WithValue(ctx, originKey{}, from), Request{
			Session: call.Session, Tool: t.Tool, Args: t.Args, Limits: Limits{Timeout: t.Timeout}, Locale: call.Locale, Ask: call.Ask,
		})
		log.end(number, r, err)
		if errors.Is(err, host.ErrDenied) {
			err = &host.Refusal{Code: abi.CallDenied, Message: reason.Clip(strings.TrimPrefix(reason.Of(err).Text, host.ErrDenied.Error()+": "), reason.MaxText)}
		}
		if IsDryRun(r) {
			err = &host.Refusal{Code: abi.CallDenied, Message: "this is a dry run: " + t.Tool + " was not called, because it is not readonly"}
		}
		return r, err
	}
}

// admit refuses a call of a tool that may do what the hints of the one that makes it
// exclude: agents and people rely on those.
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

// calls reports whether a tool may call others, which may have to be approved.
func (t *callable) calls() bool { return t.plugin == nil || len(t.plugin.Grant.Tools) > 0 }

// closed reports whether a tool says that it reaches nothing outside of the host.
func closed(h abi.Hints) bool { return h.OpenWorld != nil && !*h.OpenWorld }

// of gives a call what it has from the one that makes it.
func (from *origin) of(call host.Call) host.Call {
	call.Caller, call.Stopping, call.Background = from.caller, from.call.Stopping, from.call.Background
	return call
}

// reach is what a call of a tool can do outside of its sandbox, by itself and through
// the tools that its plugin may call. seen has the names of those that were looked at.
func (s *toolset) reach(t *callable, seen map[string]bool) (writes, open bool) {
	hints := t.Tool.Hints
	if t.plugin == nil { // of a tool of the program nobody knows more than it says
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
