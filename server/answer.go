package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/schema"
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
