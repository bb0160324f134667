package memory

import (
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A recordShare says how much of the ledger's totals is due to a record.
type recordShare struct{ used, evictable int64 }

// Recorded implements [engine.Engine]. It includes kept output, which is
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

// count updates the share of a run in the ledger.
func (st *store) count(r *record) {
	size := r.run.Size() + int64(len(r.checkpoint)+len(r.state)) + r.log.Size()
	st.recount(r.run.Session, &r.recordShare, size, r.run.Evictable())
}

func (st *store) countSchedule(s *schedule) {
	st.recount(s.Session, &s.recordShare, s.Size(), !s.Enabled)
}

func (st *store) recount(session string, c *recordShare, size int64, evictable bool) {
	now := recordShare{used: size}
	if evictable {
		now.evictable = size
	}
	st.ledger.Add(session, now.used-c.used, now.evictable-c.evictable)
	*c = now
}

// makeRoom evicts records until there is space for a new one of size bytes.
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
	since   time.Time // time at which it ended, or was disabled
	session string
	size    int64
	remove  func()
}

// evictables returns the runs and schedules that may be evicted, oldest first.
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

// admit makes room for a run, or returns the error with which it is refused. session is the
// error to use if its session has no permit left.
func (st *store) admit(run engine.Run, permits *engine.Permits, session error) error {
	if st.byID[run.ID] != nil {
		return fmt.Errorf("%w: %s", engine.ErrExists, run.ID)
	}
	if run.IdempotencyKey != "" {
		for _, r := range st.runs {
			if r.run.IdempotencyKey == run.IdempotencyKey && r.run.Session == run.Session {
				return &engine.ExistsError{ID: r.run.ID}
			}
		}
	}

	if run.Schedule != "" && st.findSchedule(run.Schedule) == nil {
		return fmt.Errorf("%w: schedule %s", engine.ErrNotFound, run.Schedule)
	}
	if run.Parent != "" {
		if err := st.parented(run, permits); err != nil {
			return err
		}
	}

	if permits != nil {
		if err := st.permitted(run, *permits, session); err != nil {
			return err
		}
	}
	return st.makeRoom(run.Session, run.Size())
}

// parented returns an error if the parent of a run cannot have another child.
func (st *store) parented(run engine.Run, permits *engine.Permits) error {
	p := st.byID[run.Parent]
	if p == nil || p.run.Session != run.Session || p.run.Status.Terminal() || p.run.Cancel != nil {
		return fmt.Errorf("%w: %s", engine.ErrParent, run.Parent)
	}

	children := which(st.active, func(r *record) bool { return r.run.Parent == run.Parent })
	if permits != nil && permits.Children > 0 && len(children) >= permits.Children {
		return &engine.LimitError{Err: engine.ErrChildLimit, Max: permits.Children}
	}
	return nil
}

// permitted returns an error if the session or the owner of a run has no permit
// left for it.
func (st *store) permitted(run engine.Run, permits engine.Permits, session error) error {
	parked := run.Origin == engine.OriginParked
	most := permits.Session
	if parked {
		most = permits.Parked
	}

	owner, owned := st.quota.OwnerOf(run.Session), 0
	var active []string
	for _, r := range st.active {
		queued := permits.Queue && r.run.Status == engine.StatusQueued && r.run.Held == ""
		if r.holder == nil && !queued || st.quota.OwnerOf(r.run.Session) != owner {
			continue
		}
		owned++
		if r.run.Session == run.Session && (r.run.Origin == engine.OriginParked) == parked {
			active = append(active, r.run.ID)
		}
	}

	switch {
	case most > 0 && len(active) >= most:
		slices.Sort(active)
		return &engine.LimitError{Err: session, Max: most, Active: active}
	case permits.Owner > 0 && owned >= permits.Owner:
		return &engine.LimitError{Err: engine.ErrOwnerLimit, Max: permits.Owner}
	}
	return nil
}
