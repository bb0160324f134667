package mcpapi

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server/telemetry"
)

// measure is the outermost middleware. It measures and traces requests.
func (a *api) measure(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		in := telemetry.MCPRequest{Method: method, Header: headerOf(req), HTTP: originOf(req.GetExtra()).answer != nil}
		if params := req.GetParams(); params != nil && !reflect.ValueOf(params).IsNil() { // otherwise the SDK's methods panic
			in.Meta = params.GetMeta()
			if r, ok := req.(request); ok {
				in.Version = r.ProtocolVersion()
			}
		}

		ctx, span := a.service.Telemetry().StartRequest(ctx, in)
		result, err := next(ctx, method, req)
		span.End(failureOf(ctx, result, err))
		return result, err
	}
}

// failureOf returns the code of a JSON-RPC error, or tool_error for an unsuccessful tool.
func failureOf(ctx context.Context, result mcp.Result, err error) (failure string, code bool) {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return strconv.FormatInt(e.Code, 10), true
	}
	if err != nil {
		if ctx.Err() != nil {
			return "canceled", false
		}
		return "_OTHER", false
	}
	if r, ok := result.(*mcp.CallToolResult); ok && r != nil && r.IsError {
		return "tool_error", false
	}
	return "", false
}

func headerOf(req mcp.Request) http.Header {
	if extra := req.GetExtra(); extra != nil {
		return extra.Header
	}
	return nil
}
