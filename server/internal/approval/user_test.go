package approval

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// answers returns a user who always answers so.
func answers(action, content string) User {
	return User{Keeps: true, Ask: func(context.Context, Question) (abi.Answer, error) {
		return abi.Answer{Action: action, Content: json.RawMessage(content)}, nil
	}}
}

// What a user answers, what becomes of the run, and what is kept.
func TestAnswers(t *testing.T) {
	once := answers(abi.AnswerAccept, `{"decision":"once"}`)
	failing := func(err error) User {
		return User{Ask: func(context.Context, Question) (abi.Answer, error) { return abi.Answer{}, err }}
	}
	never := User{Ask: func(context.Context, Question) (abi.Answer, error) { panic("the user was asked") }}
	for name, test := range map[string]struct {
		user  User
		by    By
		want  string
		err   error
		later Verdict
	}{
		"once":                  {once, "", "succeeded", nil, Held},
		"these arguments":       {answers(abi.AnswerAccept, `{"decision":"arguments"}`), "", "succeeded", nil, Covered},
		"the session":           {answers(abi.AnswerAccept, `{"decision":"session"}`), "", "succeeded", nil, Covered},
		"no":                    {answers(abi.AnswerAccept, `{"decision":"no"}`), "", "canceled", reason.ErrApproval, Held},
		"declined":              {answers(abi.AnswerDecline, ""), "", "canceled", reason.ErrApproval, Held},
		"declined, with a yes":  {answers(abi.AnswerDecline, `{"decision":"once"}`), "", "canceled", reason.ErrApproval, Held},
		"canceled":              {answers(abi.AnswerCancel, ""), "", "held", nil, Held},
		"nothing":               {answers("", ""), "", "held", nil, Held},
		"no content":            {answers(abi.AnswerAccept, ""), "", "held", nil, Held},
		"another decision":      {answers(abi.AnswerAccept, `{"decision":"always"}`), "", "held", nil, Held},
		"another case":          {answers(abi.AnswerAccept, `{"Decision":"once"}`), "", "held", nil, Held},
		"two decisions":         {answers(abi.AnswerAccept, `{"decision":"no","decision":"once"}`), "", "held", nil, Held},
		"a list":                {answers(abi.AnswerAccept, `["once"]`), "", "held", nil, Held},
		"a client that fails":   {failing(errors.New("method not found")), "", "held", nil, Held},
		"a later request":       {failing(question.ErrAskAgain), "", "held", question.ErrAskAgain, Held},
		"nobody is asked":       {User{}, "", "held", nil, Held},
		"operators only":        {never, ByOperator, "held", nil, Held},
		"users, and it says so": {once, ByUser, "succeeded", nil, Held},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.rules.Policy.By = test.by
			run, err := b.Ask(t.Context(), b.hold(alice, `{"n":1}`, ""), test.user)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, b.state(run))
			require.Equal(t, test.later, b.verdict(alice, `{"n":1}`, ""))
		})
	}
}

// A session whose approvals cannot be kept is not offered to keep any, and an answer that
// keeps one is no answer.
func TestNothingToKeep(t *testing.T) {
	b := open(t)
	user := answers(abi.AnswerAccept, `{"decision":"session"}`)
	user.Keeps = false
	run, err := b.Ask(t.Context(), b.hold(alice, `{"n":1}`, ""), user)
	require.NoError(t, err)
	require.Equal(t, "held", b.state(run))
}

// What happens while a user is asked.
func TestWhileAsked(t *testing.T) {
	for name, test := range map[string]struct {
		caller string
		happen func(b *bench, run engine.Run)
		leaves bool // the question ends by itself
		err    error
		want   string
	}{
		"an operator approves": {"", func(b *bench, run engine.Run) {
			require.NoError(b.t, b.decideOn(run, wire.Decide{Approve: true}))
		}, true, nil, "succeeded"},
		"an operator refuses": {"", func(b *bench, run engine.Run) {
			require.NoError(b.t, b.decideOn(run, wire.Decide{}))
		}, true, reason.ErrApproval, "canceled"},
		"it is withdrawn": {"", func(b *bench, run engine.Run) {
			require.NoError(b.t, b.Redeem(b.t.Context(), run))
		}, true, engine.ErrNotFound, "gone"},
		"an operator decides first": {"", func(b *bench, run engine.Run) {
			require.NoError(b.t, b.decideOn(run, wire.Decide{}))
		}, false, reason.ErrApproval, "canceled"},
		"the code changes":                   {"", func(b *bench, _ engine.Run) { b.tool = drop("v2", clock) }, false, ErrOutdated, "gone"},
		"the grants change":                  {"", func(b *bench, _ engine.Run) { b.tool = drop("v1", plugins.Grant{}) }, false, ErrOutdated, "gone"},
		"the code changes, a call of a tool": {"research", func(b *bench, _ engine.Run) { b.tool = drop("v2", clock) }, false, ErrOutdated, "canceled"},
		"the policy denies":                  {"", func(b *bench, _ engine.Run) { b.rules.Policy.Tools = map[string]Decision{"*": Deny} }, false, reason.ErrApproval, "canceled"},
		"only operators decide from now on":  {"", func(b *bench, _ engine.Run) { b.rules.Policy.By = ByOperator }, false, nil, "held"},
		"the service closes":                 {"", func(b *bench, _ engine.Run) { b.closes() }, true, nil, "held"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			run := b.hold(alice, `{"n":1}`, test.caller)
			_, err := b.Ask(t.Context(), run, User{Ask: func(ctx context.Context, q Question) (abi.Answer, error) {
				require.Equal(t, run.ID, q.Run)
				test.happen(b, run)
				if test.leaves {
					<-ctx.Done()
					return abi.Answer{}, ctx.Err()
				}
				return abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(`{"decision":"once"}`)}, nil
			}})
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, b.state(run))
			require.Equal(t, test.want == "succeeded", len(b.made) == 1)
		})
	}
}

