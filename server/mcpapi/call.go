package mcpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// The first protocol revision without a handshake, and the last with one.
const (
	modernVersion = "2026-07-28"
	lastLegacy    = "2025-11-25"
)

// caller is who makes a request, and what that request says its client can do.
// It is judged for each request anew: nothing is remembered of another one.
type caller struct {
	session string // whose runs it sees
	modern  bool
	tasks   bool // takes a task for an answer
	elicits bool // can ask its user
}

// request is what requests of the SDK have in common.
type request interface {
	mcp.Request
	ClientCapabilities() *mcp.ClientCapabilities
	ProtocolVersion() string
}

func (a *api) caller(req request) caller {
	who := caller{session: a.session(req.GetExtra()), modern: req.ProtocolVersion() >= modernVersion}
	if can := req.ClientCapabilities(); can != nil {
		_, declared := can.Extensions[tasksExtension]
		who.tasks = declared && who.modern
		e := can.Elicitation
		who.elicits = e != nil && (e.Form != nil || e.URL == nil) // an empty one is of forms
	}
	return who
}

// call runs a tool. The SDK calls it on a goroutine of its own for each call.
// ctx ends when the client cancels the call or goes away.
func (a *api) call(ctx context.Context, req *mcp.CallToolRequest, structured bool) (mcp.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })()

	who := a.caller(req)
	follow := server.Request{Session: who.session, Tool: req.Params.Name, Args: req.Params.Arguments, AskLater: who.tasks && who.elicits}
	if string(follow.Args) == "null" {
		follow.Args = nil // as some clients send none
	}
	asking, err := a.asking(who, req, cancel)
	if err != nil {
		return nil, err
	}
	follow.Ask = asking.ask
	var run *background.Run
	follow.Parked = func(r background.Run) { run = &r }
	token := req.Params.GetProgressToken() // see repeatable
	follow.ParkAfter = a.patience(who, token != nil)
	if token != nil {
		reporter := startReporter(ctx, func(ctx context.Context, n notice) {
			// A client that is gone is noticed by everybody else too.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: n.done, Total: n.total, Message: n.message,
			})
		})
		defer reporter.stop()
		follow.Progress = reporter.report
	}
	r, err := a.service.Call(ctx, follow)
	switch {
	case run != nil && who.tasks:
		return a.newTask(*run), nil
	case run != nil && structured:
		return stillRunning(*run), nil
	case run == nil && asking.open():
		return asking.result()
	case errors.Is(err, plugins.ErrNoTool): // it was there when the SDK looked
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", follow.Tool)}
	}
	if err != nil {
		level := slog.LevelDebug
		if r.Kind == abi.Internal {
			level = slog.LevelError
		}
		a.log.Log(ctx, level, "the call had no result", "tool", follow.Tool, "kind", r.Kind, "session", who.session, "error", err)
	}
	out := toResult(r, structured)
	links(follow.Tool, r, out)
	return out, nil
}

// How long a call is waited for before it goes on as a run, if its tool may.
const (
	defaultGrace = 2 * time.Second  // of a client that takes a task
	syncBudget   = 50 * time.Second // of one that does not, and hears nothing meanwhile: many give up after a minute
)

// patience is how long a call is waited for; 0 is as long as the service says,
// with heartbeats.
func (a *api) patience(who caller, heartbeats bool) time.Duration {
	switch {
	case who.tasks:
		return a.grace
	case heartbeats:
		return 0
	}
	return syncBudget
}

// stillRunning answers a call whose tool has an output schema, and that has
// become a run: errors are exempt from the schema.
func stillRunning(run background.Run) *mcp.CallToolResult {
	text := fmt.Sprintf("%s is still running, as background run %s. Do not call it again: %s waits for its result, %s ends it.",
		run.Tool, run.ID, server.CheckBackground, server.StopBackground)
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
