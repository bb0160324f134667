package sqlite

import (
	"context"
	"sync"
)

// locks is one lock for each run in use. The zero value is ready for use.
type locks struct {
	mu   sync.Mutex
	held map[string]*runLock
}

type runLock struct {
	token chan struct{} // holds one value while the lock is held
	users int           // who hold it or wait for it
}

// lock waits for the lock of a run. It is not the caller's if there is an error.
func (l *locks) lock(ctx context.Context, id string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[string]*runLock)
	}
	k := l.held[id]
	if k == nil {
		k = &runLock{token: make(chan struct{}, 1)}
		l.held[id] = k
	}
	k.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, id)
		}
	}
	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
