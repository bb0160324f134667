package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// guard is the middleware just inside measure. It limits the requests of a client, except
// pings. It turns a panic into an error: the SDK answers each request on its own
// goroutine, where a panic would end the process.
func (a *api) guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				a.log.Error("request panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
				result, err = nil, internalError()
			}
		}()

		defer a.visit(method, req)()
		if a.connections != nil {
			var leave func()
			ctx, leave = a.connections.track(ctx, req)
			defer leave()
			if method == methodInitialize {
				a.issue(ctx, req)
			}
		}
		if originOf(req.GetExtra()).DryRun {
			ctx = server.WithDryRun(ctx)
		}
		// The SDK answers notifications before they are handled.
		if answer := originOf(req.GetExtra()).answer; answer != nil && !strings.HasPrefix(method, notifications) {
			answer.expect()
			defer func() {
				if ctx.Err() != nil {
					// The client no longer expects an answer. It ignores an event, but the
					// Python SDK 2.3 crashes on JSON that arrives after its session has ended.
					answer.leave()
				}
			}()
		}
		if a.calls != nil && method != methodPing && !strings.HasPrefix(method, notifications) {
			client := originOf(req.GetExtra()).Client()
			if limit, ok := a.calls.Take(client, 1); !ok {
				return nil, busy(limit)
			}
			defer a.calls.Give(client, 1)
		}
		if method != methodPing && !strings.HasPrefix(method, notifications) {
			a.acknowledge(ctx, originOf(req.GetExtra()).Session)
		}

		result, err = next(ctx, method, req)
		if context.Cause(ctx) == context.Canceled { // by the client: other cancellations have causes of their own
			return nil, context.Canceled
		}
		return result, err
	}
}

// codeBusy is the error code for a request beyond a limit, and codeUnavailable for an
// unavailable store of runs. They are HTTP codes: MCP requires codes outside the range
// that JSON-RPC reserves (2026-07-28, basic, error codes).
const (
	codeBusy        = http.StatusTooManyRequests
	codeUnavailable = http.StatusServiceUnavailable
)

func busy(limit int) *jsonrpc.Error {
	return &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf("%d requests are waiting for an answer already: wait for some of them, then retry", limit)}
}

// hostError returns the form of a host's error that a client may see.
func hostError(err error) *jsonrpc.Error {
	if reason := server.ReasonOf(err); reason.Code == wire.CodeUnavailable {
		return &jsonrpc.Error{Code: codeUnavailable, Message: reason.Text}
	}
	return internalError()
}

func internalError() *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: abi.InternalMessage}
}

// receive is the innermost middleware. It answers methods that the SDK does not know, and
// corrects answers of the SDK.
func (a *api) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.ServerRequest[*taskParams]:
			return a.answerTask(ctx, method, r)
		case *mcp.CallToolRequest:
			if originOf(r.GetExtra()).task && r.ProtocolVersion() == lastLegacy && !server.InDryRun(ctx) { // a dry run makes no task
				return a.create2025(ctx, callerOf(r), r)
			}
			result, err := next(ctx, method, r)
			if err != nil {
				return a.callError(r, err)
			}
			return result, nil
		case *mcp.SubscriptionsListenRequest:
			return a.listen(ctx, r, next)
		case *mcp.ReadResourceRequest:
			result, err := next(ctx, method, r)
			return result, readError(r, err)
		case *mcp.ListToolsRequest:
			return a.listTools(ctx, method, r, next)
		}

		if p, ok := req.GetParams().(*mcp.InitializeParams); ok && p != nil && p.ProtocolVersion >= modernVersion {
			p.ProtocolVersion = lastLegacy // the SDK agrees on that, and would act on the requested version
		}

		result, err := next(ctx, method, req)
		if err != nil {
			if _, ok := errors.AsType[*jsonrpc.Error](err); !ok && method == methodInitialize { // a second initialize: the SDK's error has no code
				err = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
			}
			return nil, err
		}

		switch r := result.(type) {
		case *mcp.InitializeResult:
			r.Instructions = a.instructionsFor(originOf(req.GetExtra()), r.Instructions)
			return initialize2025(r), nil
		case *mcp.DiscoverResult:
			r.Instructions = a.instructionsFor(originOf(req.GetExtra()), r.Instructions)
		}
		return result, nil
	}
}

