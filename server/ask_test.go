package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// named is an answer to the question of asker.
func accepted(content string) abi.Answer {
	return abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(content)}
}

func answering(a abi.Answer) askFunc {
	return func(context.Context, abi.Questions) (abi.Answers, error) {
		return abi.Answers{Answers: map[string]abi.Answer{"name": a}}, nil
	}
}

// A plugin never sees an answer that does not fit its question, nor a caller a
// question that nothing fits.
func TestAnswersChecked(t *testing.T) {
	s := open(t, Config{}, "asker", "misformed")
	const refused = `{"code":"failed","message":"not an answer to the question name"}`
	for name, c := range map[string]struct {
		tool    string
		ask     askFunc
		want    string
		problem string
	}{
		"accepted":  {"asker", answering(accepted(`{"name":"Ana"}`)), `{"answers":{"name":{"action":"accept","content":{"name":"Ana"}}}}`, ""},
		"declined":  {"asker", answering(abi.Answer{Action: abi.AnswerDecline}), `{"answers":{"name":{"action":"decline"}}}`, ""},
		"canceled":  {"asker", answering(abi.Answer{Action: abi.AnswerCancel}), `{"answers":{"name":{"action":"cancel"}}}`, ""},
		"too short": {"asker", answering(accepted(`{"name":"A"}`)), refused, "/name: minLength: got 1, want 2"},
		"missing":   {"asker", answering(accepted(`{}`)), refused, "missing: name"},
		"no object": {"asker", answering(accepted(`null`)), refused, "expected object, found null"},
		"nothing":   {"asker", answering(abi.Answer{Action: abi.AnswerAccept}), refused, "it has no content"},
		"no JSON":   {"asker", answering(accepted(`{`)), refused, "expected JSON: unexpected EOF (byte 1)"},
		"shrugged":  {"asker", answering(abi.Answer{Action: "shrug"}), refused, `expected the action accept, decline or cancel, found "shrug"`},
		"both":      {"asker", answering(abi.Answer{Action: abi.AnswerDecline, Content: json.RawMessage(`{"name":"Ana"}`)}), refused, "only an accepted question has content"},
		"no answer": {"asker", func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, nil },
			refused, `expected the action accept, decline or cancel, found ""`},
		"no schema": {"misformed", func(context.Context, abi.Questions) (abi.Answers, error) {
			t.Error("somebody was asked")
			return abi.Answers{}, nil
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := s.Call(t.Context(), Request{Tool: c.tool, Ask: c.ask})
			require.NoError(t, err)
			require.Equal(t, abi.Success, r.Kind, r.Error)
			if c.want == "" {
				require.Contains(t, string(r.Value), `{"code":"invalid","message":"not questions for the user: name: `)
				return
			}
			require.JSONEq(t, c.want, string(r.Value))
			given, err := c.ask(t.Context(), abi.Questions{})
			require.NoError(t, err)
			err = CheckAnswer("name", abi.Question{Schema: json.RawMessage(nameForm)}, given.Answers["name"])
			if c.problem == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, abi.ErrAnswer)
			require.EqualError(t, err, "not an answer to the question name: "+c.problem)
		})
	}
}

// parkAsking parks a call of asker that has asked its caller, and returns the
// run, which asks now.
func (s service) parkAsking(session string) string {
	s.t.Helper()
	return s.parkAskingWith(session, "asker")
}

func (s service) parkAskingWith(session, tool string) string {
	s.t.Helper()
	var id string
	r, err := s.Call(s.t.Context(), Request{
		Session: session, Tool: tool, AskLater: true, OnPark: func(run wire.Run) { id = run.TaskID },
		Ask: func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, ErrAskAgain },
	})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, id, string(r.Value))
	synctest.Wait()
	return id
}

// Answers to a run are taken all or not at all, and a question that was not
// answered stays open.
func TestRunAnswersChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Second}, "asker")
		id := s.parkAsking(alice)
		open, err := s.Session(alice).Questions(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "Who are you?", open["name.1"].Message)

		for _, bad := range []abi.Answer{accepted(`{}`), accepted(`{"name":"A"}`), {Action: "shrug"}} {
			err := s.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{"name.1": bad})
			require.ErrorIs(t, err, abi.ErrAnswer)
			require.ErrorContains(t, err, "name.1: ")
		}
		still, err := s.Session(alice).Questions(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, open, still)
		require.Equal(t, "running", s.check(alice, id, `,"wait_seconds":1`)["status"])

		require.ErrorIs(t, s.Session(bob).Answer(t.Context(), id, map[string]abi.Answer{"name.1": accepted(`{"name":"Bob"}`)}), engine.ErrNotFound)
		require.NoError(t, s.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{"name.1": accepted(`{"name":"Ana"}`), "other": {}}))
		report := s.check(alice, id, "")
		require.Equal(t, "succeeded", report["status"])
		require.Equal(t, object{"name": map[string]any{"action": "accept", "content": map[string]any{"name": "Ana"}}}, object(report["result"].(map[string]any)["answers"].(map[string]any)))
	})
}

