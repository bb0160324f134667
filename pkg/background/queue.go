package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// fire stores a run nobody waits for at the door, and queues it: it starts
// when there are permits for it and, if after names an active run, when that
// has ended. The error matches [ErrExists] if the run was stored before, and
// [ErrClosed] after Close.
func (m *Manager) fire(ctx context.Context, run Run, after string) error {
	m.mu.Lock()
	closing := m.closing
	m.mu.Unlock()
	if closing {
		return ErrClosed
	}
	if err := m.submit(ctx, run); err != nil {
		return err
	}
	t := newTask(run)
	t.ask = true
	m.enqueue(t, after)
	return nil
}

// enqueue makes a stored run wait for its turn. If the manager is closing, it
// stays queued for the next one.
func (m *Manager) enqueue(t *task, after string) {
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		m.leave(t)
		return
	}
	m.tasks[t.run.ID] = t
	if earlier := m.tasks[after]; earlier != nil && earlier != t && !earlier.ended() {
		m.blocked[after] = append(m.blocked[after], t)
		m.mu.Unlock()
		return
	}
	started := m.limits.enqueue(t) // under the lock, so that Close sees it there or not at all
	m.mu.Unlock()
	m.start(started)
}

// unblock lets the runs wait for permits that waited for the end of t, and
// returns those that have got them.
func (m *Manager) unblock(t *task) (started []*task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, next := range m.blocked[t.run.ID] {
		started = append(started, m.limits.enqueue(next)...)
	}
	delete(m.blocked, t.run.ID)
	return started
}

// withdraw takes a run out of the queue that has not started, and reports
// whether it was there: it is the caller's then, to be settled.
func (m *Manager) withdraw(t *task) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, waiting := range m.blocked {
		if at := slices.Index(waiting, t); at >= 0 {
			m.blocked[id] = slices.Delete(waiting, at, at+1)
			return true
		}
	}
	return m.limits.withdraw(t)
}

// readmit asks whether a run may start that nobody waits for at the door, and
// returns why not.
func (m *Manager) readmit(t *task) *RunError {
	if !t.ask {
		return nil
	}
	run, err := m.engine.Get(t.ctx, t.run.ID)
	if err != nil || run.Status != StatusQueued {
		return nil // claiming it will tell
	}
	return m.firingAsked(t.ctx, run, m.refusal(t.ctx, run))
}

// refusal returns why a run may not start that nobody waits for at the door,
// nil if it may. It is part of the state machine: a run that was running
// before is run again only if nothing of it is unknown and [Config.Readmit]
// says so.
func (m *Manager) refusal(ctx context.Context, run Run) *RunError {
	again := run.Attempt > 0
	switch {
	case again && (run.Secret || run.Attempt >= m.cfg.Attempts || m.cfg.Readmit == nil):
		return &RunError{KindOrphaned, textOrphaned}
	case run.Secret:
		return &RunError{KindOrphaned, textIncomplete}
	case m.cfg.Readmit == nil:
		return nil
	}
	err := m.askReadmit(ctx, run)
	if err == nil {
		return nil
	}
	m.log.Warn("background run not admitted", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "attempt", run.Attempt, "error", err)
	var typed *Error
	switch {
	case errors.As(err, &typed) && typed.shown():
		return typed.runError()
	case again:
		return &RunError{KindOrphaned, textOrphaned}
	}
	return &RunError{KindRejected, textRejected}
}

// askReadmit calls Config.Readmit, whose panic is an error.
func (m *Manager) askReadmit(ctx context.Context, run Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("readmit panicked: %v", p)
		}
	}()
	return m.cfg.Readmit(ctx, run)
}

// mayRerun reports whether an interrupted run may be run again after a restart.
func (m *Manager) mayRerun(t *task) bool {
	if t.lease == nil || t.stopAsked() {
		return false
	}
	return m.refusal(m.base, t.lease.Run()) == nil
}
