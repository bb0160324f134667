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

// wakeAtOnce is how many due runs are woken at a time.
const wakeAtOnce = 256

// errNoState means that the work is not a background run, and so cannot be suspended.
var errNoState = errors.New("only a background run can be suspended")

// A Suspension holds the state from which a run continues, and the events that it waits
// for.
type Suspension struct {
	State    []byte    // from 1 to [engine.MaxState] bytes, for [StateOf]; nil: the stored one
	Wake     time.Time // latest time to continue; zero: none
	Await    []string  // ids of the runs whose end wakes this one, at most [engine.MaxAwait]; an inactive run counts as ended
	Children []Child   // runs stored in the same write as the state, at most [engine.MaxAwait]
}

// A Child is a run that is stored together with the state of its parent. Op determines
// its id, see [ChildID]. A child that is already stored is skipped. IdempotencyKey,
// Parent and Stored of the request must be empty.
type Child struct {
	Op int64
	SpawnRequest
}

// ChildID returns the id of the child that a run started with the operation op.
func ChildID(run string, op int64) string { return run + "-" + strconv.FormatInt(op, 10) }

// StateOf returns the state from which the run whose work ctx belongs to continues: the
// state stored by its last suspension or [SaveState]. It is nil if the run starts from
// the beginning.
func StateOf(ctx context.Context) []byte {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return nil
	}
	return w.task.lease.State()
}

// isOperation reports whether the run is a [Child]: it was stored together with a state of
// its parent, and ends when the parent ends.
func isOperation(run engine.Run) bool {
	return run.Parent != "" && strings.HasPrefix(run.ID, run.Parent+"-")
}

// SaveState stores the state and the children in s for the run whose work ctx belongs
// to, in one write, while the run continues. After a crash the run continues from this
// state, so begin work that must not be done twice only after SaveState. Wake and Await
// are ignored.
func SaveState(ctx context.Context, s Suspension) error {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return errNoState
	}
	return w.task.saveState(w.core, s)
}

// DropState removes the state of the run whose work ctx belongs to. After a crash the
// run then neither continues from it nor starts over. Call it before work that must
// not be done twice and that no state records.
func DropState(ctx context.Context) error {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return errNoState
	}
	return w.task.store(w.core, engine.Suspension{Drop: true, Hold: true})
}

// UnderPressure reports whether most slots are in use in the process that executes the run
// whose work ctx belongs to. Waiting work should then be suspended immediately.
func UnderPressure(ctx context.Context) bool {
	w, _ := ctx.Value(workKey{}).(*workOf)
	return w != nil && w.core.underPressure.Load()
}

func (t *task) saveState(c *core, s Suspension) error {
	stored, err := c.suspension(t, s)
	if err != nil {
		return err
	}
	stored.Hold = true
	return t.store(c, stored)
}

// store stores or removes a state. It retries, which is harmless: if only the answer was
// lost, the work would otherwise believe that its running children have not begun.
func (t *task) store(c *core, stored engine.Suspension) error {
	return t.persist(t.ctx, func() error { return t.storeOnce(c, stored) })
}

// persist calls a function that stores something, and repeats the call while the storage
// accepts nothing, until ctx or the context of the work is done.
func (t *task) persist(ctx context.Context, store func() error) error {
	for {
		err := store()
		if !stalled(err) {
			return err
		}
		select {
		case <-time.After(startAgain):
		case <-ctx.Done():
			return err
		case <-t.ctx.Done(): // also when the lease has ended
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

// suspension makes the stored form of s.
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

// suspend turns e into the suspension that the work requested.
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

// storeSuspension suspends a run. If the engine refuses that, it changes e to how the
// run ends instead. The lock io must be held.
func (w *worker) storeSuspension(ctx context.Context, t *task, e *ending) (run engine.Run, stored bool, err error) {
	run, err = t.lease.Suspend(ctx, *e.suspend)
	for stalled(err) && !w.runs.isClosing() { // only this process has the state
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

// resume restores the sink of a continued run. Output that cannot be read is treated as
// dropped.
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

// resumeCalls restores the recorded calls of a continued run.
func (w *worker) resumeCalls(ctx context.Context, t *task) {
	called, err := w.engine.Payload(ctx, t.run.ID, engine.PartCalls)
	if err != nil {
		w.log.Error("what a background run has called was not read", "task_id", t.run.ID, "error", err)
	}
	t.sink.Calls(func() []byte { return called })
}

// wake queues the waiting runs whose time has come, and returns the time until the next one, at
// most [clockEvery]. The times follow the process's clock, if the engine uses it.
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

// suspended gives up the task of a waiting run. Callers that wait for its end now follow
// the run instead.
func (w *worker) suspended(t *task) {
	w.runs.remove(t)
	w.log.Info("background run waits", "task_id", t.run.ID, "session", t.run.Session, "tool", t.run.Tool, "until", t.final.WakeAt, "runs", len(t.final.Await))
	if t.call && !t.alone && !w.runs.isClosing() {
		go w.reader.awaitElsewhere(t)
		return
	}
	close(t.done)
}
