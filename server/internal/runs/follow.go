package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// Runs gives access to the runs that calls become. A *[background.Manager] implements it.
type Runs interface {
	Get(ctx context.Context, session, id string) (engine.Run, error)
	Check(ctx context.Context, session string, r background.CheckRequest) (background.CheckResult, error)
	Payload(ctx context.Context, session, id string, part engine.Part) (json.RawMessage, error)
	Spawn(ctx context.Context, session string, req background.SpawnRequest) (background.SpawnResult, error)
	Stop(ctx context.Context, session, id string, req background.StopRequest) (engine.Run, error)
}

// Records gives access to the records of runs, and their events. An [engine.Engine]
// implements it.
type Records interface {
	List(ctx context.Context, q engine.Query) ([]engine.Run, error)
	Watch(ctx context.Context, session string) <-chan engine.Event
}

// A Follower waits for the runs that calls have become.
type Follower struct {
	Runs      Runs
	Records   Records
	Approvals *approval.Manager
	Questions *question.Registry
	Offer     func() // shows models the tools for runs
	Log       *slog.Logger
}

// A Waiter waits for a run that its call has become.
type Waiter struct {
	Session  string
	Keyed    bool          // the call has an idempotency key
	Patience time.Duration // longest wait
	Note     *record.Note
	User     approval.User // decides on held calls
	Ask      question.Func // asks the user the questions of the run; nil asks nobody
	AskLater bool          // the user can answer the questions in another way
	OnPark   func(wire.Run)
	Ends     string // text that says how the caller learns of the end of the run
}

// Follow waits for a run that a call has become, at most for the duration wait, and returns
// the result of the run. In the meantime, the caller's user decides on held calls within the
// run, and answers its questions; the time that this takes does not count. If the run does not
// end in time, Follow answers like [Follower.Parked].
func (f *Follower) Follow(ctx context.Context, c Waiter, run engine.Run, wait time.Duration) (abi.Result, error) {
	c.Note.Run, c.Note.Followed = run.ID, true
	for left := wait; ; {
		news, stop := f.news(ctx, c, run)
		open, err := f.relay(ctx, c, run.ID)
		if err == nil && !open && ctx.Err() == nil {
			began := time.Now()
			run, err = f.await(ctx, run, max(left, 0), news)
			left -= time.Since(began)
		}
		stop()

		switch {
		case errors.Is(err, question.ErrAskAgain):
			return c.askedAgain(run, err)
		case ctx.Err() != nil:
			return f.left(ctx, c, run)
		case err != nil:
			return abi.Result{}, err
		case run.Status.Terminal():
			return f.ended(ctx, run)
		case open:
			return f.parked(c, run, wait-left, f.waitsFor(ctx, run))
		case left <= 0:
			return f.parked(c, run, wait, f.waitsFor(ctx, run))
		}
	}
}

// personal describes what a run waits for that only a person can give. The zero value stands
// for nothing.
type personal struct {
	text      string                  // a sentence without its period
	lacks     string                  // a sentence about what else a held call lacks
	questions map[string]abi.Question // open questions of the run
}

// waitsFor returns what a run, or a call that it made, waits for from a person.
func (f *Follower) waitsFor(ctx context.Context, run engine.Run) (p personal) {
	waiting, err := f.Approvals.WaitingIn(ctx, run.Session, run.ID)
	if err != nil {
		return p
	}
	if len(waiting) == 0 {
		if p.questions = f.Questions.Open(ctx, run); len(p.questions) > 0 {
			p.text = "It waits until its user answers its questions"
		}
		return p
	}

	held, what := waiting[0], "it"
	if held.ID != run.ID {
		what = "a call of " + held.Tool
	}
	p.text = "It waits until a person approves " + what + " (for an operator: toolhost approve " + held.ID + ")"
	if tool, err := f.Approvals.Lookup(held.Tool); err == nil {
		p.lacks = f.Approvals.Lacks(ctx, held.Session, tool)
	}
	return p
}

