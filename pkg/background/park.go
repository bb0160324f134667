package background

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A RunRequest says what to call. Tool and Work are required.
type RunRequest struct {
	Tool    string          // trimmed
	Version string          // as in SpawnRequest
	Args    json.RawMessage // any JSON value; nil: {}
	Stored  json.RawMessage // as in SpawnRequest
	Title   string          // at most 120 characters; "": "Background {tool}"
	By      string          // as in SpawnRequest
	Timeout time.Duration   // hard deadline; 0: Config.Timeout; at most Config.MaxTimeout
	// Terms are for Config.Executor if it makes a later attempt: any JSON value of
	// at most 1 KiB, kept as Run.Terms and in no report; nil: nothing.
	Terms json.RawMessage

	// ParkAfter is when a call that goes on becomes a background run; 0: never.
	ParkAfter time.Duration

	// Work does the work, under the rules of an [Executor]. It is the first
	// attempt; if the call was parked, a later one is Config.Executor's. Its
	// context has the values of Run's.
	Work func(ctx context.Context, sink *output.Sink) (Outcome, error)
}

// A RunResult is the outcome of a call.
type RunResult struct {
	Parked  bool       // the work goes on as Run
	Run     engine.Run // the record, if it was parked
	Outcome Outcome    // what Work returned, if it was not
}

// Run calls Work and waits for it. If it has returned within ParkAfter, Run
// returns what it did, its error unchanged, and no trace is left. Otherwise
// the call is parked: it becomes a background run of the session, with a
// record, a deadline that goes on, and a notice of its end, and Run returns
// that. Parking is no failure.
//
// If ctx ends before the call is parked, the context of the work is canceled
// with ctx's cause, and Run returns what Work does then. A parked run no
// longer depends on ctx. A call is always one of both: it returns, or it is
// parked.
//
// A call cannot be refused when its time to be parked comes. If the session
// has too many parked calls or the host too many runs by then, or there is no
// room to keep its record, the work is stopped, and the error is a *[engine.LimitError]
// unless it gave a result. If the record cannot be stored for another reason,
// which is logged, or the manager is closing, the
// call goes on in the foreground. A bad request is a *[FieldError]; after
// Close the error is [ErrClosed].
func (m *Manager) Run(ctx context.Context, session string, req RunRequest) (RunResult, error) {
	c, err := m.call(ctx, session, req)
	if err != nil {
		return RunResult{}, fmt.Errorf("run: %w", err)
	}
	parked, err := m.attend(ctx, c, req.ParkAfter)
	c.fate <- parked
	if parked {
		return RunResult{Parked: true, Run: c.task.lease.Run()}, nil
	}
	<-c.task.done
	if err != nil && c.err != nil {
		return RunResult{Outcome: c.outcome}, fmt.Errorf("run: %w", err)
	}
	return RunResult{Outcome: c.outcome}, c.err
}

// A call is work in the foreground.
type call struct {
	task    *task
	worked  chan struct{} // closed when the work has returned
	outcome Outcome       // valid once worked is closed
	err     error         // valid once worked is closed
	fate    chan bool     // whether the call was parked
}

// call starts the work.
func (m *Manager) call(ctx context.Context, session string, req RunRequest) (*call, error) {
	run, err := m.newRun(session, SpawnRequest{
		Tool: req.Tool, Version: req.Version, Args: req.Args, Stored: req.Stored, Title: req.Title, By: req.By, Timeout: req.Timeout,
	})
	switch {
	case err != nil:
		return nil, err
	case req.Work == nil:
		return nil, &FieldError{"work", "required"}
	case req.ParkAfter < 0:
		return nil, &FieldError{"park_after", "must not be negative"}
	case len(req.Terms) > maxTerms, req.Terms != nil && !json.Valid(req.Terms):
		return nil, &FieldError{"terms", fmt.Sprintf("not valid JSON of at most %d bytes", maxTerms)}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	run.Origin, run.StartedAt, run.Terms = engine.OriginParked, run.CreatedAt, bytes.Clone(req.Terms)
	c := &call{task: newTask(run), worked: make(chan struct{}), fate: make(chan bool, 1)}
	if err := m.runs.addCall(c.task); err != nil {
		return nil, err
	}
	c.task.launch(context.WithoutCancel(ctx))
	go m.serve(c, req.Work)
	return c, nil
}

// serve is the goroutine of a call.
func (m *Manager) serve(c *call, work func(context.Context, *output.Sink) (Outcome, error)) {
	defer m.runs.running.Done()
	t := c.task
	defer t.abort(nil)
	ctx, release := context.WithTimeoutCause(t.ctx, t.run.Timeout, context.DeadlineExceeded)
	defer release()
	protect(func() (Outcome, error) { return work(ctx, t.sink) }, func(o Outcome, err error) {
		cause := context.Cause(ctx)
		stopped := t.hasReturned()
		c.outcome, c.err = o, err
		close(c.worked)
		if parked := <-c.fate; parked {
			end := m.worker.judge(t, o, err, cause, stopped)
			m.worker.settle(t, &end)
			return
		}
		t.sink.Close()
		m.runs.remove(t)
		close(t.done)
	})
}

// attend waits until the work has returned or is parked. The error says why
// the work was stopped, if it was.
func (m *Manager) attend(ctx context.Context, c *call, parkAfter time.Duration) (parked bool, err error) {
	detach := c.follow(ctx)
	defer func() { detach() }()
	var due <-chan time.Time
	if parkAfter > 0 {
		timer := time.NewTimer(parkAfter)
		defer timer.Stop()
		due = timer.C
	}
	if closedFirst(c.worked, due) {
		return false, nil
	}
	if !detach() { // ctx has ended first: its work ends
		<-c.worked
		return false, nil
	}
	err = m.park(c.task)
	var limit *engine.LimitError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &limit):
		c.task.requestStop(m.cfg.Grace)
	default:
		m.log.Warn("call not parked; it goes on in the foreground", "session", c.task.run.Session, "tool", c.task.run.Tool, "error", err)
		err = nil
	}
	detach = c.follow(ctx)
	<-c.worked
	return false, err
}

// follow lets the work end with ctx, until the function it returns is called;
// that reports whether ctx had not ended by then.
func (c *call) follow(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		c.task.abort(context.Cause(ctx))
		c.task.sink.RequestStop()
	})
}

// park makes a call a background run: with a slot, a record, and a lease.
func (m *Manager) park(t *task) error {
	t.run.ParkedAt = time.Now()
	if err := m.admission.take(); err != nil {
		return m.admission.refused(err)
	}

	err := m.runs.park(t, true)
	if err == nil {
		if err = m.adopt(t); err != nil {
			_ = m.runs.park(t, false)
		}
	}
	if err != nil {
		m.admission.release()
		return m.admission.refused(err)
	}
	m.counters.add(func(s *Stats) { s.Spawned++ })
	m.log.Info("call parked", "task_id", t.run.ID, "session", t.run.Session, "tool", t.run.Tool, "args", loggedArgs(t.run.Args))
	return nil
}

// adopt stores the record of a call that is parked.
func (m *Manager) adopt(t *task) error {
	t.io.Lock()
	defer t.io.Unlock()
	lease, err := m.member.worker().Adopt(m.base, t.run, m.cfg.permits())
	if err != nil {
		return fmt.Errorf("storing the run: %w", err)
	}
	m.worker.hold(t, lease)
	return nil
}
