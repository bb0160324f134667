package fair

import (
	"context"
	"math"
	"slices"
	"sync"
)

// Semaphore is a number of slots that clients wait for. A free slot goes to the
// client that holds the fewest; if several do, to the one that has waited longest.
// The requests of one client are served in order. So a client with many requests
// does not delay the others, and a client without a slot gets one before any other
// client gets another.
//
// It keeps no state for a client that neither holds nor awaits a slot. It is safe
// for concurrent use.
type Semaphore struct {
	max, each int

	mu      sync.Mutex
	held    int
	clients map[string]*client
	waiting []*request // sorted by arrival
	spare   *client    // client to be reused, or nil
}

// client counts the slots that one client holds and awaits.
type client struct {
	key           string
	held, waiting int
}

// request waits for a slot.
type request struct {
	*client
	granted chan struct{} // closed once it has a slot
}

// NewSemaphore returns a semaphore with max slots. If shared is set, one client can
// hold only the number given by [PerClient], otherwise all of them.
func NewSemaphore(max int, shared bool) *Semaphore {
	each := max
	if shared {
		each = PerClient(max)
	}
	return newSemaphore(max, each)
}

// NewSerial returns a semaphore with one slot for each client.
func NewSerial() *Semaphore { return newSemaphore(math.MaxInt, 1) }

func newSemaphore(max, each int) *Semaphore {
	return &Semaphore{max: max, each: each, clients: map[string]*client{}}
}

// Each returns how many slots one client can hold.
func (s *Semaphore) Each() int { return s.each }

// TryAcquire takes a slot for the client if one is free for it. It does not wait.
func (s *Semaphore) TryAcquire(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	// A slot is free only if no waiting request can have it: see free.
	c := s.client(key)
	ok := s.take(c)
	s.forget(c)
	return ok
}

// Contended reports whether any request is waiting for a slot.
func (s *Semaphore) Contended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// Acquire waits for a slot. If ctx ends first, Acquire returns the error of ctx. ofKey is then
// true if slots are free, but the client has reached its own limit.
func (s *Semaphore) Acquire(ctx context.Context, key string) (ofKey bool, err error) {
	r := s.enter(key)
	if r == nil {
		return false, nil
	}

	select {
	case <-r.granted:
		return false, nil
	case <-ctx.Done():
		return s.withdraw(r), ctx.Err()
	}
}

// Release gives back one of a client's slots, which goes to the next request.
func (s *Semaphore) Release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(s.clients[key])
}

// enter takes a slot, or returns a request that is waiting for one.
func (s *Semaphore) enter(key string) *request {
	s.mu.Lock()
	defer s.mu.Unlock()

	c := s.client(key)
	if s.take(c) {
		return nil
	}
	r := &request{c, make(chan struct{})}
	s.waiting = append(s.waiting, r)
	c.waiting++
	return r
}

// withdraw takes a request out of the queue, and reports whether only the client's
// own limit kept it from a slot. If the request was granted a slot at the same
// moment, the slot goes to the next request.
func (s *Semaphore) withdraw(r *request) (ofKey bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	ofKey = s.held < s.max
	if i := slices.Index(s.waiting, r); i >= 0 {
		s.dequeue(i)
		s.forget(r.client)
	} else {
		s.free(r.client)
	}
	return ofKey
}

// client returns the client with a key, and creates it if needed. s.mu must be held,
// as for all methods below.
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

// forget removes a client that neither holds nor awaits a slot.
func (s *Semaphore) forget(c *client) {
	if c.held == 0 && c.waiting == 0 {
		delete(s.clients, c.key)
		s.spare = c
	}
}

func (s *Semaphore) take(c *client) bool {
	if s.held == s.max || c.held >= s.each {
		return false
	}
	s.held++
	c.held++
	return true
}

// free gives back a slot, and grants the free slots to waiting requests.
func (s *Semaphore) free(c *client) {
	s.held--
	c.held--
	s.forget(c)

	for s.held < s.max {
		next := -1
		for i, r := range s.waiting {
			if r.held < s.each && (next < 0 || r.held < s.waiting[next].held) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		r := s.dequeue(next)
		s.take(r.client)
		close(r.granted)
	}
}

// dequeue removes the request at index i.
func (s *Semaphore) dequeue(i int) *request {
	r := s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	r.waiting--
	return r
}
