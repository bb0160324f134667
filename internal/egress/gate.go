package egress

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
)

// gates limit the requests in flight by name: a plugin or a host. The clients of one
// name share its permits.
type gates struct {
	max    int
	shared bool
	of     string // kind of name, for messages

	mu  sync.Mutex
	all map[string]*gate
}

// gate holds the permits of one name while somebody holds or awaits one.
type gate struct {
	*fair.Semaphore
	refs int
}

// enter waits for a permit of name. The caller calls leave when it is done. The error is
// a [*WaitError].
func (g *gates) enter(ctx context.Context, name, client string) (leave func(), err error) {
	one := g.open(name)
	if ofClient, err := one.Acquire(ctx, client); err != nil {
		g.close(name, one)
		return nil, &WaitError{For: g.reason(one, ofClient), Err: err}
	}
	return func() { one.Release(client); g.close(name, one) }, nil
}

// try is like enter, but does not wait.
func (g *gates) try(name, client string) (leave func(), ok bool) {
	one := g.open(name)
	if !one.TryAcquire(client) {
		g.close(name, one)
		return nil, false
	}
	return func() { one.Release(client); g.close(name, one) }, true
}

func (g *gates) open(name string) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.all == nil {
		g.all = map[string]*gate{}
	}
	one := g.all[name]
	if one == nil {
		one = &gate{Semaphore: fair.NewSemaphore(g.max, g.shared)}
		g.all[name] = one
	}
	one.refs++
	return one
}

func (g *gates) close(name string, one *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one.refs--; one.refs == 0 {
		delete(g.all, name)
	}
}

func (g *gates) reason(one *gate, ofClient bool) string {
	n, whose := g.max, ""
	if each := one.Each(); ofClient && each < n {
		n, whose = each, " of one client"
	}
	return fmt.Sprintf("at most %d http requests%s %s are in flight at a time: retry when others have ended", n, whose, g.of)
}

// stopwatch ends a request that takes too long. It is paused while the request waits
// for a permit.
type stopwatch struct {
	timer   *time.Timer
	left    time.Duration
	started time.Time
}

// newStopwatch returns a running stopwatch, which calls expire once it has run for limit.
func newStopwatch(limit time.Duration, expire func()) *stopwatch {
	return &stopwatch{timer: time.AfterFunc(limit, expire), left: limit, started: time.Now()}
}

func (s *stopwatch) start() {
	s.started = time.Now()
	s.timer.Reset(s.left)
}

func (s *stopwatch) stop() {
	s.timer.Stop()
	s.left -= time.Since(s.started)
}

// permits waits for the permits of a hop's host and plugin, without counting against the
// request's timeout. It does not hold one while the other is busy, except that a request
// that has found both busy keeps the plugin's.
func (h *hop) permits(ctx context.Context, c *Client, plugin, client string) (leave func(), err error) {
	h.clock.stop()
	defer h.clock.start()

	leaveHost, err := c.hosts.enter(ctx, h.target.host, client)
	if err != nil {
		return nil, err
	}
	leavePlugin, ok := c.plugins.try(plugin, client)
	if ok {
		return func() { leaveHost(); leavePlugin() }, nil
	}

	leaveHost()
	leavePlugin, err = c.plugins.enter(ctx, plugin, client)
	if err != nil {
		return nil, err
	}
	leaveHost, err = c.hosts.enter(ctx, h.target.host, client)
	if err != nil {
		leavePlugin()
		return nil, err
	}
	return func() { leaveHost(); leavePlugin() }, nil
}
