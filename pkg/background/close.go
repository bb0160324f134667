package background

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Close ends the manager. It admits and starts no more runs and waits for the
// active ones, and for foreground calls, until ctx is done. Then it interrupts
// those that are left: their context is canceled with the cause [ErrClosed].
// A run that may be run again is queued for the next manager of the engine;
// the others end as failed with [KindInterrupted]. Runs that were queued stay
// so.
//
// It returns nil when they have ended and all is stored and told, and an error
// matching [ErrStillRunning] with the ids of those that have not after the
// grace and 30 seconds more: their executor ignores its context. As long it
// waits, after that, for an OnNotice or an engine that does not return.
//
// Records can still be read afterwards. Close may be called more than once.
func (m *Manager) Close(ctx context.Context) error {
	tasks := m.shut()
	if !allDone(tasks, ctx.Done()) {
		m.log.Warn("background runs are interrupted by the shutdown", "active", len(tasks))
		for _, t := range tasks {
			t.interrupt()
		}
	}
	patience, release := context.WithTimeout(m.base, m.cfg.Grace+hung)
	defer release()
	var errs []error
	if allDone(tasks, patience.Done()) {
		m.running.Wait()
		errs = append(errs, m.storeRest(patience))
	} else {
		errs = append(errs, stillRunning(tasks))
	}
	return errors.Join(append(errs, m.endKeepers()...)...)
}

// hung is how long Close waits for what has nothing left to do but to return:
// what takes that long never will. A machine that is slow, or stands still for a
// while, must not be taken for it.
const hung = 30 * time.Second

// endKeepers ends the goroutines that are not runs, and says which do not end.
func (m *Manager) endKeepers() (errs []error) {
	patience, release := context.WithTimeout(m.base, hung)
	defer release()
	m.notices.close()
	for name, ended := range map[string]chan struct{}{"OnNotice": m.notices.ended, "the schedules": m.planned} {
		if !closedFirst(ended, patience.Done()) {
			errs = append(errs, fmt.Errorf("%w: %s did not return", ErrStillRunning, name))
		}
	}
	m.quit()
	if !closedFirst(m.kept, patience.Done()) {
		errs = append(errs, fmt.Errorf("%w: the engine did not answer", ErrStillRunning))
	}
	return errs
}

// shut admits no more runs, lets go of those that have not started, and
// returns the others, and the foreground calls.
func (m *Manager) shut() []*task {
	m.mu.Lock()
	m.closing = true
	var left []*task
	for _, waiting := range m.blocked {
		left = append(left, waiting...)
	}
	clear(m.blocked)
	m.mu.Unlock()
	m.unplan()
	for _, t := range append(left, m.limits.close()...) {
		m.leave(t)
	}
	for _, t := range m.allTasks() {
		if t.orphan.CompareAndSwap(true, false) {
			m.leave(t)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(m.tasks)), maps.Keys(m.calls))
}

// Unfinished returns the runs whose work goes on, and the calls in the
// foreground: what [Manager.Close] waits for, the oldest first. They are as they
// were when they came in; a call has an ID that nobody else knows.
func (m *Manager) Unfinished() []Run {
	m.mu.Lock()
	tasks := slices.AppendSeq(slices.Collect(maps.Values(m.tasks)), maps.Keys(m.calls))
	m.mu.Unlock()

	var left []Run
	for _, t := range tasks {
		if !t.ended() {
			left = append(left, t.run)
		}
	}
	slices.SortFunc(left, func(a, b Run) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return left
}

// stillRunning names the runs that have not ended.
func stillRunning(tasks []*task) error {
	var ids []string
	for _, t := range tasks {
		if !t.ended() {
			ids = append(ids, t.run.ID)
		}
	}
	slices.Sort(ids)
	return fmt.Errorf("%w: %s", ErrStillRunning, strings.Join(ids, ", "))
}

// storeRest tries once more to store the ends that could not be stored.
func (m *Manager) storeRest(ctx context.Context) error {
	var errs []error
	for _, t := range m.allTasks() {
		if err := m.retry(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("storing the end of run %s: %w", t.run.ID, err))
		}
	}
	return errors.Join(errs...)
}

// allDone waits until all tasks have ended, or until enough delivers or is
// closed, and reports which.
func allDone[T any](tasks []*task, enough <-chan T) bool {
	for _, t := range tasks {
		if !closedFirst(t.done, enough) {
			return false
		}
	}
	return true
}

// closedFirst waits until done is closed, or until enough delivers or is closed, and
// reports which; done, if it is both.
func closedFirst[T any](done <-chan struct{}, enough <-chan T) bool {
	select {
	case <-done:
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-enough:
		return false
	}
}
