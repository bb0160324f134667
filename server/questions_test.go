package server

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/wire"
)

// named is an answer to the question of asker.
func accepted(content string) abi.Answer {
	return abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(content)}
}

func answering(a abi.Answer) question.Func {
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
		tool string
		ask  question.Func
		want string
	}{
		"accepted":  {"asker", answering(accepted(`{"name":"Ana"}`)), `{"answers":{"name":{"action":"accept","content":{"name":"Ana"}}}}`},
		"too short": {"asker", answering(accepted(`{"name":"A"}`)), refused},
		"no schema": {"misformed", func(context.Context, abi.Questions) (abi.Answers, error) {
			t.Error("somebody was asked")
			return abi.Answers{}, nil
		}, ""},
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
		})
	}
}

// parkAsking parks a call of asker that has asked its caller, and returns the
// run, which asks now.
func (s service) parkAsking(session string) string {
	s.t.Helper()
	var id string
	r, err := s.Call(s.t.Context(), Request{
		Session: session, Tool: "asker", AskLater: true, OnPark: func(run wire.Run) { id = run.TaskID },
		Ask: func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, ErrAskAgain },
	})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, id, string(r.Value))
	synctest.Wait()
	return id
}

// An agent sees that a run waits for its user, and for what.
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
		ask := func(run string, q abi.Questions) {
			_, _ = question.NewAsker(&s.questions, 0).Ask(ctx, question.Run{Session: alice, ID: run}, q)
		}
		who := abi.Questions{Questions: map[string]abi.Question{"name": {Message: "Who are you?", Schema: json.RawMessage(nameForm)}}}
		for _, more := range []string{`,"wait_seconds":540`, `,"wait_seconds":540,"until":"all"`} {
			began, report := time.Now(), make(chan object)
			go func() { report <- s.check(alice, sleeper, more) }()
			synctest.Wait()
			time.Sleep(time.Minute)
			go ask("bg_other", who)
			synctest.Wait()
			time.Sleep(time.Minute)
			go ask(sleeper, who)
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

// TestAnyRunAsks: a run asks its user, however it began: it was spawned, a schedule has
// started it, or it is a call of a client that cannot ask while it waits.
func TestAnyRunAsks(t *testing.T) {
	for name, begin := range map[string]func(s service) (id string){
		"spawned": func(s service) string { return s.spawn(alice, "asker", `{}`) },
		"scheduled": func(s service) string {
			_, err := s.Session(alice).Schedules().New(s.t.Context(), ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "asker"}, At: time.Now().Add(time.Hour)})
			require.NoError(s.t, err)
			time.Sleep(time.Hour + time.Second)
			runs, err := s.Session(alice).Runs(s.t.Context(), RunQuery{})
			require.NoError(s.t, err)
			require.Len(s.t, runs, 1)
			return runs[0].TaskID
		},
		"called": func(s service) (id string) {
			r, err := s.Service.Call(s.t.Context(), Request{Session: alice, Tool: "asker", AskLater: true, OnPark: func(run wire.Run) { id = run.TaskID }})
			require.NoError(s.t, err)
			require.Contains(s.t, string(r.Value), id)
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, Config{ParkAfter: time.Second}, "asker")
				id := begin(s)
				synctest.Wait()
				open, err := s.Session(alice).Questions(t.Context(), id)
				require.NoError(t, err)
				require.Len(t, open, 1)
				require.Equal(t, []any{"Who are you?"}, s.check(alice, id, "")["waiting_for_input"])
				for key := range open {
					require.NoError(t, s.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{key: accepted(`{"name":"Ana"}`)}))
				}
				report := s.check(alice, id, `,"wait_seconds":30`)
				require.Equal(t, "succeeded", report["status"], "%v", report)
				require.Contains(t, report["result"], "answers")
			})
		})
	}
}

