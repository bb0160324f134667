package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Call is one call to a tool. Its requests share limits. In each response, the secrets of all
// rules and the password of the proxy are masked. A Call need not be closed. Do is safe for
// concurrent use.
type Call struct {
	client *Client
	cfg    CallConfig
	shared *Shared
	limits limits

	mask masker

	learning sync.Mutex
	learned  bool // whether the mask has the secrets of all rules
}

// Shared is the usage of a tree of nested calls: the requests and bytes of all calls
// count against the limits of each. The zero Shared belongs to a single call. It is
// safe for concurrent use.
type Shared struct {
	mu       sync.Mutex
	requests int
	bytes    int64
}

// count counts a request. It fails once there are more than most.
func (s *Shared) count(most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests >= most {
		return &LimitError{What: "http requests of one call", Limit: int64(most), Unit: "requests"}
	}
	s.requests++
	return nil
}

// spend counts n bytes of a body. It fails once there are more than most.
func (s *Shared) spend(n, most int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += n
	if s.bytes > most {
		return &LimitError{What: "bodies of all http requests of one call", Limit: most, Unit: "bytes"}
	}
	return nil
}

// Call returns a [Call] for one call to a tool.
func (c *Client) Call(cfg CallConfig) *Call {
	if cfg.Shared == nil {
		cfg.Shared = new(Shared)
	}

	call := &Call{client: c, cfg: cfg, shared: cfg.Shared, limits: limitsOfCall}
	if c.proxy != nil {
		password, _ := c.proxy.User.Password()
		call.mask.add("egress.proxy", password)
	}
	return call
}

// Do makes one request and follows up to Request.Redirects redirects. It returns once it has
// read the whole body, or ctx ends. The package comment lists the errors; the text of each is
// masked.
func (c *Call) Do(ctx context.Context, req *Request) (*Response, error) {
	if err := c.client.enter(); err != nil {
		return nil, err
	}
	defer c.client.calls.Done()

	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.client.ctx, func() { cancel(ErrClosed) })()
	clock := newStopwatch(cmp.Or(req.Timeout, c.limits.timeout), func() { cancel(context.DeadlineExceeded) })
	defer clock.stop()

	resp, err := c.do(limited, req, clock)
	if err == nil {
		return resp, nil
	}

	interrupted := is[*NetworkError](err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if limited.Err() != nil && interrupted {
		switch {
		case c.client.ctx.Err() != nil:
			err = ErrClosed
		case errors.Is(ctx.Err(), context.Canceled):
			err = context.Canceled
		default:
			err = timeout(err)
		}
	}
	return nil, c.masked(err)
}

// hop is one exchange with a server.
type hop struct {
	number int
	target target
	method string
	header http.Header
	body   []byte
	param  string     // name of the query parameter, if the secret went there
	clock  *stopwatch // clock of the request
}

func (c *Call) do(ctx context.Context, req *Request, clock *stopwatch) (*Response, error) {
	h, err := c.first(req)
	if err != nil {
		return nil, err
	}

	h.clock = clock
	follow := min(max(req.Redirects, 0), MaxRedirects)
	for {
		resp, location, err := c.exchange(ctx, &h, follow > 0)
		if err != nil {
			return nil, err
		}
		if location == "" {
			return resp, nil
		}

		if h.number == follow {
			return nil, &LimitError{What: "redirects of " + h.target.host, Limit: int64(follow), Unit: "redirects"}
		}
		next, err := c.redirect(&h, resp.Status, location)
		if err != nil {
			x := c.exchangeOf(next)
			c.observe(&x, time.Now(), err)
			return nil, err
		}
		h = *next
	}
}

// first makes the checks that do not depend on rules.
func (c *Call) first(req *Request) (hop, error) {
	t, err := parseTarget(req.URL)
	if err != nil {
		return hop{}, &RequestError{"url", err.Error()}
	}

	method := strings.ToUpper(cmp.Or(req.Method, "GET"))
	if err := checkMethod(method); err != nil {
		return hop{}, &RequestError{"method", err.Error()}
	}

	header, err := prepareHeader(req.Header)
	if err != nil {
		return hop{}, err
	}
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{"toolhost"}
	}
	return hop{target: t, method: method, header: header, body: req.Body}, nil
}

