package guestcall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/egress"
)

// maxHTTP is the number of HTTP requests that a call and its nested calls may attempt.
// Refused requests count.
const maxHTTP = 1000

// maxHTTPLog is the number of refused or failed requests that are logged for one call.
const maxHTTPLog = 20

// httpOperations makes HTTP requests by the rules of the grant.
var httpOperations = map[string]Operation{"http": {func(*Call) bool { return true }, "", httpOperation}}

// web is the HTTP state of a call.
type web struct {
	call   *Call
	egress *egress.Call
	logged int // number of refused or failed requests
	kept   int // size of the largest response, in bytes, which is paid for

	unsent atomic.Pointer[egress.WaitError] // the error of a request that was waiting for a permit when the call ended
}

// webOf returns the HTTP state of a call. Its policy is compiled at the first request.
func (c *Call) webOf() (*web, error) {
	if c.Web != nil {
		return c.Web, nil
	}

	policy, err := egress.Compile(c.Grant.HTTP)
	if err != nil {
		return nil, err
	}
	user, _, named := strings.Cut(c.Session, "/")
	if !named {
		user = ""
	}
	c.Web = &web{call: c, egress: c.Egress.Call(egress.CallConfig{
		Plugin: c.Plugin, User: user, Client: c.Client, Policy: policy, Readonly: c.Readonly, Secrets: c.Secrets, Observe: c.OnHTTP,
		Shared: c.Tree.First().Shared(),
	})}
	return c.Web, nil
}

// HTTPRequest is the request of the operation http.
type HTTPRequest struct {
	Method     string              `json:"method"`
	URL        string              `json:"url"`
	Headers    map[string][]string `json:"headers"`
	Body       *string             `json:"body"`
	BodyBase64 []byte              `json:"body_base64"`
	TimeoutMS  int64               `json:"timeout_ms"`
	Redirects  int                 `json:"redirects"`
}

// HTTPResponse is the response of the operation http. The body is in base64 unless it is UTF-8
// text.
type HTTPResponse struct {
	Status     int         `json:"status"`
	URL        string      `json:"url"`
	Headers    http.Header `json:"headers"`
	Body       *string     `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"`
}

func httpOperation(c *Call, request []byte) (Work, int32) {
	c.Meter.Charge(readCost)
	w, err := c.webOf()
	if err != nil {
		return nil, c.deny("the http rules of this plugin are invalid: have the operator check them")
	}
	if c.Tree.First().Attempts.Add(1) > maxHTTP {
		return nil, c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("a call may attempt %d http requests", maxHTTP))
	}
	if c.IsStopping() {
		return nil, c.RefuseStopped()
	}

	in, problem := readHTTP(request)
	if problem != "" {
		return nil, c.Refuse(abi.CallInvalid, "invalid", problem)
	}
	c.Effect.AtMostOnce = !in.Repeatable()
	return func(ctx context.Context) End {
		until, done := c.untilStopped(ctx)
		defer done()
		resp, err := w.egress.Do(until, in)
		if err != nil {
			if unsent, ok := errors.AsType[*egress.WaitError](err); ok && errors.Is(err, context.DeadlineExceeded) {
				w.unsent.Store(unsent)
			}
			return End{Cut: ctx.Err() != nil, Finish: func() int32 { return w.refuse(err) }}
		}
		return End{Bytes: len(resp.Body), Finish: func() int32 { return w.answer(resp) }}
	}, 0
}

// answer responds to the guest.
func (w *web) answer(resp *egress.Response) int32 {
	c := w.call
	out := HTTPResponse{Status: resp.Status, URL: resp.URL, Headers: resp.Header}
	if utf8.Valid(resp.Body) {
		text := string(resp.Body)
		out.Body = &text
	} else {
		out.BodyBase64 = resp.Body
	}
	response := PlainJSON(out)
	if more := len(response) - w.kept; more > 0 {
		if err := c.Meter.Keep(more); err != nil {
			panic(&instance.Stop{Reason: err})
		}
		w.kept = len(response)
	}
	return c.respond(response)
}

