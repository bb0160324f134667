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
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/checkpoint"
)

var (
	// ErrSuspended is the error of a call that was suspended: Suspend.Keep has its state,
	// and [Call.Continue] continues from it.
	ErrSuspended = errors.New("the call waits, and was suspended")
	// ErrState means that a call cannot be continued from a state.
	ErrState = errors.New("the call cannot be continued")
)

// Suspend lets a waiting call give up its instance, and continue from its state, even
// after a crash. A call can be suspended while everything that it waits for can be
// waited for again: time, messages, the user, and tool calls that are made [Apart]. It
// cannot be suspended while it uses folders, or if its module cannot be restored to a
// state.
type Suspend struct {
	// After is how long a call waits before it is suspended.
	After time.Duration
	// Anew says that the call may begin anew after a crash, as if a state of its
	// beginning were stored.
	Anew bool
	// Name returns the owner's name of the call. A state cannot continue a call with
	// another name. Nil means no name.
	Name func() string
	// Short reports whether others need the resources of a waiting call. It is then
	// suspended as soon as it waits. That also happens, even if Short is nil, while
	// others wait for a slot of its module or most of the host's memory is in use.
	Short func() bool
	// Live reports whether the call can be suspended at this moment; nil: always.
	Live func() bool
	// Revived is closed when Live begins to report true; nil: it did from the start.
	Revived <-chan struct{}
	// Keep stores a state of the call before it returns nil. Unless Hold is set the
	// call then ends with ErrSuspended. If Keep fails, the call stays in its instance for
	// now, and the operations in Begin do not begin. A [*Refusal] tells the plugin why.
	Keep func(Kept) error
	// Ask asks the user instead of [Call].Ask. It is called again with the same
	// operation and questions if the call continues from a state in which it was
	// asking. When ctx ends with a cause other than [ErrWithdrawn], the call is about
	// to be suspended: Keep gets the operation in Asks. Nil means that the user cannot
	// be asked later: a call that asks then keeps its instance.
	Ask func(ctx context.Context, operation int32, q abi.Questions) (abi.Answers, error)
	// Image returns what Encode of a [Kept.Image] with that digest has made. Nil, or an
	// error, means that the image is gone. A call is then continued only if its plugin
	// still starts up as it did when the state was stored.
	Image func(digest string) ([]byte, error)
	// Repeats says that the call may be repeated as a whole: without a state it begins
	// again after a crash, from its checkpoint.
	Repeats bool
	// Drop removes the stored state, so that after a crash the call does not continue
	// from it, nor begins anew unless it Repeats. It is called before messages are
	// taken that no state can record, after a checkpoint is saved in a call that
	// Repeats, and in any other before an operation that must not be done twice and
	// that no state can record. Nil removes nothing.
	Drop func() error
	// Tool says how a call of a tool is made; nil: each is [Once].
	Tool func(operation int32, t ToolCall) Manner
	// Await waits for the end of a call that is made [Apart], which Keep has begun,
	// possibly in an earlier process. If ctx ends with the cause [ErrWithdrawn], nobody
	// waits for the call any longer. It may be nil if Tool never returns Apart.
	Await func(ctx context.Context, operation int32, t ToolCall) (abi.Result, error)
}

func (s *Suspend) name() string {
	if s == nil || s.Name == nil {
		return ""
	}
	return s.Name()
}

// Kept is what [Suspend.Keep] stores.
type Kept struct {
	State []byte
	Until time.Time // when the first of what the call waits for ends by itself; zero: nothing does
	Begin []int32   // operations that are made Apart, and begin with this write
	Await []int32   // all of those that have begun and not ended
	Asks  []int32   // operations that ask the user
	Hold  bool      // the call continues in its instance
	Image Image     // which the state is compared with
}

// Image is the memory that a plugin starts with. Another version of the host may start
// it differently, so keep the image together with a state.
type Image struct {
	Digest string        // SHA-256 in hex
	Encode func() []byte // for [Suspend.Image]; not to be called after [Suspend.Keep] has returned
}

// Manner is how a call that can be suspended calls a tool.
type Manner int

// The manners.
const (
	Once  Manner = iota // as part of the call, and not again after a crash: it begins once a state that records it is stored, and is lost in a crash
	Again               // as part of the call, and again if the call is continued
	Apart               // as a separate call, which [Suspend.Await] waits for
)

// ErrWithdrawn is the cause of an operation's end when its plugin no longer waits for
// it: the plugin has canceled it, or its call has ended.
var ErrWithdrawn = errors.New("the call does not wait for it any more")

// errSuspended ends the works of operations that are begun again.
var errSuspended = errors.New("the call is suspended")

// durable reports whether states of the call can be stored now.
func (p *pending) durable() bool {
	s := p.call.Suspend
	return s != nil && (s.Live == nil || s.Live())
}