// TestAskLaterParksAtOnce: a call whose caller can be asked only later becomes a run as
// soon as it asks, however long other calls are waited for. So does one with a key.
func TestAskLaterParksAtOnce(t *testing.T) {
	for _, key := range []string{"", "key"} {
		bubble(t, func(t *testing.T) {
			s := open(t, Config{}, "asker")
			began := time.Now()
			req := Request{Session: alice, Tool: "asker", AskLater: true, Key: key}
			r, err := s.Service.Call(t.Context(), req)
			require.NoError(t, err)
			require.Zero(t, time.Since(began))

			var value struct {
				Type, Message string
				TaskID        string                  `json:"task_id"`
				Questions     map[string]abi.Question `json:"questions"`
			}
			require.NoError(t, json.Unmarshal(r.Value, &value))
			require.Equal(t, "background", value.Type)
			require.Contains(t, value.Message, "It waits until its user answers its questions")
			require.Equal(t, "Who are you?", value.Questions["name.1"].Message, "%s", r.Value)

			require.NoError(t, s.Session(alice).Answer(t.Context(), value.TaskID, map[string]abi.Answer{"name.1": accepted(`{"name":"Ana"}`)}))
			require.Equal(t, "succeeded", s.check(alice, value.TaskID, `,"wait_seconds":30`)["status"])
			if key != "" {
				again, err := s.Service.Call(t.Context(), req)
				require.NoError(t, err)
				require.Contains(t, string(again.Value), "Ana")
			}
		})
	}
}

// A run that waits for its user in its instance says so when its time is over.
func TestRunIsNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "asker")
		id := s.agent(alice, SpawnBackground, `{"tool":"asker","args":{},"timeout_seconds":10}`)["task_id"].(string)
		time.Sleep(11 * time.Second)
		require.Equal(t, map[string]any{"kind": "timeout", "message": "The run's deadline of 10s passed while it waited: its user had not answered its question"}, s.check(alice, id, "")["error"])
	})
}

// A call that cannot continue in the background asks nobody later.
func TestAskLaterWithoutRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Park: ParkNever}, "asker")
		r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "asker", AskLater: true})
		require.NoError(t, err)
		require.JSONEq(t, `{"code":"denied","message":"nobody can be asked here"}`, string(r.Value))
	})
}

// TestAskLaterWithoutRoom: a call that cannot become a run when it asks reads why. It
// continues, is waited for no longer than others, and may ask once it is a run.
func TestAskLaterWithoutRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openScripts(t, Config{Runs: RunsConfig{Parked: 1}, ParkAfter: time.Minute})
		req := Request{Session: alice, Tool: "exec", AskLater: true}
		asks := func(text string) (r abi.Result, took time.Duration) {
			began := time.Now()
			req.Args = code(text)
			r, err := s.Service.Call(t.Context(), req)
			if err != nil {
				r.Error = err.Error()
			}
			return r, time.Since(began)
		}
		first, _ := asks(`return await ask("Who?")`)
		require.Contains(t, string(first.Value), `"questions"`)

		r, took := asks(`return await ask("Who else?")`)
		require.Contains(t, r.Error, "nobody can be asked here: this session already has the maximum of 1 calls that are runs")
		require.Zero(t, took)

		r, took = asks(`try { await ask("Who else?") } catch { await sleep(600e3) }; return await ask("And now?")`)
		id := backgroundID(t, r)
		require.Contains(t, string(r.Value), "Still running after 60s")
		require.Equal(t, time.Minute, took)
		time.Sleep(time.Hour)
		s.answers(id, "Ben")
		require.Equal(t, `"Ben"`, string(s.settled(alice, id).Result))
	})
}

// backgroundID returns the run that a call has become.
func backgroundID(t *testing.T, r abi.Result) string {
	t.Helper()
	var value struct {
		TaskID string `json:"task_id"`
	}
	require.NoError(t, json.Unmarshal(r.Value, &value), "%+v", r)
	return value.TaskID
}
