package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// ErrAskAgain is what [Request]'s Ask returns after it has ended its call: it
// makes the call again when it has the answers.
var ErrAskAgain = errors.New("the caller calls again with the answers")

// questions are those that running background runs wait for. They are in
// memory, as the work that waits is: a run that is started again asks again.
// The zero value is empty.
type questions struct {
	mu      sync.Mutex
	waiting map[string]*waiting // by run
}

// waiting is a run that waits for answers.
type waiting struct {
	open  map[string]abi.Question
	given map[string]abi.Answer
	done  chan struct{} // closed when nothing is open
}

// ask puts questions of a run, and waits until all are answered. The round sets
// them apart from others the run asked under the same keys: a key is never used
// twice in the life of a run.
func (q *questions) ask(ctx context.Context, run string, round int, asked abi.Questions) (abi.Answers, error) {
	w := &waiting{open: map[string]abi.Question{}, given: map[string]abi.Answer{}, done: make(chan struct{})}
	unique := func(key string) string { return fmt.Sprintf("%s.%d", key, round) }
	for key, question := range asked.Questions {
		w.open[unique(key)] = question
	}
	q.mu.Lock()
	if q.waiting[run] != nil { // a guest has one thread, so that this does not happen
		q.mu.Unlock()
		return abi.Answers{}, fmt.Errorf("%w: the run waits for answers already", host.ErrDenied)
	}
	if q.waiting == nil {
		q.waiting = map[string]*waiting{}
	}
	q.waiting[run] = w
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

// Questions returns what a background run of the session waits for its user to
// answer; nothing if it does not wait. For a run the session does not have, the
// error matches background.ErrNotFound.
func (s *Service) Questions(ctx context.Context, session, id string) (map[string]abi.Question, error) {
	if _, err := s.runs.Get(ctx, session, id); err != nil {
		return nil, err
	}
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	if w := s.asked.waiting[id]; w != nil {
		return maps.Clone(w.open), nil
	}
	return nil, nil
}

// Answer answers questions of a background run of the session. The run goes on
// when all of them are answered. Answers to what is not asked, or not any more,
// are dropped. For a run the session does not have, the error matches
// background.ErrNotFound.
func (s *Service) Answer(ctx context.Context, session, id string, answers map[string]abi.Answer) error {
	if _, err := s.runs.Get(ctx, session, id); err != nil {
		return err
	}
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	w := s.asked.waiting[id]
	if w == nil || len(w.open) == 0 {
		return nil
	}
	for key, a := range answers {
		if _, ok := w.open[key]; ok {
			w.given[key] = a
			delete(w.open, key)
		}
	}
	if len(w.open) == 0 {
		close(w.done)
	}
	return nil
}
