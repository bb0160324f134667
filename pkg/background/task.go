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

// A task is a run that holds a slot of this worker: it is about to start, is executing,
// or has ended but its end is not stored yet. A foreground call is a task too; it has
// no record and no slot until it is parked.
type task struct {
	run  engine.Run      // as submitted or claimed; a claimed run has no payload
	args json.RawMessage // arguments of the first attempt if the stored ones lack secrets; nil: the stored ones
	call bool            // it began as a call in the foreground
	ask  bool            // Config.Readmit has to be asked before the start

	// alone is set, before the end is stored, if [Manager.Run] has returned or is about
	// to.
	alone bool
	// unsure is set if the call has a slot and may have a record, although parking it
	// failed.
	unsure bool

	sink  *output.Sink
	mail  chan struct{} // has an element if there may be new messages
	done  chan struct{} // closed after the terminal write
	final *engine.Run   // the run as it ended; set before done is closed

	ctx    context.Context // context of the work
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	stopped  bool        // a stop was requested
	forced   bool        // stops have no grace period
	returned bool        // the work has ended
	kill     *time.Timer // cancels ctx when the grace period is over
	checks   recentChecks

	io       turn                   // held while the lease is used
	lease    engine.Lease           // nil before the run is started
	worker   engine.Worker          // the worker that claimed the run and owns the lease
	flushed  int64                  // length of the log appended to the lease
	beat     engine.Beat            // the last one reported
	stuck    atomic.Bool            // the log could not be stored; logged once
	flusher  *time.Timer            // appends new output; made with the lease
	rest     atomic.Int64           // time before which nothing is flushed, in nanoseconds since the Manager's creation
	stated   atomic.Bool            // the run has a state to continue from
	advanced atomic.Bool            // the work has stored a state, or a checkpoint other than its first
	mailSeen atomic.Int64           // version of the last message that the work has, or could have, received
	live     atomic.Bool            // the run has started, and the sink has all of its log
	settled  atomic.Bool            // an end was decided, and is about to be stored
	unsaved  atomic.Pointer[ending] // an end that is not stored yet
	shown    atomic.Bool            // a check has shown that end
	saved    chan struct{}          // closed when the end is stored
}

// An ending is what is stored when a run ends.
type ending struct {
	status  engine.Status
	beat    engine.Beat
	end     engine.End
	suspend *engine.Suspension // the run does not end: it waits
	requeue bool               // the run does not end: another worker, or the next start, gets it from the queue
	lost    bool               // nothing is stored, since the run seems to be another worker's
}

// newTask returns a task whose work gets a context derived from base.
func newTask(base context.Context, run engine.Run) *task {
	t := &task{run: run, sink: output.NewSink(run.OutputCap), mail: make(chan struct{}, 1), done: make(chan struct{}), saved: make(chan struct{}), io: make(turn, 1)}
	t.ctx, t.cancel = context.WithCancelCause(base)
	return t
}

// A turn is a mutex made of a channel of capacity 1. It may be held while an engine
// writes. Unlike with a [sync.Mutex], time advances in a synctest bubble while others
// wait.
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

// requestStop asks the work to end, and cancels its context after the grace
// period. A later request can only bring that forward.
func (t *task) requestStop(grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.returned {
		return
	}

	first := !t.stopped
	t.stopped = true
	switch {
	case grace <= 0 || t.forced: // cancel first, so that the work cannot react to the request before that
		t.cancel(ErrStopped)
	case first:
		t.kill = time.AfterFunc(grace, func() { t.cancel(ErrStopped) })
	}
	if first {
		t.sink.RequestStop()
	}
}

// shorten removes the grace period of all stop requests from now on, if grace is zero.
func (t *task) shorten(grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forced = t.forced || grace <= 0
}

// interrupt ends the work because the manager is closing. It cancels the context first:
// if the work reacted to the stop request, the run would end, although it may be run
// again.
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

// hasReturned records that the work has ended, and reports whether a stop was requested.
func (t *task) hasReturned() (stopped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.returned = true
	if t.kill != nil {
		t.kill.Stop()
	}
	return t.stopped
}

// unstored reports whether the run has ended but its end is not stored.
func (t *task) unstored() bool { return t.ended() && t.unsaved.Load() != nil }

// asEnded returns the run as it ended. It must have ended.
func (t *task) asEnded() engine.Run {
	run := t.final.Light()
	run.Unsaved = t.unsaved.Load() != nil
	return run
}

// news returns a channel that is closed when there is news of the run's end: it
// has ended, or its end is stored.
func (t *task) news() <-chan struct{} {
	if t.shown.Load() && t.unstored() {
		return t.saved
	}
	return t.done
}

// A registry holds the tasks of a Manager. It is safe for concurrent use.
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

// add adds a task. If the manager is closing, the error is [ErrClosed]. The
// caller calls running.Done when the work has returned.
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
	if r.tasks[t.run.ID] == t { // it may have been replaced by a later attempt
		delete(r.tasks, t.run.ID)
	}
}

// drop ends a task without storing an end.
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

// close refuses further tasks.
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
