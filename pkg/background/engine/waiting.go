package engine

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Bounds of a waiting run.
const (
	MaxState = 16 << 20 // bytes of its state
	MaxCalls = 64 << 10 // bytes of its calls
	MaxAwait = 64       // runs that it awaits, and children that one write stores
)

// ErrStopping means that a run cannot be suspended because it is being stopped.
var ErrStopping = errors.New("the run is being stopped")

// Waiting is what the record of a run has of a state that was stored with
// [Lease.Suspend]. It is zero for a run without one.
type Waiting struct {
	WakeAt    time.Time `json:"wake_at,omitzero"`      // when it continues, whatever happens; zero: not by time
	Await     []string  `json:"await,omitempty"`       // the runs whose end lets it continue
	StateSize int64     `json:"state_bytes,omitempty"` // of its state
	StateLog  int64     `json:"state_log,omitempty"`   // how much of its log belongs to the state
	StateOf   int       `json:"state_of,omitempty"`    // the attempt that stored the state
	CallsSize int64     `json:"calls_bytes,omitempty"` // of what it has called
	Mail      int64     `json:"mail_seen,omitempty"`   // version of the last message that it has seen
	Woken     bool      `json:"woken,omitempty"`       // it is queued to continue the same attempt
	Anew      bool      `json:"anew,omitempty"`        // without a state it may begin anew: it has done nothing yet that must not be done twice
}

// A Suspension is what a run needs to continue later, and what it waits for.
type Suspension struct {
	State []byte    // from 1 to MaxState bytes; nil: that which is stored
	Beat  Beat      // what the run said of itself last
	Wake  time.Time // when it continues at the latest; zero: not by time
	Await []string  // runs whose end lets it continue, at most MaxAwait; one that is not active counts as ended
	Calls []byte    // what the work has called so far, as in [End]; nil: what is stored
	Mail  int64     // version of the last message that the run has seen; a later one lets it continue
	// Children are runs of its session whose Parent it is, at most MaxAwait. They are
	// stored in the same write, in the queue that all workers share. One whose id is
	// taken is left out: an earlier Suspend has stored it.
	Children []Run
	// Hold has the run stay the worker's: the state and the children are stored, and
	// the run continues. A crash returns to this state.
	Hold bool
	// Drop removes the state that is stored, and Anew: after a crash the run does not continue.
	// It goes with Hold, and without State, Await and Children.
	Drop bool
}

// Check refuses a suspension of a run that no engine stores.
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

// Suspended returns the run as s leaves it, with that much of its log: waiting, or
// with Hold as it is.
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
	r.Waiting = Waiting{WakeAt: s.Wake, Await: s.Await, Mail: s.Mail, StateSize: size, StateLog: log, StateOf: r.Attempt, CallsSize: called, Anew: r.Anew}
	if !s.Hold {
		r.Status = StatusWaiting
	}
	return r
}

// An Alarm is when a waiting run continues. Its time comes by the clock of the process, and
// also by the clock of the wall, whichever is first: that one may be set back, and the other
// stands still while the machine sleeps.
type Alarm struct {
	Wall time.Time // [Waiting.WakeAt]
	At   time.Time // the same time by the clock of the process
}

// NewAlarm returns the alarm of a run that begins to wait, or is found waiting.
func NewAlarm(wall time.Time) Alarm {
	now := time.Now()
	return Alarm{wall, now.Add(wall.Sub(now))}
}

// Due reports whether the time has come.
func (a Alarm) Due(now time.Time) bool { return !a.At.After(now) || !a.Wall.After(now) }

// Awaken returns a waiting run as it is queued to continue.
func (r Run) Awaken() Run {
	r.Status, r.Woken = StatusQueued, true
	return r
}

// Checkpointed returns a run that saves a checkpoint, in an attempt that began as began
// with another one, or with the same.
func (r Run) Checkpointed(began Run, other, checkpoint []byte) Run {
	r.SavedIn = began.SavedIn
	if !bytes.Equal(other, checkpoint) {
		r.SavedIn = r.Attempt
	}
	return r
}

// Idle returns how many attempts in a row got no further than those before them: they
// ended with the state and the checkpoint that they began with.
func (r Run) Idle() int { return r.Attempt - max(r.StateOf, r.SavedIn) }

// Begin returns a queued run as it is started. A woken one continues its attempt;
// any other begins the next.
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
