package server

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// check is background.Manager.Check, but waits no longer than until one of the
// runs asks its user something: its end may then not come before somebody has
// answered.
func (v Session) check(ctx context.Context, r background.CheckRequest) (background.CheckResult, error) {
	asked, stop := v.service.asked.watch(v.name, r.IDs)
	defer stop()
	r.Enough = asked
	return v.service.runs.Check(ctx, v.name, r)
}

// Questions returns what a run asks its user, by key; nil if it asks nothing.
func (v Session) Questions(ctx context.Context, id string) (map[string]abi.Question, error) {
	if _, err := v.record(ctx, id); err != nil {
		return nil, err
	}
	return v.service.asked.open(id), nil
}

// Asked returns a channel that is closed as soon as one of those runs asks its
// user something, at once if one already does. Call stop when done.
func (v Session) Asked(ids []string) (asked <-chan struct{}, stop func()) {
	return v.service.asked.watch(v.name, ids)
}

// Answer answers questions of a run, which continues when all are answered.
// Answers to closed or unknown questions are dropped. If one does not fit its
// question, the error is an [*AnswerError], and all questions stay open.
func (v Session) Answer(ctx context.Context, id string, answers map[string]abi.Answer) error {
	open, err := v.Questions(ctx, id)
	if err != nil {
		return err
	}

	for key, a := range answers { // without the mutex: checking a schema may take long
		if question, ok := open[key]; ok {
			if err := CheckAnswer(key, question, a); err != nil {
				return err
			}
		}
	}

	v.service.asked.answer(id, open, answers)
	return nil
}

// awaiting are the runs of the session that wait for their user to answer, sorted.
func (v Session) awaiting(ctx context.Context) ([]string, error) {
	asked := &v.service.asked
	if !asked.any() {
		return nil, nil
	}

	runs, err := v.Runs(ctx, RunQuery{Active: true})
	if err != nil {
		return nil, err
	}

	var ids []string
	for _, run := range runs {
		if len(asked.open(run.TaskID)) > 0 {
			ids = append(ids, run.TaskID)
		}
	}

	slices.Sort(ids)
	return ids, nil
}

// messages are the messages of the questions a run waits for its user to answer,
// cleaned for a model, in at most so many characters together.
func (q *questions) messages(id string, room int) []string {
	q.mu.Lock()
	defer q.mu.Unlock()

	w := q.waiting[id]
	if w == nil || len(w.open) == 0 {
		return nil
	}

	most := min(room/len(w.open), maxAwaited)

	var messages []string
	for _, key := range slices.Sorted(maps.Keys(w.open)) {
		text := []rune(strings.Join(strings.Fields(output.Clean([]byte(w.open[key].Message))), " "))
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
