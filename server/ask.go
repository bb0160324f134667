package server

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
)

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
	return s.asked.open(id), nil
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
