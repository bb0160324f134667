// Package client is a Go client for the HTTP API of a Toolhost server: calls, background
// runs with their output, notices, schedules and events.
//
//	c, err := client.New("127.0.0.1:7070", client.Options{Token: token})
//	result, err := c.Call(ctx, wire.Call{Tool: "primes", Args: json.RawMessage(`{"limit":100}`)})
//
// Requests and responses have the types of package wire. For an error response, the error
// is a [*wire.Problem]; branch on its Code only. Without a response, the error is an
// [*Unreachable] or the error of the context.
//
// docs/http.md describes the endpoints.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

// Options configure a [Client]. The zero value is ready for use.
type Options struct {
	// Token is sent over TCP: the server's static token, or an access token.
	// A socket needs no token, so it is not sent there.
	Token string
	// Session is the session of all requests. The default is [wire.DefaultSession].
	Session string
	// DryRun makes all requests dry runs, which change nothing: readonly tools are
	// called, and every other request only returns what it would do.
	DryRun bool
	// ApprovalToken is sent with decisions on approvals over TCP.
	ApprovalToken string
	// Transport sends the requests. If nil, the client connects to the address itself;
	// over TCP it uses the proxy that the environment sets.
	Transport http.RoundTripper
}

// Client sends requests to one server, for one session. It is safe for
// concurrent use.
type Client struct{ connection }

// connection sends the requests of a client.
type connection struct {
	http            http.Client
	base            string // URL that request paths are appended to
	url             string // URL of the server; empty for a socket
	address         string // address of the server, for messages
	token, approval string
	session         string
	dryRun          string // value of wire.DryRunHeader
}

// New returns a client for an address: host:port, a URL without a path, or a socket. A
// socket is a path that begins with a slash or a dot, or unix:PATH. New does not connect.
// The error is an [*AddressError].
func New(address string, opts Options) (*Client, error) {
	c := &Client{connection{token: opts.Token, approval: opts.ApprovalToken, session: cmp.Or(opts.Session, wire.DefaultSession)}}
	if opts.DryRun {
		c.dryRun = "true"
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token is for this server only

	if path, ok := socketPath(address); ok {
		c.base, c.address, c.token = "http://localhost", path, ""
		c.http.Transport = &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
		}
	} else {
		u, err := serverURL(address)
		if err != nil {
			return nil, err
		}
		c.base, c.url, c.address = u.String(), u.String(), u.Host
		c.http.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}

	if opts.Transport != nil {
		c.http.Transport = opts.Transport
	}
	return c, nil
}

// Close closes idle connections. It does not cancel requests.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Address returns the host and port, or the socket path, of the server.
func (c *Client) Address() string { return c.address }

// URL returns the URL of the server, without a path; empty for a socket.
func (c *Client) URL() string { return c.url }

func serverURL(address string) (*url.URL, error) {
	text, hasScheme := address, strings.Contains(address, "://")
	if !hasScheme {
		text = "http://" + text
	}

	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !hasScheme && u.Port() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, &AddressError{fmt.Sprintf("invalid address %q: want host:port, a URL such as http://127.0.0.1:7070, or the path of a socket", address)}
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

func socketPath(address string) (string, bool) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return strings.TrimPrefix(path, "//"), true
	}
	return address, strings.HasPrefix(address, "/") || strings.HasPrefix(address, ".")
}

// Do sends a request and decodes the response into out, unless out is nil. Use it for
// endpoints that no other method of Client calls. The value in is sent as JSON; if it is
// nil, there is no body. The headers alternate between names and values; a header with an
// empty value is left out.
func (c *Client) Do(ctx context.Context, method, path string, in, out any, headers ...string) error {
	resp, err := c.send(ctx, method, path, in, headers...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return unreachable(ctx, c.address, err)
	}
	return nil
}

func do[Out any](ctx context.Context, c *Client, method, path string, in any, headers ...string) (out Out, err error) {
	err = c.Do(ctx, method, path, in, &out, headers...)
	return out, err
}

// send sends a request and returns the response, unless that is an error.
func (c *connection) send(ctx context.Context, method, path string, in any, headers ...string) (*http.Response, error) {
	body := new(bytes.Buffer)
	if in != nil {
		if err := json.NewEncoder(body).Encode(in); err != nil {
			return nil, err
		}
		headers = append(headers, "Content-Type", "application/json")
	}

	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	headers = append([]string{"User-Agent", "toolhost-client"}, headers...)
	headers = append(headers, wire.SessionHeader, c.session, wire.DryRunHeader, c.dryRun)
	if c.token != "" {
		headers = append(headers, "Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}

	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, c.address, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problem(c.address, resp)
}

// maxProblem limits the body of an error response, in bytes.
const maxProblem = 64 << 10

// problem decodes an error response.
func problem(address string, resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // an incomplete body does not decode as a problem
	if to := resp.Header.Get("Location"); resp.StatusCode < 400 && to != "" {
		return &AddressError{fmt.Sprintf("%s redirects to %s: use that address if it is the right one", address, to)}
	}

	p := new(wire.Problem)
	if json.Unmarshal(data, p) != nil || p.Code == "" {
		return &AddressError{fmt.Sprintf("%s is not a Toolhost server: unexpected response %s", address, resp.Status)}
	}
	return p
}

// An AddressError reports an invalid address, or an address of something other than a
// Toolhost server.
type AddressError struct{ Text string }

// Error returns the text.
func (e *AddressError) Error() string { return e.Text }

// Unreachable reports that there was no response: no server listens at the address, or
// the connection broke.
type Unreachable struct {
	Address string
	Refused bool // no server listens at the address
	Err     error
}

// Error returns a text that names the address.
func (e *Unreachable) Error() string {
	if e.Refused {
		return "no server at " + e.Address
	}
	return fmt.Sprintf("lost the server at %s: %v", e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// unreachable returns why there was no response: the error of ctx if it is done,
// otherwise an [*Unreachable].
func unreachable(ctx context.Context, address string, err error) error {
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}

	refused := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
	return &Unreachable{Address: address, Refused: refused, Err: err}
}

// Retry decides how long requests to a server that is restarting are repeated: for two
// minutes with the zero value. It is not safe for concurrent use.
type Retry struct {
	For  time.Duration   // how long the server may be unreachable; 0 means two minutes
	Away func(err error) // called once each time the server becomes unreachable; may be nil

	reached bool
	since   time.Time // when the server became unreachable; zero while it is reachable
}

// Reached records that the server has responded. Until it has been called, no request is
// repeated.
func (r *Retry) Reached() { r.reached, r.since = true, time.Time{} }

// Wait decides whether to repeat the request that failed with err. If the server became
// unreachable less than r.For ago, it waits 200 ms and returns nil. Otherwise it returns
// err, or the error of ctx.
func (r *Retry) Wait(ctx context.Context, err error) error {
	var lost *Unreachable
	var p *wire.Problem
	away := errors.As(err, &p) && (p.Code == wire.CodeClosing || p.Code == wire.CodeUnavailable)
	if !r.reached || !errors.As(err, &lost) && !away {
		return err
	}

	if r.since.IsZero() {
		r.since = time.Now()
		if r.Away != nil {
			r.Away(err)
		}
	}

	if time.Since(r.since) > cmp.Or(r.For, 2*time.Minute) {
		return err
	}

	select {
	case <-time.After(200 * time.Millisecond):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