// await returns the run once it has ended, or there is news of it.
func (f *Follower) await(ctx context.Context, run engine.Run, wait time.Duration, news <-chan struct{}) (engine.Run, error) {
	checked, err := f.Runs.Check(ctx, run.Session, background.CheckRequest{IDs: []string{run.ID}, Wait: wait, Enough: news})
	if err != nil {
		return run, err
	}
	return checked.Reports[0].Run, nil
}

// ended returns the result of a call from the run that it has become.
func (f *Follower) ended(ctx context.Context, run engine.Run) (abi.Result, error) {
	if run.Held != "" {
		return abi.Result{}, approval.RefusedBy(run)
	}
	if err := load(ctx, f.Runs, &run, engine.PartResult, engine.PartContent); err != nil {
		return abi.Result{}, err
	}
	return shape.Result(run), nil
}

// askedAgain ends a call whose caller asks its user, and calls again with the answer.
func (c Waiter) askedAgain(run engine.Run, err error) (abi.Result, error) {
	c.Note.Held = run.Undecided()
	if c.OnPark != nil {
		c.OnPark(shape.Run(run, time.Now()))
	}
	return abi.Result{Kind: abi.CanceledKind, Error: err.Error()}, err
}

// left ends a call whose caller has left. Its run ends too, unless the call has a key.
func (f *Follower) left(ctx context.Context, c Waiter, run engine.Run) (abi.Result, error) {
	if cause := context.Cause(ctx); !errors.Is(cause, ErrClosing) && !c.Note.Repeat && (!c.Keyed || CancelsKeyed(cause)) {
		f.withdraw(ctx, c.Session, run.ID, "", cause.Error())
	}
	return Canceled(ctx, abi.Result{})
}

// news returns a channel that is closed when the caller's user may have something to
// decide on or to answer.
func (f *Follower) news(ctx context.Context, c Waiter, run engine.Run) (news <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	events := f.Records.Watch(ctx, run.Session)
	asked, unwatch := (<-chan struct{})(nil), func() {}
	if c.Ask != nil || c.AskLater {
		if current, err := f.Runs.Get(ctx, run.Session, run.ID); err == nil {
			run = current
		}
		asked, unwatch = f.Questions.Watch(ctx, []engine.Run{run})
	}

	happened, ended := make(chan struct{}), make(chan struct{})
	report := sync.OnceFunc(func() { close(happened) })
	go func() {
		defer close(ended)
		var again <-chan time.Time
		if f.Questions.SharedEngine { // the events of other hosts are hints
			tick := time.NewTicker(question.PollInterval)
			defer tick.Stop()
			again = tick.C
		}
		for {
			select {
			case <-again:
				report()
			case e, ok := <-events:
				if !ok {
					return
				}
				if e.Kind == engine.EventMissed || e.Kind == engine.EventQueued && e.Run != nil && e.Run.Held != "" {
					report()
				}
			case <-asked:
				asked = nil
				report()
			}
		}
	}()
	return happened, func() {
		cancel()
		<-ended
		unwatch()
	}
}

// relay lets the caller's user decide on a run that is held, or on held calls within it, and
// answer its questions. The result open reports whether the run waits for a decision or an
// answer that the user cannot give here, or has not given.
func (f *Follower) relay(ctx context.Context, c Waiter, id string) (open bool, err error) {
	held, err := f.Approvals.WaitingIn(ctx, c.Session, id)
	if err != nil {
		return false, err
	}
	for _, run := range held {
		run, err := f.Approvals.Ask(ctx, run, c.User)
		switch {
		case run.ID != id && (errors.Is(err, reason.ErrApproval) || errors.Is(err, approval.ErrOutdated)): // the calling tool sees that
		case err != nil:
			return false, err
		case run.Undecided():
			open = true
		}
	}
	switch {
	case open:
		return true, nil
	case c.Ask != nil:
		return false, f.relayQuestions(ctx, c, id)
	case c.AskLater:
		run, err := f.Runs.Get(ctx, c.Session, id)
		return err == nil && len(f.Questions.Open(ctx, run)) > 0, err
	}
	return false, nil
}

