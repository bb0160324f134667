package wait

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/checkpoint"
)

var (
	// ErrSuspended is the error of a suspended call. The owner has stored the call's state.
	ErrSuspended = errors.New("the call waits, and was suspended")
	// ErrState means that a call cannot be continued from the state that it was given.
	ErrState = errors.New("the call cannot be continued")
	// ErrWithdrawn is the cancellation cause of an abandoned operation: the plugin has
	// canceled it, or its call has ended.
	ErrWithdrawn = errors.New("the call does not wait for it any more")
)

// Owner stores the states of a call, and handles the operations that outlive it: see host.Suspension.
type Owner interface {
	Terms() Terms
	Status() Status
	Keep(s SavedState) error
	Drop() error
	Ask(ctx context.Context, operation int32, q abi.Questions) (abi.Answers, error)
	CrashPolicy(operation int32, t guestcall.ToolCall) guestcall.CrashPolicy
	Await(ctx context.Context, operation int32, t guestcall.ToolCall) (abi.Result, error)
}

// Terms are the properties of a call that never change.
type Terms struct {
	After       time.Duration // how long the call waits before it is suspended
	Restartable bool          // whether the call may start over after a crash, as if its beginning were a stored state
	Repeats     bool          // whether the whole call may be repeated; if false, it has at-most-once semantics
	Asks        bool          // whether Ask can put questions to the user; if false, a call that asks keeps its instance
}

// Status holds the properties of a call that may change.
type Status struct {
	Name          string          // name of the call, which is also part of its states
	Live          bool            // whether states of the call can be stored
	Revived       <-chan struct{} // closed when Live may have become true; nil if that never happens
	UnderPressure bool            // whether others need the resources that the call holds
}

// SavedState is a state to be stored by Keep.
type SavedState struct {
	State []byte
	Until time.Time // when the first pending operation ends by itself; zero if none does
	Begin []int32   // detached operations to begin with this write
	Await []int32   // detached operations that have begun and not ended
	Asks  []int32   // operations that ask the user
	Hold  bool      // whether the call stays in its instance
	Image Image     // base image; the state contains only the differences from it
}

// Image is the initial memory of a plugin.
type Image struct {
	Digest string        // SHA-256 in hex
	Encode func() []byte // the content, encoded; invalid once Keep has returned
}

// errSuspended is the cancellation cause of operations that are begun again later.
var errSuspended = errors.New("the call is suspended")

// durable reports whether states of the call can be stored now.
func (p *Pending) durable() bool { return p.owner != nil && p.owner.Status().Live }

// name returns the owner's name for the call, which is empty without an owner.
func (p *Pending) name() string {
	if p.owner == nil {
		return ""
	}
	return p.owner.Status().Name
}

// Arrive is called before the guest runs. The side effects of a call that cannot be
// suspended are not recorded, so the stored state is removed.
func (p *Pending) Arrive() error {
	p.stored = p.once() && p.terms.Restartable
	if p.call.Bound() == "" {
		return nil
	}
	_, err := instance.Catch(func() int32 { p.Act(); return 0 })
	return err
}

// unfit returns why no state of a call can be stored, or nothing.
func (p *Pending) unfit() string {
	switch why := p.call.Bound(); {
	case !p.durable():
		return "it is not a run"
	case why != "":
		return why
	}
	for _, s := range p.started {
		if (s.Once || s.Detached) && !s.known && s.todo == nil {
			return "it has begun what must not be done twice"
		}
	}
	return ""
}

// resident returns why a waiting call keeps its instance, or nothing.
func (p *Pending) resident() string {
	if why := p.unfit(); why != "" {
		return why
	}
	soon := time.Now().Add(p.terms.After)
	for _, s := range p.started {
		switch {
		case s.canceled:
			return "what it waits for was canceled"
		case s.Detached:
		case s.Op == "ask" && p.terms.Asks:
		case again[s.Op] == "":
			return "it waits for " + s.Op
		case !s.due().After(soon):
			return "it does not wait for long"
		}
	}
	return ""
}

// suspend passes the state of a call to its owner, and returns ErrSuspended if the call
// ends.
func (p *Pending) suspend() error {
	st, err := p.stop()
	if err != nil {
		return err
	}
	if len(st.Ended) > 0 { // an operation ended meanwhile, so nothing would continue the call
		return p.restart(st)
	}
	if err := p.keep(st, nil); err != nil {
		p.unkept(err)
		return p.restart(st)
	}
	return &instance.Stop{Reason: ErrSuspended}
}

// Bounds of the backoff after a state could not be stored.
const minRetry, maxRetry = 10 * time.Second, 10 * time.Minute