// Resident returns why the calls of a module keep their instances while they wait, with
// granted folders or without. It is empty if they give them up, unless something happens in
// the call: see [Suspend].
func Resident(i Isolation, folders bool) string {
	switch {
	case i.Mode != Reset:
		return i.Why
	case folders:
		return "it may have open files in its folders"
	}
	return ""
}

// bound says why a call never leaves its instance, or nothing.
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

// arrive is called before the guest runs: what it does is known only if it can be suspended.
func (p *pending) arrive() error {
	p.stored = p.once() && p.call.Suspend.Anew
	if p.bound() == "" {
		return nil
	}
	_, err := guarded(func() int32 { p.act(); return 0 })
	return err
}

// unfit says why no state of a call can be stored, or nothing.
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

// resident says why a call that waits keeps its instance, or nothing.
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

// suspend gives the state of a call to its owner. It reports whether the call has to end.
func (p *pending) suspend() error {
	st, err := p.stop()
	if err != nil {
		return err
	}
	if len(st.Ended) > 0 { // meanwhile, so that nothing would continue it
		return p.restart(st)
	}
	if err := p.keep(st, nil); err != nil {
		p.unkept(err)
		return p.restart(st)
	}
	return &instance.Stop{Reason: ErrSuspended}
}

// A call whose state could not be stored tries it again, ever later.
const minRetry, maxRetry = 10 * time.Second, 10 * time.Minute

// keep stores a state. With operations to begin the call stays in its instance.
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
	k := Kept{Until: st.until(), Hold: begin != nil, Image: Image{hex.EncodeToString(point.Image[:]), c.instance.Image().Encode}}
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

// leave stores the state of a call that is interrupted while it waits, so that it continues
// from there: its host shuts down.
func (p *pending) leave() {
	c := p.call
	if p.unfit() != "" || c.stopping() || errors.Is(context.Cause(&c.ctx), context.DeadlineExceeded) {
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

// look returns what a call has now. Its operations continue.
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
		if s.end.cut && !s.canceled {
			st.Pending = append(st.Pending, s.waiting)
		} else if err == nil {
			e, wrong := p.finish(s)
			s.end.finish = p.told(e)
			st.Ended, err = append(st.Ended, e), wrong
		}
		has[s.ID] = true
		p.ends <- s
	}
	for _, s := range p.started {
		switch {
		case has[s.ID]:
		case s.canceled:
			p.call.refuseCanceled()
			st.Ended = append(st.Ended, ended{s.ID, abi.CallCanceled, p.call.response})
		default:
			st.Pending = append(st.Pending, s.waiting)
		}
	}
	p.describe(&st)
	return st, err
}

// stop ends the works of all operations, and returns what is left of the call.
func (p *pending) stop() (st state, err error) {
	for _, s := range p.started {
		s.cancel(errSuspended)
	}
	p.works.Wait()

	for range p.started {
		s := <-p.ends
		p.give(s)
		if s.end.cut && !s.canceled {
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
	env, first := c.instance.Guest.(*environment), c.inner.first()
	st.Elapsed, st.At, st.Now = env.elapsed(), time.Now(), c.instance.Env.Now
	st.Boot, st.Up = boot.id, int64(time.Since(boot.at))
	for i := range st.Pending { // by the clock of the wall as it is now
		w := &st.Pending[i]
		w.At = st.At.Add(w.At.Sub(st.At))
	}
	st.Name = c.Suspend.name()
	st.Random, _ = c.instance.Env.Random.MarshalBinary() // it has no error
	st.Waited = int64(p.waited)
	st.Last, st.Said, st.Made, st.Web = p.last, c.said, first.made, first.attempts.Load()
	st.Fuel, st.Peak = c.meter.fuel.Used(c.meter.left()), int64(c.instance.Memory.Peak)
	a := &c.answer
	st.Answer = written{a.written, a.logged, a.result, a.given, a.errText, a.content, a.summary, a.stderr.bytes()}
}

// again are the operations that can be begun again, with the field of their requests that
// says how many milliseconds they wait.
var again = map[string]string{"sleep": "ms", "messages.receive": "wait_ms"}

// timeIn is the time in a field of a request.
func timeIn(request []byte, field string) time.Duration {
	var in map[string]json.RawMessage
	var ms int64
	if json.Unmarshal(request, &in) != nil || json.Unmarshal(in[field], &ms) != nil {
		return 0
	}
	return milliseconds(ms)
}

// rested is a request with the time that is left in a field.
func rested(request []byte, field string, left time.Duration) []byte {
	var in map[string]json.RawMessage
	if json.Unmarshal(request, &in) != nil {
		return request // which is refused
	}
	in[field] = encode(max(0, left.Milliseconds()))
	return encode(in)
}

func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, int64(time.Duration(1<<62)/time.Millisecond))) * time.Millisecond
}
