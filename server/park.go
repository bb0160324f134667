package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/repeat"
	"github.com/toolhost/toolhost/server/internal/runs"
)

// A parker turns calls that take too long into runs.
type parker struct {
	executor *runs.Executor
	follow   *runs.Follower
	runs     *background.Manager
	repeat   repeat.Repeater
}

// park is the stage that limits how long the caller waits for a call. After that, the call
// continues as a background run.
func (p parker) park(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if b, ok := c.budget(); ok {
			return p.parking(ctx, c, b, next)
		}
		return next(ctx, c)
	}
}

// budget returns the time limits of a call that may become a run. It becomes one when it
// takes too long, when it has to wait for a person, or, with a key, at its start.
func (c call) budget() (catalog.Budget, bool) {
	if c.DryRun {
		return catalog.Budget{}, false
	}
	b, ok := c.parkBudget()
	if ok {
		return b, true
	}
	holds := c.tool.CallsTools() && c.Session != "" && c.allowed.Timeout <= c.tool.MaxBackground()
	return catalog.Budget{Deadline: c.allowed.Timeout}, holds || c.Key != ""
}

// parkBudget returns the time limits of a call that is parked when it takes too long. The
// call needs a session for the run.
func (c call) parkBudget() (catalog.Budget, bool) {
	if c.Session == "" {
		return catalog.Budget{}, false
	}
	return c.tool.Budget(c.allowed, c.Limits.Timeout, c.ParkAfter)
}

// caller describes who waits for the run that a call becomes.
func (c call) caller() runs.Waiter {
	return runs.Waiter{
		Session: c.Session, Keyed: c.Key != "", Patience: c.patience(), Note: c.note, User: c.user(),
		Ask: c.Ask, AskLater: c.AskLater, OnPark: c.OnPark, Ends: c.endsHow(),
	}
}

// patience returns how long the caller waits for a run.
func (c call) patience() time.Duration {
	if b, ok := c.parkBudget(); ok {
		return min(background.MaxWait, b.Park)
	}
	return background.MaxWait
}

// parking makes a call that may become a run, and waits for it as long as its budget allows.
func (p parker) parking(ctx context.Context, c call, b catalog.Budget, next callFunc) (abi.Result, error) {
	version, err := versionOf(c.tool)
	if err != nil {
		return abi.Result{}, err
	}

	c.work.Policy.Timeout = b.Deadline
	live := newLive(c, p.follow.Questions, b.Park > 0)
	defer live.detach()
	ctx = context.WithValue(ctx, liveKey{}, live)
	began := time.Now()

	w := &parkable{call: c, executor: p.executor, live: live, budget: b, next: next}
	req := background.RunRequest{SpawnRequest: c.asRun(ctx, version), ParkAfter: b.Park, Stops: runs.CancelsKeyed, Park: live.wanted, Unparked: live.remains, Work: w.do}
	req.Timeout = b.Deadline
	ran, err := p.runs.Run(ctx, c.Session, req)
	limit, limited := errors.AsType[*engine.LimitError](err)
	c.note.Run = ran.Run.ID
	switch {
	case ran.Parked:
		live.became(ran.Run.ID)
		if w.stored.Load() {
			c.note.Followed = true
			c.note.Run = p.follow.Stored(ctx, ran.Run)
			return w.result, w.err
		}
		if !isClosed(live.wanted) || isClosed(live.failed) {
			return p.follow.Parked(c.caller(), ran.Run, b.Park)
		}
		return p.follow.Follow(ctx, c.caller(), ran.Run, c.patience()-time.Since(began)) // it waits for a person
	case ran.Left: // it has a key, and is a run from its start
		live.became(ran.Run.ID)
		return runs.Canceled(ctx, abi.Result{})
	case ran.Reused: // a call with this key began at the same time
		return p.repeat.Follow(ctx, c.caller(), ran.Run)
	case c.Key != "" && !w.ended: // it has not begun
		r, _ := reason.Explain(err)
		return r, err
	case limited:
		return abi.Result{}, reason.Refuse("%s was stopped after %gs: it would have continued in the background, but %s", c.tool.Name, b.Park.Seconds(), reason.LimitText(limit))
	case errors.Is(err, background.ErrClosed):
		return abi.Result{}, reason.ErrShutdown
	case !w.ended:
		return abi.Result{}, err
	case ran.Run.ID != "" && (errors.Is(w.err, plugins.ErrReplaced) || errors.Is(context.Cause(ctx), ErrAskAgain)):
		p.repeat.Forget(ctx, ran.Run)
	case ctx.Err() != nil && w.result.Kind != abi.Success:
		return runs.Canceled(ctx, w.result)
	case w.result.Limit == abi.LimitTime: // two clocks ended, and either may have been seen first
		w.result.Error = outOfTime(b.Deadline, w.err).Error()
	}
	return w.result, w.err
}

