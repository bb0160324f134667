package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// claimAtOnce is the maximum number of runs that one claim takes.
const claimAtOnce = 64

// An admission gives runs their slots. It counts the slots of this process; the engine
// counts permits. A run gets its slot before it is stored or claimed, and returns it
// after its end is stored. Free slots go to the queue first, so that a spawn overtakes
// no queued run.
type admission struct {
	*core
	member *member
	runs   *registry
	begin  func(t *task) // starts a run that has a slot

	turn turn // held while runs get slots

	mu     sync.Mutex
	used   int
	queued bool // there may be runs to claim when a slot or a permit becomes free
	coming bool // a claim is waiting for turn
}

// take takes a slot for a run that cannot wait for one, or returns a
// *[engine.LimitError].
func (a *admission) take() error {
	a.turn.Lock()
	defer a.turn.Unlock()
	if a.expecting() {
		a.fill()
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used >= a.cfg().PerHost {
		return &engine.LimitError{Err: ErrHostLimit, Max: a.cfg().PerHost}
	}
	a.count(1)
	return nil
}

// count counts slots that were taken or returned. The lock must be held.
func (a *admission) count(n int) {
	a.used += n
	a.underPressure.Store(4*a.used >= 3*a.cfg().PerHost)
}

// resized handles a changed number of slots.
func (a *admission) resized() {
	a.mu.Lock()
	a.count(0)
	a.mu.Unlock()
	a.expect(true) // there may be more slots now
}

// release returns a slot.
func (a *admission) release() {
	a.mu.Lock()
	a.count(-1)
	a.mu.Unlock()
	a.expect(false)
}

// GiveWay frees the slot of the run whose work ctx belongs to, while the work waits for
// another run that needs one. When the work continues, it must call resume, which takes
// a slot again even if none is free. Outside a run, GiveWay does nothing.
func GiveWay(ctx context.Context) (resume func()) {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return func() {}
	}
	a := w.admission
	a.release()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.count(1)
	}
}

func (a *admission) expecting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queued && a.used < a.cfg().PerHost
}

// expect claims runs soon if there may be some; queued reports that there are.
// Claims that are waiting for their turn are merged.
func (a *admission) expect(queued bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queued = a.queued || queued
	if a.queued && !a.coming && !a.runs.isClosing() {
		a.coming = true
		go a.claim()
	}
}

// renewed records whether a heartbeat found runs to claim. Events of the engine report
// runs that are queued later.
func (a *admission) renewed(queued bool) {
	a.mu.Lock()
	a.queued = queued
	a.mu.Unlock()
	a.expect(false)
}

// claim takes runs out of the queue for the free slots.
func (a *admission) claim() {
	a.turn.Lock()
	defer a.turn.Unlock()
	a.mu.Lock()
	a.coming = false
	a.mu.Unlock()
	a.fill()
}

// fill is like claim, for a caller that holds the turn.
func (a *admission) fill() {
	for !a.runs.isClosing() {
		a.mu.Lock()
		free := min(a.cfg().PerHost-a.used, claimAtOnce)
		a.mu.Unlock()
		if free <= 0 { // negative while runs that gave way have continued
			return
		}

		worker := a.member.worker()
		claimed, err := worker.Claim(a.base, free, a.cfg().permits())
		if err != nil && !errors.Is(err, engine.ErrFenced) {
			a.log.Error("queued background runs not claimed; trying again", "error", err)
		}

		for _, run := range claimed {
			a.start(worker, run)
		}
		if len(claimed) < free {
			return
		}
	}
}

// start gives a claimed run a slot, or returns it to the queue if the manager
// is closing.
func (a *admission) start(worker engine.Worker, run engine.Run) {
	t := newTask(a.base, run)
	t.ask, t.worker = true, worker
	if err := a.runs.add(t); err != nil {
		if err := worker.Requeue(a.base, run.ID, run.Attempt); err != nil && !fenced(err) {
			a.log.Warn("background run not given back", "task_id", run.ID, "error", err)
		}
		return
	}

	a.mu.Lock()
	a.count(1)
	a.mu.Unlock()
	a.begin(t)
}

// admit takes a slot for a run, stores its record and starts it, or queues it for a
// worker that has a slot. If it fails, it leaves nothing behind.
func (a *admission) admit(ctx context.Context, t *task) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := a.take(); err != nil {
		if t.run.Secret || !a.elsewhere(ctx, t.run) { // only this process has the arguments of a secret run
			return a.refused(err)
		}
		defer t.cancel(nil)
		permits := a.cfg().permits()
		permits.Queue = true
		return a.refused(a.submit(ctx, a.member.worker(), t.run, &permits))
	}

	t.worker = a.member.worker()
	err := a.runs.add(t)
	if err == nil {
		permits := a.cfg().permits()
		if err = a.submit(ctx, t.worker, t.run, &permits); err != nil {
			a.runs.drop(t)
			a.runs.running.Done()
		}
	}
	if err != nil {
		a.release()
		return a.refused(err)
	}
	a.begin(t)
	return nil
}

// elsewhere reports whether another worker seems to have a slot for a run.
func (a *admission) elsewhere(ctx context.Context, run engine.Run) bool {
	if a.runs.isClosing() {
		return false
	}
	workers, err := a.engine.Workers(ctx)
	if err != nil {
		a.log.Warn("other workers not asked for a place", "error", err)
		return false
	}

	self := a.member.worker().ID()
	return slices.ContainsFunc(workers, func(w engine.WorkerState) bool {
		return w.ID != self && w.Live && w.Offer.Takes(run) && w.Claimed+w.Running < w.Offer.Places
	})
}

// refused counts err if it is a limit or [ErrClosed], and returns it.
func (a *admission) refused(err error) error {
	if _, limit := errors.AsType[*engine.LimitError](err); limit || errors.Is(err, ErrClosed) {
		a.counters.add(func(s *Stats) { s.Refused++ })
	}
	return err
}

// submit stores the record of a new run: in the shared queue, or claimed by this
// worker, see [engine.Worker]. It does not stop when ctx ends.
func (a *admission) submit(ctx context.Context, worker engine.Worker, run engine.Run, permits *engine.Permits) error {
	ctx = context.WithoutCancel(ctx)
	err := worker.Submit(ctx, run, permits)
	if _, limit := errors.AsType[*engine.LimitError](err); limit || errors.Is(err, engine.ErrExists) || errors.Is(err, engine.ErrStorageLost) {
		return err
	}
	if err != nil {
		if _, missing := a.engine.Get(ctx, run.ID); missing != nil {
			return fmt.Errorf("storing the run: %w", err)
		}
		a.log.Warn("background run stored despite an error", "task_id", run.ID, "error", err)
	}

	a.counters.add(func(s *Stats) { s.Spawned++ })
	a.log.Info("background run spawned", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "origin", run.Origin, "args", loggedArgs(run.Args))
	return nil
}

// enqueue stores a new run in the shared queue, where it waits.
func (a *admission) enqueue(ctx context.Context, run engine.Run) error {
	if a.runs.isClosing() {
		return ErrClosed
	}
	if err := a.submit(ctx, a.member.worker(), run, nil); err != nil {
		return err
	}
	a.expect(true)
	return nil
}

// active returns how many slots are in use.
func (a *admission) active() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}
