package httpapi

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
)

const (
	maxConns   = 4096 // connections of a listener
	minConns   = 16   // however few files the process may open
	spareConns = 16   // one in so many connections is never occupied by a request
)

// conns is a listener with a bounded number of connections. A new one evicts one
// that no request occupies: it has sent no head yet, waits for its next request,
// or was refused. Requests occupy fewer than there may be, so there is always one.
type conns struct {
	net.Listener
	max      int
	requests *fair.Pool

	mu  sync.Mutex
	all map[*conn]bool
}

func newConns(l net.Listener, max int) *conns {
	requests := max - max/spareConns
	return &conns{Listener: l, max: max, requests: fair.NewPool(requests, requests/perClient), all: map[*conn]bool{}}
}

// connLimit is how many connections a listener may have: a quarter of the files
// the process may open. Runs, logs and granted folders need files too, and there
// are two listeners.
func connLimit() int {
	if files := openFiles(); files > 0 {
		return int(min(max(files/4, minConns), maxConns))
	}
	return maxConns
}

// Accept evicts a connection if there are too many.
func (l *conns) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	c := &conn{Conn: inner, of: l, host: hostOf(inner.RemoteAddr()), since: time.Now()}
	l.mu.Lock()
	var victim *conn
	if len(l.all) >= l.max {
		var ok bool
		if victim, ok = fair.Victim(maps.Keys(l.all), (*conn).holding, c.host); !ok {
			victim = c // its host has enough, and all of it is busy
		}
	}
	l.all[c] = true
	l.mu.Unlock()

	if victim != nil {
		_ = victim.Close()
	}
	return c, nil
}

// conn is a connection of a listener.
type conn struct {
	net.Conn
	of   *conns
	host string

	busy  bool      // a request occupies it; of.mu guards it
	since time.Time // since when it is not busy; likewise
}

func (c *conn) holding() fair.Holding { return fair.Holding{Key: c.host, Busy: c.busy, Since: c.since} }

// Close closes the connection and makes room for another.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets a client read why it was refused. net/http calls it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *conn) setBusy(busy bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy, c.since = busy, time.Now()
}

type connKey struct{}

// withConn lets requests find their connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// hostOf is the host of an address: for IPv6 its network, because a host has
// more addresses than it needs.
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
