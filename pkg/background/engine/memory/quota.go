package memory

import (
	"cmp"
	"slices"
	"time"
)

// counted is what the ledger has of a record.
type counted struct{ used, evictable int64 }

// recountAll counts all records anew. The lock must be held.
func (e *Engine) recountAll() {
	for _, r := range e.runs {
		r.counted = counted{}
		e.count(r)
	}
	for i := range e.schedules {
		e.schedules[i].counted = counted{}
		e.countSchedule(&e.schedules[i])
	}
}

// Recorded implements [engine.Engine]. Output that is kept counts too, as it is
// nowhere else.
func (e *Engine) Recorded() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ledger.Used()
}

// count brings what the ledger has of a run up to date. The lock must be held.
func (e *Engine) count(r *record) {
	size := r.run.Size() + int64(len(r.checkpoint)) + r.log.Size()
	e.recount(r.run.Session, &r.counted, size, r.run.Evictable())
}

func (e *Engine) countSchedule(s *schedule) {
	e.recount(s.Session, &s.counted, s.Size(), !s.Enabled)
}

func (e *Engine) recount(session string, c *counted, size int64, evictable bool) {
	now := counted{used: size}
	if evictable {
		now.evictable = size
	}
	e.ledger.Add(session, now.used-c.used, now.evictable-c.evictable)
	*c = now
}

// uncount takes a record out of the ledger. The lock must be held.
func (e *Engine) uncount(session string, c *counted) {
	e.ledger.Add(session, -c.used, -c.evictable)
	*c = counted{}
}

// makeRoom removes records that may go until there is room for one of size
// bytes. The lock must be held.
func (e *Engine) makeRoom(session string, size int64) error {
	eviction, err := e.ledger.Room(session, size)
	if eviction == nil {
		return err
	}

	schedules := make(map[string]bool) // by id
	for _, s := range e.evictables() {
		if eviction.Done() {
			break
		}
		if !eviction.Take(s.session, s.size) {
			continue
		}
		if s.run != nil {
			e.remove(s.run)
		} else {
			schedules[s.schedule] = true
		}
	}

	if len(schedules) > 0 {
		e.removeSchedules(schedules)
	}

	return nil
}

// An evictable is a record that may go: a run, or else a schedule.
type evictable struct {
	at       time.Time
	session  string
	size     int64
	run      *record
	schedule string // id
}

// evictables returns the records that may go, the oldest first. The lock must be
// held.
func (e *Engine) evictables() []evictable {
	var all []evictable
	for _, r := range e.runs {
		if r.counted.evictable > 0 {
			all = append(all, evictable{r.run.FinishedAt, r.run.Session, r.counted.used, r, ""})
		}
	}

	for _, s := range e.schedules {
		if s.counted.evictable > 0 {
			all = append(all, evictable{s.changed, s.Session, s.counted.used, nil, s.ID})
		}
	}

	slices.SortFunc(all, func(a, b evictable) int {
		if order := a.at.Compare(b.at); order != 0 || a.run == nil || b.run == nil {
			return cmp.Or(order, cmp.Compare(a.schedule, b.schedule))
		}
		return cmp.Compare(a.run.seq, b.run.seq)
	})

	return all
}
