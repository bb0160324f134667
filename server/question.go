package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// questions are the open questions of running background runs. They are in memory
// only: a run that starts again asks again. The zero value is empty.
type questions struct {
	mu       sync.Mutex
	waiting  map[runKey]*waiting
	watchers map[chan struct{}][]runKey // closed when one of these runs asks
}

// runKey names a run and the session that has it.
type runKey struct{ session, id string }

// waiting is a run that waits for answers.
type waiting struct {
	open  map[string]abi.Question
	given map[string]abi.Answer
	done  chan struct{} // closed when nothing is open
}

// ask asks questions of a run, and waits until all are answered. The round makes
// their keys unique in the life of the run, which may use a key again.
func (q *questions) ask(ctx context.Context, run runKey, round int, asked abi.Questions) (abi.Answers, error) {
	w := &waiting{open: map[string]abi.Question{}, given: map[string]abi.Answer{}, done: make(chan struct{})}
	unique := func(key string) string { return fmt.Sprintf("%s.%d", key, round) }
	for key, question := range asked.Questions {
		w.open[unique(key)] = question
	}
	q.begin(run, w)
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, run)
	}()

	select {
	case <-w.done:
	case <-ctx.Done():
		return abi.Answers{}, ctx.Err()
	}

	answers := map[string]abi.Answer{}
	for key := range asked.Questions {
		answers[key] = w.given[unique(key)]
	}
	return abi.Answers{Answers: answers}, nil
}

// An asker asks the user of a run, one time after the other.
type asker struct {
	asked *questions
	turn  chan struct{} // has an element while it asks
	round int           // of the last questions
}

func newAsker(asked *questions, round int) *asker {
	return &asker{asked: asked, turn: make(chan struct{}, 1), round: round}
}

// ask asks once what was asked before is answered.
func (a *asker) ask(ctx context.Context, run runKey, q abi.Questions) (abi.Answers, error) {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return abi.Answers{}, ctx.Err()
	}
	defer func() { <-a.turn }()
	a.round++
	return a.asked.ask(ctx, run, a.round, q)
}

// asks returns a function that asks the user of a run that continues, or begins again. It
// counts from how long the run has taken, so that no key is one that was used before.
func (x executor) asks(run engine.Run) func(context.Context, abi.Questions) (abi.Answers, error) {
	a := newAsker(&x.service.asked, int(run.Elapsed(time.Now()).Milliseconds()))
	return func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		return a.ask(ctx, runKey{run.Session, run.ID}, q)
	}
}

// begin makes questions open, and wakes those who wait for it.
func (q *questions) begin(run runKey, w *waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[runKey]*waiting{}
	}

	q.waiting[run] = w
	for asked, runs := range q.watchers {
		if slices.Contains(runs, run) {
			delete(q.watchers, asked)
			close(asked)
		}
	}
}

// open returns what a run asks its user, by key; nil if it asks nothing.
func (q *questions) open(run runKey) map[string]abi.Question {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.waiting[run]; w != nil {
		return maps.Clone(w.open)
	}
	return nil
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

// answer takes answers that were checked to those questions that are still open.
func (q *questions) answer(run runKey, checked map[string]abi.Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiting[run]
	if w == nil || len(w.open) == 0 {
		return
	}

	for key, a := range checked {
		if _, ok := w.open[key]; ok {
			w.given[key] = a
			delete(w.open, key)
		}
	}
	if len(w.open) == 0 {
		close(w.done)
	}
}

// watch returns a channel that is closed as soon as one of these runs asks its
// user something, at once if one already does. Call stop when done.
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

// maxAwaited is how much of a question's message an agent is shown, in
// characters.
const maxAwaited = 500

// messages are the messages of questions, cleaned for a model, in at most that
// many characters together.
func messages(open map[string]abi.Question, room int) (texts []string) {
	for _, key := range slices.Sorted(maps.Keys(open)) {
		text := []rune(strings.Join(strings.Fields(Clean([]byte(open[key].Message))), " "))
		if most := min(room/len(open), maxAwaited); len(text) > most {
			text = append(text[:most], '…')
		}
		texts = append(texts, string(text))
	}
	return texts
}

// Questions returns what a run asks its user, by key; nil if it asks nothing.
func (v Session) Questions(ctx context.Context, id string) (map[string]abi.Question, error) {
	run, err := v.record(ctx, id)
	if err != nil {
		return nil, err
	}
	return v.service.asked.open(runKey{run.Session, id}), nil
}

// Asked returns a channel that is closed as soon as one of those runs asks its
// user something, at once if one already does. Call stop when done.
func (v Session) Asked(ctx context.Context, ids []string) (asked <-chan struct{}, stop func()) {
	runs := make([]runKey, len(ids))
	for i, id := range ids {
		runs[i] = runKey{v.name, id}
		if !reaches(v.name, v.name) {
			continue
		}
		if run, err := v.record(ctx, id); err == nil {
			runs[i].session = run.Session
		}
	}
	return v.service.asked.watch(runs)
}

// Answer answers questions of a run, which continues when all are answered.
// Answers to closed or unknown questions are dropped. If one does not fit its
// question, the error matches [abi.ErrAnswer], and all questions stay open.
func (v Session) Answer(ctx context.Context, id string, answers map[string]abi.Answer) error {
	run, err := v.record(ctx, id)
	if err != nil {
		return err
	}

	open := v.service.asked.open(runKey{run.Session, id})
	checked := map[string]abi.Answer{}
	for key, question := range open {
		if a, ok := answers[key]; ok {
			if err := CheckAnswer(key, question, a); err != nil {
				return err
			}
			checked[key] = a
		}
	}
	if !InDryRun(ctx) {
		v.service.asked.answer(runKey{run.Session, id}, checked)
	}
	return nil
}
