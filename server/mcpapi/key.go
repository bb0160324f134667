package mcpapi

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// metaKey is the name of a call's idempotency key in its _meta.
const metaKey = "toolhost/idempotencyKey"

// metaLocale is the name of the caller's language in the _meta of a call.
const metaLocale = "toolhost/locale"

// metaOf returns the idempotency key and the language of a call; "" for none.
func metaOf(req *mcp.CallToolRequest, who caller) (key, locale string, err error) {
	if key, err = keyOf(req, who); err != nil {
		return "", "", err
	}
	locale, err = localeOf(req)
	return key, locale, err
}

// localeOf returns the language of a call; "" if it is unknown.
func localeOf(req *mcp.CallToolRequest) (string, error) {
	given, ok := req.Params.Meta[metaLocale]
	if !ok {
		return "", nil
	}
	locale, ok := given.(string)
	if !ok || server.CheckLocale(locale) != nil {
		return "", invalidParams(fmt.Sprintf("_meta: %s: expected a language of BCP 47, such as de-CH, of at most %d bytes", metaLocale, server.MaxLocale))
	}
	return locale, nil
}

// keyOf returns the idempotency key of a call; "" without one.
func keyOf(req *mcp.CallToolRequest, who caller) (string, error) {
	given, ok := req.Params.Meta[metaKey]
	if !ok {
		return "", nil
	}
	key, ok := given.(string)
	switch {
	case !ok || key == "" || utf8.RuneCountInString(key) > server.MaxKey:
		return "", invalidParams(fmt.Sprintf("_meta: %s: expected a string of 1 to %d characters", metaKey, server.MaxKey))
	case who.Unnamed:
		return "", invalidParams(fmt.Sprintf("_meta: %s: only with the header %s: without it, a repeat may come in another session", metaKey, wire.SessionHeader))
	}
	return key, nil
}

// leaving returns a context for a call that ends when ctx does. For a call with a key,
// its cause says whether the client has canceled the call. Since 2026-07-28 a client
// cancels over HTTP by closing the stream, which a broken connection does too.
func (who caller) leaving(ctx context.Context, key string) (context.Context, context.CancelCauseFunc) {
	if key == "" {
		return context.WithCancelCause(ctx)
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		closed := who.modern && who.answer != nil
		if !closed && cause == context.Canceled || errors.Is(cause, errSessionEnded) {
			cause = fmt.Errorf("%w: %w", server.ErrCancel, cause)
		}
		cancel(cause)
	})
	return inner, func(cause error) {
		stop()
		cancel(cause)
	}
}