// PlainJSON encodes a value as JSON without HTML escapes.
func PlainJSON(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // text, numbers and bytes
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// readHTTP reads a request, or returns what is wrong with it.
func readHTTP(request []byte) (*egress.Request, string) {
	in := HTTPRequest{}
	switch {
	case !utf8.Valid(request) || decodeStrict(request, &in) != nil:
		return nil, `expected {"url": text, "method": text, "headers": {name: [values]}, "body": text or "body_base64": text, "timeout_ms": number, "redirects": number}, of which only the URL is required`
	case in.Body != nil && in.BodyBase64 != nil:
		return nil, `expected "body" or "body_base64", found both`
	case in.TimeoutMS < 0 || in.TimeoutMS > maxTimeout.Milliseconds():
		return nil, fmt.Sprintf(`expected a "timeout_ms" up to %d`, maxTimeout.Milliseconds())
	case in.Redirects < 0 || in.Redirects > egress.MaxRedirects:
		return nil, fmt.Sprintf(`expected "redirects" from 0 to %d`, egress.MaxRedirects)
	}

	body := in.BodyBase64
	if in.Body != nil {
		body = []byte(*in.Body)
	}
	return &egress.Request{
		Method: in.Method, URL: in.URL, Header: in.Headers, Body: body,
		Timeout: time.Duration(in.TimeoutMS) * time.Millisecond, Redirects: in.Redirects,
	}, ""
}

// maxTimeout is the longest timeout of a request, which ends with its call anyway.
const maxTimeout = 24 * time.Hour

// MissingSecret is the error that ends a call that needs a secret without a value.
type MissingSecret struct{ Name string }

func (e *MissingSecret) Error() string {
	return fmt.Sprintf("connect %s first: the secret %q has no value", e.Name, e.Name)
}

// refuse answers a refused or failed request, and logs it for the operator.
func (w *web) refuse(err error) int32 {
	c := w.call
	refusal, refused := errors.AsType[*egress.Refusal](err)
	network, failed := errors.AsType[*egress.NetworkError](err)
	log := c.Log.With("plugin", c.Plugin, "tool", c.Tool, "call", c.ID)
	if w.logged++; w.logged > maxHTTPLog {
		log = slog.New(slog.DiscardHandler)
	}

	switch {
	case c.IsStopping() || errors.Is(err, context.Canceled) || errors.Is(err, egress.ErrClosed):
		return c.RefuseCanceled()
	case errors.Is(err, egress.ErrNoSecret):
		secret, _ := errors.AsType[*egress.SecretError](err)
		log.Warn("an http request needs a secret that has no value", "secret", secret.Name)
		panic(&instance.Stop{Reason: &MissingSecret{secret.Name}})
	case refused:
		message := refusal.What
		if refusal.Grant != "" {
			message += fmt.Sprintf("; the operator can allow it below grants.%s with %s", c.Plugin, refusal.Grant)
		}
		logRefusal(log, refusal)
		return c.deny(message)
	case failed && network.Refusal != nil:
		logRefusal(log, network.Refusal)
		return c.Refuse(abi.CallFailed, "failed", err.Error())
	case failed:
		log.Info("http request failed", "host", network.Host, "problem", network.Problem, "detail", network.Detail)
		return c.Refuse(abi.CallFailed, "failed", err.Error())
	}

	switch err.(type) {
	case *egress.RequestError:
		return c.Refuse(abi.CallInvalid, "invalid", err.Error())
	case *egress.LimitError:
		return c.Refuse(abi.CallLimit, "limit", err.Error())
	}
	log.Warn("http request failed", "error", err)
	return c.Refuse(abi.CallFailed, "failed", err.Error())
}

func logRefusal(log *slog.Logger, r *egress.Refusal) {
	log.Warn("http request refused", "reason", r.Reason, "what", r.What, "grant", r.Grant, "detail", r.Detail)
}
