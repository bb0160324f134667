package mcpapi

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

const (
	maxConnections         = 1024               // connections that begin with initialize
	maxConnectionsOfClient = maxConnections / 4 // connections of one client
	connectionTimeout      = 30 * time.Minute   // how long a connection may be idle
	maxInitialize          = 64 << 10           // bytes of the initialize request, which is kept as long as the connection
)

// connections holds the connections that begin with initialize (Mcp-Session-Id). At a
// limit, an idle one is closed, see [fair.Victim]. A connection is busy while it has an
// open request or stream, or an unanswered call.
type connections struct {
	live func() iter.Seq[*mcp.ServerSession] // all sessions of the SDK

	// follow receives the messages of a connection from other hosts while it has open
	// requests; nil if there are no other hosts.
	follow    func(ctx context.Context, owner identity.Caller, id, name string)
	following sync.WaitGroup

	mu    sync.Mutex
	open  map[string]*connection // connections by the SDK's id
	names map[string]string      // the SDK's ids, by the Mcp-Session-Id of clients
}

type connection struct {
	session *mcp.ServerSession
	owner   identity.Caller // caller that opened it: no other user can use it
	ended   context.Context // done once the client ends the connection
	end     context.CancelCauseFunc
	posts   int           // number of open requests, not counting streams
	quiet   chan struct{} // closed once the connection has ended without open requests
	busy    int
	used    time.Time // when the connection was last busy

	name  string // its Mcp-Session-Id
	calls int    // number of requests that are being followed
	still context.CancelFunc
}

// name records the Mcp-Session-Id that the client of a connection uses.
func (c *connections) name(id, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[id]; conn != nil {
		conn.name, c.names[name] = name, id
	}
}

// named returns the SDK's id of a connection that is open here, or "".
func (c *connections) named(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names[name]
}

// closed records that the SDK has closed a connection.
func (c *connections) closed(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[id]; conn != nil {
		delete(c.names, conn.name)
		delete(c.open, id)
	}
}

// followCall follows a connection until leave is called. The caller holds c.mu, and holds
// it again to call leave.
func (c *connections) followCall(conn *connection) (leave func()) {
	if c.follow == nil || conn.name == "" {
		return func() {}
	}
	if conn.calls++; conn.calls == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		conn.still = cancel
		owner, id, name := conn.owner, conn.session.ID(), conn.name
		c.following.Go(func() { c.follow(ctx, owner, id, name) })
	}
	return func() {
		if conn.calls--; conn.calls == 0 {
			conn.still()
		}
	}
}

// enter marks a connection of a user as busy with a request until leave is called, and
// returns the caller that opened it. It reports false if the user has no such connection.
func (c *connections) enter(id, user string, post bool) (owner identity.Caller, leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	conn := c.open[id]
	if conn == nil || conn.owner.User != user || conn.ended.Err() != nil {
		return owner, nil, false
	}
	if !post {
		return conn.owner, c.hold(conn, func() {}), true
	}

	conn.posts++
	return conn.owner, c.hold(conn, func() {
		conn.posts--
		conn.settle()
	}), true
}

// client returns the client that a connection counts against; "" if it is unknown.
func (c *connections) client(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[id]; conn != nil {
		return conn.owner.Client()
	}
	return ""
}

// track marks the connection of a request as busy until leave is called, because before
// 2026-07-28 a call outlives its HTTP request. The first request of a connection adds it.
// The returned context ends with the connection.
func (c *connections) track(ctx context.Context, req mcp.Request) (_ context.Context, leave func()) {
	session, ok := req.GetSession().(*mcp.ServerSession)
	if !ok || session.ID() == "" {
		return ctx, func() {}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	conn := c.open[session.ID()]
	if conn == nil {
		conn = &connection{session: session, owner: originOf(req.GetExtra()).Caller, quiet: make(chan struct{})}
		conn.ended, conn.end = context.WithCancelCause(context.Background())
		c.open[session.ID()] = conn
	}

	if conn.owner.DryRun { // no later request will end it
		ctx = server.WithDryRun(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(conn.ended, func() { cancel(context.Cause(conn.ended)) })
	release := c.hold(conn, c.followCall(conn))
	return ctx, func() {
		stop()
		cancel(nil)
		release()
	}
}

var errSessionEnded = errors.New("the client has ended the session")

// abort cancels the requests of a connection that its client is about to end. The SDK
// would wait for them, and drop their answers. The channel is closed once all are
// answered.
func (c *connections) abort(id string) (quiet <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()

	conn := c.open[id]
	if conn == nil { // it has timed out
		quiet := make(chan struct{})
		close(quiet)
		return quiet
	}

	conn.end(errSessionEnded)
	conn.settle()
	return conn.quiet
}

// settle closes quiet when the connection has ended without open requests. The
// connections are locked.
func (conn *connection) settle() {
	if conn.ended.Err() == nil || conn.posts > 0 {
		return
	}
	select {
	case <-conn.quiet:
	default:
		close(conn.quiet)
	}
}

// hold marks a connection as busy until release is called, which calls end. The caller
// holds c.mu; release locks it itself, and calls end under the lock.
func (c *connections) hold(conn *connection, end func()) (release func()) {
	conn.busy++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		conn.busy--
		conn.used = time.Now()
		end()
	}
}

// admit evicts a connection for a new one of a client if needed. It reports false if
// every candidate is busy.
func (c *connections) admit(client string) bool {
	victim, ok := c.evict(client)
	if victim != nil {
		_ = victim.session.Close() // it is idle, so this does not wait
	}
	return ok
}

// evict returns the connection to close; nil if there is room.
func (c *connections) evict(client string) (victim *connection, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	live, names, own := map[string]*connection{}, map[string]string{}, 0
	for session := range c.live() {
		if conn := c.open[session.ID()]; conn != nil {
			live[session.ID()], names[conn.name] = conn, session.ID()
			if conn.owner.Client() == client {
				own++
			}
		}
	}
	c.open, c.names = live, names
	if len(live) < maxConnections && own < maxConnectionsOfClient {
		return nil, true
	}

	newcomer := client
	if own < maxConnectionsOfClient {
		newcomer = "" // it holds none: any client's may go
	}
	holding := func(conn *connection) fair.Holding {
		return fair.Holding{Key: conn.owner.Client(), Busy: conn.busy > 0, Since: conn.used}
	}
	victim, ok = fair.Victim(maps.Values(live), holding, newcomer)
	if ok {
		delete(c.open, victim.session.ID())
		delete(c.names, victim.name)
	}
	return victim, ok
}
