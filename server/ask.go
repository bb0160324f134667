package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/pkg/background"
)

// ErrAskAgain is what [Request]'s Ask returns after it has ended its call: it
// makes the call again when it has the answers.
var ErrAskAgain = errors.New("the caller calls again with the answers")

// AnswerError says what of an answer does not fit its question. It matches
// [abi.ErrAnswer].
type AnswerError struct {
	Key      string // of the question
	Problems []abi.Problem
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("%v %s: %s", abi.ErrAnswer, e.Key, list(e.Problems))
}

// Unwrap returns [abi.ErrAnswer].
func (e *AnswerError) Unwrap() error { return abi.ErrAnswer }

// CheckAnswer checks an answer to the question of that key: its action is one of
// the contract, and its content is there and fits the schema if it was accepted,
// and is not there otherwise. The error is an *[AnswerError], or matches
// [abi.ErrQuestions] if the question has no schema that can be checked.
func CheckAnswer(key string, q abi.Question, a abi.Answer) error {
	form, err := compileForm(key, q)
	if err != nil {
		return err
	}
	var problems []abi.Problem
	switch {
	case a.Action == abi.AnswerAccept && len(a.Content) == 0:
		problems = []abi.Problem{{Message: "it has no content"}}
	case a.Action == abi.AnswerAccept:
		problems = form.Check(a.Content)
	case a.Action != abi.AnswerDecline && a.Action != abi.AnswerCancel:
		problems = []abi.Problem{{Message: fmt.Sprintf("expected the action %s, %s or %s, found %.80q", abi.AnswerAccept, abi.AnswerDecline, abi.AnswerCancel, a.Action)}}
	case len(a.Content) > 0:
		problems = []abi.Problem{{Message: "only an accepted question has content"}}
	}
	if len(problems) > 0 {
		return &AnswerError{key, problems}
	}
	return nil
}

func compileForm(key string, q abi.Question) (*schema.Schema, error) {
	form, err := schema.Compile(q.Schema)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", abi.ErrQuestions, key, err)
	}
	return form, nil
}

type askFunc = func(ctx context.Context, q abi.Questions) (abi.Answers, error)

// checkedAsk lets only questions out that can be answered, and only answers in
// that fit them, whoever gives them. Nil stays nil.
func checkedAsk(ask askFunc) askFunc {
	if ask == nil {
		return nil
	}
	return func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		for key, question := range q.Questions {
			if _, err := compileForm(key, question); err != nil {
				return abi.Answers{}, err
			}
		}
		given, err := ask(ctx, q)
		if err != nil {
			return abi.Answers{}, err
		}
		for key, question := range q.Questions {
			if CheckAnswer(key, question, given.Answers[key]) != nil {
				return abi.Answers{}, fmt.Errorf("%w %s", abi.ErrAnswer, key) // and no word of what it was
			}
		}
		return given, nil
	}
}

// questions are those that running background runs wait for. They are in
// memory, as the work that waits is: a run that is started again asks again.
// The zero value is empty.
type questions struct {
	mu       sync.Mutex
	waiting  map[string]*waiting // by run
	watchers map[*watcher]bool
}

// watcher is who is to know when one of some runs asks.
type watcher struct {
	session string
	runs    []string
	asked   chan struct{} // closed then
}

// waiting is a run that waits for answers.
type waiting struct {
	session string
	open    map[string]abi.Question
	given   map[string]abi.Answer
	done    chan struct{} // closed when nothing is open
}

