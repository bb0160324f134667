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
			switch r := req.(type) {
			case *mcp.ListPromptsRequest:
				if prompts || hasPrompts(ctx, next, r.Session, r.Extra) {
					break
				}
				return nil, notDeclared(method)
			case *mcp.GetPromptRequest:
				if prompts || hasPrompts(ctx, next, r.Session, r.Extra) {
					break
				}
				return nil, notDeclared(method)
			}
			if method == methodSetLevel && !logging {
				return nil, notDeclared(method)
			}
			return next(ctx, method, req)
		}
	}
}

// hasPrompts reports whether the server has prompts. It then declares them, and more may
// be added while it serves.
func hasPrompts(ctx context.Context, next mcp.MethodHandler, session *mcp.ServerSession, extra *mcp.RequestExtra) bool {
	result, err := next(ctx, methodPrompts, &mcp.ListPromptsRequest{Session: session, Params: &mcp.ListPromptsParams{}, Extra: extra})
	found, ok := result.(*mcp.ListPromptsResult)
	return err == nil && ok && len(found.Prompts) > 0
}

func notDeclared(method string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method %q is not supported: the server does not declare it", method)}
}
