package background

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A StopRequest says how to stop a run. Its zero value asks politely.
type StopRequest struct {
	Force  bool   // no grace: the run's context is canceled at once
	Reason string // kept with the run, cut to 200 characters; may be empty
	By     string // who asks, kept with the run; "": "session", the agent: the notice of an end it is shown is taken back
}

// A Stopped says what became of a stop. Exactly one of Stopped,
// AlreadyFinished and Stopping is true.
type Stopped struct {
	TaskID          string          `json:"task_id"`
	Status          Status          `json:"status"`
	Stopped         bool            `json:"stopped"`                    // the run was canceled, and its work has ended
	AlreadyFinished bool            `json:"already_finished,omitempty"` // the run ended by itself: before the stop, or before it took effect
	Stopping        bool            `json:"stopping,omitempty"`         // the run is asked to end and has not ended yet
	Unsaved         bool            `json:"unsaved,omitempty"`          // the run has ended, and that is not stored yet: see Run.Unsaved
	Next            string          `json:"next,omitempty"`             // advice, if it is unsaved
	Result          json.RawMessage `json:"result,omitempty"`
	Content         json.RawMessage `json:"content,omitempty"` // what the work showed beside Result or Error
	Error           *RunError       `json:"error,omitempty"`
}

// Stop asks a run to end and waits until it has, but no longer than the grace
// and a second. First [Sink.Stopping] is closed; when the grace is over, or at
// once with Force, the run's context is canceled with the cause [ErrStopped].
// The first request is kept with the run; a later one can only make the end
// come sooner.
//
// The answer tells the truth, and is the same when Stop is called again: the
// run is canceled only after its work has ended, and a result that arrived
// before that wins. For a run the session does not have, the error matches
// [ErrNotFound]. If ctx ends first, the error is its, the answer is what is
// known by then, and the stop goes on.
func (m *Manager) Stop(ctx context.Context, session, id string, req StopRequest) (Stopped, error) {
	run, t, err := m.lookup(ctx, session, id)
	if err != nil {
		return Stopped{}, fmt.Errorf("stop: %w", err)
	}
	if run.Status.Terminal() {
		m.stopSaw(ctx, req, handle{id: id, task: t, run: run})
		return newStopped(run), nil
	}
	request := Cancellation{At: time.Now(), By: cmp.Or(req.By, "session"), Reason: shorten(req.Reason, maxReason)}
	grace := m.cfg.Grace
	if req.Force {
		grace = 0
	}
	asked := []handle{{id: id, task: t}}
	if req.own() {
		defer m.unwatch(watch(asked))
	}
	if _, err := m.askToStop(ctx, id, request, grace); err != nil && !errors.Is(err, ErrNotFound) {
		m.log.Error("stop request not stored", "task_id", id, "error", err)
	}
	patience := time.NewTimer(grace + time.Second)
	defer patience.Stop()
	if err := await(ctx, patience.C, nil, asked, UntilAll, (*task).end); err != nil {
		return newStopped(run), fmt.Errorf("stop: waiting for run %s: %w", id, err)
	}
	if run, t, err = m.relook(ctx, session, asked[0]); err != nil {
		return Stopped{}, fmt.Errorf("stop: %w", err)
	}
	m.stopSaw(ctx, req, handle{id: id, task: t, run: run})
	return newStopped(run), nil
}

// own reports whether it is the session's agent who asks.
func (r StopRequest) own() bool { return r.By == "" || r.By == "session" }

// stopSaw takes back the notice of an end that the session's agent is shown.
func (m *Manager) stopSaw(ctx context.Context, req StopRequest, h handle) {
	if req.own() && h.run.Final() {
		m.saw(ctx, h.run.Session, []handle{h})
	}
}

// askToStop records that a run is to end and asks its work to, without waiting
// for it. A run that has not started is canceled by that. A slow engine does
// not hold up the stop for more than a second. It returns the run's task.
func (m *Manager) askToStop(ctx context.Context, id string, c Cancellation, grace time.Duration) (*task, error) {
	t := m.task(id)
	if t != nil {
		impatient := time.AfterFunc(patientFor, func() { t.requestStop(grace) })
		defer impatient.Stop()
	}
	run, err := m.engine.Cancel(context.WithoutCancel(ctx), id, c)
	if err != nil {
		err = fmt.Errorf("storing the stop of run %s: %w", id, err)
	}
	if t == nil {
		return nil, err
	}
	t.requestStop(grace)
	if m.withdraw(t) {
		if err == nil && run.Status.Terminal() {
			m.settle(t, nil)
		} else {
			m.settle(t, &ending{cancel: &c})
		}
	}
	return t, err
}

func newStopped(run Run) Stopped {
	s := Stopped{
		TaskID:          run.ID,
		Status:          run.Status,
		Stopped:         run.Status == StatusCanceled,
		AlreadyFinished: run.Status.Terminal() && run.Status != StatusCanceled,
		Stopping:        !run.Status.Terminal(),
		Unsaved:         run.Unsaved,
		Result:          run.Result,
		Content:         run.Content,
		Error:           run.Error,
	}
	if run.Unsaved {
		s.Next = nextUnsaved
	}
	return s
}
