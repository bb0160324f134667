package memory

import (
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// counted is what the ledger has of a record.
type counted struct{ used, evictable int64 }

// Recorded implements [engine.Engine]. Kept output counts too, because it is
// stored nowhere else.
func (e *Engine) Recorded() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ledger.Used()
}

// Counts implements [engine.Engine].
func (e *Engine) Counts() map[engine.Status]int {
	counts := map[engine.Status]int{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.active {
		counts[r.run.Status]++
	}
	return counts
}

// count brings what the ledger has of a run up to date.
func (st *store) count(r *record) {
	size := r.run.Size() + int64(len(r.checkpoint)+len(r.state)) + r.log.Size()
	st.recount(r.run.Session, &r.counted, size, r.run.Evictable())
}

func (st *store) countSchedule(s *schedule) {
	st.recount(s.Session, &s.counted, s.Size(), !s.Enabled)
}

func (st *store) recount(session string, c *counted, size int64, evictable bool) {
	now := counted{used: size}
	if evictable {
		now.evictable = size
	}
	st.ledger.Add(session, now.used-c.used, now.evictable-c.evictable)
	*c = now
}

// makeRoom evicts records until there is room for one of size bytes.
func (st *store) makeRoom(session string, size int64) error {
	eviction, err := st.ledger.Room(session, size)
	if eviction == nil {
		return err
	}

	for _, old := range st.evictables() {
		if eviction.Done() {
			break
		}
		if eviction.Take(old.session, old.size) {
			old.remove()
		}
	}
	return nil
}

// An evictable is a run or a schedule that may be evicted.
type evictable struct {
	since   time.Time // when it ended, or was disabled
	session string
	size    int64
	remove  func()
}

// evictables returns what may be evicted, the oldest first.
func (st *store) evictables() (all []evictable) {
	for _, r := range st.runs {
		if r.evictable > 0 {
			all = append(all, evictable{r.run.FinishedAt, r.run.Session, r.used, func() { st.remove(r) }})
		}
	}
	for _, s := range st.schedules {
		if s.evictable > 0 {
			all = append(all, evictable{s.changed, s.Session, s.used, func() { st.removeSchedule(s) }})
		}
	}

	slices.SortStableFunc(all, func(a, b evictable) int { return a.since.Compare(b.since) })
	return all
}