// keep stores a state. With operations to begin, the call stays in its instance.
func (p *Pending) keep(st State, begin []*startedOperation) error {
	host, err := json.Marshal(st)
	if err != nil {
		return err
	}
	point := checkpoint.Checkpoint{Host: host}
	if _, err := hex.Decode(point.Plugin[:], []byte(p.digest)); err != nil {
		return err
	}
	in := p.call.Instance()
	in.Save(&point)
	k := SavedState{Until: st.until(), Hold: begin != nil, Image: Image{hex.EncodeToString(point.Image[:]), in.Image().Encode}}
	if k.State, err = point.Encode(); err != nil {
		return err
	}

	for _, w := range st.Pending {
		switch {
		case w.Detached:
			k.Await = append(k.Await, w.ID)
		case w.Op == "ask":
			k.Asks = append(k.Asks, w.ID)
		}
	}
	for _, s := range begin {
		if s.Detached && !s.canceled {
			k.Begin = append(k.Begin, s.ID)
		}
	}
	if err := p.owner.Keep(k); err != nil {
		return err
	}
	p.stored, p.retry = true, 0
	return nil
}

// leave stores the state of a waiting call when the host shuts down, so that it continues
// from there.
func (p *Pending) leave() {
	if p.unfit() != "" || p.ops.IsStopping() || errors.Is(context.Cause(p.ops.Context), context.DeadlineExceeded) {
		return
	}
	p.leaving = true
	defer func() { p.leaving = false }()
	st, err := p.look()
	if err == nil {
		err = p.keep(st, []*startedOperation{})
	}
	if err != nil {
		p.ops.Log.Warn("the state of a call that is interrupted was not stored", "plugin", p.ops.Plugin, "tool", p.ops.Tool, "call", p.ops.ID, "error", err)
	}
}

// look returns the current state of a call. Its operations continue.
func (p *Pending) look() (st State, err error) {
	var over []*startedOperation
	for more := true; more; {
		select {
		case s := <-p.ends:
			over = append(over, s)
		default:
			more = false
		}
	}

	has := map[int32]bool{}
	for _, s := range over {
		if s.end.Cut && !s.canceled {
			st.Pending = append(st.Pending, s.pendingOperation)
		} else if err == nil {
			e, wrong := p.finish(s)
			s.end.Finish = p.replay(e)
			st.Ended, err = append(st.Ended, e), wrong
		}
		has[s.ID] = true
		p.ends <- s
	}
	for _, s := range p.started {
		switch {
		case has[s.ID]:
		case s.canceled:
			p.ops.RefuseCanceled()
			st.Ended = append(st.Ended, endedOperation{s.ID, abi.CallCanceled, p.ops.Response})
		default:
			st.Pending = append(st.Pending, s.pendingOperation)
		}
	}
	p.describe(&st)
	return st, err
}

// stop cancels the work of all operations, and returns the remaining state of the call.
func (p *Pending) stop() (st State, err error) {
	for _, s := range p.started {
		s.cancel(errSuspended)
	}
	p.works.Wait()

	for range p.started {
		s := <-p.ends
		p.give(s)
		if s.end.Cut && !s.canceled {
			st.Pending = append(st.Pending, s.pendingOperation)
			continue
		}
		e, wrong := p.finish(s)
		st.Ended, err = append(st.Ended, e), cmp.Or(err, wrong)
	}
	clear(p.started)
	p.describe(&st)
	return st, err
}

// describe adds the rest of a state to its operations.
func (p *Pending) describe(st *State) {
	slices.SortFunc(st.Pending, func(a, b pendingOperation) int { return cmp.Compare(a.ID, b.ID) })
	in, first := p.call.Instance(), p.ops.Tree.First()
	st.Elapsed, st.At, st.Now = p.call.Elapsed(), time.Now(), in.Env.Now
	st.Boot, st.Up = boot.id, int64(time.Since(boot.at))
	for i := range st.Pending { // adjusted to the current wall clock
		w := &st.Pending[i]
		w.At = st.At.Add(w.At.Sub(st.At))
	}
	st.Name = p.name()
	st.Random, _ = in.Env.Random.MarshalBinary() // it never fails
	st.Waited = int64(p.waited)
	st.Last, st.Said, st.Made, st.Web = p.last, p.ops.Said, first.Made, first.Attempts.Load()
	st.Fuel, st.Peak = p.ops.Meter.Used(), int64(in.Memory.Peak)
	a := p.ops.Answer
	st.Answer = output{a.Written, a.Logged, a.Result, a.Given, a.Error, a.Content, a.Summary, a.Stderr.Bytes()}
}

// again lists the repeatable operations, each with the request field that holds its wait
// in milliseconds.
var again = map[string]string{"sleep": "ms", "messages.receive": "wait_ms"}

// timeIn returns the duration in a field of a request.
func timeIn(request []byte, field string) time.Duration {
	var in map[string]json.RawMessage
	var ms int64
	if json.Unmarshal(request, &in) != nil || json.Unmarshal(in[field], &ms) != nil {
		return 0
	}
	return guestcall.Milliseconds(ms)
}

// rested returns a request with the remaining time in a field.
func rested(request []byte, field string, left time.Duration) []byte {
	var in map[string]json.RawMessage
	if json.Unmarshal(request, &in) != nil {
		return request // it will be refused
	}
	in[field] = guestcall.JSON(max(0, left.Milliseconds()))
	return guestcall.JSON(in)
}
