package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// questions are the open questions of background runs on this host. Those of a suspended run
// are stored with it, see [asking]; a run that starts over asks again. The zero value is empty.
type questions struct {
	shared bool // other hosts answer too: questions are stored with running runs as well

	mu       sync.Mutex
	waiting  map[runKey]*waiting
	watchers map[chan struct{}][]runKey // closed when one of these runs asks
}

// runKey identifies a run and its session.
type runKey struct{ session, id string }

// waiting is a run that waits for answers.
type waiting struct {
	operation int32 // the operation that asks, if the run can be suspended meanwhile; else 0
	open      map[string]abi.Question
	given     map[string]abi.Answer
	done      chan struct{} // closed when nothing is open
}

// ask asks the questions of a run, and waits until all are answered. A run may use a key again,
// so the round makes keys unique. A run that continues resumes with its stored questions.
func (q *questions) ask(ctx context.Context, run runKey, round int, asked abi.Questions) (abi.Answers, error) {
	own, kept := askingOf(ctx), newQuestion(asked, round)
	if own == nil && q.shared {
		own = &asking{operation: unsuspended, open: new(atomic.Int32)}
	}
	w, err := q.begin(run, func() (*waiting, error) {
		err := own.load(ctx, asked, &kept)
		if err == nil && q.shared {
			err = own.show(ctx, kept)
		}
		return &waiting{operation: kept.Operation, open: kept.Open, given: kept.Given, done: make(chan struct{})}, err
	})
	if err != nil {
		return abi.Answers{}, err
	}

	err = q.await(ctx, run, w, kept)
	if unkept := q.end(run, func() error { return own.leave(ctx, kept, err) }); err != nil {
		return abi.Answers{}, errors.Join(err, unkept)
	}

	answers := map[string]abi.Answer{}
	for key := range asked.Questions {
		answers[key] = w.given[kept.unique(key)]
	}
	return abi.Answers{Answers: answers}, nil
}

// await waits until all is answered, here or on another host.
func (q *questions) await(ctx context.Context, run runKey, w *waiting, asked keptQuestion) error {
	var again <-chan time.Time
	if q.shared {
		tick := time.NewTicker(questionPoll)
		defer tick.Stop()
		again = tick.C
	}

	for {
		select {
		case <-w.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
			if given := asked.givenElsewhere(ctx); len(given) > 0 {
				_ = q.answer(run, given, func(int32) error { return nil })
			}
		}
	}
}

// questionPoll is how often a host checks whether another one has received answers, or asks.
const questionPoll = time.Second

// end closes the questions of a run, once leave has returned.
func (q *questions) end(run runKey, leave func() error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer delete(q.waiting, run)
	return leave()
}

// An asker asks the user of a run, one round after the other.
type asker struct {
	asked *questions
	turn  chan struct{} // holds an element while it asks
	round int           // number of the last round
}

func newAsker(asked *questions, round int) *asker {
	return &asker{asked: asked, turn: make(chan struct{}, 1), round: round}
}

// ask waits until earlier questions are answered, then asks.
func (a *asker) ask(ctx context.Context, run runKey, q abi.Questions) (abi.Answers, error) {
	select {
	case a.turn <- struct{}{}: // also if the run is about to be suspended: what it asks first is kept
	default:
		select {
		case a.turn <- struct{}{}:
		case <-ctx.Done():
			return abi.Answers{}, ctx.Err()
		}
	}
	defer func() { <-a.turn }()
	a.round++
	return a.asked.ask(ctx, run, a.round, q)
}

// asks returns a function that asks the user of a run that continues or starts over. Its
// rounds count from the time that the run has taken, so that no key repeats.
func (x executor) asks(run engine.Run) func(context.Context, abi.Questions) (abi.Answers, error) {
	a := newAsker(&x.service.asked, int(run.Elapsed(time.Now()).Milliseconds()))
	return func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		return a.ask(ctx, runKey{run.Session, run.ID}, q)
	}
}

// begin opens questions, and wakes those who wait for them.
func (q *questions) begin(run runKey, load func() (*waiting, error)) (*waiting, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := load()
	if err != nil {
		return nil, err
	}
	if q.waiting == nil {
		q.waiting = map[runKey]*waiting{}
	}

	q.waiting[run] = w
	if len(w.open) == 0 {
		close(w.done)
		return w, nil
	}
	for asked, runs := range q.watchers {
		if slices.Contains(runs, run) {
			delete(q.watchers, asked)
			close(asked)
		}
	}
	return w, nil
}

