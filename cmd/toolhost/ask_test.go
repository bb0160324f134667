package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

const sureForm = `{"type":"object","properties":{
	"yes":{"type":"boolean","title":"Remove them"},"n":{"type":"integer"},"size":{"enum":["s","m"]},"tags":{"type":"array","items":{"type":"string"}},"why":{"type":"string","minLength":2}
},"required":["yes"]}`

// typing returns an asker whose user types lines, and then ends the input.
func typing(out io.Writer, lines ...string) *asker {
	input := make(chan inputLine, len(lines)+1)
	for _, line := range lines {
		input <- inputLine{line, nil}
	}
	input <- inputLine{"", io.EOF}
	return &asker{ui: &ui{err: out}, tool: "lab", bar: newBar(out), typed: func() <-chan inputLine { return input }}
}

// TestAskOnTerminal: the user fills in a form until it fits, or declines.
func TestAskOnTerminal(t *testing.T) {
	q := abi.Questions{Questions: map[string]abi.Question{"sure": {Message: "Sure?\x1b[2J\ntoolhost: forged", Schema: json.RawMessage(sureForm)}}}
	for name, c := range map[string]struct {
		lines []string
		want  abi.Answer
	}{
		"all":      {[]string{"y", "3", "m", "a, b", "because"}, abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(`{"n":3,"size":"m","tags":["a","b"],"why":"because","yes":true}`)}},
		"required": {[]string{"no", "", "", "", ""}, abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(`{"yes":false}`)}},
		"again":    {[]string{"", "", "", "", "", "yes", "many", "", "", "", "yes", "", "", "", ""}, abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(`{"yes":true}`)}},
		"declined": {nil, abi.Answer{Action: abi.AnswerDecline}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			answers, err := typing(&out, c.lines...).ask(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, c.want, answers.Answers["sure"])
			require.True(t, strings.HasPrefix(out.String(), "lab asks: Sure?\nlab asks: toolhost: forged\n"), out.String())
			require.NotContains(t, out.String(), "\x1b")
			require.Contains(t, out.String(), "  Remove them (yes or no): ")
			if name == "again" {
				require.Contains(t, out.String(), "toolhost: not an answer to the question sure: missing: yes\n")
				require.Contains(t, out.String(), "toolhost: not an answer to the question sure: /n: expected integer, found string\n")
			}
		})
	}
}

// TestAskWithoutFields: the user agrees to a form without fields, or not.
func TestAskWithoutFields(t *testing.T) {
	agreed := abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage("{}")}
	declined := abi.Answer{Action: abi.AnswerDecline}
	for line, want := range map[string]abi.Answer{"y": agreed, "YES": agreed, "": declined, "no": declined, "what?": declined} {
		var out strings.Builder
		answers, err := typing(&out, line).ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"sure": {Message: "Sure?", Schema: json.RawMessage(`{"type":"object"}`)}}})
		require.NoError(t, err, line)
		require.Equal(t, want, answers.Answers["sure"], line)
		require.Equal(t, "lab asks: Sure?\n  agree (yes or no): ", out.String())
	}
	answers, err := typing(io.Discard).ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"sure": {Message: "Sure?", Schema: json.RawMessage(`{"type":"object","properties":{}}`)}}})
	require.NoError(t, err)
	require.Equal(t, declined, answers.Answers["sure"], "the end of the input")
}

