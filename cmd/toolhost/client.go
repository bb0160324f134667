package main

import (
	"bytes"
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

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// client talks to a running server.
type client struct {
	http    http.Client
	base    string // URL
	where   string // for people
	token   string
	session string
}

// remote is a command that talks to a running server.
func (a *app) remote(cmd *cobra.Command, run func(c *client, cmd *cobra.Command, args []string) error) *cobra.Command {
	var session string
	flags := cmd.Flags()
	flags.String("addr", "", "`address` of the server: host:port, a URL, or the path of a socket (default: the socket of the data folder)")
	flags.StringVar(&session, "session", wire.DefaultSession, "session the runs belong to")
	flags.Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.config.addr == "" && a.config.data == "" {
			return errNoData
		}
		token, err := a.config.clientToken()
		if err != nil {
			return err
		}
		c, err := newClient(a.config.addr, socketPath(a.config.data), token, session)
		if err != nil {
			return err
		}
		defer c.http.CloseIdleConnections()
		return run(c, cmd, args)
	}
	return cmd
}

// newClient makes a client for an address, or for a socket if it is empty.
func newClient(addr, socket, token, session string) (*client, error) {
	c := &client{session: session, token: token}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token is for this address
	if path, ok := socketOf(addr); ok || addr == "" {
		if addr == "" {
			path = socket
		}
		c.base, c.where, c.token = "http://localhost", path, ""
		c.http.Transport = &http.Transport{
			DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, path) },
			DisableCompression: true, // it would only take time
		}
		return c, nil
	}
	u, err := serverURL(addr)
	if err != nil {
		return nil, err
	}
	c.base, c.where = u.String(), u.Host
	c.http.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment}
	return c, nil
}

// serverURL is the URL of a server over TCP.
func serverURL(addr string) (*url.URL, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, &usageError{fmt.Errorf("invalid address %q", addr), "write host:port, a URL such as http://127.0.0.1:7070, or the path of a socket"}
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

// socketOf is the path in an address that names a socket.
func socketOf(addr string) (string, bool) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return strings.TrimPrefix(path, "//"), true
	}
	return addr, strings.HasPrefix(addr, "/") || strings.HasPrefix(addr, ".")
}

// do sends a request and reads the answer into out, if out is not nil.
func (c *client) do(ctx context.Context, method, path string, in, out any, headers ...string) error {
	resp, err := c.send(ctx, method, path, in, headers...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return c.broken(ctx, err)
	}
	return nil
}

// request makes a request. Headers come as names and values; one without a value
// is left out.
func (c *client) request(ctx context.Context, method, path string, in any, headers ...string) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(httpapi.SessionHeader, c.session)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return req, nil
}

// send sends a request and returns an answer that is no error.
func (c *client) send(ctx context.Context, method, path string, in any, headers ...string) (*http.Response, error) {
	req, err := c.request(ctx, method, path, in, headers...)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.refused(resp)
}

// refused reads an answer that is an error.
func (c *client) refused(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if to := resp.Header.Get("Location"); resp.StatusCode < 400 && to != "" {
		return &usageError{fmt.Errorf("%s redirects to %s, where nothing is sent", c.where, to), "name that server with --addr if it is the right one"}
	}
	p := new(httpapi.Problem)
	if json.Unmarshal(data, p) != nil || p.Code == "" {
		return &usageError{fmt.Errorf("%s answered %s, which is no answer of a Toolhost server", c.where, resp.Status), "look at --addr"}
	}
	return p
}

// unreachable is that no server answers.
type unreachable struct {
	where string
	none  bool // nobody listens there; otherwise the connection broke
	err   error
}

func (e *unreachable) Error() string {
	if e.none {
		return "no server at " + e.where
	}
	return fmt.Sprintf("the server at %s went away: %v", e.where, e.err)
}

func (e *unreachable) Unwrap() error { return e.err }

// broken tells why there was no answer.
func (c *client) broken(ctx context.Context, err error) error {
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	none := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
	return &unreachable{where: c.where, none: none, err: err}
}

// comeback is how long a command that waits waits for a server that went away.
const comeback = 2 * time.Minute

// again says whether to try again after an error: if the server went away, and
// has not been away for too long. It is used by one command at a time.
type again struct {
	bar  *bar      // cleared before anything is said
	met  bool      // it was there once
	gone time.Time // zero while it is there
}

// there is to be called when the server answered.
func (g *again) there() { g.met, g.gone = true, time.Time{} }

// try waits a moment and returns nil if it makes sense to try again.
func (g *again) try(ctx context.Context, err error) error {
	var away *unreachable
	var p *httpapi.Problem
	if !g.met || !errors.As(err, &away) && !(errors.As(err, &p) && p.Code == httpapi.CodeClosing) {
		return err
	}
	if g.gone.IsZero() {
		g.gone = time.Now()
		g.bar.clear()
		g.bar.notef("toolhost: %v; waiting for it to come back", err)
	}
	if time.Since(g.gone) > comeback {
		return err
	}
	return pause(ctx, 200*time.Millisecond)
}

// pause waits so long, and returns ctx's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
