package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/shape"
)

// A follower waits for the runs that calls have become.
type follower struct {
	runs      *background.Manager
	engine    engine.Engine
	approvals *approval.Manager
	asked     *question.Registry
	sessions  func(name string) Session
	offer     func() // shows models the tools for runs
	log       *slog.Logger
}

// patience is how long the caller waits for a run.
func (c call) patience() time.Duration {
	if b, ok := c.parkBudget(); ok {
		return min(background.MaxWait, b.Park)
	}
	return background.MaxWait
}

// follow waits for a run that a call has become, as long as the caller waits for a call,
// and returns its result. Meanwhile the caller's user decides on held calls within the
// run, and answers its questions; that time does not count.
func (f follower) follow(ctx context.Context, c call, run engine.Run, wait time.Duration) (abi.Result, error) {
	c.note.Run, c.note.Followed = run.ID, true
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
		case errors.Is(err, ErrAskAgain):
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

// personal is what a run waits for that only a person can give. Zero is nothing.
type personal struct {
	text      string                  // a sentence without its period
	lacks     string                  // a sentence about what else a held call lacks
	questions map[string]abi.Question // open ones of the run
}

// waitsFor returns what a run, or a call that it made, waits for from a person.
func (f follower) waitsFor(ctx context.Context, run engine.Run) (p personal) {
	waiting, err := f.approvals.WaitingIn(ctx, run.Session, run.ID)
	if err != nil {
		return p
	}
	if len(waiting) == 0 {
		if p.questions = f.asked.Open(ctx, run); len(p.questions) > 0 {
			p.text = "It waits until its user answers its questions"
		}
		return p
	}

	held, what := waiting[0], "it"
	if held.ID != run.ID {
		what = "a call of " + held.Tool
	}
	p.text = "It waits until a person approves " + what + " (for an operator: toolhost approve " + held.ID + ")"
	if tool, err := f.approvals.Lookup(held.Tool); err == nil {
		p.lacks = f.approvals.Lacks(ctx, held.Session, tool)
	}
	return p
}

// await returns the run once it has ended, or there is news of it.
func (f follower) await(ctx context.Context, run engine.Run, wait time.Duration, news <-chan struct{}) (engine.Run, error) {
	checked, err := f.runs.Check(ctx, run.Session, background.CheckRequest{IDs: []string{run.ID}, Wait: wait, Enough: news})
	if err != nil {
		return run, err
	}
	return checked.Reports[0].Run, nil
}

// ended returns the result of a call from the run that it has become.
func (f follower) ended(ctx context.Context, run engine.Run) (abi.Result, error) {
	if run.Held != "" {
		return abi.Result{}, approval.RefusedBy(run)
	}
	if err := f.sessions(run.Session).load(ctx, &run, engine.PartResult, engine.PartContent); err != nil {
		return abi.Result{}, err
	}
	return shape.Result(run), nil
}

// askedAgain ends a call whose caller asks its user, and calls again with the answer.
func (c call) askedAgain(run engine.Run, err error) (abi.Result, error) {
	c.note.Held = run.Undecided()
	if c.OnPark != nil {
		c.OnPark(shape.Run(run, time.Now()))
	}
	return abi.Result{Kind: abi.CanceledKind, Error: err.Error()}, err
}

// ErrClosing is the cancellation cause when the server shuts down. A held call stays
// held, and can be decided on after a restart.
var ErrClosing = errors.New("the server is shutting down")

// left ends a call whose caller has left. Its run ends too, unless the call has a key.
func (f follower) left(ctx context.Context, c call, run engine.Run) (abi.Result, error) {
	if cause := context.Cause(ctx); !errors.Is(cause, ErrClosing) && !c.note.Repeat && (c.Key == "" || cancelsKeyed(cause)) {
		f.withdraw(ctx, c.Session, run.ID, "", cause.Error())
	}
	return canceled(ctx, abi.Result{})
}

// news returns a channel that is closed when the caller's user may have something to
// decide on or to answer.
func (f follower) news(ctx context.Context, c call, run engine.Run) (news <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	events := f.engine.Watch(ctx, run.Session)
	asked, unwatch := (<-chan struct{})(nil), func() {}
	if c.Ask != nil || c.AskLater {
		asked, unwatch = f.sessions(run.Session).Asked(ctx, []string{run.ID})
	}

	happened, ended := make(chan struct{}), make(chan struct{})
	report := sync.OnceFunc(func() { close(happened) })
	go func() {
		defer close(ended)
		var again <-chan time.Time
		if f.asked.Shared { // the events of other hosts are hints
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

// relay lets the caller's user decide on a run that is held, or on held calls within it,
// and answer its questions. Open reports whether the run waits for a decision or an answer
// that the user cannot give here, or has not given.
func (f follower) relay(ctx context.Context, c call, id string) (open bool, err error) {
	held, err := f.approvals.WaitingIn(ctx, c.Session, id)
	if err != nil {
		return false, err
	}
	for _, run := range held {
		run, err := f.approvals.Ask(ctx, run, c.user())
		switch {
		case run.ID != id && (errors.Is(err, ErrApproval) || errors.Is(err, approval.ErrOutdated)): // the calling tool sees that
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
		questions, err := f.sessions(c.Session).Questions(ctx, id)
		return len(questions) > 0, err
	}
	return false, nil
}

// relayQuestions lets the caller's user answer the questions of a run.
func (f follower) relayQuestions(ctx context.Context, c call, id string) error {
	view := f.sessions(c.Session)
	questions, err := view.Questions(ctx, id)
	if err != nil || len(questions) == 0 {
		return err
	}
	given, err := question.Checked(c.Ask)(ctx, abi.Questions{Questions: questions})
	if errors.Is(err, ErrAskAgain) || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err != nil { // the client cannot ask
		f.log.Info("a question of a run was not asked", "task_id", id, "session", c.Session, "error", err)
		given.Answers = map[string]abi.Answer{}
		for key := range questions {
			given.Answers[key] = abi.Answer{Action: abi.AnswerCancel}
		}
	}
	return view.Answer(ctx, id, given.Answers)
}

// resume continues a call that was answered with a question, see [Request.Resumes]. If
// found is false, the call starts over.
func (f follower) resume(ctx context.Context, c call) (r abi.Result, found bool, err error) {
	run, err := f.runs.Get(ctx, c.Session, c.Resumes)
	if err != nil || run.Tool != c.tool.Name || approval.IsTicket(run) {
		return abi.Result{}, false, nil // it was removed, or is only a decision
	}
	r, err = f.follow(ctx, c, run, c.patience())
	if errors.Is(err, approval.ErrOutdated) {
		c.note.Run, c.note.Followed = "", false
		return abi.Result{}, false, nil
	}
	return r, true, err
}
