package secret

import (
	"maps"
	"sync"
)

// owned identifies a secret of a user.
type owned struct{ user, name string }

// watchers are the calls that wait until a secret is set.
type watchers struct {
	mu   sync.Mutex
	sets map[chan struct{}]owned // closed once the secret is set
}

// watch returns a channel that is closed when a secret is set. Call stop when done.
func (w *watchers) watch(user, name string) (set <-chan struct{}, stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sets == nil {
		w.sets = map[chan struct{}]owned{}
	}
	waiting := make(chan struct{})
	w.sets[waiting] = owned{user, name}

	return waiting, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.sets, waiting)
	}
}

// wake wakes the calls that wait for a secret.
func (w *watchers) wake(user, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.sets, func(waiting chan struct{}, of owned) bool {
		if of != (owned{user, name}) {
			return false
		}
		close(waiting)
		return true
	})
}
