package background

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// clockEvery is how often the clock is looked at while schedules wait: it
	// may be set, and a machine may sleep, and timers know of neither.
	clockEvery = time.Minute
	// fireAgain is when a firing that could not be stored is tried again.
	fireAgain = 10 * time.Second
	// firingsAtOnce is how many schedules that are due together fire at once.
	firingsAtOnce = 16
)

// A scheduler knows when each schedule is due next. It has one timer for all.
// What it knows is when to look at the record of a schedule: that decides. Its
// zero value is ready for use.
type scheduler struct {
	mu      sync.Mutex
	waiting map[string]*due
	order   pile[*due]
	timer   *time.Timer // nil before the manager keeps schedules
}

type due struct {
	id string
	at time.Time
	in int // the place in the order
}

func (d *due) before(other *due) bool { return d.at.Before(other.at) }
func (d *due) place() *int            { return &d.in }

// plan makes a schedule due at a time; never if that is zero.
func (s *scheduler) plan(id string, at, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.waiting[id]; old != nil {
		heap.Remove(&s.order, old.in)
		delete(s.waiting, id)
	}
	if at.IsZero() {
		return
	}
	d := &due{id: id, at: at}
	if s.waiting == nil {
		s.waiting = make(map[string]*due)
	}
	s.waiting[id] = d
	heap.Push(&s.order, d)
	if d.in == 0 {
		s.reset(now)
	}
}

// take returns the schedules that are due, and forgets them.
func (s *scheduler) take(now time.Time) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.order) > 0 && !s.order[0].at.After(now) {
		d := heap.Pop(&s.order).(*due)
		delete(s.waiting, d.id)
		ids = append(ids, d.id)
	}
	return ids
}

// start makes the timer, which rings at once.
func (s *scheduler) start() *time.Timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.NewTimer(0)
	return s.timer
}

// sleep sets the timer to what is due next.
func (s *scheduler) sleep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset(now)
}

// reset is sleep under the lock.
func (s *scheduler) reset(now time.Time) {
	if s.timer != nil && len(s.order) > 0 {
		s.timer.Reset(min(clockEvery, s.order[0].at.Sub(now)))
	}
}

// wall returns the time schedules go by: that of the clock, which may be set.
func (m *Manager) wall() time.Time {
	if m.cfg.clock != nil {
		return m.cfg.clock().Round(0)
	}
	return time.Now().Round(0)
}

// keepSchedules fires schedules that are due, until ctx is done.
func (m *Manager) keepSchedules(ctx context.Context) {
	timer := m.scheduler.start()
	defer timer.Stop()
	loaded := false
	seen, lately := m.wall(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now, since := m.wall(), time.Since(lately)
		if now.Sub(seen) < since-clockEvery { // it was set back
			loaded = false
		}
		seen, lately = now, lately.Add(since)
		if !loaded {
			loaded = m.loadSchedules(ctx, now)
		}
		m.fireDue(ctx, now)
		if loaded {
			m.scheduler.sleep(m.wall())
		} else {
			timer.Reset(fireAgain)
		}
	}
}

// loadSchedules plans all enabled schedules. One that would be due earlier if
// it were planned now was planned when the clock was ahead: by this clock it
// would wait too long.
func (m *Manager) loadSchedules(ctx context.Context, now time.Time) (ok bool) {
	found, err := m.engine.Schedules(ctx, "", true)
	if err != nil {
		if ctx.Err() == nil {
			m.log.Error("background schedules not read; trying again", "error", err)
		}
		return false
	}
	for _, s := range found {
		m.scheduler.plan(s.ID, s.NextAt, now)
		if s.Cron == "" {
			continue
		}
		if spec, err := s.spec(); err == nil {
			if next, ok := spec.next(now); ok && next.Before(s.NextAt) {
				m.replan(ctx, s, next)
			}
		}
	}
	return true
}

// replan stores that a schedule is due earlier.
func (m *Manager) replan(ctx context.Context, s Schedule, next time.Time) {
	m.log.Warn("background schedule planned anew: the clock was set back", "schedule_id", s.ID, "from", s.NextAt, "to", next)
	_, err := m.change(ctx, s.ID, func(now *Schedule) error {
		if now.Revision != s.Revision {
			return errGone
		}
		now.NextAt = next
		return nil
	})
	if err != nil && !errors.Is(err, errGone) && ctx.Err() == nil {
		m.log.Error("background schedule not planned anew", "schedule_id", s.ID, "error", err)
	}
}

// fireDue fires what is due. What could not be fired is told together: it may be
// thousands of schedules, again and again.
func (m *Manager) fireDue(ctx context.Context, now time.Time) {
	var firing sync.WaitGroup
	var tight, broken failures
	room := make(chan struct{}, firingsAtOnce)
	for _, id := range m.scheduler.take(now) {
		room <- struct{}{}
		firing.Go(func() {
			defer func() { <-room }()
			switch err := m.fireSchedule(ctx, id, now); {
			case errors.Is(err, ErrRecordLimit):
				tight.add(id, err)
			case err != nil:
				broken.add(id, err)
			}
		})
	}
	firing.Wait()
	if tight.n > 0 {
		m.log.Warn("background schedules not fired: there is no room for the records of their runs; trying again", "schedules", tight.n, "schedule_id", tight.id)
	}
	if broken.n > 0 {
		m.log.Error("background schedules not fired; trying again", "schedules", broken.n, "schedule_id", broken.id, "error", broken.err)
	}
}

// failures counts the schedules that could not be fired, and names one of them.
// It is safe for concurrent use.
type failures struct {
	mu  sync.Mutex
	n   int
	id  string
	err error
}

func (f *failures) add(id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.id, f.err = id, err
}
