package egress

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"
)

// exchange makes one hop. If the response is a redirect and follow is set, it
// returns the location, and a response without a body.
func (c *Call) exchange(ctx context.Context, h *hop, follow bool) (resp *Response, location string, err error) {
	// Refused hops count too. Hops over the limit are not observed, so that a
	// plugin cannot fill the log.
	if err := c.shared.count(c.limits.requests); err != nil {
		return nil, "", err
	}

	x := c.exchangeOf(h)
	start := time.Now()
	defer func() { c.observe(&x, start, err) }()

	r, err := c.admit(h)
	if err != nil {
		return nil, "", err
	}
	limit := cmp.Or(r.MaxBody, c.limits.maxBody)
	if err := c.sendable(h, limit); err != nil {
		return nil, "", err
	}

	req, err := c.request(ctx, h, r)
	if err != nil {
		return nil, "", err
	}
	x.Secret, x.Sent = r.Secret, int64(len(h.body))

	raw, done, err := c.roundTrip(ctx, h, r, req, &x)
	defer done()
	if err != nil {
		return nil, "", err
	}
	defer raw.Body.Close()
	x.Status = raw.StatusCode

	if follow && isRedirect(raw) {
		io.Copy(io.Discard, io.LimitReader(raw.Body, 4<<10)) // so that the connection can be reused
		return &Response{Status: raw.StatusCode}, raw.Header.Get("Location"), nil
	}
	resp, err = c.response(h, r, raw, limit)
	if resp != nil {
		x.Received = int64(len(resp.Body))
	}
	return resp, "", err
}

func (c *Call) exchangeOf(h *hop) Exchange {
	return Exchange{Plugin: c.cfg.Plugin, User: c.cfg.User, Method: h.method, Scheme: h.target.scheme, Host: h.target.hostPort(), Hop: h.number}
}

func (c *Call) sendable(h *hop, limit int64) error {
	if int64(len(h.body)) > limit {
		return &LimitError{What: "request body for " + h.target.host, Limit: limit, Unit: "bytes", Grant: "max_body"}
	}
	return c.shared.spend(int64(len(h.body)), c.limits.bytes)
}

// request makes the request of a hop, with its secret.
func (c *Call) request(ctx context.Context, h *hop, r *rule) (*http.Request, error) {
	header, query := h.header.Clone(), h.target.query
	for name := range header {
		if c.cfg.Policy.hasSecret() && (alike(name, "Range") || alike(name, "If-Range")) {
			return nil, &RequestError{"headers", name + ": a plugin with secrets cannot ask for a part of a response: the part could have a part of a secret"}
		}
	}
	if r.Secret != "" {
		s, err := c.secret(ctx, h, r)
		if err != nil {
			return nil, err
		}
		query = s.apply(header, query)
		h.param = s.Place.Query
	}

	// A range refers to the encoded body, so no encoding is requested with one.
	if header.Get("Range") == "" && h.method != http.MethodHead {
		header["Accept-Encoding"] = []string{"gzip"}
	} else {
		header["Accept-Encoding"] = []string{"identity"}
	}

	// The transport repeats a request with this field if the server has closed the
	// connection meanwhile. It does not send an empty one.
	if _, given := header["Idempotency-Key"]; !given && repeatable(h.method, h.header) {
		header["Idempotency-Key"] = []string{}
	}

	u, err := h.target.url(query)
	if err != nil {
		return nil, &RequestError{"url", err.Error()}
	}
	req, err := http.NewRequestWithContext(ctx, h.method, "/", bytes.NewReader(h.body))
	if err != nil {
		return nil, err
	}
	req.URL, req.Host, req.Header = u, u.Host, header
	return req, nil
}

