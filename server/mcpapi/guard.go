package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fair"
)

// What clients may ask for at once. A request counts until it is answered, also
// when who made it is gone: before 2026-07-28 a client that leaves has not
// canceled its calls.
const (
	maxCalls = 256 // requests on a pipe

	maxCallsHTTP     = 2048 // of all clients
	maxCallsOfClient = maxCallsHTTP / 4

	maxMeta  = 64 << 10 // bytes of _meta, which the SDK makes a tree of that takes many times as much
	maxBatch = 64       // messages of one array
	maxToken = 256      // bytes of an id or a progress token, which what is sent repeats
)

// codeBusy is the error of a request that is one too many. It is HTTP's: new
// codes are to be outside of what JSON-RPC reserves (2026-07-28, basic, error
// codes).
const codeBusy = http.StatusTooManyRequests

func busy(limit int) *jsonrpc.Error {
	return &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf("%d requests wait for an answer already: wait for some of them, then try again", limit)}
}

// bound refuses what is more than a client may ask for at once. What is answered
// at once is not counted: a ping has to tell that the server is there.
func (a *api) bound(calls *fair.Pool) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == methodPing || strings.HasPrefix(method, notifications) {
				return next(ctx, method, req)
			}
			who := fair.ClientOf(a.session(req.GetExtra()))
			if limit, ok := calls.Take(who, 1); !ok {
				return nil, busy(limit)
			}
			defer calls.Give(who, 1)
			return next(ctx, method, req)
		}
	}
}

// expire ends a subscription with the token it was asked for with. It is a POST
// like any other, which what is around the handler cannot tell from a call, and
// a call goes on.
func expire(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		extra := req.GetExtra()
		if method == methodListen && extra != nil && extra.TokenInfo != nil && !extra.TokenInfo.Expiration.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, extra.TokenInfo.Expiration)
			defer cancel()
		}
		return next(ctx, method, req)
	}
}

const (
	methodPing    = "ping"
	notifications = "notifications/"
)

// contain makes an error of a panic. The SDK answers each request on a goroutine
// of its own, where a panic would end the process, and with it the work of
// everybody else.
func (a *api) contain(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				a.log.Error("request panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: abi.InternalMessage}
			}
		}()
		result, err = next(ctx, method, req)
		return result, sayable(err)
	}
}

// sayable is an error that can be sent. The SDK's own, of a resource that is not
// there, has data that is no JSON if the URI has control characters, and to fail to
// send it would end the session.
func sayable(err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && len(e.Data) > 0 && !json.Valid(e.Data) {
		return &jsonrpc.Error{Code: e.Code, Message: e.Message}
	}
	return err
}

// messages are the messages of an array, if a body or a line is one: of one that
// is too long no more than tell that. Each small value would take many times its
// size.
func messages(data []byte) (list []json.RawMessage, isArray bool) {
	if len(data) == 0 || data[0] != '[' {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	_, _ = dec.Token()
	for dec.More() && len(list) <= maxBatch {
		var message json.RawMessage
		if dec.Decode(&message) != nil {
			return nil, false
		}
		list = append(list, message)
	}
	return list, len(list) > maxBatch || json.Valid(data)
}

// sdkLog is the log of the SDK. What it says, errors too, is of clients that
// misbehave and can be said as often as they like: no operator needs to know.
func sdkLog(log *slog.Logger) *slog.Logger { return slog.New(quiet{log.Handler()}) }

// quiet is a handler of log lines that are for debugging, whatever their level.
type quiet struct{ to slog.Handler }

func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.to.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.to.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.to.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.to.WithGroup(name)} }
