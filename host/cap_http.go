package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/egress"
)

// Egress is how HTTP requests reach the network. The zero Egress connects directly and
// trusts the system's certificates. Proxy variables in the environment have no effect.
//
// If a server sends unsolicited data, net/http writes its beginning to the standard
// logger. It can contain a secret that the server received, so a program should discard
// that log: log.SetOutput(io.Discard).
type Egress struct {
	// Proxy is the URL of an HTTP proxy, http or https, with an optional user and password.
	// Requests admitted by a private rule bypass it. The proxy must refuse private
	// addresses, because it resolves names itself.
	Proxy string
	// ProxyResolves leaves names that do not resolve here to the proxy. Otherwise
	// their requests fail.
	ProxyResolves bool
	// CA is a PEM bundle of additional trusted certificates.
	CA []byte
	// Resolver looks up names. Nil means the system's resolver.
	Resolver *net.Resolver
}

func (e Egress) open(shared bool) (*egress.Client, error) {
	return egress.New(egress.Config{Proxy: e.Proxy, ProxyResolves: e.ProxyResolves, CA: e.CA, Resolver: e.Resolver, Shared: shared})
}

// Check returns what is wrong with the proxy or the certificates.
func (e Egress) Check() error {
	client, err := e.open(false)
	if err == nil {
		client.Close()
	}
	return err
}

// Secrets looks up secrets, Secret is the value of one, and Place is its place in a
// request. An error that matches [ErrNoSecret] means that the secret has no value yet.
// The agent sees the text of any other error.
type (
	Secrets = egress.Secrets
	Secret  = egress.Secret
	Place   = egress.Place
)

// ErrNoSecret is the error of a secret without a value.
var ErrNoSecret = egress.ErrNoSecret

// Exchange is one hop of an HTTP request, for an audit log. It has no path, query,
// headers or bodies.
type Exchange = egress.Exchange

// maxHTTP is the number of HTTP requests that a call and its nested calls may attempt.
// Refused requests count.
const maxHTTP = 1000

// maxHTTPLog is the number of refused or failed requests that are logged for one call.
const maxHTTPLog = 20

// httpOperations makes HTTP requests by the rules of the grant.
var httpOperations = map[string]operation{"http": {func(*call) bool { return true }, "", httpOperation}}

// web is the HTTP state of a call.
type web struct {
	call   *call
	egress *egress.Call
	logged int // number of refused or failed requests
	kept   int // bytes of the largest response, paid for

	unsent atomic.Pointer[egress.WaitError] // the error of a request that was waiting for a permit when the call ended
}

// webOf returns the HTTP state of a call. Its policy is compiled at the first request.
func (c *call) webOf() (*web, error) {
	if c.web != nil {
		return c.web, nil
	}

	policy, err := egress.Compile(c.Policy.Rules())
	if err != nil {
		return nil, err
	}
	user, _, named := strings.Cut(c.Session, "/")
	if !named {
		user = ""
	}
	c.web = &web{call: c, egress: c.host.egress.Call(egress.CallConfig{
		Plugin: c.Plugin, User: user, Client: c.client, Policy: policy, Readonly: c.Readonly, Secrets: c.Secrets, Observe: c.Observers.HTTP,
		Shared: c.inner.First().Shared(),
	})}
	return c.web, nil
}

// httpRequest is the request of the operation.
type httpRequest struct {
	Method     string              `json:"method"`
	URL        string              `json:"url"`
	Headers    map[string][]string `json:"headers"`
	Body       *string             `json:"body"`
	BodyBase64 []byte              `json:"body_base64"`
	TimeoutMS  int64               `json:"timeout_ms"`
	Redirects  int                 `json:"redirects"`
}

// httpResponse is the response. The body is in base64 unless it is UTF-8 text.
type httpResponse struct {
	Status     int         `json:"status"`
	URL        string      `json:"url"`
	Headers    http.Header `json:"headers"`
	Body       *string     `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"`
}

