package background

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A StopRequest says how to stop a run. Its zero value asks politely.
type StopRequest struct {
	Force  bool   // no grace period: the run's context is canceled at once, if it runs in this process
	Reason string // kept with the run, cut to 200 characters; may be empty
	By     string // who asks, kept with the run; "": "session", the agent: the notice of an end it is shown counts as acknowledged
}

// A StopResult is the outcome of a stop. Exactly one of Stopped, AlreadyFinished
// and Stopping is true.
type StopResult struct {
	TaskID          string           `json:"task_id"`
	Status          engine.Status    `json:"status"`
	Stopped         bool             `json:"stopped"`                    // the run was canceled, and its work has ended
	AlreadyFinished bool             `json:"already_finished,omitempty"` // the run ended by itself: before the stop, or before it took effect
	Stopping        bool             `json:"stopping,omitempty"`         // the run is asked to end and has not ended yet
	Unsaved         bool             `json:"unsaved,omitempty"`          // the run has ended, and that is not stored yet: see [engine.Run]
	Next            string           `json:"next,omitempty"`             // advice, if it is unsaved
	Result          json.RawMessage  `json:"result,omitempty"`
	Content         json.RawMessage  `json:"content,omitempty"` // what the work showed next to Result or Error
	Error           *engine.RunError `json:"error,omitempty"`
}

// Stop asks a run to end and waits until it has, but no longer than the grace
// period and a second. First [output.Sink.Stopping] is closed; when the grace
// period is over, or at once with Force, the run's context is canceled with the
// cause [ErrStopped]. The first request is kept with the run; a later one can
// only make the end come sooner. A run that another worker works on is asked
// through the engine.
//
// The answer is true, and the same when Stop is called again: the run is
// canceled only after its work has ended, and a result that arrived before that
// wins. The error matches [engine.ErrNotFound] if the session does not have the
// run. If ctx ends first, the error is its, and the stop continues.
func (m *Manager) Stop(ctx context.Context, session, id string, req StopRequest) (StopResult, error) {
	run, t, err := m.reader.lookup(ctx, session, id)
	if err != nil {
		return StopResult{}, fmt.Errorf("stop: %w", err)
	}
	h := []handle{{id: id, task: t, run: run}}
	if req.own() {
		defer m.notifier.view(h)()
	}

	if !run.Status.Terminal() {
		if h[0], err = m.askToStop(ctx, id, req); err != nil {
			return m.stopped(run), fmt.Errorf("stop: %w", err)
		}
		timer := time.NewTimer(m.grace(req) + time.Second)
		defer timer.Stop()
		if err := m.reader.await(ctx, session, h, patience{late: timer.C}); err != nil {
			return m.stopped(run), fmt.Errorf("stop: waiting for run %s: %w", id, err)
		}
		if run, t, err = m.reader.relook(ctx, session, h[0]); err != nil {
			return StopResult{}, fmt.Errorf("stop: %w", err)
		}
	}

	if req.own() && run.Final() {
		m.notifier.seen(ctx, session, []engine.Run{run})
	}
	answer := m.stopped(run)
	if run.Status.Terminal() {
		if answer.Result, _, err = m.part(ctx, run, t, engine.PartResult, 0); err == nil {
			answer.Content, _, err = m.part(ctx, run, t, engine.PartContent, 0)
		}
	}
	if err != nil {
		return answer, fmt.Errorf("stop: %w", err)
	}
	return answer, nil
}

// askToStop asks for the end of a run. That the request could not be stored is an
// error only if this worker does not work on the run.
func (m *Manager) askToStop(ctx context.Context, id string, req StopRequest) (handle, error) {
	c := engine.Cancellation{At: time.Now(), By: cmp.Or(req.By, "session"), Reason: output.Shorten(req.Reason, maxReason)}
	run, t, err := m.worker.stop(ctx, id, c, m.grace(req))
	if err != nil && t != nil {
		m.log.Error("stop request not stored", "task_id", id, "error", err)
		err = nil
	}
	return handle{id: id, task: t, run: run}, err
}

// grace returns how long the work may take to end by itself.
func (m *Manager) grace(req StopRequest) time.Duration {
	if req.Force {
		return 0
	}
	return m.cfg.Grace
}

// own reports whether the session's agent asks.
func (r StopRequest) own() bool { return r.By == "" || r.By == "session" }

func (m *Manager) stopped(run engine.Run) StopResult {
	s := StopResult{
		TaskID:          run.ID,
		Status:          run.Status,
		Stopped:         run.Status == engine.StatusCanceled,
		AlreadyFinished: run.Status.Terminal() && run.Status != engine.StatusCanceled,
		Stopping:        !run.Status.Terminal(),
		Unsaved:         run.Unsaved,
		Error:           run.Error,
	}
	if run.Unsaved {
		s.Next = m.cfg.Texts.Unsaved
	}
	return s
}
