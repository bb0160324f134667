package question

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// ErrAskAgain is returned by a Func if its caller ends the call, to repeat it with the
// answers.
var ErrAskAgain = errors.New("the caller calls again with the answers")

// MaxAskAgain is the time that a caller has to repeat a call after [ErrAskAgain].
const MaxAskAgain = time.Hour

// Check checks an answer to the question with that key. The answer's action must be accept,
// decline or cancel. Only an accepted answer has content, which must fit the question's
// schema. The error matches [abi.ErrAnswer], or [abi.ErrQuestions] if the question's schema is
// invalid.
func Check(key string, q abi.Question, a abi.Answer) error {
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

	if len(problems) == 0 {
		return nil
	}
	text := fmt.Sprintf("%v %s: %s", abi.ErrAnswer, key, reason.List(problems))
	return &reason.Error{Reason: reason.Reason{Code: wire.CodeInvalid, Field: "answers", Text: text}, Err: abi.ErrAnswer}
}

// A Func asks a user, and returns the answers.
type Func = func(ctx context.Context, q abi.Questions) (abi.Answers, error)

// Checked returns a function that calls ask, but refuses questions whose schema is invalid or
// not a form of MCP, and answers that do not fit. If ask is nil, Checked returns nil.
func Checked(ask Func) Func {
	if ask == nil {
		return nil
	}
	return func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
		for key, question := range q.Questions {
			if _, err := compileForm(key, question); err != nil {
				return abi.Answers{}, err
			}
			if err := checkForm(question.Schema); err != nil {
				return abi.Answers{}, fmt.Errorf("%w: %s: %w", abi.ErrQuestions, key, err)
			}
		}

		given, err := ask(ctx, q)
		if err != nil {
			return abi.Answers{}, err
		}

		for key, question := range q.Questions {
			if Check(key, question, given.Answers[key]) != nil {
				return abi.Answers{}, fmt.Errorf("%w %s", abi.ErrAnswer, key) // without the answer, which may be secret
			}
		}

		return given, nil
	}
}

func compileForm(key string, q abi.Question) (*schema.Schema, error) {
	form, err := schema.Compile(q.Schema)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", abi.ErrQuestions, key, err)
	}
	return form, nil
}
