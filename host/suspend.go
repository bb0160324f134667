package host

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
	// ErrSuspended is the error of a suspended call. Suspend.Keep has stored its state,
	// and [Call.Continue] continues from it.
	ErrSuspended = errors.New("the call waits, and was suspended")
	// ErrState means that a call cannot be continued from a state.
	ErrState = errors.New("the call cannot be continued")
)

// Suspend lets a waiting call give up its instance, and continue from its state, even
// after a crash. A call can be suspended while it only waits for things that it can
// wait for again: time, messages, the user, and [Detached] tool calls. It cannot be
// suspended while it uses folders, or if its module's state cannot be restored.
type Suspend struct {
	// After is how long a call waits before it is suspended.
	After time.Duration
	// Restartable lets the call start over after a crash, as if its beginning were a stored
	// state.
	Restartable bool
	// Name returns the owner's name of the call. A state can only continue a call of
	// the same name. Nil means no name.
	Name func() string
	// UnderPressure reports whether waiting calls should be suspended immediately, because
	// others need their resources. It adds to the host's own checks: others wait
	// for a slot of the module, or most of the host's memory is in use. Nil adds
	// nothing.
	UnderPressure func() bool
	// Live reports whether the call can be suspended now. Nil means always.
	Live func() bool
	// Revived is closed when Live begins to report true. Nil means that it did from the
	// start.
	Revived <-chan struct{}
	// Keep stores a state of the call durably before it returns nil. The call then ends
	// with ErrSuspended, unless Hold is set. If Keep fails, the call stays in its
	// instance for now, and the operations in Begin do not begin. A [*Refusal] gives the
	// plugin the reason.
	Keep func(SavedState) error
	// Ask puts questions to the user instead of [Call].Ask. If a call continues from a
	// state in which it was asking, Ask is called again with the same operation and
	// questions. If ctx ends with a cause other than [ErrWithdrawn], the call is about
	// to be suspended, and Keep gets the operation in Asks. Nil means that the user
	// cannot be asked later: a call that asks then keeps its instance.
	Ask func(ctx context.Context, operation int32, q abi.Questions) (abi.Answers, error)
	// Image returns the output of Encode of the [SavedState.Image] with that digest. Nil, or
	// an error, means that the image is gone. A call is then continued only if its
	// plugin still starts up as it did when the state was stored.
	Image func(digest string) ([]byte, error)
	// Repeats means that the whole call may be repeated: without a state it begins
	// again after a crash, from its checkpoint.
	Repeats bool
	// Drop removes the stored state. After a crash the call then does not continue
	// from it, and starts over only if it Repeats. Drop is called before taking
	// messages that no state can record, and after saving a checkpoint in a call that
	// Repeats. In other calls it is also called before at-most-once operations that
	// no state can record. Nil removes nothing.
	Drop func() error
	// Tool decides how a nested call survives a crash. Nil means [LostOnCrash] for every call.
	Tool func(operation int32, t ToolCall) CrashPolicy
	// Await waits for the end of a [Detached] call that Keep has begun, possibly in an
	// earlier process. If ctx ends with the cause [ErrWithdrawn], the call was
	// abandoned. Await may be nil if Tool never returns Detached.
	Await func(ctx context.Context, operation int32, t ToolCall) (abi.Result, error)
}

func (s *Suspend) name() string {
	if s == nil || s.Name == nil {
		return ""
	}
	return s.Name()
}

// SavedState is a state to be stored by [Suspend.Keep].
type SavedState struct {
	State []byte
	Until time.Time // when the first pending operation ends by itself; zero: none does
	Begin []int32   // Detached operations to begin with this write
	Await []int32   // Detached operations that have begun and not ended
	Asks  []int32   // operations that ask the user
	Hold  bool      // the call stays in its instance
	Image Image     // base image; the state has only the differences
}

// Image is the initial memory of a plugin. Another version of the host may start the
// plugin up differently, so keep the image together with the state.
type Image struct {
	Digest string        // SHA-256 in hex
	Encode func() []byte // value for [Suspend.Image]; invalid once [Suspend.Keep] has returned
}

// ErrWithdrawn is the cancellation cause of an abandoned operation: the plugin has
// canceled it, or its call has ended.
var ErrWithdrawn = errors.New("the call does not wait for it any more")

// errSuspended is the cancellation cause of operations that are begun again later.
var errSuspended = errors.New("the call is suspended")

// durable reports whether states of the call can be stored now.
func (p *pending) durable() bool {
	s := p.call.Suspend
	return s != nil && (s.Live == nil || s.Live())
}

// Resident returns why waiting calls of a module keep their instances; folders reports
// whether they are granted folders. It is empty if they can be suspended, which a call can
// still prevent: see [Suspend].
func Resident(i Isolation, folders bool) string {
	switch {
	case i.Mode != Reset:
		return i.Why
	case folders:
		return "it may have open files in its folders"
	}
	return ""
}

