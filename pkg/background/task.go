package background

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A task is a run that this worker has a slot for: it is about to start, executes,
// or its end is not stored yet. A foreground call is one too; it has no record and
// no slot until it is parked.
type task struct {
	run  engine.Run      // as it was submitted or claimed; a claimed one has no payload
	args json.RawMessage // what the first attempt is given in place of the stored arguments; nil: those
	call bool            // it began as a call in the foreground
	ask  bool            // Config.Readmit is asked before the start

	// alone is set, before the end is stored, if Run has returned or is about to.
	alone bool
	// unsure is set if the call has a slot and may have a record, though parking it failed.
	unsure bool

	sink  *output.Sink
	mail  chan struct{} // has an element if there may be new messages
	done  chan struct{} // closed after the terminal write
	final *engine.Run   // the run as it ended; set before done is closed

	ctx    context.Context // of the work
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	stopped  bool        // a stop was requested
	forced   bool        // stops have no grace period
	returned bool        // the work has ended
	kill     *time.Timer // cancels ctx when the grace period is over
	checks   recentChecks

	io       turn                   // held while the lease is used
	lease    engine.Lease           // nil before the run is started
	worker   engine.Worker          // that claimed the run, and whose lease it is
	flushed  int64                  // how much of the log has been appended to the lease
	beat     engine.Beat            // as it was reported last
	stuck    atomic.Bool            // the log could not be stored; logged once
	flusher  *time.Timer            // appends what is new; made with the lease
	rest     atomic.Int64           // until when it does not, in nanoseconds since the start
	stated   atomic.Bool            // the run has a state to continue from
	advanced atomic.Bool            // the work has stored a state, or another checkpoint than it began with
	mailSeen atomic.Int64           // version of the last message that the work has, or could have, received
	live     atomic.Bool            // the run is started: the sink has all of its log
	settled  atomic.Bool            // an end was decided, and is about to be stored
	unsaved  atomic.Pointer[ending] // an end that could not be stored yet
	shown    atomic.Bool            // a check has shown that there is one
	saved    chan struct{}          // closed when it is stored
}

// An ending is what is written when a run ends.
type ending struct {
	status  engine.Status
	beat    engine.Beat
	end     engine.End
	suspend *engine.Suspension // the run does not end: it waits
	requeue bool               // the run does not end: it is queued again for another worker, or the next start
	lost    bool               // nothing is stored: the run is not this worker's, as far as it knows
}

// newTask returns a task whose work has a context below base.
func newTask(base context.Context, run engine.Run) *task {
	t := &task{run: run, sink: output.NewSink(run.OutputCap), mail: make(chan struct{}, 1), done: make(chan struct{}), saved: make(chan struct{}), io: make(turn, 1)}
	t.ctx, t.cancel = context.WithCancelCause(base)
	return t
}

// A turn is a mutex, of capacity 1, that may be held while an engine writes. Unlike
// with a [sync.Mutex], time advances in a synctest bubble while others wait.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

func (t turn) TryLock() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// ended reports whether done is closed.
func (t *task) ended() bool { return closed(t.done) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// requestStop asks the work to end, and ends its context after the grace period.
// A later request can only make that sooner.
func (t *task) requestStop(grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.returned {
		return
	}

	first := !t.stopped
	t.stopped = true
	switch {
	case grace <= 0 || t.forced: // first, so that work cannot give way to the request before
		t.cancel(ErrStopped)
	case first:
		t.kill = time.AfterFunc(grace, func() { t.cancel(ErrStopped) })
	}
	if first {
		t.sink.RequestStop()
	}
}

// shorten lets all requests from now on have no grace period, if this one has none.
func (t *task) shorten(grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forced = t.forced || grace <= 0
}

// interrupt ends the work because the manager closes. Its context ends first: work
// that gives way to a request would end the run, which may be run again.
func (t *task) interrupt() {
	t.cancel(ErrClosed)
	t.sink.RequestStop()
}

// stopAsked reports whether a stop was requested.
func (t *task) stopAsked() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped
}

// hasReturned notes that the work has ended, and whether a stop was requested.
func (t *task) hasReturned() (stopped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.returned = true
	if t.kill != nil {
		t.kill.Stop()
	}
	return t.stopped
}

// unstored reports whether the run has ended and that is not stored yet.
func (t *task) unstored() bool { return t.ended() && t.unsaved.Load() != nil }

// asEnded returns the run as it ended, which it must have.
func (t *task) asEnded() engine.Run {
	run := t.final.Light()
	run.Unsaved = t.unsaved.Load() != nil
	return run
}

// news returns a channel that is closed when there is more to say of the end of
// the run than was said: that it has ended, or that this is stored.
func (t *task) news() <-chan struct{} {
	if t.shown.Load() && t.unstored() {
		return t.saved
	}
	return t.done
}

// A registry has the tasks of a Manager. It is safe for concurrent use.
type registry struct {
	mu      sync.Mutex
	closing bool
	tasks   map[string]*task
	running sync.WaitGroup // one for each task whose work has not returned
}

// get returns the task of a run, or nil.
func (r *registry) get(id string) *task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tasks[id]
}

// add adds a task, unless the manager is closing: then the error is [ErrClosed].
// The caller calls running.Done when its work has returned.
func (r *registry) add(t *task) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return ErrClosed
	}
	r.tasks[t.run.ID] = t
	r.running.Add(1)
	return nil
}

// remove removes a task.
func (r *registry) remove(t *task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks[t.run.ID] == t { // not that of a later attempt
		delete(r.tasks, t.run.ID)
	}
}

// drop ends a task whose end is not stored.
func (r *registry) drop(t *task) {
	t.hasReturned()
	t.final = &t.run
	t.sink.Close()
	r.remove(t)
	close(t.done)
}

// all returns the tasks.
func (r *registry) all() []*task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.tasks))
}

// close lets no more tasks in.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
}

func (r *registry) isClosing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
}
