package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/schedule"
)

const (
	// clockEvery is how often the clock is checked while schedules wait: it may be
	// set, and a machine may sleep, and timers know of neither.
	clockEvery = time.Minute
	// fireAgain is when a firing that could not be stored is tried again.
	fireAgain = 10 * time.Second
	// firingsAtOnce is how many schedules that are due together fire at once.
	firingsAtOnce = 16
	// dueAtOnce is how many schedules are read at once that are due.
	dueAtOnce = 256
)

// A scheduler fires the schedules of the engine when they are due. Several
// workers may fire the same schedule: the id of the run lets one of them win.
type scheduler struct {
	*core
	admission *admission
	worker    *worker

	news  chan struct{} // has an element if a schedule may be due earlier than thought
	quit  func()        // ends the goroutine
	ended chan struct{} // closed when it has ended

	failed map[string]time.Time // schedules that could not be fired, and when they are tried again
	synced bool                 // all schedules were planned by the clock of today
}

func newScheduler(c *core, a *admission, w *worker) *scheduler {
	return &scheduler{core: c, admission: a, worker: w, news: make(chan struct{}, 1), ended: make(chan struct{}), failed: make(map[string]time.Time)}
}

// look says that a schedule may be due earlier than thought.
func (s *scheduler) look() { signal(s.news) }

// start starts the goroutine, which ends with ctx.
func (s *scheduler) start(ctx context.Context) {
	ctx, s.quit = context.WithCancel(ctx)
	go s.run(ctx)
}

// stop fires no more.
func (s *scheduler) stop() { s.quit() }

// now returns the time that schedules go by.
func (s *scheduler) now(ctx context.Context) time.Time {
	now, err := s.engine.Now(ctx)
	if err != nil {
		return time.Now().Round(0)
	}
	return now.Round(0)
}

// run fires schedules that are due, until ctx is done.
func (s *scheduler) run(ctx context.Context) {
	defer close(s.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()

	seen, lately := s.now(ctx), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.news:
		case <-timer.C:
		}

		now, since := s.now(ctx), time.Since(lately)
		if now.Sub(seen) < since-clockEvery { // it was set back
			s.synced = false
		}
		seen, lately = now, lately.Add(since)
		if !s.synced {
			s.synced = s.planAgain(ctx, now)
		}
		timer.Reset(s.fireDue(ctx, now))
	}
}

// planAgain plans the schedules earlier that were planned when the clock was
// ahead: by this clock they would wait too long. It reports whether that is done.
func (s *scheduler) planAgain(ctx context.Context, now time.Time) bool {
	found, err := s.engine.Schedules(ctx, "", true)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("background schedules not read; trying again", "error", err)
		}
		return false
	}

	for _, planned := range found {
		if planned.Cron == "" {
			continue
		}
		spec, err := specOf(planned)
		if err != nil {
			continue // it is disabled when it is due
		}
		if next, ok := spec.Next(now); ok && next.Before(planned.NextAt) {
			s.plan(ctx, planned, next)
		}
	}
	return true
}

// plan stores that a schedule is due earlier.
func (s *scheduler) plan(ctx context.Context, planned engine.Schedule, next time.Time) {
	s.log.Warn("background schedule planned again: the clock was set back", "schedule_id", planned.ID, "from", planned.NextAt, "to", next)
	_, err := s.change(ctx, planned.ID, func(now *engine.Schedule) error {
		if now.Revision != planned.Revision {
			return errUnchanged
		}
		now.NextAt = next
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) && ctx.Err() == nil {
		s.log.Error("background schedule not planned again", "schedule_id", planned.ID, "error", err)
	}
}

// specOf reads the cron expression of a schedule. The error is a *[FieldError].
func specOf(s engine.Schedule) (schedule.Spec, error) {
	zone, err := schedule.Zone(s.Timezone)
	if err != nil {
		return schedule.Spec{}, &FieldError{"timezone", err.Error()}
	}
	spec, err := schedule.Parse(s.Cron, zone)
	if err != nil {
		return schedule.Spec{}, &FieldError{"cron_expression", err.Error()}
	}
	return spec, nil
}

// fireDue fires what is due, and returns when to look again.
func (s *scheduler) fireDue(ctx context.Context, now time.Time) time.Duration {
	due, next, err := s.engine.Due(ctx, now, dueAtOnce+len(s.failed))
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("due background schedules not read; trying again", "error", err)
		}
		return fireAgain
	}

	var firing sync.WaitGroup
	var full, broken failures
	slots := make(chan struct{}, firingsAtOnce)
	waiting := make(map[string]time.Time)
	fired := false
	for _, d := range due {
		if again := s.failed[d.ID]; again.After(now) && again.Sub(now) <= fireAgain {
			waiting[d.ID] = again
			continue
		}
		fired = true
		slots <- struct{}{}
		firing.Go(func() {
			defer func() { <-slots }()
			switch err := s.fireSchedule(ctx, d.ID, now); {
			case errors.Is(err, engine.ErrRecordLimit):
				full.add(d.ID, err)
			case err != nil:
				broken.add(d.ID, err)
			}
		})
	}
	firing.Wait()

	if len(full.ids) > 0 {
		s.log.Warn("background schedules not fired: no room for the records of their runs; trying again", "schedules", len(full.ids), "schedule_id", full.ids[0])
	}
	if len(broken.ids) > 0 {
		s.log.Error("background schedules not fired; trying again", "schedules", len(broken.ids), "schedule_id", broken.ids[0], "error", broken.err)
	}
	for _, id := range append(full.ids, broken.ids...) {
		waiting[id] = now.Add(fireAgain)
	}
	s.failed = waiting
	if fired { // what was fired may be due again
		return 0
	}
	return s.pause(ctx, now, next)
}

// pause returns when to look again for schedules that are due, the next at a time
// that may be zero.
func (s *scheduler) pause(ctx context.Context, now, next time.Time) time.Duration {
	pause := clockEvery
	if !s.synced {
		pause = fireAgain
	}
	if !next.IsZero() {
		pause = min(pause, next.Sub(s.now(ctx)))
	}
	for _, again := range s.failed {
		pause = min(pause, again.Sub(now))
	}
	return max(0, pause)
}

// failures are the schedules that could not be fired: thousands may fail again
// and again, and are logged in one line. It is safe for concurrent use.
type failures struct {
	mu  sync.Mutex
	ids []string
	err error // of the last one
}

func (f *failures) add(id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = append(f.ids, id)
	f.err = err
}
