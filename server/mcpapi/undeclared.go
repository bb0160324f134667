package mcpapi

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// refuseUndeclared is a middleware that refuses prompts and log levels on a server that
// does not declare them. The SDK would answer as if it did.
func refuseUndeclared(options *mcp.ServerOptions) mcp.Middleware {
	prompts := options.Capabilities != nil && options.Capabilities.Prompts != nil
	//lint:ignore SA1019 programs may declare it as long as clients of older revisions set levels
	logging := options.Capabilities != nil && options.Capabilities.Logging != nil

	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			declared := true
			switch method {
			case methodPrompts, methodPrompt:
				declared = prompts || hasPrompts(ctx, next, req)
			case methodSetLevel:
				declared = logging
			}
			if !declared {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method %q is not supported: the server does not declare it", method)}
			}
			return next(ctx, method, req)
		}
	}
}

// hasPrompts reports whether the server has prompts. It then declares them, and more may
// be added while it serves.
func hasPrompts(ctx context.Context, next mcp.MethodHandler, req mcp.Request) bool {
	session, _ := req.GetSession().(*mcp.ServerSession)
	result, err := next(ctx, methodPrompts, &mcp.ListPromptsRequest{Session: session, Params: &mcp.ListPromptsParams{}, Extra: req.GetExtra()})
	found, ok := result.(*mcp.ListPromptsResult)
	return err == nil && ok && len(found.Prompts) > 0
}