// relayQuestions lets the caller's user answer the questions of a run.
func (f *Follower) relayQuestions(ctx context.Context, c Waiter, id string) error {
	run, err := f.Runs.Get(ctx, c.Session, id)
	if err != nil {
		return err
	}
	questions := f.Questions.Open(ctx, run)
	if len(questions) == 0 {
		return nil
	}
	given, err := question.Checked(c.Ask)(ctx, abi.Questions{Questions: questions})
	if errors.Is(err, question.ErrAskAgain) || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err != nil { // the client cannot ask
		f.Log.Info("a question of a run was not asked", "task_id", id, "session", c.Session, "error", err)
		given.Answers = map[string]abi.Answer{}
		for key := range questions {
			given.Answers[key] = abi.Answer{Action: abi.AnswerCancel}
		}
	}
	return f.Questions.Answer(ctx, run, given.Answers)
}

// storing is how long a caller waits for its result to be stored.
const storing = time.Second

// Stored waits until a run that keeps the result of a call has ended, so that its end makes no
// notice. It returns the id of the run; the id is empty if the result is not stored in time.
func (f *Follower) Stored(ctx context.Context, run engine.Run) (id string) {
	checked, err := f.Runs.Check(context.WithoutCancel(ctx), run.Session, background.CheckRequest{IDs: []string{run.ID}, Wait: storing})
	if err != nil || !checked.Reports[0].Run.Final() {
		f.Log.Warn("a large result was not stored in time: the caller gets all of it", "task_id", run.ID, "tool", run.Tool, "session", run.Session, "error", err)
		return ""
	}
	return run.ID
}

// Parked answers a call that continues in the background as a run.
func (f *Follower) Parked(c Waiter, run engine.Run, after time.Duration) (abi.Result, error) {
	return f.parked(c, run, after, personal{})
}

func (f *Follower) parked(c Waiter, run engine.Run, after time.Duration, waits personal) (abi.Result, error) {
	c.Note.Run, c.Note.Held = run.ID, run.Undecided()
	f.Offer()
	if c.OnPark != nil {
		c.OnPark(shape.Run(run, time.Now()))
	}

	message := fmt.Sprintf("Still running after %gs. It continues in the background: %s. Do not repeat the call. %s stops it.",
		after.Seconds(), c.Ends, agent.StopBackground)
	if waits.text != "" {
		message = strings.TrimSpace(fmt.Sprintf("%s, and then runs in the background: %s. Do not repeat the call. %s withdraws it. %s",
			waits.text, c.Ends, agent.StopBackground, waits.lacks))
	}
	value, err := shape.JSON(struct {
		Type           string        `json:"type"`
		TaskID         string        `json:"task_id"`
		BackgroundID   string        `json:"background_id"` // the same
		Tool           string        `json:"tool"`
		TimeoutSeconds float64       `json:"timeout_seconds,omitzero"` // how long the caller waited
		Status         engine.Status `json:"status"`
		Message        string        `json:"message"`

		Questions map[string]abi.Question `json:"questions,omitempty"`
	}{
		"background", run.ID, run.ID, run.Tool, after.Seconds(), run.Status, message, waits.questions,
	})
	if err != nil {
		return abi.Result{}, err
	}
	return abi.Result{Kind: abi.Success, Value: value}, nil
}

// Cancellation causes of calls.
var (
	// ErrCancel stops a call with an idempotency key.
	ErrCancel = errors.New("the caller canceled the call")
	// ErrClosing means that the server shuts down.
	ErrClosing = errors.New("the server is shutting down")
)

// CancelsKeyed reports whether a call with an idempotency key stops when its caller's context
// ends for this cause.
func CancelsKeyed(cause error) bool {
	return errors.Is(cause, ErrCancel) || errors.Is(cause, question.ErrAskAgain)
}

// Canceled returns the result and the error of a call whose caller has left, whether or not
// the tool noticed.
func Canceled(ctx context.Context, r abi.Result) (abi.Result, error) {
	err, cause := ctx.Err(), context.Cause(ctx)
	if !errors.Is(cause, err) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return abi.Result{Kind: abi.CanceledKind, Error: cause.Error(), Usage: r.Usage}, err
}
