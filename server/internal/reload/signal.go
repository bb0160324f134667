package reload

import (
	"context"
	"sync"
)

// A Signal notifies its subscribers that something has changed. The zero value is ready for
// use. It is safe for concurrent use.
type Signal struct {
	mu          sync.Mutex
	closed      bool
	subscribers map[chan struct{}]func() bool // each with the function that releases its context
}

// Subscribe returns a channel that receives a value when the signal is sent. If the signal is
// sent several times before the channel is read, the channel holds one value. It is closed
// when ctx is done or the signal is closed.
func (s *Signal) Subscribe(ctx context.Context) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{}, 1)
	if s.closed {
		close(c)
		return c
	}
	if s.subscribers == nil {
		s.subscribers = map[chan struct{}]func() bool{}
	}
	s.subscribers[c] = context.AfterFunc(ctx, func() { s.unsubscribe(c) })
	return c
}

func (s *Signal) unsubscribe(c chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers[c] != nil {
		delete(s.subscribers, c)
		close(c)
	}
}

// Send notifies the subscribers.
func (s *Signal) Send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.subscribers {
		select {
		case c <- struct{}{}:
		default: // a value is pending
		}
	}
}

// Close ends all subscriptions. The channels of later ones are closed from the start.
func (s *Signal) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c, release := range s.subscribers {
		release()
		close(c)
	}
	s.subscribers = nil
}