// An agent sees that a run waits for its user, and for what, in words that
// cannot do harm.
func TestCheckShowsQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Second}, "asker", "sleeper")
		id := s.parkAsking(alice)
		other := s.spawn(alice, "sleeper", `{}`)
		report := s.check(alice, id, `,"wait_seconds":1`)
		require.Equal(t, []any{"Who are you?"}, report["waiting_for_input"])
		require.Contains(t, report["next"], "waits for your user")
		require.NotContains(t, s.check(alice, other, `,"wait_seconds":0`), "waiting_for_input")
		require.Equal(t, []any{id}, s.agent(alice, CheckBackground, `{}`)["waiting_for_input"])
		require.NotContains(t, s.agent(bob, CheckBackground, `{}`), "waiting_for_input")

		s.asked.mu.Lock()
		asked := s.asked.waiting[runKey{alice, id}]
		asked.open["a"] = abi.Question{Message: "\x1b[31mone\n\ttwo" + strings.Repeat("ü", 5000)}
		s.asked.mu.Unlock()
		texts := s.check(alice, id, `,"wait_seconds":0`)["waiting_for_input"].([]any)
		require.Equal(t, []any{"one two" + strings.Repeat("ü", 500-len("one two")) + "…", "Who are you?"}, texts)
		s.asked.mu.Lock()
		delete(asked.open, "a")
		s.asked.mu.Unlock()

		require.NoError(t, s.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{"name.1": {Action: abi.AnswerDecline}}))
		require.NotContains(t, s.check(alice, id, ""), "waiting_for_input")
		require.NotContains(t, s.agent(alice, CheckBackground, `{}`), "waiting_for_input")
	})
}

// A check that waits does not wait for a run that waits for its user: it is
// woken when the question opens, whatever it waits for, and returns at once when
// it is open. Questions of other runs, and of other sessions, wake nobody.
func TestCheckIsWokenByQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Second}, "asker", "sleeper")
		sleeper := s.spawn(alice, "sleeper", `{}`)
		ctx, cancel := context.WithCancel(t.Context())
		ask := func(run string, q abi.Questions) { _, _ = s.asked.ask(ctx, runKey{alice, run}, 1, q) }
		question := abi.Questions{Questions: map[string]abi.Question{"name": {Message: "Who are you?", Schema: json.RawMessage(nameForm)}}}
		for _, more := range []string{`,"wait_seconds":540`, `,"wait_seconds":540,"until":"all"`} {
			began, report := time.Now(), make(chan object)
			go func() { report <- s.check(alice, sleeper, more) }()
			synctest.Wait()
			time.Sleep(time.Minute)
			go ask("bg_other", question)
			synctest.Wait()
			time.Sleep(time.Minute)
			go ask(sleeper, question)
			r := <-report
			require.Equal(t, []any{"Who are you?"}, r["waiting_for_input"])
			require.Equal(t, "running", r["status"])
			require.Equal(t, 120.0, r["waited_seconds"])
			require.Equal(t, 2*time.Minute, time.Since(began))

			require.Equal(t, []any{"Who are you?"}, s.check(alice, sleeper, more)["waiting_for_input"])
			require.Equal(t, 2*time.Minute, time.Since(began), "it was open already")
			cancel()
			synctest.Wait()
			ctx, cancel = context.WithCancel(t.Context())
		}
		cancel()
		require.Empty(t, s.asked.watchers)

		asks := s.parkAsking(alice)
		began := time.Now()
		_ = s.agent(alice, CheckBackground, `{"task_ids":["`+sleeper+`","`+asks+`"],"wait_seconds":540,"until":"all"}`)
		require.Zero(t, time.Since(began))
		_, _ = s.Call(t.Context(), Request{Session: bob, Tool: CheckBackground, Args: json.RawMessage(`{"task_ids":["` + s.spawn(bob, "sleeper", `{}`) + `","` + asks + `"],"wait_seconds":60}`)})
		require.Equal(t, time.Minute, time.Since(began), "it is not one of bob's")
	})
}

// A caller that ends its call, to make it again with the answers, races with the
// time at which the call is parked. Either the call has ended and left nothing,
// or the run it has become asks for itself.
func TestParkingRacesAsk(t *testing.T) {
	for name, c := range map[string]struct {
		asked     time.Duration
		ends, run bool // what may come of it
	}{
		"asked before":  {time.Second - 1, true, false},
		"asked at once": {time.Second, true, true},
		"asked after":   {time.Second + 1, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				bubble(t, func(t *testing.T) {
					run := open(t, Config{ParkAfter: time.Second}, "asker").askAndLeave(alice, c.asked)
					require.True(t, run && c.run || !run && c.ends, "became a run: %v", run)
				})
			}
		})
	}
}

// askAndLeave calls asker for a caller that ends the call so long after it is
// asked. It reports whether the call has become a run; that is answered.
func (s service) askAndLeave(session string, after time.Duration) bool {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var id string
	r, err := s.Call(ctx, Request{
		Session: session, Tool: "asker", AskLater: true, OnPark: func(run wire.Run) { id = run.TaskID },
		Ask: func(context.Context, abi.Questions) (abi.Answers, error) {
			time.Sleep(after)
			cancel()
			return abi.Answers{}, ErrAskAgain
		},
	})
	time.Sleep(time.Second)
	synctest.Wait()
	if id == "" {
		require.ErrorIs(s.t, err, context.Canceled)
		require.Equal(s.t, abi.CanceledKind, r.Kind)
		require.Zero(s.t, s.agent(session, CheckBackground, `{}`)["active"])
		return false
	}
	require.NoError(s.t, err)
	require.Equal(s.t, abi.Success, r.Kind)
	require.NoError(s.t, s.Session(session).Answer(s.t.Context(), id, map[string]abi.Answer{"name.1": accepted(`{"name":"Ana"}`)}))
	require.Equal(s.t, "succeeded", s.check(session, id, "")["status"])
	return true
}