// secret returns the secret of a rule if it may go to the target.
func (c *Call) secret(ctx context.Context, h *hop, r *rule) (Secret, error) {
	if c.cfg.Secrets == nil {
		return Secret{}, &SecretError{r.Secret, ErrNoSecret}
	}
	s, err := c.cfg.Secrets.Secret(ctx, r.Secret)
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return Secret{}, &SecretError{r.Secret, err}
	}

	switch {
	case !matchHosts(s.Hosts, &h.target):
		return Secret{}, c.refuse(h, ReasonSecret, Rule{}, fmt.Sprintf("the secret %q is not for this host: the operator must add it to the hosts of the secret", r.Secret))
	case h.target.scheme == "http" && !s.HTTP:
		return Secret{}, c.refuse(h, ReasonSecret, Rule{}, fmt.Sprintf("the secret %q goes over https only", r.Secret))
	}

	c.mask.add(r.Secret, s.Value) // before it is sent, since an error can contain it too
	return s, nil
}

// learn adds the secrets of the other rules to the mask, once: a server may echo what an
// earlier request of any call has sent, even in an error. A secret that cannot be read now
// is left out.
func (c *Call) learn(ctx context.Context, used string) {
	c.learning.Lock()
	defer c.learning.Unlock()
	if c.learned || c.cfg.Secrets == nil {
		return
	}

	asked := map[string]bool{"": true, used: true}
	for _, r := range c.cfg.Policy.rules {
		if asked[r.Secret] {
			continue
		}
		asked[r.Secret] = true
		if s, err := c.cfg.Secrets.Secret(ctx, r.Secret); err == nil {
			c.mask.add(r.Secret, s.Value)
		}
	}
	c.learned = ctx.Err() == nil
}

// roundTrip sends a request once it has permits for its host and its plugin. The caller calls done
// after it has read the body.
func (c *Call) roundTrip(ctx context.Context, h *hop, r *rule, req *http.Request, x *Exchange) (resp *http.Response, done func(), err error) {
	leave, err := h.permits(ctx, c.client, c.cfg.Plugin, c.cfg.Client)
	if err != nil {
		return nil, func() {}, err
	}

	c.learn(ctx, r.Secret)
	proxied := c.client.proxied(r.Private)
	// A server may close a connection that is idle just when a request is sent, which then
	// fails if it must not be repeated.
	p := c.client.acquire(poolKey{c.cfg.Plugin, c.cfg.User, r.Secret, r.Private, !repeatable(h.method, h.header)})
	done = func() { c.client.release(p); leave() }
	if proxied {
		if err := c.client.checkProxied(ctx, &h.target); err != nil {
			return nil, done, c.failure(h, r, err)
		}
	}

	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if tcp, ok := info.Conn.RemoteAddr().(*net.TCPAddr); ok && !proxied {
			x.Address = tcp.AddrPort()
		}
	}}
	resp, err = p.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		return nil, done, c.failure(h, r, err)
	}
	if resp.ProtoMajor == 1 && bodiless(h.method, resp.StatusCode) {
		p.transport.CloseIdleConnections()
	}
	return resp, done, nil
}

// bodiless reports whether a response has no body, whatever its header says. Bytes that a
// server sends anyway would be taken for the next response on the connection.
func bodiless(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
}

// response reads and masks a response.
func (c *Call) response(h *hop, r *rule, raw *http.Response, limit int64) (*Response, error) {
	if raw.StatusCode == http.StatusSwitchingProtocols {
		return nil, &NetworkError{Host: h.target.host, Problem: "the server switched protocols, which was not asked for"}
	}
	if raw.StatusCode == http.StatusPartialContent && c.cfg.Policy.hasSecret() {
		return nil, &NetworkError{Host: h.target.host, Problem: "the server sent a part of a response (206), which could have a part of a secret"}
	}
	if fields, _ := sizeOf(raw.Header); fields > MaxResponseHeaders {
		return nil, &LimitError{What: "response headers of " + h.target.host, Limit: MaxResponseHeaders, Unit: "fields"}
	}

	body, err := c.readBody(h, r, raw, limit)
	if err != nil {
		return nil, err
	}

	body, err = c.mask.within(raw.Request.Context(), body, limit)
	if errors.Is(err, errLonger) {
		return nil, h.tooLarge(limit)
	}
	if err != nil {
		return nil, c.failure(h, r, err)
	}

	header := raw.Header
	cleanResponse(header)
	c.mask.header(header)
	if _, size := sizeOf(header); size > MaxHeaderBytes {
		return nil, &LimitError{What: "response headers of " + h.target.host, Limit: MaxHeaderBytes, Unit: "bytes"}
	}
	if h.method != http.MethodHead && raw.StatusCode != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return &Response{Status: raw.StatusCode, URL: c.mask.string(h.target.String()), Header: header, Body: body}, nil
}

