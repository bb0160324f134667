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
	minConns   = 16   // even if the process may open only a few files
	spareConns = 16   // one in this many connections is never occupied by a request
)

// conns is a listener with a limited number of connections. At the limit, a new
// connection evicts one that no request occupies: it has not sent its headers yet, waits
// for its next request, or was refused. There is always one, because requests may occupy
// fewer connections than the limit.
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

// connLimit is the connection limit of a listener: a quarter of the open-file limit of
// the process. Runs, logs and granted folders need files too, and there are two
// listeners.
func connLimit() int {
	if files := openFiles(); files > 0 {
		return int(min(max(files/4, minConns), maxConns))
	}
	return maxConns
}

// Accept accepts a connection, and evicts another if there are too many.
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
			victim = c // the host has its share, and all of that is busy
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

	busy  bool      // a request occupies it; guarded by of.mu
	since time.Time // when busy last changed; guarded by of.mu
}

func (c *conn) holding() fair.Holding { return fair.Holding{Key: c.host, Busy: c.busy, Since: c.since} }

// Close closes the connection and frees its slot.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite is called by net/http, so that a client can read why it was refused.
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

// hostOf returns the host of an address. For IPv6 it returns the /64 network, because
// one host can use all of its addresses.
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
