package background

import (
	"maps"
	"slices"
	"sync"
)

// limits hands out the permits of runs: one of the host's and one of the
// session's for each. A permit is taken before a run has a record and given
// back after its terminal write. It is safe for concurrent use.
type limits struct {
	perSession, perHost int

	mu   sync.Mutex
	host int
	held map[string]map[string]bool // session -> ids; a session without any has no entry
}

func newLimits(perSession, perHost int) *limits {
	return &limits{perSession: perSession, perHost: perHost, held: make(map[string]map[string]bool)}
}

// acquire takes both permits or none, and never waits. The host's limit is
// looked at first. It returns a *LimitError if there is no room.
func (l *limits) acquire(session, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host >= l.perHost {
		return &LimitError{Err: ErrHostLimit, Max: l.perHost}
	}
	ids := l.held[session]
	if len(ids) >= l.perSession {
		return &LimitError{Err: ErrSessionLimit, Max: l.perSession, Active: slices.Sorted(maps.Keys(ids))}
	}
	if ids == nil {
		ids = make(map[string]bool)
		l.held[session] = ids
	}
	ids[id] = true
	l.host++
	return nil
}

// release gives back the permits of a run. It does nothing if they were given
// back before.
func (l *limits) release(session, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := l.held[session]
	if !ids[id] {
		return
	}
	delete(ids, id)
	if len(ids) == 0 {
		delete(l.held, session)
	}
	l.host--
}

// active returns how many permits of the host are held.
func (l *limits) active() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.host
}
