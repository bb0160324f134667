package host

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/checkpoint"
)

var (
	// ErrSuspended is the error of a call that was suspended: Suspend.Keep has its state,
	// and [Call.Continue] goes on with it.
	ErrSuspended = errors.New("the call waits, and was suspended")
	// ErrState means that a call cannot be continued from a state.
	ErrState = errors.New("the call cannot be continued")
)

// Suspend lets a call that waits give up its instance, and continue from its state after
// a crash. A call can be suspended while all that it waits for can be waited for again:
// time, messages, and calls of tools that are made apart. It is not while it uses folders,
// after it has used a secret unless its states are sealed, and if its module cannot be put
// back to a state.
type Suspend struct {
	// After is how long a call waits before it is suspended.
	After time.Duration
	// Anew says that the call may begin anew after a crash, as if a state of its beginning
	// were stored.
	Anew bool
	// Name returns what the owner calls the call by. A state continues no call with another
	// name. Nil is no name.
	Name func() string
	// Short reports whether others need what a call holds that waits: it is then suspended
	// as soon as it waits, as it is while others wait for a slot of its module, or most of
	// the memory of the host is taken. Nil: that is all.
	Short func() bool
	// Live reports whether the call can be suspended at this moment; nil: always.
	Live func() bool
	// Revived is closed when Live begins to report true; nil: it did from the start.
	Revived <-chan struct{}
	// Keep stores a state of the call before it returns nil. Unless Hold is set the call
	// then ends with ErrSuspended. If Keep fails, the call stays in its instance, and what
	// was to begin does not: a [*Refusal] says why to the plugin.
	Keep func(Kept) error
	// Seal encrypts the states of a call that has used a secret, which have its value;
	// [Call.Continue] gets them decrypted. If it is nil such a call keeps its instance.
	Seal func(state []byte) ([]byte, error)
	// Drop removes the state that is stored, so that the call does not continue from there
	// after a crash, nor begin anew. It is called before an operation that must not be done twice, and that
	// no state can know of. Nil for a call that may be made twice as a whole.
	Drop func() error
	// Tool says how a call of a tool is made; nil: each is [Once].
	Tool func(operation int32, t ToolCall) Manner
	// Await waits for the end of a call that is made [Apart], which Keep has begun, maybe in
	// an earlier process. If ctx ends with the cause [ErrWithdrawn], nobody waits for the call
	// any more. It is nil if Tool never says Apart.
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
	Hold  bool      // the call continues in its instance
}

// Manner is how a call of a tool is made by a call that can be suspended.
type Manner int

// The manners.
const (
	Once  Manner = iota // with the call, and not again after a crash: it begins once a state that knows of it is stored, and is lost
	Again               // with the call, and again if that is continued
	Apart               // as a call of its own, which [Suspend.Await] waits for
)

// ErrWithdrawn is the cause of the end of an operation that its plugin does not wait for
// any more: it has canceled it, or its call has ended.
var ErrWithdrawn = errors.New("the call does not wait for it any more")

// errSuspended ends the works of operations that are begun again.
var errSuspended = errors.New("the call is suspended")

// durable reports whether states of the call can be stored now.
func (p *pending) durable() bool {
	s := p.call.Suspend
	return s != nil && (s.Live == nil || s.Live())
}

// bound says why a call of a module never leaves its instance, or nothing.
func (c *call) bound() string {
	switch {
	case c.module.Info.Shape == Command || c.module.Isolation.Mode != Reset:
		return "its module cannot be put back to a state"
	case c.start.tainted || len(c.Policy.Files) > 0:
		return "it may have open files"
	}
	return ""
}

// arrive is called before the guest runs: what it does is known only if it can be suspended.
func (p *pending) arrive() error {
	p.stored = p.call.Suspend != nil && p.call.Suspend.Anew
	if p.call.bound() == "" {
		return nil
	}
	_, err := guarded(func() int32 { p.act(); return 0 })
	return err
}

// unfit says why no state of a call can be stored, or nothing.
func (p *pending) unfit() string {
	c := p.call
	switch why := c.bound(); {
	case !p.durable():
		return "it is not a run"
	case why != "":
		return why
	case c.screen.masker() != nil && c.Suspend.Seal == nil:
		return "it has used a secret"
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
	c := p.call
	st, err := p.stop()
	if err != nil {
		return err
	}
	if len(st.Ended) > 0 { // meanwhile, so that nothing would continue it
		return p.restart(st)
	}
	if err := p.keep(st, nil); err != nil {
		c.host.log.Warn("a call that waits keeps its instance: its state was not stored", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
		p.kept = true
		return p.restart(st)
	}
	return &instance.Stop{Reason: ErrSuspended}
}

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
	k := Kept{Until: st.until(), Hold: begin != nil}
	if k.State, err = point.Encode(); err != nil {
		return err
	}
	if len(st.Secrets) > maxSecrets {
		return fmt.Errorf("it has used more than %d secrets", maxSecrets)
	}
	if len(st.Secrets) > 0 {
		if k.State, err = c.Suspend.Seal(k.State); err != nil {
			return fmt.Errorf("sealing it: %w", err)
		}
	}

	for _, w := range st.Pending {
		if w.Apart {
			k.Await = append(k.Await, w.ID)
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
	p.stored = true
	return nil
}

// leave stores the state of a call that is interrupted while it waits, so that it continues
// from there: its host shuts down.
func (p *pending) leave() {
	c := p.call
	if p.unfit() != "" || c.stopping() || errors.Is(context.Cause(&c.ctx), context.DeadlineExceeded) {
		return
	}
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
	st.Name = c.Suspend.name()
	st.Random, _ = c.instance.Env.Random.MarshalBinary() // it has no error
	st.Last, st.Said, st.Made, st.Web = p.last, c.said, first.made, first.attempts.Load()
	st.Fuel, st.Peak = c.meter.fuel.Used(c.meter.left()), int64(c.instance.Memory.Peak)
	if m := c.screen.masker(); m != nil {
		st.Secrets, st.Held = m.All(), c.screen.held
	}
	a := &c.answer
	st.Answer = written{a.written, a.logged, a.result, a.given, a.errText, a.content, a.summary, a.stderr.bytes()}
}

// resume decodes the state with which a call continues. It is nil for a call that begins.
func (u *startup) resume() (*checkpoint.Checkpoint, error) {
	c := u.call
	if c.Continue == nil {
		return nil, nil
	}
	point, err := checkpoint.Decode(c.Continue, uint64(c.Policy.Memory))
	switch {
	case err != nil:
		return nil, cannotContinue(err.Error())
	case hex.EncodeToString(point.Plugin[:]) != c.module.Info.Digest:
		return nil, cannotContinue("the plugin has changed since")
	case c.module.Info.Shape == Command || c.module.Isolation.Mode != Reset:
		return nil, cannotContinue("the plugin cannot be put back to a state")
	}
	return point, nil
}

// proceed puts an instance into the state with which a call continues. It returns what the
// guest answered last: that it waits.
func (u *startup) proceed() (code int32, err error) {
	c := u.call
	if !c.instance.Started(u.point.Image) {
		return 0, cannotContinue("the plugin starts up differently here")
	}
	st, err := decodeState(u.point.Host)
	if err != nil {
		return 0, cannotContinue(err.Error())
	}
	if st.Name != c.Suspend.name() {
		return 0, cannotContinue("its state is that of another call")
	}

	if err := c.instance.Load(u.point); err != nil {
		return 0, &instance.Stop{Reason: err}
	}
	u.point = nil
	return abi.InvokeWaiting, c.pending.restore(st)
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