func httpOperation(c *call, request []byte) (work, int32) {
	c.meter.Charge(readCost)
	w, err := c.webOf()
	if err != nil {
		return nil, c.deny("the http rules of this plugin are invalid: have the operator check them")
	}
	if c.inner.First().Attempts.Add(1) > maxHTTP {
		return nil, c.refuse(abi.CallLimit, "limit", fmt.Sprintf("a call may attempt %d http requests", maxHTTP))
	}
	if c.stopping() {
		return nil, c.refuseStopped()
	}

	in, problem := readHTTP(request)
	if problem != "" {
		return nil, c.refuse(abi.CallInvalid, "invalid", problem)
	}
	c.begun.once = !in.Repeatable()
	return func(ctx context.Context) end {
		until, done := c.untilStopped(ctx)
		defer done()
		resp, err := w.egress.Do(until, in)
		if err != nil {
			if unsent, ok := errors.AsType[*egress.WaitError](err); ok && errors.Is(err, context.DeadlineExceeded) {
				w.unsent.Store(unsent)
			}
			return end{cut: ctx.Err() != nil, finish: func() int32 { return w.refuse(err) }}
		}
		return end{bytes: len(resp.Body), finish: func() int32 { return w.answer(resp) }}
	}, 0
}

// answer responds to the guest.
func (w *web) answer(resp *egress.Response) int32 {
	c := w.call
	out := httpResponse{Status: resp.Status, URL: resp.URL, Headers: resp.Header}
	if utf8.Valid(resp.Body) {
		text := string(resp.Body)
		out.Body = &text
	} else {
		out.BodyBase64 = resp.Body
	}
	response := plainJSON(out)
	if more := len(response) - w.kept; more > 0 {
		if err := c.meter.Keep(more); err != nil {
			panic(&instance.Stop{Reason: err})
		}
		w.kept = len(response)
	}
	return c.respond(response)
}

// waited adds to the error of a timed-out call what its requests were waiting for, if
// they were.
func (w *web) waited(err error) error {
	if w == nil || w.unsent.Load() == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &WaitedError{Err: err, For: w.unsent.Load().For}
}

// plainJSON returns the JSON of a value without HTML escapes.
func plainJSON(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // text, numbers and bytes
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// readHTTP reads a request, or returns what is wrong with it.
func readHTTP(request []byte) (*egress.Request, string) {
	in := httpRequest{}
	strict := json.NewDecoder(bytes.NewReader(request))
	strict.DisallowUnknownFields()
	switch {
	case !utf8.Valid(request) || strict.Decode(&in) != nil:
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

// missingSecret ends a call that needs a secret without a value.
type missingSecret struct{ name string }

func (e *missingSecret) Error() string {
	return fmt.Sprintf("connect %s first: the secret %q has no value", e.name, e.name)
}

// refuse answers a refused or failed request, and logs it for the operator.
func (w *web) refuse(err error) int32 {
	c := w.call
	refusal, refused := errors.AsType[*egress.Refusal](err)
	network, failed := errors.AsType[*egress.NetworkError](err)
	log := c.host.log.With("plugin", c.Plugin, "tool", c.Tool, "call", c.ID)
	if w.logged++; w.logged > maxHTTPLog {
		log = slog.New(slog.DiscardHandler)
	}

	switch {
	case c.stopping() || errors.Is(err, context.Canceled) || errors.Is(err, egress.ErrClosed):
		return c.refuseCanceled()
	case errors.Is(err, ErrNoSecret):
		secret, _ := errors.AsType[*egress.SecretError](err)
		log.Warn("an http request needs a secret that has no value", "secret", secret.Name)
		panic(&instance.Stop{Reason: &missingSecret{secret.Name}})
	case refused:
		message := refusal.What
		if refusal.Grant != "" {
			message += fmt.Sprintf("; the operator can allow it below grants.%s with %s", c.Plugin, refusal.Grant)
		}
		logRefusal(log, refusal)
		return c.deny(message)
	case failed && network.Refusal != nil:
		logRefusal(log, network.Refusal)
		return c.refuse(abi.CallFailed, "failed", err.Error())
	case failed:
		log.Info("http request failed", "host", network.Host, "problem", network.Problem, "detail", network.Detail)
		return c.refuse(abi.CallFailed, "failed", err.Error())
	}

	switch err.(type) {
	case *egress.RequestError:
		return c.refuse(abi.CallInvalid, "invalid", err.Error())
	case *egress.LimitError:
		return c.refuse(abi.CallLimit, "limit", err.Error())
	}
	log.Warn("http request failed", "error", err)
	return c.refuse(abi.CallFailed, "failed", err.Error())
}

func logRefusal(log *slog.Logger, r *egress.Refusal) {
	log.Warn("http request refused", "reason", r.Reason, "what", r.What, "grant", r.Grant, "detail", r.Detail)
}
