package background

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// counted is what the ledger has of a record.
type counted struct{ used, spare int64 }

// Limit implements [Engine].
func (e *MemoryEngine) Limit(_ context.Context, q Quota) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ledger = NewLedger(q)
	for _, r := range e.runs {
		r.counted = counted{}
		e.count(r)
	}
	for i := range e.schedules {
		e.schedules[i].counted = counted{}
		e.countSchedule(&e.schedules[i])
	}
	return nil
}

// Recorded implements [Engine]. Output that is kept counts too, as it is
// nowhere else.
func (e *MemoryEngine) Recorded() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ledger.Used()
}

// count brings what the ledger has of a run up to date. The lock must be held.
func (e *MemoryEngine) count(r *record) {
	size := r.run.Size() + int64(len(r.checkpoint)+len(r.log.head)+len(r.log.ring))
	e.recount(r.run.Session, &r.counted, size, r.run.Spare())
}

func (e *MemoryEngine) countSchedule(s *memorySchedule) {
	e.recount(s.Session, &s.counted, s.Size(), !s.Enabled)
}

func (e *MemoryEngine) recount(session string, c *counted, size int64, spare bool) {
	now := counted{used: size}
	if spare {
		now.spare = size
	}
	e.ledger.Add(session, now.used-c.used, now.spare-c.spare)
	*c = now
}

// uncount takes a record out of the ledger. The lock must be held.
func (e *MemoryEngine) uncount(session string, c *counted) {
	e.ledger.Add(session, -c.used, -c.spare)
	*c = counted{}
}

// makeRoom removes records that may go until there is room for one of size
// bytes. The lock must be held.
func (e *MemoryEngine) makeRoom(session string, size int64) error {
	eviction, err := e.ledger.Room(session, size)
	if eviction == nil {
		return err
	}
	runs, schedules := make(map[string]bool), make(map[string]bool) // by session, by id
	for _, s := range e.spares() {
		if eviction.Done() {
			break
		}
		if !eviction.Take(s.session, s.size) {
			continue
		}
		if s.run != nil {
			e.remove(s.run)
			runs[s.session] = true
		} else {
			schedules[s.schedule] = true
		}
	}
	for session := range runs {
		e.forget(session)
	}
	if len(schedules) > 0 {
		e.removeSchedules(schedules)
	}
	return nil
}

// A spare is a record that may go: a run, or else a schedule.
type spare struct {
	at       time.Time
	session  string
	size     int64
	run      *record
	schedule string // id
}

// spares returns the records that may go, the oldest first. The lock must be
// held.
func (e *MemoryEngine) spares() []spare {
	var all []spare
	for _, r := range e.runs {
		if r.counted.spare > 0 {
			all = append(all, spare{r.run.FinishedAt, r.run.Session, r.counted.used, r, ""})
		}
	}
	for _, s := range e.schedules {
		if s.counted.spare > 0 {
			all = append(all, spare{s.changed, s.Session, s.counted.used, nil, s.ID})
		}
	}
	slices.SortFunc(all, func(a, b spare) int {
		if order := a.at.Compare(b.at); order != 0 || a.run == nil || b.run == nil {
			return cmp.Or(order, cmp.Compare(a.schedule, b.schedule))
		}
		return cmp.Compare(a.run.seq, b.run.seq)
	})
	return all
}
