package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/calllog"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
)

// maxListed bounds how many calls within one call are among the latest calls, so that
// they do not displace all others.
const maxListed = 50

// origin is a call of a plugin's tool that makes another call and waits for it.
type origin struct {
	tool   *catalog.Tool
	inner  string    // name of the tool that is called
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

// CalledTool returns the name of the tool whose call has this context, if another tool
// called it; empty for an agent's call.
func CalledTool(ctx context.Context) string {
	if from := originOf(ctx); from != nil {
		return from.inner
	}
	return ""
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
func (s *Service) callTool(tool *catalog.Tool, call host.Call, refused *record.Refusals) func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
	return func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
		log, outer := calllog.Of(ctx), originOf(ctx)
		number := log.Begin(outer.inLog(), t.Tool, "")
		if slices.Contains(agent.Names, t.Tool) {
			refused.Add(t.Tool, 1)
			log.End(number, abi.Result{}, host.ErrDenied)
			return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: t.Tool + " is a tool of the agent, which no other tool can call"}
		}
		from := &origin{tool: tool, inner: t.Tool, call: call, caller: t.Caller, listed: new(atomic.Int64), number: number, fuel: t.Fuel, outer: outer}
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

// of adds to a call what it inherits from its caller.
func (from *origin) of(call host.Call) host.Call {
	call.Caller, call.Stopping, call.Background = from.caller, from.call.Stopping, from.call.Background
	return call
}
