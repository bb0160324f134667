package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// How long a client waits for a call before the call becomes a run, if its tool allows
// that.
const (
	taskGrace   = 2 * time.Second  // for a client that supports tasks
	silentLimit = 45 * time.Second // for one that does not, and gets no progress: the TypeScript SDK and Claude Desktop give up after a minute
)

// call answers a call to the service's tools. For the SDK, a call that has become a task
// is an error, see parkedError.
func (a *api) call(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	who, started := callerOf(req), time.Now()
	key, locale, err := metaOf(req, who)
	if err != nil {
		return nil, err
	}

	ctx, cancel := who.leaving(ctx, key)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })()

	asker, err := a.newAsker(ctx, who, req, cancel)
	if err != nil {
		return nil, err
	}

	var run *wire.Run
	var stored string
	call := a.request(who, req)
	call.Session, call.Resumes, call.Decide = asker.sealed.Session, asker.sealed.Run, asker.decider()
	call.Ask, call.Connect, call.Key, call.Locale, call.OnPark = asker.ask, asker.connector(), key, locale, func(r wire.Run) { run = &r }
	call.OnStored = func(id string) { stored = id }
	if token := req.Params.GetProgressToken(); token != nil {
		reporter := startReporter(ctx, func(ctx context.Context, p *mcp.ProgressNotificationParams) {
			p.ProgressToken = token
			_ = req.Session.NotifyProgress(ctx, p) // if the client is gone, ctx ends
		})
		defer reporter.stop(ctx)
		call.Progress = reporter.report
	}

	structured := a.served.Load().tools[call.Tool].structured
	r, err := a.service.Call(ctx, call)
	switch {
	case asker.asking() && (run == nil || errors.Is(err, server.ErrAskAgain)):
		return asker.result(ctx, run)
	case run != nil && who.tasks:
		t := a.newTask(*run)
		if run.Held != "" {
			t.StatusMessage = parkedMessage(r)
		}
		return nil, parkedError{t}
	case run != nil && structured: // errors are exempt from its output schema
		out := stillRunning(*run, parkedMessage(r))
		a.addNotices(ctx, who, started, out)
		return out, nil
	case err != nil && server.ReasonOf(err).Code == wire.CodeNotFound: // removed by a reload
		return nil, unknownTool(call.Tool)
	case err != nil && key != "" && server.ReasonOf(err).Code == wire.CodeConflict: // of the key, which the model does not choose
		return nil, invalidParams("_meta: " + metaKey + ": " + server.ReasonOf(err).Text)
	case err != nil && r.Kind == abi.Internal && !server.Broke(err):
		a.log.Error("the call had no result", "tool", call.Tool, "session", who.Session, "error", err)
	case err != nil:
		a.log.Log(ctx, slog.LevelDebug, "the call had no result", "tool", call.Tool, "kind", r.Kind, "session", who.Session, "error", err)
	}

	out := resultOf(r, structured, stored)
	addLinks(call.Tool, r, out)
	a.addNotices(ctx, who, started, out)
	return out, nil
}

// request returns the service's request for a call.
func (a *api) request(who caller, req *mcp.CallToolRequest) server.Request {
	call := server.Request{
		Session: who.Session, Unnamed: who.Unnamed, Tool: req.Params.Name, Args: req.Params.Arguments,
		FileName: func(task, file string) string { return fileURI(task, file, 0) },
		AskLater: who.tasks && who.elicits, OneRequest: who.modern && who.Unnamed, Connected: who.answer == nil,
	}
	if string(call.Args) == "null" { // some clients send null
		call.Args = nil
	}

	switch {
	case who.tasks:
		call.ParkAfter = a.grace
	case req.Params.GetProgressToken() == nil:
		call.ParkAfter = silentLimit
	}
	return call
}

// resultOf returns the result of a call. A dry run's description does not fit the output
// schema of the tool, and errors are exempt from it. If the value is too large for a model,
// stored is the id of the run that keeps it; otherwise stored is empty.
func resultOf(r abi.Result, structured bool, stored string) *mcp.CallToolResult {
	described := structured && server.IsDryRun(r)
	out := toResult(r, structured && !described)
	out.IsError = out.IsError || described
	if stored != "" {
		abridge(out, stored, r.Value)
	}
	return out
}

// parkedMessage returns the message in the result of a call that became a run.
func parkedMessage(r abi.Result) string {
	var value struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(r.Value, &value) // the service made it
	return value.Message
}

// stillRunning returns the result of a call that became a run.
func stillRunning(run wire.Run, message string) *mcp.CallToolResult {
	return failed(fmt.Sprintf("%s is run %s. %s", run.Tool, run.TaskID, message))
}