// A parkable is the work of a call that may become a run.
type parkable struct {
	call     call
	executor *runs.Executor
	live     *live
	budget   catalog.Budget
	next     callFunc

	result abi.Result
	err    error
	ended  bool        // result and err are valid
	stored atomic.Bool // the call becomes a run only to store its result; set after the fields above
}

// do makes the call, connected to its caller and to the sink of its run.
func (w *parkable) do(ctx context.Context, sink *output.Sink) (background.Outcome, error) {
	c := w.call
	ctx, work, waits := w.executor.Attach(ctx, sink, c.tool, c.work, w.live)
	c.work = work
	w.result, w.err = w.next(ctx, c)
	if errors.Is(w.err, host.ErrSuspended) {
		return waits.Outcome(sink, w.result), nil
	}

	w.ended = true
	if w.budget.Park > 0 && c.Key == "" && c.stores(w.result) {
		w.stored.Store(true)
		_ = w.live.Park(ctx) // otherwise the caller gets all of it
	}
	if errors.Is(w.err, plugins.ErrReplaced) { // nothing has run: a caller that still waits repeats the call
		return background.Outcome{}, runs.Rejected(engine.KindRejected, "", c.tool.Replaced())
	}
	return runs.Outcome(ctx, sink, w.budget.Deadline, w.result, w.err)
}

// stores reports whether the result of a call is too large for its caller's model. The
// tool may repeat a secret argument, which is not stored.
func (c call) stores(r abi.Result) bool {
	if c.OnStored == nil || r.Kind != abi.Success || int64(len(r.Value)) <= configOf(c.tool).answer() {
		return false
	}
	_, secret := c.tool.PublicArgs(c.Args)
	return !secret
}

// stored is the stage that names the run that has a large result.
func stored(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		r, err := next(ctx, c)
		if err == nil && c.note.Run != "" && c.stores(r) {
			c.OnStored(c.note.Run)
		}
		return r, err
	}
}

// asksLater reports whether the user may be asked once the call is a run: the caller
// allows it, or the user is there while the caller follows the run.
func (c call) asksLater() bool {
	return c.AskLater || c.Ask != nil && c.Decide != nil
}

// asRun returns the run that a call is, or becomes.
func (c call) asRun(ctx context.Context, version string) background.SpawnRequest {
	t := runs.Terms{Limits: c.Limits, Locale: c.Locale, Asks: c.outer == nil && c.asksLater()}
	req := background.SpawnRequest{Tool: c.tool.Name, Title: runs.Title(c.tool), Version: version, Args: c.Args, IdempotencyKey: c.Key}
	if c.outer != nil {
		req.By, req.Silent = c.outer.tool.Name, true
		t.Fuel = min(c.allowed.Fuel, c.outer.fuel)
	}
	req.Terms = t.Traced(ctx)
	if public, secret := c.tool.PublicArgs(c.Args); secret {
		req.Stored = public
	}
	return req
}

// asLaterRun returns the run of a call that starts later: once it is approved, or once a
// state that includes it is stored.
func (c call) asLaterRun(ctx context.Context, version string) background.SpawnRequest {
	req := c.asRun(ctx, version)
	req.Parked, req.Restartable = true, c.tool.Restartable()
	req.Timeout = min(max(c.allowed.Timeout, c.allowed.Background), c.tool.MaxBackground())
	if c.outer != nil && c.Limits.Timeout > 0 {
		req.Timeout = min(req.Timeout, c.Limits.Timeout)
	}
	return req
}

// outOfTime returns the error of a call that used up its time. It says what the call waited
// for, if err does.
func outOfTime(limit time.Duration, err error) error {
	if waited, ok := errors.AsType[*host.WaitedError](err); ok {
		return &host.WaitedError{Err: host.TimeLimit(limit), For: waited.For}
	}
	return host.TimeLimit(limit)
}

// live is the caller's end of a call: its writers, its progress and its slot
// among the direct calls, until they are detached.
type live struct {
	mu       sync.Mutex
	detached bool
	caller   host.Observers
	release  func() // returns the slot; nil before the call has one

	wanted chan struct{} // closed when the call has to become a run early
	once   sync.Once     // closes wanted
	parked chan struct{} // closed when the call has become a run
	run    string        // the run's id; set before parked is closed
	failed chan struct{} // closed when it cannot become one early
	why    error         // why it cannot become one; set before failed is closed
	nobody error         // error for a question, because nobody can be asked; set before failed is closed

	session  string
	ask      question.Func   // asks the caller; nil: it cannot be asked
	later    *question.Asker // asks for the run
	askLater bool            // it may ask after it is detached
}

type liveKey struct{}

