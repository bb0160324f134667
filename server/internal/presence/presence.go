// Package presence lists the clients that are connected to a server, or were recently.
package presence

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxListed = 1024             // maximum number of clients that are listed
	listedFor = 30 * time.Minute // how long a client is listed after its last request
	maxName   = 64               // maximum length of a client's name, in characters
)

// Clients lists the clients that have sent requests recently, for operators. The zero value
// is empty. It is safe for concurrent use.
type Clients struct {
	mu   sync.Mutex
	byID map[string]*connection
}

type connection struct {
	wire.ClientConnection
	key string // fairness key of the client
}

// List returns the clients that are connected, or have sent a request in the last 30
// minutes: at most 1,024, the latest request first.
func (c *Clients) List() []wire.ClientConnection {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()

	out := make([]wire.ClientConnection, 0, len(c.byID))
	for _, conn := range c.byID {
		out = append(out, conn.ClientConnection)
	}
	slices.SortFunc(out, func(a, b wire.ClientConnection) int {
		return cmp.Or(b.LastRequestAt.Compare(a.LastRequestAt), b.Since.Compare(a.Since), cmp.Compare(a.Session, b.Session))
	})
	return out
}

// Begin records a request of a client. Transports call it for each request, and call the
// function end once the request is answered. The parameter id identifies the connection, and
// client is the key by which the limits of the client are counted.
func (c *Clients) Begin(id, client string, of wire.ClientConnection) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()

	conn := c.byID[id]
	if conn == nil {
		if conn = c.admit(id, client); conn == nil {
			return func() {}
		}
	}

	of.Client, of.ClientVersion = output.Shorten(of.Client, maxName), output.Shorten(of.ClientVersion, maxName) // safe to show
	of.Since, of.LastRequestAt, of.InFlight = conn.Since, time.Now().UTC(), conn.InFlight+1
	conn.ClientConnection = of
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		conn.InFlight--
		conn.LastRequestAt = time.Now().UTC()
	}
}

// Remove removes a connection. Transports call it when the connection has ended.
func (c *Clients) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, id)
}

// admit makes room for a new connection. It returns nil if all others are busy.
func (c *Clients) admit(id, client string) *connection {
	if c.byID == nil {
		c.byID = map[string]*connection{}
	}
	if len(c.byID) >= maxListed {
		c.expire()
	}
	if len(c.byID) >= maxListed {
		victim, ok := fair.Victim(maps.Keys(c.byID), func(id string) fair.Holding {
			conn := c.byID[id]
			return fair.Holding{Key: conn.key, Busy: conn.InFlight > 0, Since: conn.LastRequestAt}
		}, client)
		if !ok {
			return nil
		}
		delete(c.byID, victim)
	}

	conn := &connection{key: client}
	conn.Since = time.Now().UTC()
	c.byID[id] = conn
	return conn
}

// expire removes connections without a recent request.
func (c *Clients) expire() {
	maps.DeleteFunc(c.byID, func(_ string, conn *connection) bool {
		return conn.InFlight == 0 && time.Since(conn.LastRequestAt) > listedFor
	})
}
