package wait

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// State is the host's part of a checkpoint.
type State struct {
	Name    string          `json:"name,omitempty"`   // see [Status]
	Now     int64           `json:"now"`              // time on the fixed clock, in nanoseconds
	Elapsed int64           `json:"elapsed"`          // time on the monotonic clock, in nanoseconds
	At      time.Time       `json:"at"`               // when the monotonic clock was read
	Waited  int64           `json:"waited,omitempty"` // duration of the wait so far
	Boot    string          `json:"boot,omitempty"`   // id of the process that stored the state
	Up      int64           `json:"up,omitempty"`     // uptime of that process
	Random  []byte          `json:"random"`           // position of the fixed randomness
	Last    int32           `json:"last"`             // id of the last operation
	Fuel    int64           `json:"fuel"`             // units of fuel used
	Peak    int64           `json:"peak"`
	Made    int             `json:"made,omitempty"`     // number of nested calls in the whole tree
	Web     int64           `json:"attempts,omitempty"` // number of HTTP requests attempted
	Answer  output          `json:"answer"`
	Said    answer.Progress `json:"said"`

	Ended   []endedOperation   `json:"ended,omitempty"`
	Pending []pendingOperation `json:"pending,omitempty"`
}

// boot identifies this process. Its monotonic clock measures the time since a state that
// it stored, even if the wall clock was set back.
var boot = struct {
	id string
	at time.Time
}{rand.Text(), time.Now()}

// passed returns the time since the state was stored.
func (s State) passed() time.Duration {
	passed := time.Since(s.At)
	if s.Boot == boot.id {
		passed = max(passed, time.Since(boot.at)-time.Duration(s.Up))
	}
	return max(0, passed)
}

// output is the guest's output so far.
type output struct {
	Bytes   int64       `json:"bytes"`
	Logged  int64       `json:"logged,omitempty"`
	Result  []byte      `json:"result,omitempty"`
	Given   bool        `json:"given,omitempty"`
	Error   []byte      `json:"error,omitempty"`
	Content []abi.Block `json:"content,omitempty"`
	Summary string      `json:"summary,omitempty"`
	Stderr  []byte      `json:"stderr,omitempty"`
}

// endedOperation is a finished operation whose end the guest has not received yet.
type endedOperation struct {
	ID       int32  `json:"id"`
	Code     int32  `json:"code"`
	Response []byte `json:"response,omitempty"`
}

// pendingOperation is an unfinished operation.
type pendingOperation struct {
	ID       int32     `json:"id"`
	Op       string    `json:"op"`
	Request  []byte    `json:"request"`
	At       time.Time `json:"at"`              // start of the wait
	Detached bool      `json:"apart,omitempty"` // see [guestcall.Detached]
	Once     bool      `json:"once,omitempty"`  // it must not be repeated
}

// until returns when the first operation ends by itself.
func (s State) until() (first time.Time) {
	for _, w := range s.Pending {
		if again[w.Op] == "" {
			continue
		}
		if due := w.due(); first.IsZero() || due.Before(first) {
			first = due
		}
	}
	return first
}

// due returns when an operation ends by itself.
func (w pendingOperation) due() time.Time { return w.At.Add(timeIn(w.Request, again[w.Op])) }

// finish runs the second half of an operation and saves its result in a state.
func (p *Pending) finish(s *startedOperation) (endedOperation, error) {
	code, err := instance.Catch(s.end.Finish)
	e := endedOperation{s.ID, code, p.ops.Response}
	p.ops.Response = nil
	return e, err
}

// replay returns the second half of an operation whose result was saved with a state.
func (p *Pending) replay(e endedOperation) func() int32 {
	return func() int32 {
		p.ops.Response = e.Response
		return e.Code
	}
}

// restart begins the operations of a state again. They have already been paid for.
func (p *Pending) restart(st State) error {
	p.open()
	p.last = st.Last
	for _, e := range st.Ended {
		s := &startedOperation{pendingOperation: pendingOperation{ID: e.ID}, cancel: withoutWork}
		p.started[e.ID] = s
		p.ended(s, guestcall.End{Bytes: len(e.Response), Finish: p.replay(e)})
	}
	for _, w := range st.Pending {
		if err := p.beginAgain(w); err != nil {
			return err
		}
	}
	return nil
}

