package background

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// A task is a run this manager has to do with: it waits to be started,
// executes, or its end is not stored yet. A foreground call is one too; it has
// no record until it is parked.
type task struct {
	run   Run // as it was stored when the task was made; one that was found in the engine lacks Args
	lane  lane
	args  json.RawMessage // what the first attempt is given in place of run.Args; nil: those
	ask   bool            // Config.Readmit is asked before the start
	after string          // the run that has to end before; "": none

	sink  *Sink
	done  chan struct{} // closed after the terminal write
	final *Run          // the run as it ended; set before done is closed

	mu       sync.Mutex
	ctx      context.Context // nil before the task is launched
	cancel   context.CancelCauseFunc
	stopped  bool        // a stop was requested
	returned bool        // the work has ended
	kill     *time.Timer // cancels ctx when the grace is over

	viewers int  // checks and stops under way, which will show the end
	stored  bool // the end is stored
	seen    bool // the end was shown
	told    bool // the notice is on its way, or not needed
	looks   looks

	io      turn          // held while the lease is used
	lease   Lease         // nil before the run is claimed
	flushed int64         // how much of the log has been appended to the lease
	beat    Beat          // as the lease was extended with last
	dull    bool          // the log could not be stored; said once
	flusher *time.Timer   // appends what is new; made with the lease
	live    atomic.Bool   // the run is claimed: the sink has all of its log
	settled atomic.Bool   // an end was decided, and is about to be stored
	unsaved *ending       // an end that could not be stored yet
	pending atomic.Bool   // there is one
	shown   atomic.Bool   // a check has shown that there is one
	saved   chan struct{} // closed when there is none any more
	orphan  atomic.Bool   // taking up the run an earlier process left did not work yet
}

// An ending is what is written when a run ends.
type ending struct {
	status  Status
	beat    Beat
	end     End
	cancel  *Cancellation // of a run that was not started: it is canceled by that
	requeue bool          // the run does not end: it is queued for the next start of the host
}

func newTask(run Run) *task {
	return &task{run: run, lane: laneOf(run), sink: NewSink(run.OutputCap), done: make(chan struct{}), saved: make(chan struct{}), io: make(turn, 1)}
}

// A turn is a mutex that may be held for long, while an engine writes: unlike
// at a [sync.Mutex], time goes on for those who wait for it in a synctest
// bubble. Its capacity is 1.
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

// end returns what is closed when the run has ended.
func (t *task) end() <-chan struct{} { return t.done }

// launch makes the context of the work.
func (t *task) launch(base context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx, t.cancel = context.WithCancelCause(base)
}

// abort ends the context of the work, if there is one.
func (t *task) abort(cause error) {
	t.mu.Lock()
	cancel := t.cancel
	t.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// requestStop asks the work to end, and ends its context after the grace. A
// later request can only make that sooner.
func (t *task) requestStop(grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.returned {
		return
	}
	first := !t.stopped
	t.stopped = true
	switch {
	case t.cancel == nil: // it is not launched, and will not start
	case grace <= 0: // before the work is asked: what gives way to a request ends by itself
		t.cancel(ErrStopped)
	case first:
		t.kill = time.AfterFunc(grace, func() { t.cancel(ErrStopped) })
	}
	if first {
		t.sink.RequestStop()
	}
}

// interrupt ends the work because the manager closes.
//
// Its context ends first: work that gives way to a mere request would end the
// run, which may go on when the host is up again.
func (t *task) interrupt() {
	t.abort(ErrClosed)
	t.sink.RequestStop()
}

// stopAsked reports whether a stop was requested.
func (t *task) stopAsked() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped
}

// hasReturned notes that the work has ended, and reports whether a stop was
// requested before.
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
func (t *task) unstored() bool { return t.ended() && t.pending.Load() }

// asEnded returns the run as it ended. The task must have ended.
func (t *task) asEnded() Run {
	run := *t.final
	run.Unsaved = t.pending.Load()
	return run
}

// news returns what is closed when there is more to say of the end of the run
// than was said: that it has ended, or that this is stored.
func (t *task) news() <-chan struct{} {
	if t.shown.Load() && t.unstored() {
		return t.saved
	}
	return t.done
}
