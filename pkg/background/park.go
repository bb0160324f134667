package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A RunRequest describes a call. Tool and Work are required. The arguments must be
// valid JSON and must not change until the call has ended or is parked. They are
// checked only when the call is parked or, with an IdempotencyKey, at its start: see
// [Manager.Run].
type RunRequest struct {
	SpawnRequest // its Terms apply to later attempts

	// ParkAfter is how long after its start a call that is still running becomes a
	// background run; 0: never.
	ParkAfter time.Duration
	// Park parks the call immediately when it is closed; nil: never.
	Park <-chan struct{}
	// Unparked is called if the call could not be parked. The call is then stopped if a
	// limit is the reason and Park is not closed; otherwise it continues in the
	// foreground. Unparked is called at most once, and may be nil.
	Unparked func(err error)

	// Work does the work, under the rules of an [Executor]. It is the first attempt;
	// Config.Executor makes the later attempts of a parked call. The context of Work
	// has the values of the context passed to [Manager.Run].
	Work func(ctx context.Context, sink *output.Sink) (Outcome, error)

	// Stops reports whether to stop a call with an IdempotencyKey when the context of
	// [Manager.Run] ends with this cause. If it returns false or is nil, the call
	// continues.
	Stops func(cause error) bool
}

// A RunResult is the outcome of a call.
type RunResult struct {
	Parked  bool       // the work continues, as the background run in Run
	Left    bool       // the context of a call with a key has ended, and the work continues; the returned error is the context's cause
	Reused  bool       // Work was not called: Run is an earlier run with the same idempotency key, tool and arguments
	Run     engine.Run // record of the call, if it has one
	Outcome Outcome    // outcome of Work, unless the call was parked or an earlier run reused
}

// Run calls Work and waits for it. If Work returns within ParkAfter, Run returns its
// outcome, with the error unchanged, and leaves no trace. Otherwise the call is parked:
// it becomes a background run of the session, with a record, the same deadline, and a
// notice of its end, and Run returns that run.
//
// If ctx ends before the call is parked, the context of the work is canceled with ctx's
// cause, and Run returns what Work then returns. A parked run no longer depends on ctx.
//
// If the session has too many parked calls or the host too many runs when the call is to
// be parked, or the record quota is full, the work is stopped, and the error is an
// [*engine.LimitError] unless the work returned a result. But if Park was closed, the
// work continues in the foreground until ParkAfter. If the call cannot be parked for
// another reason, which is logged, or if the manager is closing, it continues in the
// foreground to its end. For a bad request the error is a *[FieldError], and after Close
// it is [ErrClosed].
//
// With an IdempotencyKey the call is a run from its start: its record is stored before
// Work is called, and its end before Run returns what Work returned. If ctx ends, the
// run continues, unless Stops says otherwise. Its end makes a notice only if Run has
// already returned. If the session has a run with that key, Run returns it, or the
// error matches [ErrKeyReused], as for [Manager.Spawn].
func (m *Manager) Run(ctx context.Context, session string, req RunRequest) (RunResult, error) {
	c, err := m.worker.newCall(ctx, session, req)
	if err != nil {
		return RunResult{}, fmt.Errorf("run: %w", err)
	}
	if req.IdempotencyKey != "" {
		return m.runKeyed(ctx, c, req)
	}
	m.worker.begin(c, m.worker.returned)

	parked, err := m.worker.attend(ctx, c, req)
	switch {
	case parked:
		return RunResult{Parked: true, Run: c.task.lease.Run()}, nil
	case err != nil && c.err != nil:
		return RunResult{Outcome: c.outcome}, fmt.Errorf("run: %w", err)
	}
	return RunResult{Outcome: c.outcome}, c.err
}

// A call is work in the foreground.
type call struct {
	task    *task
	work    func(ctx context.Context, sink *output.Sink) (Outcome, error)
	outcome Outcome      // valid once the task is done
	err     error        // valid once the task is done
	phase   atomic.Int32 // one of the phase values, for a call without a key
	fate    chan bool    // says whether the call was parked; made before the phase becomes phaseParking
	waiter  atomic.Int32 // one of the waiter values, for a call with a key
}

// Phases of a call without a key. Work that returns while the call is being parked waits
// for its fate.
const (
	phaseWorking int32 = iota
	phaseParking
	phaseReturned
)