// liveOf returns the caller's end of the direct call that a context belongs to; nil if it
// belongs to a run that never had a waiting caller.
func liveOf(ctx context.Context) *live {
	l, _ := ctx.Value(liveKey{}).(*live)
	return l
}

// newLive returns the caller's end of a call.
func newLive(c call, asked *question.Registry, parks bool) *live {
	l := &live{
		caller: c.work.Observers, session: c.Session, ask: c.work.Ask, askLater: c.asksLater(),
		wanted: make(chan struct{}), parked: make(chan struct{}), failed: make(chan struct{}),
	}
	if c.Ask != nil || c.AskLater && parks {
		l.later = question.NewAsker(asked, 0)
	}
	return l
}

// want asks for the call to become a run early.
func (l *live) want() { l.once.Do(func() { close(l.wanted) }) }

// Park turns the call into a run, because its tool makes a call that is held for approval:
// only a run can wait for that. It returns once the call is a run.
func (l *live) Park(ctx context.Context) error {
	if l == nil {
		if _, ok := background.RunOf(ctx); !ok {
			return approval.ErrNobody
		}
		return nil
	}
	l.want()
	select {
	case <-l.parked:
		return nil
	case <-l.failed:
		if isClosed(l.parked) { // later
			return nil
		}
		return fmt.Errorf("%w: %w", ErrApproval, l.why)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Parked returns a channel that is closed when the call has become a run.
func (l *live) Parked() <-chan struct{} { return l.parked }

// became records that the call has become a run, which no longer needs the call's slot.
func (l *live) became(run string) {
	l.run = run
	close(l.parked)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free()
}

// remains records that the call cannot become a run now, and continues as a call.
func (l *live) remains(why error) {
	nobody := fmt.Errorf("%w: nobody can be asked here", host.ErrDenied)
	if limit, ok := errors.AsType[*engine.LimitError](why); ok {
		why = errors.New(reason.LimitText(limit))
		nobody = fmt.Errorf("%w: %w", nobody, why)
	}
	l.why, l.nobody = why, nobody
	close(l.failed)
}

// free returns the slot. l.mu is held.
func (l *live) free() {
	if l.release != nil {
		l.release()
	}
	l.release = nil
}

// detach cuts off the caller: once it has returned, nothing more is passed to the caller.
func (l *live) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.detached = true
	l.free()
}

// left reports whether the caller has left.
func (l *live) left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detached
}

// admitted stores the function that returns the slot of the call.
func (l *live) admitted(release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release = release
	if l.detached || isClosed(l.parked) {
		l.free()
	}
	if l.caller.Admitted != nil {
		l.caller.Admitted(release)
	}
}

// attached calls f unless the caller has left.
func (l *live) attached(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.detached {
		f()
	}
}

// Into returns a call that reports to the sink of its run, and to the caller
// while it is attached.
func (l *live) Into(call host.Call) host.Call {
	call.Stdout = l.tee(call.Stdout, l.caller.Stdout)
	call.Stderr = l.tee(call.Stderr, l.caller.Stderr)
	call.Admitted = l.admitted

	if sink := call.Progress; l.caller.Progress != nil {
		call.Progress = func(p host.Progress) {
			sink(p)
			l.attached(func() { l.caller.Progress(p) })
		}
	}
	if l.later != nil {
		call.Ask = l.askAnyone
	}
	return call
}

// askAnyone asks the caller or, once the call is parked, whoever answers for its run. If the
// caller cannot be asked while it waits, the call becomes a run at once.
func (l *live) askAnyone(ctx context.Context, q abi.Questions) (abi.Answers, error) {
	if l.ask == nil {
		l.want()
	} else if !isClosed(l.parked) {
		answers, err := l.ask(ctx, q)
		if !errors.Is(err, ErrAskAgain) {
			return answers, err
		}
	}

	select {
	case <-ctx.Done():
		return abi.Answers{}, ctx.Err()
	case <-l.failed:
		if !isClosed(l.parked) {
			return abi.Answers{}, l.nobody
		}
	case <-l.parked:
	}
	if !l.askLater && l.left() {
		return abi.Answers{}, fmt.Errorf("%w: the call continues in the background, where nobody can be asked", host.ErrDenied)
	}
	return l.later.Ask(ctx, question.Run{Session: l.session, ID: l.run}, q)
}

// tee writes to the sink of a run, and to the caller while it is attached.
type tee struct {
	live         *live
	sink, caller io.Writer
}

// tee returns a writer to both, or the sink alone if the caller has no writer.
func (l *live) tee(sink, caller io.Writer) io.Writer {
	if caller == nil {
		return sink
	}
	return tee{l, sink, caller}
}

func (t tee) Write(p []byte) (int, error) {
	t.live.attached(func() { _, _ = t.caller.Write(p) })
	return t.sink.Write(p)
}
