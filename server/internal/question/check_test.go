package question

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// who is a question for a name of two letters or more.
var who = abi.Question{Message: "Who are you?", Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":2}},"required":["name"]}`)}

func asking(key string) abi.Questions {
	return abi.Questions{Questions: map[string]abi.Question{key: who}}
}

func accepted(content string) abi.Answer {
	return abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(content)}
}

// An answer that does not fit its question does not reach who asks.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		answer  abi.Answer
		problem string
	}{
		"accepted":  {accepted(`{"name":"Ana"}`), ""},
		"declined":  {abi.Answer{Action: abi.AnswerDecline}, ""},
		"canceled":  {abi.Answer{Action: abi.AnswerCancel}, ""},
		"too short": {accepted(`{"name":"A"}`), "/name: minLength: got 1, want 2"},
		"missing":   {accepted(`{}`), "missing: name"},
		"no object": {accepted(`null`), "expected object, found null"},
		"nothing":   {abi.Answer{Action: abi.AnswerAccept}, "it has no content"},
		"no JSON":   {accepted(`{`), "expected JSON: unexpected EOF (byte 1)"},
		"shrugged":  {abi.Answer{Action: "shrug"}, `expected the action accept, decline or cancel, found "shrug"`},
		"no answer": {abi.Answer{}, `expected the action accept, decline or cancel, found ""`},
		"both":      {abi.Answer{Action: abi.AnswerDecline, Content: json.RawMessage(`{"name":"Ana"}`)}, "only an accepted question has content"},
	} {
		t.Run(name, func(t *testing.T) {
			ask := Checked(func(context.Context, abi.Questions) (abi.Answers, error) {
				return abi.Answers{Answers: map[string]abi.Answer{"name": c.answer}}, nil
			})
			given, err := ask(t.Context(), asking("name"))
			problem := Check("name", who, c.answer)
			if c.problem == "" {
				require.NoError(t, err)
				require.NoError(t, problem)
				require.Equal(t, c.answer, given.Answers["name"])
				return
			}
			require.EqualError(t, err, "not an answer to the question name", "without the answer")
			require.ErrorIs(t, problem, abi.ErrAnswer)
			require.EqualError(t, problem, "not an answer to the question name: "+c.problem)
		})
	}
}

// Nobody is asked what nothing can answer.
func TestNoSchema(t *testing.T) {
	bad := abi.Question{Message: "Who?", Schema: json.RawMessage(`{"type":5}`)}
	ask := Checked(func(context.Context, abi.Questions) (abi.Answers, error) { panic("somebody was asked") })
	_, err := ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"name": bad}})
	require.ErrorIs(t, err, abi.ErrQuestions)
	require.ErrorIs(t, Check("name", bad, accepted(`{}`)), abi.ErrQuestions)

	require.Nil(t, Checked(nil))
	gone := errors.New("the user is gone")
	_, err = Checked(func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, gone })(t.Context(), asking("name"))
	require.Equal(t, gone, err)
}

// A model sees what is asked in words that cannot do harm, and share the room.
func TestMessages(t *testing.T) {
	open := map[string]abi.Question{"a": {Message: "\x1b[31mone\n\ttwo" + strings.Repeat("ü", 5000)}, "b": who}
	require.Equal(t, []string{"one two" + strings.Repeat("ü", maxMessage-len("one two")) + "…", "Who are you?"}, Messages(open, 50_000))
	require.Equal(t, []string{"one t…", "Who a…"}, Messages(open, 10))
	require.Empty(t, Messages(nil, 10))
}
