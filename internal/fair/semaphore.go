package fair

import (
	"context"
	"slices"
	"sync"
)

// Semaphore is a number of slots that clients wait for. A slot that comes free
// goes to the client that holds the fewest, and of those to the one that has
// waited longest; the requests of one client are served in order. So a client
// with many requests does not hold up the others, and one without a slot gets
// its first before anybody gets another.
//
// It keeps no state of a client that neither holds nor awaits a slot. It is safe for
// concurrent use.
type Semaphore struct {
	max, each int

	mu      sync.Mutex
	held    int
	arrived int64 // requests that had to wait: their order
	clients map[string]*client
	waiting []*client // those with requests, in any order
	spare   *client   // to be used again; nil if there is none
}

// client is what one client holds and awaits.
type client struct {
	key   string
	held  int
	queue []*request
}

// request waits for a slot.
type request struct {
	arrived int64
	granted chan struct{} // closed once it has a slot
}

// NewSemaphore returns a semaphore with max slots, of which one client can hold at
// most each.
func NewSemaphore(max, each int) *Semaphore {
	return &Semaphore{max: max, each: each, clients: map[string]*client{}}
}

// Each is how many slots one client can hold.
func (s *Semaphore) Each() int { return s.each }

// TryAcquire takes a slot if one is free for the client. It does not wait.
func (s *Semaphore) TryAcquire(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	// A free slot is one that no request in the queue can have: see dispatch.
	c := s.client(key)
	ok := s.held < s.max && c.held < s.each
	if ok {
		s.take(c)
	}
	s.forget(c)
	return ok
}

// Acquire waits for a slot. Its error is that of ctx, which has ended first; then
// ofKey says that the client has reached its own cap, and slots are free.
func (s *Semaphore) Acquire(ctx context.Context, key string) (ofKey bool, err error) {
	r := s.enter(key)
	if r == nil {
		return false, nil
	}

	select {
	case <-r.granted:
		return false, nil
	case <-ctx.Done():
		return s.withdraw(key, r), ctx.Err()
	}
}

// Release returns a slot of a client, and gives it to the next request.
func (s *Semaphore) Release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(s.clients[key])
}

// enter takes a slot, or else returns the request that waits for one.
func (s *Semaphore) enter(key string) *request {
	s.mu.Lock()
	defer s.mu.Unlock()

	c := s.client(key)
	if s.held < s.max && c.held < s.each {
		s.take(c)
		return nil
	}

	s.arrived++
	r := &request{s.arrived, make(chan struct{})}
	if c.queue = append(c.queue, r); len(c.queue) == 1 {
		s.waiting = append(s.waiting, c)
	}
	return r
}

// withdraw takes a request out of the queue, and reports whether it waited for a
// slot of its client. A slot that it got at the same moment goes to the next one.
func (s *Semaphore) withdraw(key string, r *request) (ofKey bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	c := s.clients[key]
	ofKey = s.held < s.max
	if i := slices.Index(c.queue, r); i >= 0 {
		s.dequeue(c, i)
		s.forget(c)
	} else {
		s.free(c)
	}
	return ofKey
}

// client returns the client of a key, made if needed. s.mu must be held, as for
// all below.
func (s *Semaphore) client(key string) *client {
	c := s.clients[key]
	if c == nil {
		if c, s.spare = s.spare, nil; c == nil {
			c = &client{}
		}
		c.key = key
		s.clients[key] = c
	}
	return c
}

// forget drops a client that has nothing here.
func (s *Semaphore) forget(c *client) {
	if c.held == 0 && len(c.queue) == 0 {
		delete(s.clients, c.key)
		s.spare = c
	}
}

func (s *Semaphore) take(c *client) {
	s.held++
	c.held++
}

// free gives back a slot, and grants what is free to those who can have it.
func (s *Semaphore) free(c *client) {
	s.held--
	c.held--
	s.forget(c)
	for s.held < s.max {
		next := s.next()
		if next == nil {
			return
		}
		s.take(next)
		close(s.dequeue(next, 0).granted)
	}
}

// next is the client that gets the next slot; nil if none can have it.
func (s *Semaphore) next() (next *client) {
	for _, c := range s.waiting {
		if c.held < s.each && (next == nil || c.held < next.held ||
			c.held == next.held && c.queue[0].arrived < next.queue[0].arrived) {
			next = c
		}
	}
	return next
}

// dequeue takes out the request at i of a client.
func (s *Semaphore) dequeue(c *client, i int) *request {
	r := c.queue[i]
	if c.queue = slices.Delete(c.queue, i, i+1); len(c.queue) == 0 {
		at := slices.Index(s.waiting, c)
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	return r
}
