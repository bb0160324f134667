package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
)

// served is what clients are told of tools. It does not change: a reload makes a
// new one.
type served struct {
	tools        map[string]servedTool
	refused      map[string]string // why tools are not told to clients, by name
	instructions string
}

type servedTool struct {
	told       []byte // as tools/list has it
	structured bool   // its results are told as structuredContent
}

func (s *served) names() []string { return slices.Sorted(maps.Keys(s.tools)) }

// serveTools serves the tools of the service as they are now in place of those
// that were served before. The SDK tells clients if there is a difference. It is
// called by one goroutine at a time.
func (a *api) serveTools(srv *mcp.Server) {
	before, definitions := a.served.Load(), a.service.Definitions("")
	now := &served{tools: map[string]servedTool{}, refused: map[string]string{}, instructions: instructions(definitions)}
	a.listing.Lock()
	defer a.listing.Unlock()
	for _, d := range definitions {
		tool, err := toTool(d)
		if err != nil {
			now.refused[d.Name] = err.Error()
			if before.refused[d.Name] != err.Error() {
				a.log.Error("the tool is not served over MCP", "tool", d.Name, "plugin", d.Plugin, "error", err)
			}
			continue
		}
		told, _ := json.Marshal(tool) // schemas that were parsed: it cannot fail
		now.tools[d.Name] = servedTool{told, tool.OutputSchema != nil}
		if !bytes.Equal(before.tools[d.Name].told, told) {
			srv.AddTool(tool, a.handler(tool.OutputSchema != nil))
		}
	}
	a.served.Store(now)
	gone := slices.DeleteFunc(before.names(), func(name string) bool { return now.tools[name].told != nil })
	if len(gone) > 0 {
		srv.RemoveTools(gone...)
	}
}

// handler answers calls of one tool.
func (a *api) handler(structured bool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result, err := a.call(ctx, req, structured)
		if t, ok := result.(*task); ok {
			answerOf(ctx).task = t
			return &mcp.CallToolResult{}, nil
		}
		r, _ := result.(*mcp.CallToolResult)
		return r, err
	}
}

// answer takes what a call became past the SDK, which knows no tasks.
type answer struct{ task *task }

type answerKey struct{}

func answerOf(ctx context.Context) *answer { return ctx.Value(answerKey{}).(*answer) }

// asTask answers a call that has become a task with that.
func asTask(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		answer := &answer{}
		result, err := next(context.WithValue(ctx, answerKey{}, answer), method, req)
		if answer.task != nil {
			return answer.task, nil
		}
		return result, err
	}
}

// nearestTool says, where a tool is not there, what may have been meant.
func (a *api) nearestTool(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		call, ok := req.(*mcp.CallToolRequest)
		unknown, wrong := errors.AsType[*jsonrpc.Error](err)
		if !ok || !wrong || unknown.Code != jsonrpc.CodeInvalidParams {
			return result, err
		}
		names := a.served.Load().names()
		if slices.Contains(names, call.Params.Name) {
			return result, err
		}
		message := fmt.Sprintf("unknown tool %q", call.Params.Name)
		if near := abi.Nearest(call.Params.Name, names); near != "" {
			message += fmt.Sprintf(", did you mean %q?", near)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
	}
}

// wholeList lists no tools while they change: the SDK has them one by one.
func (a *api) wholeList(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if _, ok := req.(*mcp.ListToolsRequest); ok {
			a.listing.RLock()
			defer a.listing.RUnlock()
		}
		return next(ctx, method, req)
	}
}

// instruct tells the instructions of the moment. The SDK would tell those from
// when the server was made. A client asks once: a session that goes on keeps
// what it was told.
func (a *api) instruct(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		if err != nil { // the result is a nil pointer then
			return nil, err
		}
		switch r := result.(type) {
		case *mcp.InitializeResult:
			r.Instructions = a.served.Load().instructions
		case *mcp.DiscoverResult:
			r.Instructions = a.served.Load().instructions
		}
		return result, nil
	}
}

// methodToolsChanged tells a client to list the tools again.
const methodToolsChanged = "notifications/tools/list_changed"

// begun tells changes of the tools only to sessions that have begun, which the
// SDK does not look at. That a client cannot be told, because it does not listen,
// is no fault of anybody's, and worth no warning.
func (a *api) begun(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method != methodToolsChanged {
			return next(ctx, method, req)
		}
		if session, ok := req.GetSession().(*mcp.ServerSession); ok && session.InitializeParams() == nil {
			return nil, nil
		}
		if _, err := next(ctx, method, req); err != nil {
			a.log.Debug("a client was not told that the tools have changed", "error", err)
		}
		return nil, nil
	}
}

// maxNamed bounds how many tools the instructions name: they are part of every
// conversation.
const maxNamed = 20

// instructions tell a model what no single tool's description can: that long
// tools run in the background, which ones, and how.
func instructions(definitions []server.Definition) string {
	var names []string
	for _, d := range definitions {
		if d.SupportsBackground {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	if len(names) > maxNamed {
		names = append(names[:maxNamed], "and others")
	}
	return fmt.Sprintf("Long work runs in the background: %s takes a tool's name and arguments and returns a task_id at once; go on with other work, "+
		"then %s waits for the end and returns status, progress, new output and the result; %s ends it. Tools that can be spawned: %s.",
		server.SpawnBackground, server.CheckBackground, server.StopBackground, strings.Join(names, ", "))
}
