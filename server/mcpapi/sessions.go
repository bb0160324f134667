package mcpapi

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxSessions         = 1024             // of clients that begin with initialize, at once
	maxSessionsOfClient = maxSessions / 4  // of those under one name
	sessionTimeout      = 30 * time.Minute // without a request
	maxInitialize       = 64 << 10         // bytes of the request that begins one: what it says is kept as long
)

// sessions are the connections of clients that begin with initialize. Making one
// is free for a client, so there are bounds, and at a bound one that nobody uses
// gives way: that which was used the longest time ago, of the client that has
// the most. A session in use stays: it has a request or a stream that is open,
// or a call that is not answered.
type sessions struct {
	live func() iter.Seq[*mcp.ServerSession] // those of the SDK
	max  int
	each int // of one client

	mu     sync.Mutex
	of     map[string]*connection // by Mcp-Session-Id
	making int                    // those whose id is not known yet
}

// connection is what is known of one of them.
type connection struct {
	owner string // the client it counts for, see fair.ClientOf
	busy  int
	used  time.Time // when it was last busy
	gone  bool      // gave way, and is being closed
}

func newSessions(live func() iter.Seq[*mcp.ServerSession]) *sessions {
	return &sessions{live: live, max: maxSessions, each: maxSessionsOfClient, of: map[string]*connection{}}
}

// enter begins a request within a session. It is false for one that is not
// there.
func (s *sessions) enter(id, owner string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[id]
	if c == nil && s.find(id) != nil { // the client was quicker than we, see admit
		c = &connection{owner: owner}
		s.of[id] = c
	}
	if c == nil || c.gone {
		return nil, false
	}
	return s.hold(c), true
}

// hold makes a session busy until the function is called. s.mu is held.
func (s *sessions) hold(c *connection) (release func()) {
	c.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.busy--
		c.used = time.Now()
	}
}

// find returns a session of the SDK.
func (s *sessions) find(id string) *mcp.ServerSession {
	for session := range s.live() {
		if session.ID() == id {
			return session
		}
	}
	return nil
}

// admit makes room for a session, unless all are in use. made takes the id of
// what was made, "" if nothing was.
func (s *sessions) admit(owner string) (made func(id string), ok bool) {
	victim, ok := s.reserve(owner)
	if !ok {
		return nil, false
	}
	if victim != "" {
		if session := s.find(victim); session != nil {
			_ = session.Close() // it is idle, so that this does not wait
		}
	}
	return func(id string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making--
		if s.of[id] == nil && id != "" {
			s.of[id] = &connection{owner: owner, used: time.Now()}
		}
	}, true
}

// reserve counts a session that is to be made, and says which one gives way.
func (s *sessions) reserve(owner string) (victim string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	total, of := s.making, map[string]int{}
	for _, c := range s.of {
		if !c.gone {
			total++
			of[c.owner]++
		}
	}
	full, greedy := total >= s.max, of[owner] >= s.each
	if full || greedy {
		for id, c := range s.of {
			switch {
			case c.busy > 0 || c.gone || greedy && c.owner != owner:
			case victim == "", s.before(c, s.of[victim], of):
				victim = id
			}
		}
		if victim == "" {
			return "", false
		}
		s.of[victim].gone = true
	}
	s.making++
	return victim, true
}

// before reports whether a is to give way before b.
func (s *sessions) before(a, b *connection, of map[string]int) bool {
	if of[a.owner] != of[b.owner] {
		return of[a.owner] > of[b.owner]
	}
	return a.used.Before(b.used)
}

// prune forgets sessions that have ended.
func (s *sessions) prune() {
	there := map[string]bool{}
	for session := range s.live() {
		there[session.ID()] = true
	}
	for id := range s.of {
		if !there[id] {
			delete(s.of, id)
		}
	}
}

// track keeps a session busy while it has calls that are not answered, also when
// the request that brought them is gone.
func (s *sessions) track(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if session, ok := req.GetSession().(*mcp.ServerSession); ok && session != nil {
			s.mu.Lock()
			if c := s.of[session.ID()]; c != nil {
				defer s.hold(c)()
			}
			s.mu.Unlock()
		}
		return next(ctx, method, req)
	}
}