// newCall makes a call whose work has not begun.
func (w *worker) newCall(ctx context.Context, session string, req RunRequest) (*call, error) {
	run, err := w.newRun(session, req.SpawnRequest)
	switch {
	case err != nil:
		return nil, err
	case req.Work == nil:
		return nil, &FieldError{"work", "required"}
	case req.ParkAfter < 0:
		return nil, &FieldError{"park_after", "must not be negative"}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	run.Origin, run.StartedAt = engine.OriginParked, run.CreatedAt
	if err := w.reader.link(ctx, &run, req.Parent); err != nil {
		return nil, err
	}

	c := &call{task: newTask(context.WithoutCancel(ctx), run), work: req.Work}
	c.task.call = true
	if err := w.runs.add(c.task); err != nil {
		return nil, err
	}
	return c, nil
}

// begin starts the work of a call. It calls after when the work has returned.
func (w *worker) begin(c *call, after func(*call, workResult)) {
	w.pool.run(func() {
		w.perform(c.task,
			func(ctx context.Context) (Outcome, error) { return c.work(ctx, c.task.sink) },
			func(r workResult) { after(c, r) })
	})
}

// returned ends a call whose work has returned, or the run that the call has become.
func (w *worker) returned(c *call, r workResult) {
	c.outcome, c.err = r.outcome, r.err
	if c.phase.Swap(phaseReturned) == phaseParking && <-c.fate {
		c.task.alone = true
		end := w.judge(c.task, r)
		w.settle(c.task, &end)
		return
	}
	if c.task.unsure {
		if _, err := w.engine.Get(w.base, c.task.run.ID); !errors.Is(err, engine.ErrNotFound) {
			end := w.judge(c.task, r)
			end.end.Shown = true
			w.settle(c.task, &end)
			return
		}
		w.admission.release()
	}
	w.runs.drop(c.task)
}

// attend waits until the call has ended or is parked. The error is the reason if the work
// was stopped.
func (w *worker) attend(ctx context.Context, c *call, req RunRequest) (parked bool, err error) {
	timer := req.due()
	defer timer.Stop()

	due := timer.C
	for left := ctx.Done(); ; {
		select {
		case <-c.task.done:
			return false, err
		case <-left:
		case <-due:
		case <-req.Park:
		}
		if ctx.Err() != nil {
			c.task.cancel(context.Cause(ctx))
			c.task.sink.RequestStop()
			left, due, req.Park = nil, nil, nil
			continue
		}

		if c.fate == nil {
			c.fate = make(chan bool, 1)
		}
		if !c.phase.CompareAndSwap(phaseWorking, phaseParking) { // it has just ended
			due, req.Park = nil, nil
			continue
		}
		reason := w.park(c.task, time.Now())
		if reason == nil {
			c.fate <- true
			return true, nil
		}

		early := closed(req.Park)
		stopped := w.unparked(ctx, c, req, reason)
		if !c.phase.CompareAndSwap(phaseParking, phaseWorking) {
			c.fate <- false
		}
		req.Park, req.Unparked = nil, nil
		if !early || c.task.unsure { // otherwise there may be room once it is due
			due, err = nil, stopped
		}
	}
}

// unparked continues a call that could not be parked. The error is the reason if its work
// is stopped.
func (w *worker) unparked(ctx context.Context, c *call, req RunRequest, err error) error {
	if req.Unparked != nil {
		req.Unparked(err)
	}
	_, limit := errors.AsType[*engine.LimitError](err)
	if limit && !closed(req.Park) {
		c.task.requestStop(w.cfg().Grace)
		return err
	}

	level := slog.LevelWarn
	if limit {
		level = slog.LevelDebug // an agent can cause it with each call
	}
	w.log.Log(ctx, level, "call not parked; it continues in the foreground", "session", c.task.run.Session, "tool", c.task.run.Tool, "error", err)
	return nil
}

// due returns a timer that delivers when it is time to park the call, or never.
func (r RunRequest) due() *time.Timer {
	timer := time.NewTimer(r.ParkAfter)
	if r.ParkAfter == 0 {
		timer.Stop()
	}
	return timer
}

// park makes a call a background run with a slot, a record and a lease. A call with a
// key has these from its start.
func (w *worker) park(t *task, at time.Time) error {
	run := t.run
	run.ParkedAt, run.Provider = at, w.provider(run.Tool)
	var err error
	if run.Args, err = ownArgs(run.Args); err != nil {
		return err
	}
	if w.runs.isClosing() {
		return w.admission.refused(ErrClosed)
	}
	if err := w.admission.take(); err != nil {
		return w.admission.refused(err)
	}

	t.io.Lock()
	defer t.io.Unlock()
	worker := w.member.worker()
	t.worker = worker
	lease, err := worker.Adopt(w.base, run, w.cfg().permits())
	if t.unsure = errors.Is(err, engine.ErrUnavailable); err != nil {
		if !t.unsure {
			w.admission.release()
		}
		return w.admission.refused(fmt.Errorf("storing the run: %w", err))
	}

	w.hold(t, worker, lease)
	w.counters.add(func(s *Stats) { s.Spawned++ })
	did := "call parked"
	if at.IsZero() {
		did = "call with a key stored"
	}
	w.log.Info(did, "task_id", run.ID, "session", run.Session, "tool", run.Tool, "args", loggedArgs(run.Args))
	return nil
}
