package background

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// wakeAtOnce is how many runs that wait continue at once when their time has come.
const wakeAtOnce = 256

// errNoState: a run that is to be suspended is not one.
var errNoState = errors.New("only a background run can be suspended")

// A Suspension says what a run continues from, and what it waits for.
type Suspension struct {
	State    []byte    // from 1 to [engine.MaxState] bytes, for [StateOf]; nil: the stored one
	Wake     time.Time // when the run continues at the latest; zero: not by time
	Await    []string  // runs whose end lets it continue, at most [engine.MaxAwait]; a run that is not active counts as ended
	Children []Child   // runs that are stored in the same write as the state, at most [engine.MaxAwait]
}

// A Child is a run that is stored together with the state of its parent. Op determines
// its id, see [ChildID]. A child that is already stored is left out. Key, Parent and
// Stored of the request must be empty.
type Child struct {
	Op int64
	SpawnRequest
}

// ChildID returns the id of the child that a run started with an operation.
func ChildID(run string, op int64) string { return run + "-" + strconv.FormatInt(op, 10) }

// StateOf returns the last state that the run whose work ctx belongs to was suspended
// with or has saved. The run continues from it. It is nil at the beginning.
func StateOf(ctx context.Context) []byte {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return nil
	}
	return w.task.lease.State()
}

// isOperation reports whether a run is what its parent has begun with a state: it ends with
// its parent, see [Child].
func isOperation(run engine.Run) bool {
	return run.Parent != "" && strings.HasPrefix(run.ID, run.Parent+"-")
}

// SaveState stores the state and the children of the run whose work ctx belongs to in
// one write, while the run continues. After a crash it continues from this state: begin
// work that must not be done twice only after SaveState. Wake and Await are not used.
func SaveState(ctx context.Context, s Suspension) error {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return errNoState
	}
	return w.task.saveState(w.core, s)
}

// DropState removes the state of the run whose work ctx belongs to: after a crash the
// run neither continues from it nor begins anew. Call it before work that must not be
// done twice and that no state records.
func DropState(ctx context.Context) error {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return errNoState
	}
	return w.task.store(w.core, engine.Suspension{Drop: true, Hold: true})
}

// Crowded reports whether most slots are in use in the process that executes the run
// whose work ctx belongs to. Work that waits should then be suspended at once.
func Crowded(ctx context.Context) bool {
	w, _ := ctx.Value(workKey{}).(*workOf)
	return w != nil && w.core.crowded.Load()
}

func (t *task) saveState(c *core, s Suspension) error {
	stored, err := c.suspension(t, s)
	if err != nil {
		return err
	}
	stored.Hold = true
	return t.store(c, stored)
}

// store stores a state, or removes the one that is stored. A write whose answer is lost is
// repeated, which changes nothing if it was done: the work must not hear that children have
// not begun which have.
func (t *task) store(c *core, stored engine.Suspension) error {
	for {
		err := t.storeOnce(c, stored)
		if !errors.Is(err, engine.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(startAgain):
		case <-t.ctx.Done(): // as it is when the lease has ended
			return err
		}
	}
}

func (t *task) storeOnce(c *core, stored engine.Suspension) error {
	t.io.Lock()
	defer t.io.Unlock()
	if t.settled.Load() {
		return engine.ErrFenced
	}
	if err := t.appendLog(c.base); err != nil {
		return fmt.Errorf("storing the output before the state: %w", err)
	}
	stored.Beat, stored.Calls = t.sink.Beat(), t.sink.Called()
	if _, err := t.lease.Suspend(c.base, stored); err != nil {
		if errors.Is(err, engine.ErrFenced) {
			t.cancel(engine.ErrFenced)
		}
		return fmt.Errorf("storing the state: %w", err)
	}
	t.stated.Store(!stored.Drop)
	if !stored.Drop {
		t.advanced.Store(true)
	}
	return nil
}

// suspension makes what the engine stores of s.
func (c *core) suspension(t *task, s Suspension) (engine.Suspension, error) {
	stored := engine.Suspension{State: s.State, Wake: s.Wake.Round(0), Await: s.Await, Mail: t.mailSeen.Load()}
	for _, child := range s.Children {
		if child.IdempotencyKey != "" || child.Parent != "" || child.Stored != nil {
			return stored, &FieldError{"children", "a child has no key, parent or secrets of its own"}
		}
		run, err := c.newStoredRun(t.run.Session, child.SpawnRequest)
		if err != nil {
			return stored, err
		}
		if t.run.Depth >= MaxDepth {
			return stored, &engine.LimitError{Err: ErrDepthLimit, Max: MaxDepth}
		}
		run.ID, run.Parent, run.Depth = ChildID(t.run.ID, child.Op), t.run.ID, t.run.Depth+1
		stored.Children = append(stored.Children, run)
	}
	return stored, nil
}

