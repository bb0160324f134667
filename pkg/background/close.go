package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// hung is how long Close waits for functions that have nothing left to do but return. A
// function that takes longer is assumed never to return. The time is long, because a
// machine may be slow or suspended for a while.
const hung = 30 * time.Second

// Close ends the manager. It admits and starts no more runs and waits for the active
// ones, and for foreground calls, until ctx is done. Then it interrupts the rest:
// their context is canceled with the cause [ErrClosed]. A run that may be run again
// is queued for another worker or the next start; the others end as failed with
// [engine.KindInterrupted]. Queued runs stay queued.
//
// It returns nil when all of them have ended, everything is stored and all notices are
// delivered. It returns an error matching [ErrStillRunning] with the ids of runs that
// have not ended after the grace period and 30 seconds more: their executor ignores its
// context. After that it waits another 30 seconds for an OnNotice or an engine that
// does not return. After an error the lease on the engine is kept: call Close again
// later.
//
// Records can still be read afterwards. Close may be called more than once.
func (m *Manager) Close(ctx context.Context) error {
	m.runs.close()
	m.worker.pool.close()
	m.scheduler.stop()
	tasks := m.runs.all()
	if !allDone(tasks, ctx.Done()) {
		m.log.Warn("background runs are interrupted by the shutdown", "active", len(tasks))
		for _, t := range tasks {
			t.interrupt()
		}
	}

	late, release := context.WithTimeout(m.base, m.cfg().Grace+hung)
	defer release()
	var errs []error

	if allDone(tasks, late.Done()) {
		m.runs.running.Wait()
		m.worker.pool.all.Wait()
		errs = append(errs, m.worker.storeRest(late))
	} else {
		var ids []string
		for _, run := range m.Unfinished() {
			ids = append(ids, run.ID)
		}
		errs = append(errs, fmt.Errorf("%w: %s", ErrStillRunning, strings.Join(ids, ", ")))
	}
	errs = append(errs, m.endHelpers())
	if err := errors.Join(errs...); err != nil {
		return err // the lease is kept, so that the missing ends can be stored later
	}

	m.keeper.quit()
	if !closedFirst(m.keeper.ended, late.Done()) {
		return fmt.Errorf("%w: the engine did not answer", ErrStillRunning)
	}
	if err := m.member.leave(m.base); err != nil && !errors.Is(err, engine.ErrFenced) {
		return fmt.Errorf("leaving the engine: %w", err)
	}
	return nil
}

// endHelpers ends the goroutines that hand out notices and fire schedules, and
// returns an error if one does not end.
func (m *Manager) endHelpers() error {
	late, release := context.WithTimeout(m.base, hung)
	defer release()
	m.notifier.stop()
	var errs []error
	if !closedFirst(m.notifier.ended, late.Done()) {
		errs = append(errs, fmt.Errorf("%w: OnNotice did not return", ErrStillRunning))
	}
	if !closedFirst(m.scheduler.ended, late.Done()) {
		errs = append(errs, fmt.Errorf("%w: the schedules did not return", ErrStillRunning))
	}
	return errors.Join(errs...)
}

// Unfinished returns the runs and foreground calls whose work has not ended, oldest
// first. [Manager.Close] waits for them. The runs are returned as they were at
// admission. The ID of a foreground call is internal.
func (m *Manager) Unfinished() []engine.Run {
	var left []engine.Run
	for _, t := range m.runs.all() {
		if !t.ended() {
			left = append(left, t.run)
		}
	}
	slices.SortFunc(left, func(a, b engine.Run) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return left
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
// reports whether it was done. If both have happened, it reports true.
func closedFirst[T any](done <-chan struct{}, enough <-chan T) bool {
	if closed(done) {
		return true
	}
	select {
	case <-done:
		return true
	case <-enough:
		return false
	}
}