// admit returns the rule of a hop. The rule must also admit the methods that the header names.
func (c *Call) admit(h *hop) (*rule, error) {
	methods := []string{h.method}
	for _, method := range overrides(h.header) {
		if !slices.Contains(methods, method) {
			methods = append(methods, method)
		}
	}
	for _, method := range methods {
		if err := checkMethod(method); err != nil {
			return nil, &RequestError{"method", err.Error()}
		}
		if c.cfg.Readonly && method != "GET" && method != "HEAD" {
			return nil, c.refuse(h, ReasonReadonly, Rule{}, "a readonly tool may use GET and HEAD only")
		}
	}

	asked := "this method"
	if len(methods) > 1 {
		asked = strings.Join(methods, " and ")
	}
	r, reason := c.cfg.Policy.find(&h.target, h.method, methods[1:]...)
	switch reason {
	case ReasonURL:
		return nil, c.refuse(h, reason, c.need(h, methods), "no http rule of the plugin admits this URL")
	case ReasonMethod:
		return nil, c.refuse(h, reason, c.need(h, methods), "the http rules of the plugin admit this URL, but not "+asked)
	}
	return r, c.admitURLs(h, r)
}

// admitURLs refuses a hop if a header names a URL that the rule of the hop does not admit.
// The header is sent unchanged, so it must equal the compared form, and not be a list.
func (c *Call) admitURLs(h *hop, r *rule) error {
	for name, values := range h.header {
		if headerRule(name) != headerURL {
			continue
		}
		for _, v := range values {
			asked, err := parseTarget(v)
			if err == nil && (asked.String() != v || strings.Contains(v, ",")) {
				err = fmt.Errorf("%.200q: want it normalized, without a fragment or a comma", v)
			}
			if err != nil {
				return &RequestError{"headers", name + ": " + err.Error()}
			}
			if !r.pattern.matches(&asked) {
				return c.refuse(h, ReasonURL, Rule{}, "the header "+name+" asks for "+asked.shown()+", which the rule of the request does not admit")
			}
		}
	}
	return nil
}

// need returns a rule that would admit a hop, for the message.
func (c *Call) need(h *hop, methods []string) Rule {
	t := h.target
	t.query = ""
	t.path = t.path[:strings.LastIndexByte(t.path, '/')+1]
	if len(t.path) > 100 || strings.Contains(t.path, "*") {
		t.path = "/"
	}
	t.path += "*"

	need := Rule{URL: t.String(), Methods: methods, Private: !strings.Contains(t.host, ".")}
	if t.addr.IsValid() {
		switch classify(t.addr) {
		case kindPublic:
			need.Private = false // meant for IPv6
		case kindMetadata, kindUnspecified, kindMulticast:
			return Rule{} // nothing to suggest
		default:
			need.Private = true
		}
	}
	return need
}

func (c *Call) refuse(h *hop, reason Reason, need Rule, why string) *Refusal {
	r := &Refusal{Reason: reason, What: fmt.Sprintf("%s %s is refused: %s", h.method, h.target.shown(), why)}
	if h.number > 0 {
		r.What = "redirect: " + r.What
	}
	if need.URL != "" {
		r.Grant = Patch(need)
	}
	return r
}

// timeout returns the error for a request that ran out of its own time or its call's.
func timeout(err error) error {
	if is[*WaitError](err) {
		return err
	}
	host := "http request"
	if n, ok := errors.AsType[*NetworkError](err); ok {
		host = n.Host
	}
	return &NetworkError{Host: host, Problem: "no complete response in time", Detail: err.Error()}
}

// masked returns err without secrets.
func (c *Call) masked(err error) error {
	mask := func(texts ...*string) {
		for _, s := range texts {
			*s = c.mask.string(*s)
		}
	}

	switch e := err.(type) {
	case *Refusal:
		mask(&e.What, &e.Grant, &e.Detail)
	case *RequestError:
		mask(&e.Problem)
	case *NetworkError:
		mask(&e.Problem, &e.Detail)
		if e.Refusal != nil {
			c.masked(e.Refusal)
		}
	case *LimitError, *SecretError, *WaitError:
	default:
		if !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
			return &NetworkError{Host: "the request", Problem: "failed", Detail: c.mask.string(err.Error())}
		}
	}
	return err
}

// observe reports the end of a hop.
func (c *Call) observe(x *Exchange, start time.Time, err error) {
	x.Duration = time.Since(start)
	r, refused := errors.AsType[*Refusal](err)
	if n, ok := errors.AsType[*NetworkError](err); ok && n.Refusal != nil {
		r, refused = n.Refusal, true
	}
	if refused {
		c.masked(r)
		x.Refusal = cmp.Or(r.Detail, r.What)
	} else if err != nil {
		err = c.masked(err)
		x.Err = err.Error()
		if n, ok := errors.AsType[*NetworkError](err); ok && n.Detail != "" {
			x.Err = n.Detail
		}
	}
	if c.cfg.Observe != nil {
		c.cfg.Observe(*x)
	}
}