// suspend makes e the suspension that the work asks for.
func (w *worker) suspend(t *task, e *ending, s Suspension) error {
	if t.lease == nil {
		return errNoState
	}
	stored, err := w.suspension(t, s)
	if err != nil {
		return err
	}
	stored.Beat = e.beat
	e.suspend = &stored
	return nil
}

// storeSuspension suspends a run. If the engine refuses that, e is how the run ends
// instead. The lock io must be held.
func (w *worker) storeSuspension(ctx context.Context, t *task, e *ending) (run engine.Run, stored bool, err error) {
	run, err = t.lease.Suspend(ctx, *e.suspend)
	for errors.Is(err, engine.ErrUnavailable) && !w.runs.isClosing() { // only this process has the state
		time.Sleep(startAgain)
		run, err = t.lease.Suspend(ctx, *e.suspend)
	}

	e.suspend = nil
	switch {
	case err == nil:
		return run, true, nil
	case fenced(err):
		return run, false, err
	case errors.Is(err, engine.ErrStopping):
		e.status, e.end = engine.StatusCanceled, canceled(time.Now())
		return run, false, nil
	}

	w.log.Error("background run not suspended: it continues", "task_id", t.run.ID, "error", err)
	e.status, e.end = engine.StatusFailed, failure(&engine.RunError{Kind: engine.KindInternal, Message: w.cfg().InternalText})
	e.requeue = t.stated.Load() // it is tried again
	return run, false, nil
}

// resume gives the sink of a run that continues what it had. What cannot be read counts
// as dropped.
func (w *worker) resume(ctx context.Context, t *task, lease engine.Lease) {
	run := lease.Run()
	t.mailSeen.Store(run.Mail)
	values, reading := w.engine.Values(ctx, engine.Scope{Session: run.Session, Run: run.ID}, "", 0, false)
	for _, v := range values {
		t.mailSeen.Store(max(t.mailSeen.Load(), v.Version))
	}

	var chunks []engine.Chunk
	for at := int64(0); at < run.StateLog; {
		chunk, err := w.engine.Tail(ctx, run.ID, at, flushChunk)
		if err != nil || len(chunk.Data) == 0 {
			reading = errors.Join(reading, err)
			break
		}
		chunks = append(chunks, chunk)
		at = chunk.Offset + int64(len(chunk.Data))
	}
	if reading != nil {
		w.log.Error("output or messages of a background run not read", "task_id", run.ID, "error", reading)
	}

	if run.StateSize > 0 {
		if run.CallsSize > 0 {
			w.resumeCalls(ctx, t)
		}
		t.sink.Continue(run.Beat, run.StateLog, chunks)
		t.flushed = run.StateLog
		t.stated.Store(true)
	}
}

// resumeCalls gives the sink of a run that continues what it had called.
func (w *worker) resumeCalls(ctx context.Context, t *task) {
	called, err := w.engine.Payload(ctx, t.run.ID, engine.PartCalls)
	if err != nil {
		w.log.Error("what a background run has called was not read", "task_id", t.run.ID, "error", err)
	}
	t.sink.Calls(func() []byte { return called })
}

// wake lets runs continue whose time has come, and returns how long it is until the next
// one is due, at most [clockEvery]. The times have the clock of the process, if the engine has it.
func (s *scheduler) wake(ctx context.Context) time.Duration {
	for {
		now, err := s.engine.Now(ctx)
		if err != nil {
			return fireAgain
		}
		woken, next, err := s.worker.member.worker().Wake(ctx, now, wakeAtOnce)
		if err != nil {
			if ctx.Err() == nil && !fenced(err) {
				s.log.Error("waiting background runs not woken; trying again", "error", err)
			}
			return fireAgain
		}
		switch {
		case woken == wakeAtOnce:
		case next.IsZero():
			return clockEvery
		default:
			return min(next.Sub(now), clockEvery)
		}
	}
}

// interrupted returns the run of a task as another worker would find it.
func (t *task) interrupted() engine.Run {
	run := t.lease.Run()
	if !t.stated.Load() {
		run.StateSize = 0
	} else {
		run.StateSize = max(1, run.StateSize)
	}
	if t.advanced.Load() {
		run.SavedIn = run.Attempt
	}
	return run
}

// suspended gives up the task of a run that waits: callers that wait for its end follow the
// run from now on.
func (w *worker) suspended(t *task) {
	w.runs.remove(t)
	w.log.Info("background run waits", "task_id", t.run.ID, "session", t.run.Session, "tool", t.run.Tool, "until", t.final.WakeAt, "runs", len(t.final.Await))
	if t.call && !t.alone && !w.runs.isClosing() {
		go w.reader.awaitElsewhere(t)
		return
	}
	close(t.done)
}