// TestAskTheImpossible: a form that no answer fits is not asked for ever.
func TestAskTheImpossible(t *testing.T) {
	for schema, problem := range map[string]string{
		`{"type":"object","required":["x"]}`:                                      "it requires x, which is not one of its fields",
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["x"]}`: "it requires x, which is not one of its fields",
		`{"type":"object","minProperties":1}`:                                     "no answer fits a form without fields",
	} {
		_, err := typing(io.Discard, "yes", "yes").ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"sure": {Message: "Sure?", Schema: json.RawMessage(schema)}}})
		require.ErrorIs(t, err, abi.ErrQuestions, schema)
		require.ErrorContains(t, err, "sure: "+problem, schema)
	}
}

// TestAskStrangeForms: a form that cannot be shown is an error without internals.
func TestAskStrangeForms(t *testing.T) {
	for _, schema := range []string{`true`, `{"properties":{"a":true}}`, `{"properties":{"a":{"type":["string","null"]}}}`, `{"properties":[1]}`, `{"required":1}`} {
		_, err := typing(io.Discard).ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"sure": {Message: "Sure?", Schema: json.RawMessage(schema)}}})
		require.ErrorIs(t, err, abi.ErrQuestions, schema)
		require.ErrorContains(t, err, "sure: its form cannot be shown on a terminal", schema)
		require.NotContains(t, err.Error(), "json", schema)
	}
}

// TestAskHidesTheBar: progress does not overwrite an open question.
func TestAskHidesTheBar(t *testing.T) {
	var out strings.Builder
	a := typing(&out, "y")
	a.bar.width = 60
	a.bar.set(1, 2, "before")
	out.Reset()
	lines := a.typed
	a.typed = func() <-chan inputLine {
		a.bar.set(1, 2, "working")
		return lines()
	}
	_, err := a.ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"sure": {Message: "Sure?", Schema: json.RawMessage(`{"type":"object"}`)}}})
	require.NoError(t, err)
	require.Equal(t, "\r\x1b[Klab asks: Sure?\n  agree (yes or no): ", out.String())
	a.bar.set(1, 2, "after")
	require.Contains(t, out.String(), "after")
}

// TestAskStops: a call that is stopped does not wait for its user.
func TestAskStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &asker{ui: &ui{err: io.Discard}, bar: newBar(io.Discard), typed: func() <-chan inputLine { return nil }}
	_, err := a.ask(ctx, abi.Questions{Questions: map[string]abi.Question{"sure": {Message: "Sure?", Schema: json.RawMessage(sureForm)}}})
	require.ErrorIs(t, err, context.Canceled)

	a = typing(io.Discard)
	_, err = a.ask(ctx, abi.Questions{Questions: map[string]abi.Question{"sure": {Message: "Sure?", Schema: json.RawMessage(`{"type":"object"}`)}}})
	require.ErrorIs(t, err, context.Canceled, "although there is something to read")
}

// TestAnswerFlags: answers come from flags, by their keys; where nobody can be asked, any
// other question is denied.
func TestAnswerFlags(t *testing.T) {
	given, err := parseAnswers([]string{`sure={"yes":true}`, "name=decline", "name=cancel", "age=cancel", "left=decline"})
	require.NoError(t, err)
	var out strings.Builder
	u := ui{in: strings.NewReader(""), err: &out}
	ask := u.question("lab", false, given, newBar(&out))
	form := abi.Question{Message: "Sure?", Schema: json.RawMessage(sureForm)}

	answers, err := ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"sure": form, "name": form, "age": form}})
	require.NoError(t, err)
	require.Equal(t, map[string]abi.Answer{
		"sure": {Action: abi.AnswerAccept, Content: json.RawMessage(`{"yes":true}`)}, "name": {Action: abi.AnswerDecline}, "age": {Action: abi.AnswerCancel},
	}, answers.Answers)
	answers, err = ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"name": form}})
	require.NoError(t, err)
	require.Equal(t, abi.Answer{Action: abi.AnswerCancel}, answers.Answers["name"], "the next one")
	_, err = ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"other": form}})
	require.ErrorIs(t, err, host.ErrDenied)
	require.ErrorContains(t, err, "--answer 'other=…'")
	require.Equal(t, []string{"left"}, given.unused())
	_, err = ask(t.Context(), abi.Questions{Questions: map[string]abi.Question{"name": form}})
	require.ErrorIs(t, err, host.ErrDenied, "each flag answers one question")
	require.Nil(t, u.question("lab", false, nil, nil), "nobody answers")

	for _, wrong := range []string{"sure", "=decline", "sure=yes", "sure=[1]", `sure={"yes"`} {
		_, err := parseAnswers([]string{wrong})
		require.EqualError(t, err, "--answer: expected KEY=CONTENT, where CONTENT is a JSON object, decline or cancel", wrong)
	}
}
