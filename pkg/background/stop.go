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
	By     string // who asks, kept with the run; "": "session"
}

// A Stopped says what became of a stop. Exactly one of Stopped,
// AlreadyFinished and Stopping is true.
type Stopped struct {
	TaskID          string          `json:"task_id"`
	Status          Status          `json:"status"`
	Stopped         bool            `json:"stopped"`                    // the run was canceled, and its work has ended
	AlreadyFinished bool            `json:"already_finished,omitempty"` // the run ended by itself: before the stop, or before it took effect
	Stopping        bool            `json:"stopping,omitempty"`         // the run is asked to end and has not ended yet
	Result          json.RawMessage `json:"result,omitempty"`
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
		return newStopped(run), nil
	}
	request := Cancellation{At: time.Now(), By: cmp.Or(req.By, "session"), Reason: shorten(req.Reason, maxReason)}
	if _, err := m.engine.Cancel(ctx, id, request); err != nil && !errors.Is(err, ErrNotFound) {
		m.log.Error("stop request not stored", "task_id", id, "error", err)
	}
	if t != nil {
		grace := m.cfg.Grace
		if req.Force {
			grace = 0
		}
		t.requestStop(grace)
		wait := time.NewTimer(grace + time.Second)
		defer wait.Stop()
		select {
		case <-t.done:
		case <-wait.C:
		case <-ctx.Done():
			return newStopped(run), fmt.Errorf("stop: waiting for run %s: %w", id, ctx.Err())
		}
	}
	if run, _, err = m.relook(ctx, session, handle{id, t}); err != nil {
		return Stopped{}, fmt.Errorf("stop: %w", err)
	}
	return newStopped(run), nil
}

func newStopped(run Run) Stopped {
	return Stopped{
		TaskID:          run.ID,
		Status:          run.Status,
		Stopped:         run.Status == StatusCanceled,
		AlreadyFinished: run.Status.Terminal() && run.Status != StatusCanceled,
		Stopping:        !run.Status.Terminal(),
		Result:          run.Result,
		Error:           run.Error,
	}
}
