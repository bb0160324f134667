package host

import (
	"bytes"
	"cmp"
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

// Suspend lets a call that waits give up its instance. A call can be suspended while all
// that it waits for can be waited for again: time and messages. It is not while it uses
// folders or has used a secret, and if its module cannot be put back to a state.
type Suspend struct {
	// After is how long a call waits before it is suspended.
	After time.Duration
	// Keep stores the state of a call before it returns nil; the call then ends with
	// ErrSuspended. until is when the first thing that it waits for ends by itself. If Keep fails, the call waits in its instance.
	Keep func(state []byte, until time.Time) error
}

// state is what the host adds to a checkpoint.
type state struct {
	Now     int64     `json:"now"`     // of the clock that stands
	Elapsed int64     `json:"elapsed"` // on the clock that does not
	At      time.Time `json:"at"`      // when that was
	Random  []byte    `json:"random"`  // position
	Last    int32     `json:"last"`    // id of an operation
	Fuel    int64     `json:"fuel"`    // used
	Peak    int64     `json:"peak"`
	Made    int       `json:"made,omitempty"`     // calls that began with this one
	Web     int64     `json:"attempts,omitempty"` // requests
	Answer  written   `json:"answer"`
	Said    Progress  `json:"said"`
	Ended   []ended   `json:"ended,omitempty"`
	Pending []waiting `json:"pending,omitempty"`
}

// written is what the guest has written so far.
type written struct {
	Bytes   int64       `json:"bytes"`
	Logged  int64       `json:"logged,omitempty"`
	Result  []byte      `json:"result,omitempty"`
	Given   bool        `json:"given,omitempty"`
	Error   []byte      `json:"error,omitempty"`
	Content []abi.Block `json:"content,omitempty"`
	Summary string      `json:"summary,omitempty"`
	Stderr  []byte      `json:"stderr,omitempty"`
}

// ended is an operation that has ended, which the guest has not learned yet.
type ended struct {
	ID       int32  `json:"id"`
	Code     int32  `json:"code"`
	Response []byte `json:"response,omitempty"`
}

// waiting is an operation that is begun again.
type waiting struct {
	ID      int32     `json:"id"`
	Op      string    `json:"op"`
	Request []byte    `json:"request"`
	At      time.Time `json:"at"` // since when it waits
}

// resident says why a call that waits keeps its instance, or nothing.
func (p *pending) resident() string {
	c := p.call
	switch {
	case c.module.Info.Shape == Command || c.module.Isolation.Mode != Reset:
		return "its module cannot be put back to a state"
	case c.start.tainted || len(c.Policy.Files) > 0:
		return "it may have open files"
	case c.screen.masker() != nil:
		return "it has used a secret"
	}
	soon := time.Now().Add(c.Suspend.After)
	for _, s := range p.started {
		if s.canceled {
			return "what it waits for was canceled"
		}
		if again[s.Op] == "" {
			return "it waits for " + s.Op
		}
		if !s.due().After(soon) {
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
	host, err := json.Marshal(st)
	if err != nil {
		return p.restart(st)
	}
	point := checkpoint.Checkpoint{Host: host}
	if _, err := hex.Decode(point.Plugin[:], []byte(c.module.Info.Digest)); err != nil {
		return p.restart(st)
	}
	c.instance.Save(&point)

	data, err := point.Encode()
	if err == nil {
		err = c.Suspend.Keep(data, st.until())
	}
	if err != nil {
		c.host.log.Warn("a call that waits keeps its instance: its state was not stored", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
		p.kept = true
		return p.restart(st)
	}
	return &instance.Stop{Reason: ErrSuspended}
}

// stop ends the works of all operations, and returns what is left of the call.
func (p *pending) stop() (st state, err error) {
	c := p.call
	for _, s := range p.started {
		s.cancel()
	}
	p.works.Wait()

	env := c.instance.Guest.(*environment)
	st = state{Elapsed: env.elapsed(), At: time.Now(), Last: p.last, Now: c.instance.Env.Now, Said: c.said, Made: c.inner.first().made, Web: c.inner.first().attempts.Load()}
	for range p.started {
		s := <-p.ends
		p.give(s)
		if s.end.cut && !s.canceled {
			st.Pending = append(st.Pending, s.waiting)
			continue
		}
		code, wrong := guarded(s.end.finish)
		st.Ended, err = append(st.Ended, ended{s.ID, code, c.response}), cmp.Or(err, wrong)
	}
	clear(p.started)
	slices.SortFunc(st.Pending, func(a, b waiting) int { return cmp.Compare(a.ID, b.ID) })

	st.Random, _ = c.instance.Env.Random.MarshalBinary() // it has no error
	st.Fuel, st.Peak = c.meter.fuel.Used(c.meter.left()), int64(c.instance.Memory.Peak)
	a := &c.answer
	st.Answer = written{a.written, a.logged, a.result, a.given, a.errText, a.content, a.summary, a.stderr.bytes()}
	return st, err
}

// until is when the first operation ends by itself.
func (s state) until() (first time.Time) {
	for _, w := range s.Pending {
		if due := w.due(); first.IsZero() || due.Before(first) {
			first = due
		}
	}
	return first
}

// due is when an operation ends by itself.
func (w waiting) due() time.Time { return w.At.Add(timeIn(w.Request, again[w.Op])) }

// restart begins the operations of a state again. What that costs was paid for.
func (p *pending) restart(st state) error {
	c := p.call
	p.init()
	for _, e := range st.Ended {
		s := &started{waiting: waiting{ID: e.ID}, cancel: func() {}}
		p.started[e.ID] = s
		p.ended(s, end{bytes: len(e.Response), finish: func() int32 {
			c.response = e.Response
			return e.Code
		}})
	}

	for _, w := range st.Pending {
		field := again[w.Op]
		if field == "" {
			return stateError("it waits for what this host does not begin again")
		}
		var work work
		code, err := guarded(func() (code int32) {
			work, code = c.operation([]byte(w.Op), rested(w.Request, field, time.Until(w.due())))
			return code
		})
		if err != nil {
			return err
		}
		s := &started{waiting: w, cancel: func() {}}
		p.started[w.ID] = s
		if work == nil {
			response := c.response
			p.ended(s, end{finish: func() int32 { c.response = response; return code }})
			continue
		}
		p.work(s, work)
	}
	p.last = st.Last
	return nil
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
		return nil, stateError(err.Error())
	case hex.EncodeToString(point.Plugin[:]) != c.module.Info.Digest:
		return nil, stateError("the plugin has changed since")
	case c.module.Info.Shape == Command || c.module.Isolation.Mode != Reset:
		return nil, stateError("the plugin cannot be put back to a state")
	}
	return point, nil
}

// proceed puts an instance into the state with which a call continues. It returns what the
// guest answered last: that it waits.
func (u *startup) proceed() (code int32, err error) {
	c := u.call
	if u.point.Image != c.instance.Image().Digest() {
		return 0, stateError("the plugin starts up differently here")
	}
	st, err := decodeState(u.point.Host)
	if err != nil {
		return 0, stateError(err.Error())
	}

	if err := c.instance.Load(u.point); err != nil {
		return 0, &instance.Stop{Reason: err}
	}
	u.point = nil
	return abi.InvokeWaiting, c.pending.restore(st)
}

// maxStarted bounds the operations that a call starts, so that ids do not run out: each
// costs fuel, so none comes near it.
const maxStarted = 1 << 30

// kept is how many bytes of a state stay on Go's heap.
func (s state) kept() (n int) {
	n = len(s.Answer.Result) + len(s.Answer.Error) + len(s.Answer.Summary) + len(s.Answer.Stderr)
	for _, b := range s.Answer.Content {
		n += len(b.Text) + len(b.Data) + len(b.URI) + len(b.Name)
	}
	return n
}

// decodeState reads what the host has added to a checkpoint, which may be anything.
func decodeState(data []byte) (st state, err error) {
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
	if len(seen) > abi.MaxPending || st.Fuel < 0 || st.Peak < 0 || st.Answer.Bytes < 0 || st.Answer.Logged < 0 || st.Made < 0 || st.Web < 0 || st.Last < 0 || st.Last > maxStarted {
		return st, errors.New("its state has a number that is out of range")
	}
	return st, nil
}

// restore gives the call what it had.
func (p *pending) restore(st state) error {
	c := p.call
	env := c.instance.Env
	if err := env.Random.UnmarshalBinary(st.Random); err != nil {
		return stateError("its state has no position of random numbers")
	}
	env.Now = st.Now
	guest := c.instance.Guest.(*environment)
	guest.ahead = st.Elapsed + int64(max(0, time.Since(st.At))) - guest.elapsed()
	a, w := &c.answer, st.Answer
	a.written, a.logged, a.result, a.given, a.errText, a.content, a.summary = w.Bytes, w.Logged, w.Result, w.Given, w.Error, w.Content, w.Summary
	a.stderr.buf = w.Stderr
	c.said = st.Said
	first := c.inner.first()
	first.made = st.Made
	first.attempts.Store(st.Web)
	c.instance.Memory.Peak = max(c.instance.Memory.Peak, uint64(st.Peak))
	if err := c.meter.keep(st.kept()); err != nil {
		return &instance.Stop{Reason: err}
	}

	if err := p.restart(st); err != nil {
		return err
	}
	_, err := guarded(func() int32 {
		c.meter.pay(max(0, st.Fuel-c.meter.fuel.Used(c.meter.left())))
		return 0
	})
	return err
}

// stateError is why a call ends that cannot be continued.
func stateError(why string) error {
	return &instance.Stop{Reason: fmt.Errorf("%w: %s", ErrState, why)}
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
