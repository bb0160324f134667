package background

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/schedule"
)

const (
	// clockEvery is how often the clock is checked while schedules wait. Timers do
	// not notice when the clock is set or the machine sleeps.
	clockEvery = time.Minute
	// fireAgain is the pause before a firing that could not be stored is retried.
	fireAgain = 10 * time.Second
	// firingsAtOnce is the number of due schedules that fire concurrently.
	firingsAtOnce = 16
	// dueAtOnce is the number of due schedules that are read at a time.
	dueAtOnce = 256
)

// A scheduler fires the engine's schedules when they are due. Several workers
// may fire the same schedule; the id of the run lets one of them win.
type scheduler struct {
	*core
	admission *admission
	worker    *worker

	news  chan struct{} // has an element if a schedule may be due earlier than expected
	stop  func()        // ends the goroutine
	ended chan struct{} // closed when it has ended

	failed map[string]time.Time // schedules that could not be fired, and when they are retried
	synced bool                 // all schedules were planned by the current clock
}

func newScheduler(c *core, a *admission, w *worker) *scheduler {
	return &scheduler{core: c, admission: a, worker: w, news: make(chan struct{}, 1), ended: make(chan struct{}), failed: make(map[string]time.Time)}
}

// look signals that a schedule may be due earlier than expected.
func (s *scheduler) look() { signal(s.news) }

// start starts the goroutine, which ends with ctx.
func (s *scheduler) start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	go s.run(ctx)
}

// now returns the engine's time, which schedules follow.
func (s *scheduler) now(ctx context.Context) time.Time {
	now, err := s.engine.Now(ctx)
	if err != nil {
		return time.Now().Round(0)
	}
	return now.Round(0)
}

// run fires due schedules until ctx is done.
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
		if now.Sub(seen) < since-clockEvery { // the clock was set back
			s.synced = false
		}
		seen, lately = now, lately.Add(since)
		if !s.synced {
			s.synced = s.planAgain(ctx, now)
		}
		timer.Reset(s.fireDue(ctx, now))
	}
}

// planAgain moves schedules forward that were planned while the clock was ahead:
// they would wait too long by the current clock. It reports whether it has
// finished.
func (s *scheduler) planAgain(ctx context.Context, now time.Time) bool {
	found, err := s.engine.Schedules(ctx, "", true)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("background schedules not read; trying again", "error", err)
		}
		return false
	}

	for _, planned := range found {
		if _, ok := earlier(planned, now); !ok {
			continue
		}

		changed, err := s.change(ctx, planned.ID, func(d *engine.Schedule) (err error) {
			next, ok := earlier(*d, now)
			if !ok {
				return errUnchanged
			}
			d.NextAt = next
			return nil
		})
		switch {
		case err == nil:
			s.log.Warn("background schedule planned again: the clock was set back", "schedule_id", planned.ID, "from", planned.NextAt, "to", changed.NextAt)
		case !errors.Is(err, errUnchanged) && ctx.Err() == nil:
			s.log.Error("background schedule not planned again", "schedule_id", planned.ID, "error", err)
		}
	}
	return true
}

// earlier returns when a schedule next fires after now, and whether that is earlier
// than planned.
func earlier(planned engine.Schedule, now time.Time) (next time.Time, ok bool) {
	if planned.Cron == "" {
		return next, false
	}
	spec, err := specOf(planned)
	if err != nil {
		return next, false // it is disabled when it is due
	}
	next, ok = spec.Next(now)
	return next, ok && next.Before(planned.NextAt)
}

// specOf parses the cron expression of a schedule. The error is a *[FieldError].
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

// fireDue fires the due schedules, and returns when to check again.
func (s *scheduler) fireDue(ctx context.Context, now time.Time) time.Duration {
	wakes := s.wake(ctx)
	due, next, err := s.engine.Due(ctx, now, dueAtOnce+len(s.failed))
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("due background schedules not read; trying again", "error", err)
		}
		return fireAgain
	}

	var firing sync.WaitGroup
	errs := make([]error, len(due))
	slots := make(chan struct{}, firingsAtOnce)
	waiting := make(map[string]time.Time)
	fired := false
	for i, d := range due {
		if again := s.failed[d.ID]; again.After(now) && again.Sub(now) <= fireAgain {
			waiting[d.ID] = again
			continue
		}
		fired = true
		slots <- struct{}{}
		firing.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.fire(ctx, d.ID, now)
		})
	}
	firing.Wait()

	var failed []string // thousands may fail repeatedly: log them in one line
	for i, err := range errs {
		if err != nil {
			failed = append(failed, due[i].ID)
			waiting[due[i].ID] = now.Add(fireAgain)
		}
	}
	if len(failed) > 0 {
		s.log.Error("background schedules not fired; trying again", "schedules", len(failed), "schedule_id", failed[0], "error", cmp.Or(errs...))
	}

	s.failed = waiting
	if fired { // a schedule that fired may be due again
		return 0
	}
	return min(wakes, s.pause(ctx, now, next))
}

// pause returns when to check again for due schedules. next is the earliest
// planned time, or zero.
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