// bound returns why a call can never leave its instance, or nothing.
func (p *pending) bound() string {
	c := p.call
	if why := Resident(c.module.Isolation, len(c.Policy.Files) > 0); why != "" {
		return why
	}
	if c.start.tainted {
		return "it may have open files"
	}
	return ""
}

// arrive is called before the guest runs. The side effects of a call that cannot be
// suspended are not recorded, so the stored state is removed.
func (p *pending) arrive() error {
	p.stored = p.once() && p.call.Suspend.Restartable
	if p.bound() == "" {
		return nil
	}
	_, err := guarded(func() int32 { p.Act(); return 0 })
	return err
}

// unfit returns why no state of a call can be stored, or nothing.
func (p *pending) unfit() string {
	switch why := p.bound(); {
	case !p.durable():
		return "it is not a run"
	case why != "":
		return why
	}
	for _, s := range p.started {
		if (s.Once || s.Apart) && !s.known && s.todo == nil {
			return "it has begun what must not be done twice"
		}
	}
	return ""
}

// resident returns why a waiting call keeps its instance, or nothing.
func (p *pending) resident() string {
	if why := p.unfit(); why != "" {
		return why
	}
	soon := time.Now().Add(p.call.Suspend.After)
	for _, s := range p.started {
		switch {
		case s.canceled:
			return "what it waits for was canceled"
		case s.Apart:
		case s.Op == "ask" && p.asksAgain():
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
func (p *pending) suspend() error {
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
func (p *pending) keep(st state, begin []*started) error {
	c := p.call
	host, err := json.Marshal(st)
	if err != nil {
		return err
	}
	point := checkpoint.Checkpoint{Host: host}
	if _, err := hex.Decode(point.Plugin[:], []byte(c.module.Info.Digest)); err != nil {
		return err
	}
	c.instance.Save(&point)
	k := SavedState{Until: st.until(), Hold: begin != nil, Image: Image{hex.EncodeToString(point.Image[:]), c.instance.Image().Encode}}
	if k.State, err = point.Encode(); err != nil {
		return err
	}

	for _, w := range st.Pending {
		switch {
		case w.Apart:
			k.Await = append(k.Await, w.ID)
		case w.Op == "ask":
			k.Asks = append(k.Asks, w.ID)
		}
	}
	for _, s := range begin {
		if s.Apart && !s.canceled {
			k.Begin = append(k.Begin, s.ID)
		}
	}
	if err := c.Suspend.Keep(k); err != nil {
		return err
	}
	p.stored, p.retry = true, 0
	return nil
}

// leave stores the state of a waiting call when the host shuts down, so that it continues
// from there.
func (p *pending) leave() {
	c := p.call
	if p.unfit() != "" || c.ops.IsStopping() || errors.Is(context.Cause(&c.ctx), context.DeadlineExceeded) {
		return
	}
	c.leaving = true
	defer func() { c.leaving = false }()
	st, err := p.look()
	if err == nil {
		err = p.keep(st, []*started{})
	}
	if err != nil {
		c.host.log.Warn("the state of a call that is interrupted was not stored", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
	}
}

// look returns the current state of a call. Its operations continue.
func (p *pending) look() (st state, err error) {
	var over []*started
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
			st.Pending = append(st.Pending, s.waiting)
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
			p.call.ops.RefuseCanceled()
			st.Ended = append(st.Ended, ended{s.ID, abi.CallCanceled, p.call.ops.Response})
		default:
			st.Pending = append(st.Pending, s.waiting)
		}
	}
	p.describe(&st)
	return st, err
}

// stop cancels the work of all operations, and returns the remaining state of the call.
func (p *pending) stop() (st state, err error) {
	for _, s := range p.started {
		s.cancel(errSuspended)
	}
	p.works.Wait()

	for range p.started {
		s := <-p.ends
		p.give(s)
		if s.end.Cut && !s.canceled {
			st.Pending = append(st.Pending, s.waiting)
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
func (p *pending) describe(st *state) {
	c := p.call
	slices.SortFunc(st.Pending, func(a, b waiting) int { return cmp.Compare(a.ID, b.ID) })
	env, first := c.instance.Guest.(*environment), c.inner.First()
	st.Elapsed, st.At, st.Now = env.monotonic(), time.Now(), c.instance.Env.Now
	st.Boot, st.Up = boot.id, int64(time.Since(boot.at))
	for i := range st.Pending { // adjusted to the current wall clock
		w := &st.Pending[i]
		w.At = st.At.Add(w.At.Sub(st.At))
	}
	st.Name = c.Suspend.name()
	st.Random, _ = c.instance.Env.Random.MarshalBinary() // it never fails
	st.Waited = int64(p.waited)
	st.Last, st.Said, st.Made, st.Web = p.last, c.ops.Said, first.Made, first.Attempts.Load()
	st.Fuel, st.Peak = c.meter.Used(), int64(c.instance.Memory.Peak)
	a := &c.answer
	st.Answer = written{a.Written, a.Logged, a.Result, a.Given, a.Error, a.Content, a.Summary, a.Stderr.Bytes()}
}

// again lists the repeatable operations, each with the request field that has its wait in
// milliseconds.
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