// beginAgain begins an operation of a state again, or waits for the call that it began.
func (p *Pending) beginAgain(w pendingOperation) error {
	s := &startedOperation{pendingOperation: w, cancel: withoutWork}
	p.started[w.ID] = s
	switch {
	case w.Detached && p.owner != nil:
		s.known = true
		p.work(s, p.await(w))
		return nil
	case w.Detached || w.Once:
		s.Detached, s.Once = false, false
		p.ended(s, guestcall.End{Finish: func() int32 {
			return p.ops.Refuse(abi.CallLost, "lost", "it had begun when its host ended: whether it took effect is not known")
		}})
		return nil
	}

	request := w.Request
	if field := again[w.Op]; field != "" {
		request = rested(request, field, time.Until(w.due()))
	}
	var work guestcall.Work
	p.ops.Effect = guestcall.Effect{ID: w.ID}
	code, err := instance.Catch(func() (code int32) {
		work, code = p.ops.Operation([]byte(w.Op), request)
		return code
	})
	if err != nil {
		p.ended(s, guestcall.End{}) // for Close
		return err
	}
	p.begin(s, work, code)
	return nil
}

// maxStarted is the number of operations that a call may start, so that ids do not run
// out. Each costs fuel, so no call comes near it.
const maxStarted = 1 << 30

// kept returns how many bytes of a state stay on the heap.
func (s State) kept() (n int) {
	n = len(s.Answer.Result) + len(s.Answer.Error) + len(s.Answer.Summary) + len(s.Answer.Stderr)
	for _, b := range s.Answer.Content {
		n += len(b.Text) + len(b.Data) + len(b.URI) + len(b.Name)
	}
	return n
}

// Decode decodes the host's part of a checkpoint, which may contain anything. Its error
// matches ErrState if the call cannot continue from it.
func (p *Pending) Decode(data []byte) (State, error) {
	st, err := decode(data)
	if err != nil {
		return st, CannotContinue(err.Error())
	}
	if st.Name != p.name() {
		return st, CannotContinue("its state is that of another call")
	}
	return st, nil
}

// decode decodes the host's part of a checkpoint.
func decode(data []byte) (st State, err error) {
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&st); err != nil {
		return st, fmt.Errorf("its state cannot be read: %w", err)
	}
	if strict.More() {
		return st, errors.New("its state has something after it")
	}

	seen := map[int32]bool{}
	valid := func(id int32) bool {
		known := id >= 1 && id <= st.Last && !seen[id]
		seen[id] = true
		return known
	}

	for _, e := range st.Ended {
		if !valid(e.ID) {
			return st, errors.New("its state has an operation twice, or one that was not started")
		}
	}
	for _, w := range st.Pending {
		if !valid(w.ID) || len(w.Request) > abi.MaxStart {
			return st, errors.New("its state has an operation twice, or one that was not started")
		}
	}

	if len(seen) > abi.MaxPending || st.Fuel < 0 || st.Waited < 0 || st.Peak < 0 || st.Answer.Bytes < 0 || st.Answer.Logged < 0 || st.Made < 0 || st.Web < 0 || st.Last < 0 || st.Last > maxStarted {
		return st, errors.New("its state has a number that is out of range")
	}
	return st, nil
}

// Restore restores the state of the call, whose memory and globals the instance already
// has, and begins its operations again. After an error the call has to end.
func (p *Pending) Restore(st State) error {
	in := p.call.Instance()
	env := in.Env
	if err := env.Random.UnmarshalBinary(st.Random); err != nil {
		return CannotContinue("its state has no position of random numbers")
	}
	env.Now = st.Now
	if !p.ops.Grant.Clock { // it may have been granted: the monotonic clock does not go back
		env.Now = max(st.Now, st.Elapsed)
	}
	passed := st.passed()
	p.call.SetElapsed(st.Elapsed + int64(passed))
	for i := range st.Pending {
		w := &st.Pending[i]
		w.At = time.Now().Add(w.At.Sub(st.At) - passed)
	}
	a, w := p.ops.Answer, st.Answer
	a.Written, a.Logged, a.Result, a.Given, a.Error, a.Content, a.Summary = w.Bytes, w.Logged, w.Result, w.Given, w.Error, w.Content, w.Summary
	a.Stderr.Restore(w.Stderr)
	p.ops.Said = st.Said
	first := p.ops.Tree.First()
	first.Made = st.Made
	first.Attempts.Store(st.Web)
	in.Memory.Peak = max(in.Memory.Peak, uint64(st.Peak))
	if err := p.ops.Meter.Keep(st.kept()); err != nil {
		return &instance.Stop{Reason: err}
	}

	p.stored, p.resumed, p.waited = true, true, time.Duration(st.Waited)
	if err := p.restart(st); err != nil {
		return err
	}
	_, err := instance.Catch(func() int32 {
		p.ops.Meter.Earlier = st.Fuel
		p.ops.Meter.Pay(max(0, st.Fuel-p.ops.Meter.Used()))
		return 0
	})
	return err
}

// A StateError says why a call cannot be continued.
type StateError struct{ Why string }

func (e *StateError) Error() string { return ErrState.Error() + ": " + e.Why }

// Unwrap returns ErrState.
func (e *StateError) Unwrap() error { return ErrState }

// CannotContinue returns the error for a call that cannot be continued.
func CannotContinue(why string) error {
	return &instance.Stop{Reason: &StateError{why}}
}