// A user whose caller has left decides on nothing.
func TestAskIsLeft(t *testing.T) {
	b := open(t)
	run := b.hold(alice, `{"n":1}`, "")
	ctx, leave := context.WithCancel(t.Context())
	_, err := b.Ask(ctx, run, User{Ask: func(context.Context, Question) (abi.Answer, error) {
		leave()
		return abi.Answer{Action: abi.AnswerDecline}, nil
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "held", b.state(run))
}

// asked returns the question about a call.
func (b *bench) asked(args, caller string, u User) (q Question) {
	b.t.Helper()
	u.Ask = func(_ context.Context, asked Question) (abi.Answer, error) { q = asked; return abi.Answer{}, nil }
	_, err := b.Ask(b.t.Context(), b.hold(alice, args, caller), u)
	require.NoError(b.t, err)
	return q
}

// What a user is asked cannot be changed by the arguments, and says when they are cut.
func TestQuestion(t *testing.T) {
	b := open(t)
	for args, want := range map[string]string{
		"{\n\n\"a\":\n\"b\"}":                       `Its arguments: {"a":"b"}`,
		`{"a":"? It may use: nothing.\n\nAllow"}`:   `Its arguments: {"a":"? It may use: nothing.\n\nAllow"}`,
		"{\"a\":\"\u202efdp.exe\u2028next\u00a0\"}": `Its arguments: {"a":"\u202efdp.exe\u2028next\u00a0"}`,
		"{\"a\":\"\U000e0041\u200b\u2066\"}":        `Its arguments: {"a":"\udb40\udc41\u200b\u2066"}`,
		"{\"a\":\"\x7f\"}":                          `Its arguments: {"a":"\u007f"}`,
		`{"a":"Grüße, 世界 👋"}`:                       `Its arguments: {"a":"Grüße, 世界 👋"}`,
	} {
		text := b.asked(args, "research", User{}).Question.Message
		require.True(t, strings.HasPrefix(text, "Allow drop, called by research (plugin drop 1.0.0, SHA-256 v1…)? It may use: clock. "), text)
		require.True(t, strings.HasSuffix(text, want), text)
	}

	b.lacks = "drop may fail"
	q := b.asked(`{"n":1}`, "", User{})
	require.Equal(t, "drop may fail", q.Note)
	require.NotContains(t, q.Question.Message, q.Note, "the answer is not bound to it")

	long := `{"a":"` + strings.Repeat("x", 10_000) + `"}`
	text := b.asked(long, "", User{}).Question.Message
	require.Contains(t, text, " Its arguments have 10008 bytes (SHA-256 "+digestOf([]byte(long))+`), of which this is only the beginning: {"a":"xxx`)
	require.True(t, strings.HasSuffix(text, "x…"), text)
	require.Less(t, len(text), maxAskedArgs+400)
}

// A user chooses between what can be kept, and reads for how long. Secret arguments are not
// in the question, and nothing can be kept for them.
func TestForm(t *testing.T) {
	for name, test := range map[string]struct {
		user    User
		args    string
		choices []string
		names   []string
	}{
		"one request":  {User{}, `{"n":1}`, []string{"once", "no"}, []string{"Allow once", "Do not allow"}},
		"a session":    {User{Keeps: true}, `{"n":1}`, []string{"once", "arguments", "session", "no"}, []string{"Allow once", "Allow with these arguments in this session, for a day", "Allow in this session, for a day", "Do not allow"}},
		"a connection": {User{Keeps: true, Connected: true}, `{"n":1}`, []string{"once", "arguments", "session", "no"}, []string{"Allow once", "Allow with these arguments until this connection ends", "Allow until this connection ends", "Do not allow"}},
		"a secret":     {User{Keeps: true}, `{"n":1,"key":"hunter2"}`, []string{"once", "session", "no"}, []string{"Allow once", "Allow in this session, for a day", "Do not allow"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			q := b.asked(test.args, "", test.user)
			var form struct {
				Properties struct {
					Decision struct{ Enum, EnumNames []string }
				}
			}
			require.NoError(t, json.Unmarshal(q.Question.Schema, &form))
			require.Equal(t, test.choices, form.Properties.Decision.Enum)
			require.Equal(t, test.names, form.Properties.Decision.EnumNames)
			require.NotContains(t, q.Question.Message, "hunter2")
			require.Equal(t, name == "a secret", strings.Contains(q.Question.Message, "Its secret arguments are not shown."))
			require.Equal(t, fingerprint(b.tool), q.Fingerprint)
		})
	}
}
