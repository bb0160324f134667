package httpapi

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server/identity"
)

const (
	maxConns    = 4096        // connections of a listener, at once
	minConns    = 16          // however few files the process may open
	maxBodies   = 256 << 20   // bytes of the bodies of requests that are being answered
	maxAnswers  = 256 << 20   // bytes of answers that wait for their clients to take them
	partOfOne   = 4           // one client can have one in so many of what is bounded
	spareConns  = 16          // one in so many connections is held by no request
	refusedWait = time.Second // for the body of a request that was refused
)

// conns is a listener whose connections are bounded. One more than there may be
// takes the place of one that no request holds: it has sent no head yet, waits
// for its next request, or was refused. Of these that one goes which has been so
// for the longest time, of the host that has the most. Requests hold fewer than
// there may be, so that there always is one, and no client holds them all.
type conns struct {
	net.Listener
	max      int
	requests *fair.Pool

	mu  sync.Mutex
	all map[*conn]bool
	of  map[string]int // by host
}

func newConns(l net.Listener, most int) *conns {
	held := most - most/spareConns
	return &conns{Listener: l, max: most, requests: fair.NewPool(held, held/partOfOne), all: map[*conn]bool{}, of: map[string]int{}}
}

// connLimit is how many connections a listener may have: a quarter of the files
// that the process may open, for runs, their logs and granted folders need some
// too, and there are two listeners.
func connLimit() int {
	if files := openFiles(); files > 0 {
		return int(min(max(files/4, minConns), maxConns))
	}
	return maxConns
}

// Accept makes room for the connection it returns.
func (p *conns) Accept() (net.Conn, error) {
	inner, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, pool: p, host: hostOf(inner.RemoteAddr()), since: time.Now()}
	p.mu.Lock()
	var victim *conn
	if len(p.all) >= p.max {
		victim = p.victim()
	}
	p.all[c] = true
	p.of[c.host]++
	p.mu.Unlock()
	if victim != nil {
		_ = victim.Close()
	}
	return c, nil
}

// victim is the connection that gives way. p.mu is held.
func (p *conns) victim() *conn {
	var found *conn
	for c := range p.all {
		switch {
		case c.busy:
		case found == nil, p.of[c.host] > p.of[found.host],
			p.of[c.host] == p.of[found.host] && c.since.Before(found.since):
			found = c
		}
	}
	return found
}

// conn is a connection of a listener.
type conn struct {
	net.Conn
	pool *conns
	host string

	busy  bool      // a request holds it; pool.mu guards it
	since time.Time // it is not busy; likewise
}

// Close closes it, and there is room for another.
func (c *conn) Close() error {
	c.pool.mu.Lock()
	if c.pool.all[c] {
		delete(c.pool.all, c)
		if c.pool.of[c.host]--; c.pool.of[c.host] == 0 {
			delete(c.pool.of, c.host)
		}
	}
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite is for net/http, which lets a client read what it was refused with.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// hold has a request of a client hold the connection until release.
func (c *conn) hold(who client) (release func(), err error) {
	if limit, ok := who.take(c.pool.requests, 1); !ok {
		return nil, tooMany(limit, "the server answers %d requests already", limit)
	}
	c.set(true)
	return func() {
		c.set(false)
		c.pool.requests.Give(who.name, 1)
	}, nil
}

func (c *conn) set(busy bool) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.busy, c.since = busy, time.Now()
}

type connKey struct{}

// withConn lets requests know their connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// hold has a request of a client hold its connection, if an API accepted it.
func hold(r *http.Request, who client) (release func(), err error) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		return c.hold(who)
	}
	return func() {}, nil
}

// client is who the bounds on what one client can have hold for: a user, or a
// session of the operator's. The operator may name any session, so that these
// keep clients apart that do not mean harm, and not who has the token.
type client struct {
	name     string
	operator bool
}

func clientOf(r *http.Request) client {
	c := identity.FromContext(r.Context())
	return client{c.Client(), c.Operator()}
}

// take takes places of a pool.
func (c client) take(p *fair.Pool, n int) (limit int, ok bool) {
	return p.TakeBelow(c.most(p), c.name, n)
}

// most is how many places of a pool such clients can have together. Users leave
// some to the operator: an eighth.
func (c client) most(p *fair.Pool) int {
	if c.operator {
		return p.Max()
	}
	return p.Max() - p.Max()/8
}

// hostOf is the host an address is of, as far as that can be told: the network
// of an address of IPv6, of which a host has more than it needs.
func hostOf(addr net.Addr) string {
	a, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.Network() // a unix socket
	}
	ip := a.Addr().Unmap()
	if ip.Is6() {
		network, _ := ip.WithZone("").Prefix(64)
		return network.String()
	}
	return ip.String()
}

// tooMany refuses what is beyond a limit.
func tooMany(limit int, format string, args ...any) *Problem {
	p := refuse(CodeLimit, format+": try again later", args...)
	p.Max, p.retry = limit, 1
	return p
}

// upload is the body of a request, which counts for its client from when it is
// read until the request is answered: arguments are kept as long.
type upload struct {
	io.ReadCloser
	pool *fair.Pool
	who  client
	size int
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if limit, ok := u.who.take(u.pool, n); !ok {
		return 0, busyError{tooMany(limit, "bodies of requests take %d bytes already", limit)}
	}
	u.size += n
	return n, err
}

func (u *upload) done() { u.pool.Give(u.who.name, u.size) }

// busyError tells a handler of another protocol that the body may be sent again.
type busyError struct{ *Problem }

// Temporary is as of net.Error.
func (busyError) Temporary() bool { return true }
func (e busyError) Unwrap() error { return e.Problem }