// instructionsFor returns the current instructions. The SDK still has those from when the
// server started. Without a session, the instructions promise less: later requests may be
// in another session.
func (a *api) instructionsFor(o origin, sdks string) string {
	if a.instructed { // the embedding program has its own
		return sdks
	}
	now := a.served.Load().instructions
	if o.Unnamed {
		now = strings.Replace(now, endsWithResult, endsWithCheck, 1)
	}
	return now
}

// listTools returns the SDK's list of tools without the deferred tools, which the SDK
// includes because they can be called. No list mixes the tools before and after a reload.
func (a *api) listTools(ctx context.Context, method string, req *mcp.ListToolsRequest, next mcp.MethodHandler) (mcp.Result, error) {
	a.listing.RLock()
	defer a.listing.RUnlock()
	result, err := next(ctx, method, req)
	list, ok := result.(*mcp.ListToolsResult)
	if err != nil || !ok {
		return result, err
	}

	known, unnamed, shown := a.served.Load().tools, originOf(req.GetExtra()).Unnamed, []*mcp.Tool{}
	for _, tool := range list.Tools {
		if unnamed && tool.Name == server.SpawnBackground { // see instructionsFor
			changed := *tool
			changed.Description = strings.Replace(tool.Description, server.EndsNotified, server.EndsChecked, 1)
			tool = &changed
		}
		if !known[tool.Name].deferred {
			shown = append(shown, tool)
		}
	}
	list.Tools = shown
	if req.ProtocolVersion() == lastLegacy {
		return list2025(list, known), nil
	}
	return list, nil
}

// callError turns the error of a call into its answer: a task, or an error that suggests
// a tool name.
func (a *api) callError(req *mcp.CallToolRequest, err error) (mcp.Result, error) {
	if t, ok := errors.AsType[parkedError](err); ok {
		return t.task, nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Message == unknownTool(req.Params.Name).Message {
		if near := abi.Nearest(req.Params.Name, a.served.Load().names()); near != "" {
			return nil, invalidParams(fmt.Sprintf("%s, did you mean %q?", e.Message, near))
		}
	}
	return nil, err
}

// unknownTool returns the SDK's error for a tool that does not exist.
func unknownTool(name string) *jsonrpc.Error {
	return invalidParams(fmt.Sprintf("unknown tool %q", name))
}

// codeNotFound is the error code of a missing resource before 2026-07-28 (2025-11-25,
// server/resources, error handling).
const codeNotFound = -32002

// readError turns the SDK's error for a missing resource into one of the client's
// revision. It encodes the data again: the SDK's encoding is not JSON if the URI contains
// control characters, and a message that cannot be sent ends the session.
func readError(r *mcp.ReadResourceRequest, err error) error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Code != jsonrpc.CodeInvalidParams || e.Message != "Resource not found" {
		return err
	}

	out := &jsonrpc.Error{Code: e.Code, Message: e.Message}
	out.Data, _ = json.Marshal(map[string]string{"uri": r.Params.URI})
	if r.ProtocolVersion() < modernVersion {
		out.Code = codeNotFound
	}
	return out
}

// send is the middleware for messages to clients.
func (a *api) send(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch p := req.GetParams().(type) {
		case *mcp.SubscriptionsAcknowledgedParams:
			if l, ok := ctx.Value(listenerKey{}).(*listener); ok {
				return nil, l.acknowledge(ctx, p, func() error {
					_, err := next(ctx, method, req)
					return err
				})
			}
		case *mcp.ToolListChangedParams:
			// The SDK also sends it to sessions that have not begun.
			if s, ok := req.GetSession().(*mcp.ServerSession); ok && s.InitializeParams() == nil {
				return nil, nil
			}
		}

		return next(ctx, method, req)
	}
}
