package background

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A StopRequest says how to stop a run. The zero value allows a grace period.
type StopRequest struct {
	Force  bool   // no grace period: the run's context is canceled immediately
	Reason string // kept with the run, cut to 200 characters; may be empty
	By     string // the requester, kept with the run; "" or "session": the session's agent, so Stop acknowledges the notice of the end that it returns
	Alone  bool   // the run's children are not stopped
}

// own reports whether the request is from the session's agent.
func (r StopRequest) own() bool { return r.By == "" || r.By == "session" }

// grace returns how long the work may take to end by itself.
func (r StopRequest) grace(c *Config) time.Duration {
	if r.Force {
		return 0
	}
	return c.Grace
}

// Stop asks a run to end and waits until it has, for at most the grace period plus a
// second. First [output.Sink.Stopping] is closed; when the grace period is over, or at
// once with Force, the run's context is canceled with the cause [ErrStopped]. The first
// request is kept with the run; a later one can only bring the end forward. A run of
// another worker is stopped through the engine.
//
// Stop also stops the run's active descendants and waits for them, whether the run
// itself is still active or not: see [SpawnRequest].Parent. A child is stopped when its
// parent is stopped, but not when the parent ends by itself. It remains a child when
// its parent is run again.
//
// Stop then returns the run without its payload. A run becomes canceled only after its
// work has ended, and a result that arrived before that wins. The error matches
// [engine.ErrNotFound] if the session does not have the run. If ctx ends first, Stop
// returns its error, and the stop continues.
func (m *Manager) Stop(ctx context.Context, session, id string, req StopRequest) (engine.Run, error) {
	h, err := m.reader.lookup(ctx, session, id)
	if err != nil {
		return engine.Run{}, fmt.Errorf("stop: %w", err)
	}
	if req.own() {
		defer m.notifier.view([]handle{h})()
	}

	all, err := m.worker.stopFamily(ctx, h, req)
	if err != nil {
		return h.run, fmt.Errorf("stop: %w", err)
	}
	if len(all) > 0 {
		if all[0].run.ID == id {
			h = all[0]
		}
		if err := m.reader.await(ctx, session, all, waitLimits{until: UntilAll, most: req.grace(m.cfg()) + time.Second}); err != nil {
			return h.run, fmt.Errorf("stop: waiting for run %s: %w", id, err)
		}
		if h, err = m.reader.relook(ctx, session, h); err != nil {
			return h.run, fmt.Errorf("stop: %w", err)
		}
	}

	if req.own() && h.run.Final() {
		m.notifier.seen(ctx, []engine.Run{h.run})
	}
	return h.run, nil
}

// stop records that a run has to end and asks its work to, without waiting for it. A
// queued run is canceled immediately. A slow engine delays the request by no more than
// a second. Failing to store it is an error only if this worker does not have the run.
func (w *worker) stop(ctx context.Context, id string, req StopRequest) (handle, error) {
	c := engine.Cancellation{At: time.Now(), By: cmp.Or(req.By, "session"), Reason: output.Shorten(req.Reason, maxReason), Alone: req.Alone, Force: req.Force}
	grace := req.grace(w.cfg())
	t := w.runs.get(id)
	if t != nil {
		t.shorten(grace) // before the engine's event for this request
		late := time.AfterFunc(maxDelay, func() { t.requestStop(grace) })
		defer late.Stop()
	}

	run, err := w.engine.Cancel(context.WithoutCancel(ctx), id, c, canceled(c.At))
	if err != nil {
		run.ID, err = id, fmt.Errorf("storing the stop of run %s: %w", id, err)
	}

	switch {
	case t != nil:
		if err != nil {
			w.log.Error("stop request not stored", "task_id", id, "error", err)
		}
		t.requestStop(grace)
		return handle{run: run, task: t}, nil
	case err == nil && run.Status == engine.StatusCanceled && run.Cancel.At.Equal(c.At):
		w.counters.ended(run)
	}
	return handle{run: run}, err
}