// ask puts questions of a run, and waits until all are answered. The round sets
// them apart from others the run asked under the same keys: a key is never used
// twice in the life of a run.
func (q *questions) ask(ctx context.Context, session, run string, round int, asked abi.Questions) (abi.Answers, error) {
	w := &waiting{session: session, open: map[string]abi.Question{}, given: map[string]abi.Answer{}, done: make(chan struct{})}
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
	for watcher := range q.watchers {
		if q.asks(watcher, run) {
			q.tell(watcher)
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

// watch returns a channel that is closed as soon as one of the runs of the session
// waits for its user, and what ends that.
func (q *questions) watch(session string, runs []string) (asked <-chan struct{}, end func()) {
	w := &watcher{session, runs, make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watchers == nil {
		q.watchers = map[*watcher]bool{}
	}
	q.watchers[w] = true
	if slices.ContainsFunc(runs, func(run string) bool { return q.asks(w, run) }) {
		q.tell(w)
	}
	return w.asked, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.watchers, w)
	}
}

// asks reports whether a run is one the watcher is for, and asks. q is locked.
func (q *questions) asks(w *watcher, run string) bool {
	asking := q.waiting[run]
	return asking != nil && len(asking.open) > 0 && asking.session == w.session && slices.Contains(w.runs, run)
}

// tell tells a watcher, once. q is locked.
func (q *questions) tell(w *watcher) {
	delete(q.watchers, w)
	close(w.asked)
}

// Check looks at background runs as [background.Manager.Check] does, whose errors
// it has. It waits no longer than until one of them waits for its user: the end
// may then not come before somebody has answered. If one does already, it does
// not wait.
func (s *Service) Check(ctx context.Context, session string, r background.CheckRequest) (background.Checked, error) {
	asked, end := s.asked.watch(session, r.IDs)
	defer end()
	r.Enough = asked
	return s.runs.Check(ctx, session, r)
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

// Asked returns what is closed as soon as one of those background runs of the
// session waits for its user to answer, at once if one does, and what ends the
// watch. It is safe for concurrent use.
func (s *Service) Asked(session string, ids []string) (asked <-chan struct{}, end func()) {
	return s.asked.watch(session, ids)
}

// awaited are the messages of the questions a run waits for its user to answer,
// cleaned for a model, in at most so many characters together.
func (s *Service) awaited(id string, room int) []string {
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	w := s.asked.waiting[id]
	if w == nil || len(w.open) == 0 {
		return nil
	}
	most := min(room/len(w.open), maxAwaited)
	var messages []string
	for _, key := range slices.Sorted(maps.Keys(w.open)) {
		text := []rune(strings.Join(strings.Fields(background.Clean([]byte(w.open[key].Message))), " "))
		if len(text) > most {
			text = append(text[:most], '…')
		}
		messages = append(messages, string(text))
	}
	return messages
}

// maxAwaited is how much of a question's message an agent is shown, in
// characters.
const maxAwaited = 500

// awaiting are the runs of the session that wait for their user to answer,
// sorted.
func (s *Service) awaiting(ctx context.Context, session string) ([]string, error) {
	s.asked.mu.Lock()
	some := len(s.asked.waiting) > 0
	s.asked.mu.Unlock()
	if !some {
		return nil, nil
	}
	runs, err := s.runs.Runs(ctx, session, background.Query{Active: true})
	if err != nil {
		return nil, err
	}
	var ids []string
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	for _, run := range runs {
		if w := s.asked.waiting[run.ID]; w != nil && len(w.open) > 0 {
			ids = append(ids, run.ID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Answer answers questions of a background run of the session. The run goes on
// when all of them are answered. Answers to what is not asked, or not any more,
// are dropped. If one does not fit its question the error is an *[AnswerError],
// none of them is taken, and all questions stay open. For a run the session does
// not have, the error matches background.ErrNotFound.
func (s *Service) Answer(ctx context.Context, session, id string, answers map[string]abi.Answer) error {
	open, err := s.Questions(ctx, session, id)
	if err != nil {
		return err
	}
	for key, a := range answers { // without the lock: a schema may take its time
		if question, ok := open[key]; ok {
			if err := CheckAnswer(key, question, a); err != nil {
				return err
			}
		}
	}
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	w := s.asked.waiting[id]
	if w == nil || len(w.open) == 0 {
		return nil
	}
	for key, a := range answers {
		_, checked := open[key] // a key is never used twice: it is the same question
		if _, ok := w.open[key]; ok && checked {
			w.given[key] = a
			delete(w.open, key)
		}
	}
	if len(w.open) == 0 {
		close(w.done)
	}
	return nil
}
