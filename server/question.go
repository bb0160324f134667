package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// questions are the open questions of running background runs. They are in memory
// only: a run that starts again asks again. The zero value is empty.
type questions struct {
	mu       sync.Mutex
	waiting  map[string]*waiting // by run
	watchers map[*watcher]bool
}

// watcher waits until one of its runs asks its user something.
type watcher struct {
	session string
	runs    []string
	asked   chan struct{} // closed when one asks
}

// waiting is a run that waits for answers.
type waiting struct {
	session string
	open    map[string]abi.Question
	given   map[string]abi.Answer
	done    chan struct{} // closed when nothing is open
}

// ask asks questions of a run, and waits until all are answered. The round makes
// their keys unique in the life of the run, which may use a key again.
func (q *questions) ask(ctx context.Context, session, run string, round int, asked abi.Questions) (abi.Answers, error) {
	w := &waiting{session: session, open: map[string]abi.Question{}, given: map[string]abi.Answer{}, done: make(chan struct{})}
	unique := func(key string) string { return fmt.Sprintf("%s.%d", key, round) }
	for key, question := range asked.Questions {
		w.open[unique(key)] = question
	}

	q.mu.Lock()
	if q.waiting[run] != nil { // cannot happen: a guest has one thread
		q.mu.Unlock()
		return abi.Answers{}, fmt.Errorf("%w: the run already waits for answers", host.ErrDenied)
	}

	if q.waiting == nil {
		q.waiting = map[string]*waiting{}
	}

	q.waiting[run] = w
	for watcher := range q.watchers {
		if q.asks(watcher, run) {
			q.notify(watcher)
		}
	}

	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		delete(q.waiting, run)
		q.mu.Unlock()
	}()
	select {
	case <-w.done:
		answers := map[string]abi.Answer{}
		for key := range asked.Questions {
			answers[key] = w.given[unique(key)]
		}
		return abi.Answers{Answers: answers}, nil
	case <-ctx.Done():
		return abi.Answers{}, ctx.Err()
	}
}

// open returns what a run asks its user; nil if it asks nothing.
func (q *questions) open(run string) map[string]abi.Question {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.waiting[run]; w != nil {
		return maps.Clone(w.open)
	}
	return nil
}

// any reports whether some run waits for its user.
func (q *questions) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0
}

// answer takes answers to the questions that were checked and are still open.
func (q *questions) answer(run string, checked map[string]abi.Question, answers map[string]abi.Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()

	w := q.waiting[run]
	if w == nil || len(w.open) == 0 {
		return
	}

	for key, a := range answers {
		_, fits := checked[key] // a key is never used twice: it is the same question
		if _, ok := w.open[key]; ok && fits {
			w.given[key] = a
			delete(w.open, key)
		}
	}

	if len(w.open) == 0 {
		close(w.done)
	}
}

// watch returns a channel that is closed as soon as one of the session's runs asks
// its user something, and a function that stops watching.
func (q *questions) watch(session string, runs []string) (asked <-chan struct{}, end func()) {
	w := &watcher{session, runs, make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.watchers == nil {
		q.watchers = map[*watcher]bool{}
	}

	q.watchers[w] = true
	if slices.ContainsFunc(runs, func(run string) bool { return q.asks(w, run) }) {
		q.notify(w)
	}

	return w.asked, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.watchers, w)
	}
}

// asks reports whether the watcher waits for a run that has open questions. The
// caller holds q.mu.
func (q *questions) asks(w *watcher, run string) bool {
	asking := q.waiting[run]
	return asking != nil && len(asking.open) > 0 && asking.session == w.session && slices.Contains(w.runs, run)
}

// notify notifies a watcher, once. The caller holds q.mu.
func (q *questions) notify(w *watcher) {
	delete(q.watchers, w)
	close(w.asked)
}
