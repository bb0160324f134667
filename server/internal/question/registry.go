// Package question holds the questions that background runs ask their users, and the
// answers. Open questions are on this host, or stored with suspended runs.
package question

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A Registry holds the open questions of background runs on this host. The questions of a
// suspended run are stored with it, see [WithOperation]; a run that starts over asks again. A
// Registry is safe for concurrent use. Set the exported fields before the first run asks.
type Registry struct {
	SharedEngine bool // whether other hosts answer too: then questions are stored with running runs as well
	Mailbox      func(session, run string) Mailbox
	Log          *slog.Logger

	mu       sync.Mutex
	waiting  map[Run]*waiting
	watchers map[chan struct{}][]Run // closed when one of these runs asks
}

// Run identifies a run and its session.
type Run struct{ Session, ID string }

// waiting is a run that waits for answers.
type waiting struct {
	operation int32 // number of the operation that asks, if the run can be suspended while it waits; else 0
	open      map[string]abi.Question
	given     map[string]abi.Answer
	done      chan struct{} // closed when nothing is open
}

// PollInterval is how often a host checks whether another one has received answers, or has
// asked questions.
const PollInterval = time.Second

// An Asker asks the user of a run, one round after the other.
type Asker struct {
	registry *Registry
	turn     chan struct{} // holds an element while it asks
	round    int           // number of the last round
}

// NewAsker returns an Asker whose rounds follow the round with that number.
func NewAsker(r *Registry, round int) *Asker {
	return &Asker{registry: r, turn: make(chan struct{}, 1), round: round}
}

// Ask waits until earlier questions are answered, then asks, and waits for the answers.
func (a *Asker) Ask(ctx context.Context, run Run, q abi.Questions) (abi.Answers, error) {
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
	return a.registry.ask(ctx, run, a.round, q)
}

// ForRun returns a function that asks the user of a run that continues or starts over. The
// number of its first round comes from the time that the run has taken so far, so that no key
// repeats.
func (r *Registry) ForRun(run engine.Run) Func {
	a := NewAsker(r, int(run.Elapsed(time.Now()).Milliseconds()))
	return func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		return a.Ask(ctx, Run{run.Session, run.ID}, q)
	}
}

// ask asks the questions of a run, and waits until all are answered. A run may use a key again,
// so the round makes keys unique. A run that continues resumes with its stored questions.
func (r *Registry) ask(ctx context.Context, run Run, number int, asked abi.Questions) (abi.Answers, error) {
	own, kept := operationOf(ctx), newRound(asked, number)
	if own == nil && r.SharedEngine {
		own = &operation{number: unsuspended, open: new(atomic.Int32)}
	}
	w, err := r.begin(run, func() (*waiting, error) {
		err := own.load(ctx, asked, &kept)
		if err == nil && r.SharedEngine {
			err = own.show(ctx, kept)
		}
		return &waiting{operation: kept.Operation, open: kept.Open, given: kept.Given, done: make(chan struct{})}, err
	})
	if err != nil {
		return abi.Answers{}, err
	}

	err = r.await(ctx, run, w, kept)
	if unkept := r.end(run, func() error { return own.leave(ctx, kept, err) }); err != nil {
		return abi.Answers{}, errors.Join(err, unkept)
	}

	answers := map[string]abi.Answer{}
	for key := range asked.Questions {
		answers[key] = w.given[kept.unique(key)]
	}
	return abi.Answers{Answers: answers}, nil
}

// begin opens questions, and wakes those who wait for them.
func (r *Registry) begin(run Run, load func() (*waiting, error)) (*waiting, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := load()
	if err != nil {
		return nil, err
	}
	if r.waiting == nil {
		r.waiting = map[Run]*waiting{}
	}

	r.waiting[run] = w
	if len(w.open) == 0 {
		close(w.done)
		return w, nil
	}
	for asked, runs := range r.watchers {
		if slices.Contains(runs, run) {
			delete(r.watchers, asked)
			close(asked)
		}
	}
	return w, nil
}

// await waits until all is answered, here or on another host.
func (r *Registry) await(ctx context.Context, run Run, w *waiting, asked round) error {
	var again <-chan time.Time
	if r.SharedEngine {
		tick := time.NewTicker(PollInterval)
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
				_ = r.give(run, given, func(int32) error { return nil })
			}
		}
	}
}

// end closes the questions of a run, once leave has returned.
func (r *Registry) end(run Run, leave func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer delete(r.waiting, run)
	return leave()
}

// give gives checked answers to the open questions of a run. Then it calls kept with the
// operation that asks now, to answer the stored questions of the other operations.
func (r *Registry) give(run Run, checked map[string]abi.Answer, kept func(operation int32) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.waiting[run]
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

// local returns the questions that a run asks on this host, by key, and the operation that
// asks; nil if there are none.
func (r *Registry) local(run Run) (map[string]abi.Question, int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.waiting[run]; w != nil {
		return maps.Clone(w.open), w.operation
	}
	return nil, 0
}

// Runs returns the ids of the session's runs that wait on this host for their user,
// sorted.
func (r *Registry) Runs(session string) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for run, w := range r.waiting {
		if run.Session == session && len(w.open) > 0 {
			ids = append(ids, run.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// watch returns a channel that is closed as soon as one of these runs asks its user
// something on this host, or at once if one already does. Call stop when done.
func (r *Registry) watch(runs []Run) (asked chan struct{}, stop func()) {
	asked = make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(runs, func(run Run) bool { return r.waiting[run] != nil && len(r.waiting[run].open) > 0 }) {
		close(asked)
		return asked, func() {}
	}

	if r.watchers == nil {
		r.watchers = map[chan struct{}][]Run{}
	}
	r.watchers[asked] = runs
	return asked, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, asked)
	}
}
