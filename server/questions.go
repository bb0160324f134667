package server

import (
	"context"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/question"
)

// ErrAskAgain is returned by [Request]'s Ask if its caller ends the call, and repeats it
// with the answers.
var ErrAskAgain = question.ErrAskAgain

// MaxAskAgain is how long a caller may take to call again: an hour.
const MaxAskAgain = question.MaxAskAgain

// CheckAnswer checks an answer to the question with that key. The action must be
// accept, decline or cancel. Only an accepted answer has content, which must fit
// the question's schema. The error matches [abi.ErrAnswer], or
// [abi.ErrQuestions] if the question's schema is invalid.
func CheckAnswer(key string, q abi.Question, a abi.Answer) error { return question.Check(key, q, a) }

// Questions returns the open questions of a run to its user, by key; nil without any.
func (v Session) Questions(ctx context.Context, id string) (map[string]abi.Question, error) {
	run, err := v.record(ctx, id)
	if err != nil {
		return nil, err
	}
	return v.service.asked.Open(ctx, run), nil
}

// Asked returns a channel that is closed as soon as one of those runs asks its user
// something; at once if one already does. Call stop when done.
func (v Session) Asked(ctx context.Context, ids []string) (asked <-chan struct{}, stop func()) {
	runs := make([]engine.Run, len(ids))
	for i, id := range ids {
		run, err := v.record(ctx, id)
		if err != nil {
			run = engine.Run{Session: v.name, ID: id}
		}
		runs[i] = run
	}
	return v.service.asked.Watch(ctx, runs)
}

// Answer answers questions of a run, which continues once all are answered. Answers to
// closed or unknown questions are dropped. If an answer does not fit its question, the
// error matches [abi.ErrAnswer], and all questions stay open.
func (v Session) Answer(ctx context.Context, id string, answers map[string]abi.Answer) error {
	run, err := v.record(ctx, id)
	if err != nil {
		return err
	}
	return v.service.asked.Answer(ctx, run, answers)
}