// open returns the open questions of a run by key, and the operation that asks; nil
// without any.
func (q *questions) open(run runKey) (map[string]abi.Question, int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.waiting[run]; w != nil {
		return maps.Clone(w.open), w.operation
	}
	return nil, 0
}

// runs returns the ids of the session's runs that wait for their user, sorted.
func (q *questions) runs(session string) (ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for run, w := range q.waiting {
		if run.session == session && len(w.open) > 0 {
			ids = append(ids, run.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// answer gives checked answers to the open questions of a run. It calls kept with the
// operation that asks now, for the stored questions of the others.
func (q *questions) answer(run runKey, checked map[string]abi.Answer, kept func(operation int32) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiting[run]
	if w == nil {
		return kept(0)
	}
	if take(w.open, w.given, checked) && len(w.open) == 0 {
		close(w.done)
	}
	return kept(w.operation)
}

// take moves answers to open questions into given. It reports whether there were any.
func take(open map[string]abi.Question, given, answers map[string]abi.Answer) (taken bool) {
	for key, a := range answers {
		if _, ok := open[key]; ok {
			given[key] = a
			delete(open, key)
			taken = true
		}
	}
	return taken
}

// watch returns a channel that is closed as soon as one of these runs asks its user
// something; at once if one already does. Call stop when done.
func (q *questions) watch(runs []runKey) (asked chan struct{}, stop func()) {
	asked = make(chan struct{})
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.ContainsFunc(runs, func(run runKey) bool { return q.waiting[run] != nil && len(q.waiting[run].open) > 0 }) {
		close(asked)
		return asked, func() {}
	}

	if q.watchers == nil {
		q.watchers = map[chan struct{}][]runKey{}
	}
	q.watchers[asked] = runs
	return asked, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.watchers, asked)
	}
}

// Questions returns the open questions of a run to its user, by key; nil without any.
func (v Session) Questions(ctx context.Context, id string) (map[string]abi.Question, error) {
	run, err := v.record(ctx, id)
	if err != nil {
		return nil, err
	}
	return v.questions(ctx, run), nil
}

// Asked returns a channel that is closed as soon as one of those runs asks its user
// something; at once if one already does. Call stop when done.
func (v Session) Asked(ctx context.Context, ids []string) (asked <-chan struct{}, stop func()) {
	runs, remote := make([]runKey, len(ids)), []engine.Run(nil)
	for i, id := range ids {
		runs[i] = runKey{v.name, id}
		run, err := v.record(ctx, id)
		if err != nil {
			continue
		}
		runs[i].session = run.Session
		if len(v.questions(ctx, run)) > 0 {
			already := make(chan struct{})
			close(already)
			return already, func() {}
		}
		remote = append(remote, run)
	}
	local, stop := v.service.asked.watch(runs)
	if !v.service.asked.shared {
		return local, stop
	}
	return v.askedElsewhere(ctx, remote, local, stop)
}

// askedElsewhere is Asked for runs that may be on other hosts: it polls each second.
func (v Session) askedElsewhere(ctx context.Context, runs []engine.Run, local <-chan struct{}, unwatch func()) (asked <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	either := make(chan struct{})

	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(questionPoll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-local:
				close(either)
				return
			case <-tick.C:
				if slices.ContainsFunc(runs, func(run engine.Run) bool { return len(v.questions(ctx, run)) > 0 }) {
					close(either)
					return
				}
			}
		}
	})

	return either, func() {
		cancel()
		looking.Wait()
		unwatch()
	}
}

// Answer answers questions of a run, which continues once all are answered. Answers to
// closed or unknown questions are dropped. If an answer does not fit its question, the
// error matches [abi.ErrAnswer], and all questions stay open.
func (v Session) Answer(ctx context.Context, id string, answers map[string]abi.Answer) error {
	run, err := v.record(ctx, id)
	if err != nil {
		return err
	}

	open := v.questions(ctx, run)
	checked := map[string]abi.Answer{}
	for key, question := range open {
		if a, ok := answers[key]; ok {
			if err := CheckAnswer(key, question, a); err != nil {
				return err
			}
			checked[key] = a
		}
	}
	if InDryRun(ctx) || len(checked) == 0 {
		return nil
	}
	return v.service.asked.answer(runKey{run.Session, id}, checked, func(operation int32) error {
		if !asksKept(run) {
			return nil
		}
		if v.service.asked.shared { // other hosts see what is answered here
			operation = 0
		}
		return v.answerKept(ctx, run, operation, checked)
	})
}
