package engine

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Limits of a waiting run.
const (
	MaxState = 16 << 20 // maximum size of its state, in bytes
	MaxCalls = 64 << 10 // maximum size of its recorded calls, in bytes
	MaxAwait = 64       // maximum number of runs that it waits for, and of children stored in one write
)

// ErrStopping means that a run cannot be suspended because it is being stopped.
var ErrStopping = errors.New("the run is being stopped")

// Waiting describes the state that [Lease.Suspend] stored for a run. It is zero for a run
// without a state.
type Waiting struct {
	WakeAt      time.Time `json:"wake_at,omitzero"`      // latest time to continue; zero: none
	Await       []string  `json:"await,omitempty"`       // ids of the runs whose end wakes it
	StateSize   int64     `json:"state_bytes,omitempty"` // size of its state, in bytes
	StateLog    int64     `json:"state_log,omitempty"`   // length of the log that belongs to the state
	StateOf     int       `json:"state_of,omitempty"`    // number of the attempt that stored the state
	CallsSize   int64     `json:"calls_bytes,omitempty"` // size of its recorded calls, in bytes
	Mail        int64     `json:"mail_seen,omitempty"`   // version of the last message that the run has seen
	Woken       bool      `json:"woken,omitempty"`       // whether the run is queued to continue the same attempt
	Restartable bool      `json:"anew,omitempty"`        // whether the run may start over without a state, as it has had no side effects that must not be repeated
}

// A Suspension consists of the state from which a run continues later, and the events that it
// waits for.
type Suspension struct {
	State []byte    // 1 to MaxState bytes; nil: the stored state
	Beat  Beat      // last report of the run
	Wake  time.Time // latest time to continue; zero: none
	Await []string  // ids of the runs whose end wakes it, at most MaxAwait; an inactive run counts as ended
	Calls []byte    // calls that the work has made so far, as in [End]; nil: the stored ones
	Mail  int64     // version of the last message that the run has seen; a later one wakes it
	// Children are runs of the same session with this run as their Parent, at most
	// MaxAwait. They are stored in the same write, in the queue that all workers
	// share. A child whose id is taken is skipped: an earlier Suspend has stored it.
	Children []Run
	// Hold says that the run does not wait: its state and its children are stored, and it
	// stays with its worker and continues. After a crash it continues from this state.
	Hold bool
	// Drop says that the stored state is removed and Restartable is cleared: after a crash
	// the run does not continue. It requires Hold, and excludes State, Await and Children.
	Drop bool
}

// Check returns an error if the suspension of a run is invalid, so that no engine should
// store it.
func (s Suspension) Check(run Run) error {
	switch {
	case len(s.Calls) > MaxCalls:
		return fmt.Errorf("invalid calls of %d bytes: want at most %d", len(s.Calls), MaxCalls)
	case s.Drop && (!s.Hold || s.State != nil || len(s.Await)+len(s.Children) > 0):
		return errors.New("invalid suspension: only a state is dropped")
	case s.Drop:
		return nil
	case s.State == nil && run.StateSize == 0, s.State != nil && len(s.State) == 0, len(s.State) > MaxState:
		return fmt.Errorf("invalid state of %d bytes: want 1 to %d", len(s.State), MaxState)
	case len(s.Await) > MaxAwait || len(s.Children) > MaxAwait:
		return fmt.Errorf("invalid suspension: %d runs awaited and %d children, want at most %d", len(s.Await), len(s.Children), MaxAwait)
	case run.Secret:
		return errors.New("a run with secret arguments cannot be suspended: its state may have them")
	case run.Cancel != nil:
		return fmt.Errorf("%w: %s", ErrStopping, run.ID)
	}

	for _, child := range s.Children {
		if child.Parent != run.ID || child.Session != run.Session {
			return fmt.Errorf("%w: %s of %s", ErrParent, child.ID, run.ID)
		}
	}
	return nil
}

// Suspended returns the run as it is after the suspension s. log is the length of its log, in
// bytes. With Hold its status does not change.
func (r Run) Suspended(s Suspension, log int64) Run {
	r.Beat = s.Beat
	r.OutputBytes = log
	called := r.CallsSize
	if s.Calls != nil {
		r.Calls, called = bytes.Clone(s.Calls), int64(len(s.Calls))
	}
	size := int64(len(s.State))
	switch {
	case s.Drop:
		r.Waiting = Waiting{Mail: r.Mail, CallsSize: called}
		return r
	case s.State == nil:
		size = r.StateSize
	}
	r.Waiting = Waiting{WakeAt: s.Wake, Await: s.Await, Mail: s.Mail, StateSize: size, StateLog: log, StateOf: r.Attempt, CallsSize: called, Restartable: r.Restartable}
	if !s.Hold {
		r.Status = StatusWaiting
	}
	return r
}

// An Alarm is the time when a waiting run continues. It is due by the process's clock or by
// the wall clock, whichever comes first: the wall clock may be set back, and the process's
// clock stops while the machine sleeps.
type Alarm struct {
	Wall time.Time // time by the wall clock: [Waiting.WakeAt]
	At   time.Time // the same time by the process's clock
}

// NewAlarm returns the alarm of a run that begins to wait, or that an earlier process left
// waiting.
func NewAlarm(wall time.Time) Alarm {
	now := time.Now()
	return Alarm{wall, now.Add(wall.Sub(now))}
}

// Due reports whether the time has come.
func (a Alarm) Due(now time.Time) bool { return !a.At.After(now) || !a.Wall.After(now) }

// Resumed returns a waiting run in the state in which it is queued to continue.
func (r Run) Resumed() Run {
	r.Status, r.Woken = StatusQueued, true
	return r
}

// Checkpointed returns r as it is after saving a checkpoint. began is the run at the start
// of its attempt, and other is the checkpoint that it had then.
func (r Run) Checkpointed(began Run, other, checkpoint []byte) Run {
	r.SavedIn = began.SavedIn
	if !bytes.Equal(other, checkpoint) {
		r.SavedIn = r.Attempt
	}
	return r
}

// Idle returns how many of the latest attempts in a row made no progress: they ended with the
// state and the checkpoint with which they began.
func (r Run) Idle() int { return r.Attempt - max(r.StateOf, r.SavedIn) }

// Begin returns a queued run in its started state. A woken run continues its
// attempt; any other begins the next one.
func (r Run) Begin(now time.Time) Run {
	r.Status, r.HeartbeatAt = StatusRunning, now
	if r.Woken {
		r.Woken = false
		return r
	}

	r.Attempt++
	if r.StateSize == 0 {
		r.Begun = r.Attempt
	}
	r.StartedAt = now
	r.Beat = Beat{Cost: r.Cost, OutputBytes: r.StateLog}
	return r
}