func (h *hop) tooLarge(limit int64) *LimitError {
	return &LimitError{What: "response body of " + h.target.host, Limit: limit, Unit: "bytes", Grant: "max_body"}
}

// readBody reads and decodes a body within its limit.
func (c *Call) readBody(h *hop, r *rule, raw *http.Response, limit int64) ([]byte, error) {
	tooLarge := h.tooLarge(limit)
	if h.method == http.MethodHead {
		return nil, nil
	}
	if raw.ContentLength > limit {
		return nil, tooLarge
	}

	encoding := strings.ToLower(strings.TrimSpace(strings.Join(raw.Header.Values("Content-Encoding"), ",")))
	encoded := encoding == "gzip" || encoding == "x-gzip"
	switch {
	case encoded:
		raw.Header.Del("Content-Encoding")
	case encoding != "" && encoding != "identity" && c.cfg.Policy.hasSecret():
		return nil, &NetworkError{Host: h.target.host, Problem: "the body has an encoding that was not asked for, so that secrets in it could not be masked"}
	}
	body, err := readAll(raw.Body, encoded, limit)
	if err == nil {
		// Over TLS, a server can notice a stop first and end the body as if it
		// were complete, before the transport has closed its side.
		err = raw.Request.Context().Err()
	}
	if is[*http.MaxBytesError](err) {
		return nil, tooLarge
	}
	if err != nil {
		return nil, c.failure(h, r, err)
	}
	return body, c.shared.spend(int64(len(body)), c.limits.bytes)
}

// readAll reads a body, and decodes gzip. The encoded size is limited too, because a body
// can decode to nothing forever.
func readAll(body io.ReadCloser, encoded bool, limit int64) ([]byte, error) {
	in := http.MaxBytesReader(nil, body, limit)
	if encoded {
		buffered := bufio.NewReader(in)
		if _, err := buffered.Peek(1); err == io.EOF {
			return nil, nil // an empty body stays empty, whatever its header says
		}
		gz, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		in = http.MaxBytesReader(nil, gz, limit)
	}

	var out bytes.Buffer
	_, err := out.ReadFrom(in)
	return out.Bytes(), err
}

// failure turns an error of the transport into one for the agent.
func (c *Call) failure(h *hop, r *rule, err error) error {
	wildcard := hostRank(r.pattern.host) < 2 && !h.target.addr.IsValid()
	if e, ok := errors.AsType[*addressError](err); ok {
		refusal := c.refuseAddress(h, r, e)
		if !wildcard {
			return refusal
		}
		return &NetworkError{Host: h.target.hostPort(), Problem: noHost, Detail: refusal.Detail, Refusal: refusal}
	}
	if e, ok := errors.AsType[*LimitError](err); ok {
		return e
	}
	problem := problemOf(err)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound && wildcard {
		problem = noHost
	}
	return &NetworkError{Host: h.target.hostPort(), Problem: problem, Detail: err.Error()}
}

// noHost is the problem reported for a name that a rule admits by a wildcard, whether the
// name does not exist or its address is not admitted.
const noHost = "no such host, or none at an address that the rule of the plugin allows"

// refuseAddress hides the address from the agent: it belongs to the operator's
// network.
func (c *Call) refuseAddress(h *hop, r *rule, e *addressError) *Refusal {
	need := Rule{}
	if e.kind == kindPrivate || e.kind == kindLoopback {
		need = Rule{URL: h.target.origin() + "/*", Methods: []string{h.method}, Private: true}
	}
	refusal := c.refuse(h, ReasonAddress, need, "the host is at "+article(e.kind))
	if r.Private && e.kind != kindMulticast && e.kind != kindUnspecified {
		refusal.What += ", which a private rule admits only by the address itself"
	}
	refusal.Detail = refusal.What + ": " + e.Error()
	return refusal
}
