package mcpapi

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// How long a call is waited for before it becomes a run, if its tool may.
const (
	taskGrace   = 2 * time.Second  // for a client that takes tasks
	silentLimit = 50 * time.Second // for one that does not, and gets no progress: many give up after a minute
)

// call runs a tool of the service. ctx ends when the client cancels the call or goes
// away.
func (a *api) call(ctx context.Context, req *mcp.CallToolRequest, structured bool) (mcp.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })()

	who := callerOf(req)
	asker, err := a.newAsker(who, req, cancel)
	if err != nil {
		return nil, err
	}
	var run *wire.Run
	call := server.Request{
		Session: who.session, Tool: req.Params.Name, Args: req.Params.Arguments,
		Ask: asker.ask, AskLater: who.tasks && who.elicits, OnPark: func(r wire.Run) { run = &r },
	}
	if string(call.Args) == "null" { // as some clients send none
		call.Args = nil
	}

	token := req.Params.GetProgressToken()
	switch {
	case who.tasks:
		call.ParkAfter = a.grace
	case token == nil:
		call.ParkAfter = silentLimit
	}
	if token != nil {
		reporter := startReporter(ctx, func(ctx context.Context, n notice) {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // if the client is gone, ctx ends
				ProgressToken: token, Progress: n.done, Total: n.total, Message: n.message,
			})
		})
		defer reporter.stop()
		call.Progress = reporter.report
	}

	r, err := a.service.Call(ctx, call)
	var out *mcp.CallToolResult
	switch {
	case run != nil && who.tasks:
		return a.newTask(*run), nil
	case run != nil && structured:
		out = stillRunning(*run)
	case run == nil && asker.asked():
		out = asker.result()
	case err != nil && server.ReasonOf(err).Code == wire.CodeNotFound: // removed by a reload
		return nil, unknownTool(call.Tool)
	default:
		a.logFailure(ctx, call, r, err)
		out = toResult(r, structured)
		addLinks(call.Tool, r, out)
	}
	if who.modern {
		return &modernResult{out}, nil
	}
	return out, nil
}

func (a *api) logFailure(ctx context.Context, call server.Request, r abi.Result, err error) {
	level := slog.LevelDebug
	if r.Kind == abi.Internal {
		level = slog.LevelError
	}
	if err != nil {
		a.log.Log(ctx, level, "the call had no result", "tool", call.Tool, "kind", r.Kind, "session", call.Session, "error", err)
	}
}

// stillRunning answers a call that has become a run, and whose tool has an output
// schema: errors are exempt from it.
func stillRunning(run wire.Run) *mcp.CallToolResult {
	return failed(fmt.Sprintf("%s is still running, as background run %s. Do not call it again: %s waits for its result, %s ends it.",
		run.Tool, run.TaskID, server.CheckBackground, server.StopBackground))
}
