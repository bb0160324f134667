package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// recover takes up what an earlier process left in the engine: all that was
// active there. In a schedule, each of its runs waits for the one before.
func (m *Manager) recover(ctx context.Context) error {
	runs, err := m.engine.List(ctx, Query{Active: true})
	if err != nil {
		return fmt.Errorf("reading the runs an earlier process left: %w", err)
	}
	last := make(map[string]string) // of a schedule: the run that has to end before its next one starts
	for _, run := range slices.Backward(runs) {
		t := newTask(run)
		t.ask = true
		m.mu.Lock() // those before it may run already
		m.tasks[run.ID] = t
		m.mu.Unlock()
		t.after = last[run.Schedule]
		if run.Schedule != "" {
			last[run.Schedule] = run.ID
		}
		if run.Status == StatusQueued && run.Attempt == 0 {
			m.enqueue(t, t.after)
		} else {
			m.reclaim(ctx, t)
		}
	}
	return nil
}

// reclaim takes up one run of an earlier process: nobody works on it any more,
// as one host uses an engine at a time. What cannot be stored is tried again
// with the heartbeats.
func (m *Manager) reclaim(ctx context.Context, t *task) {
	run, err := m.engine.Get(ctx, t.run.ID)
	switch {
	case err == nil && run.Status.Terminal(), errors.Is(err, ErrNotFound):
		m.settle(t, nil)
		return
	case err == nil:
		err = m.rerun(ctx, t, run)
	}
	if err == nil {
		return
	}
	m.log.Error("background run of an earlier process not recovered; trying again", "task_id", t.run.ID, "error", err)
	m.mu.Lock()
	closing := m.closing
	t.orphan.Store(!closing)
	m.mu.Unlock()
	if closing {
		m.leave(t)
	}
}

// rerun queues a run whose work is gone, or ends it.
func (m *Manager) rerun(ctx context.Context, t *task, run Run) error {
	if run.Cancel != nil {
		end := End{Summary: summaryCanceled, FinishedAt: time.Now()}
		m.settle(t, &ending{status: StatusCanceled, beat: m.lastBeat(ctx, run), end: end})
		return nil
	}
	if run.Attempt > 0 {
		if refused := m.refusal(ctx, run); refused != nil {
			m.settle(t, &ending{status: StatusFailed, beat: m.lastBeat(ctx, run), end: failure(refused)})
			return nil
		}
		t.ask = false
	}
	if run.Status == StatusRunning {
		if err := m.engine.Requeue(ctx, run.ID, run.Attempt); err != nil {
			return fmt.Errorf("queuing it again: %w", err)
		}
		t.run.Status = StatusQueued
	}
	if run.Attempt > 0 {
		m.count(func(s *Stats) { s.Rerun++ })
		m.log.Info("background run queued again", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "attempt", run.Attempt+1)
	}
	m.enqueue(t, t.after)
	return nil
}

// lastBeat returns the last beat of a run whose work is gone, with as much
// output as its log has.
func (m *Manager) lastBeat(ctx context.Context, run Run) Beat {
	if chunk, err := m.engine.Tail(ctx, run.ID, 0, 0); err == nil {
		run.OutputBytes = max(run.OutputBytes, chunk.End)
	}
	return run.Beat
}
