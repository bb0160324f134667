package egress

import (
	"sync"
	"time"
)

const (
	silentFor  = time.Minute // how long a name is remembered
	maxSilents = 256         // names that are remembered
)

// silentNames are the names whose servers did not answer in time: they are not waited for
// again for a while. The zero value has none.
type silentNames struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (s *silentNames) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until[name])
}

func (s *silentNames) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	if len(s.until) >= maxSilents {
		for name, until := range s.until {
			if now.After(until) {
				delete(s.until, name)
			}
		}
	}
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	if len(s.until) < maxSilents {
		s.until[name] = now.Add(silentFor)
	}
}
