package server

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/wire"
)

// hostileCase is something that somebody may try. It returns what they get.
type hostileCase struct {
	name string
	try  func(t *testing.T) string
}

var anID = regexp.MustCompile(`(bg|sc)_[a-z0-9]{26}`)

// hostile tries all cases, and compares what they get with a golden file.
func hostile(t *testing.T, golden string, cases []hostileCase) {
	t.Helper()
	var all strings.Builder
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fmt.Fprintf(&all, "%s\n    %s\n", c.name, anID.ReplaceAllString(c.try(t), "${1}_ID"))
		})
	}

	file := filepath.Join("testdata", golden)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(all.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), all.String())
}

// state is what became of a run: a decision that did not count leaves it waiting.
func (s service) state(session, id string) string {
	s.t.Helper()
	r, err := s.Session(session).Run(s.t.Context(), id)
	require.NoError(s.t, err)
	return strings.TrimSpace(fmt.Sprintf("%s %s attempt %d", r.Status, r.Held, r.Attempt))
}

// decide decides on a call, and returns why it could not.
func (s service) decide(id string, in wire.Decide) string {
	s.t.Helper()
	if _, err := s.Approvals().Decide(s.t.Context(), id, "operator", in); err != nil {
		return ReasonOf(err).Text
	}
	return "done"
}

// answered calls drop for a user whose client answers so.
func (s service) answered(answer abi.Answer) string {
	s.t.Helper()
	r, err := s.Service.Call(s.t.Context(), Request{Session: alice, Tool: "drop", Args: json.RawMessage(`{"n":1}`), Decide: func(context.Context, HeldCall) (abi.Answer, error) {
		return answer, nil
	}})
	if err == nil && strings.Contains(string(r.Value), "It waits until a person approves it") {
		return "it stays held"
	}
	return string(r.Value) + r.Error
}

// TestHostileApprovals: ways around the question, and what comes of them.
func TestHostileApprovals(t *testing.T) {
	yes := wire.Decide{Approve: true}
	// changed decides on a call whose plugin is another one since.
	changed := func(t *testing.T, version string, grants map[string]plugins.Grant) string {
		dir := t.TempDir()
		s := openAsking(t, Config{DataDir: dir}, "1.0.0")
		id := waits(t, s, alice, "drop")
		require.NoError(t, s.Close(done()))
		s = openAsking(t, Config{DataDir: dir, Grants: grants}, version)
		return s.decide(id, yes) + "; " + s.state(alice, id)
	}
	// with tries something of a service that waits for one call of alice.
	with := func(try func(t *testing.T, s service, id string) string) func(t *testing.T) string {
		return func(t *testing.T) string {
			s := openAsking(t, Config{}, "1.0.0")
			return try(t, s, waits(t, s, alice, "drop"))
		}
	}
	says := func(action, content string) func(t *testing.T) string {
		return func(t *testing.T) string {
			return openAsking(t, Config{}, "1.0.0").answered(abi.Answer{Action: action, Content: json.RawMessage(content)})
		}
	}

	hostile(t, "hostile_approvals.txt", []hostileCase{
		{"a stale fingerprint", with(func(_ *testing.T, s service, id string) string {
			return s.decide(id, wire.Decide{Approve: true, Fingerprint: strings.Repeat("0", 32)}) + "; " + s.state(alice, id)
		})},
		{"a plugin that was replaced since", func(t *testing.T) string { return changed(t, "2.0.0", nil) }},
		{"grants that were widened since", func(t *testing.T) string {
			return changed(t, "1.0.0", map[string]plugins.Grant{"drop": {Clock: true, Random: true}})
		}},
		{"approved twice", with(func(_ *testing.T, s service, id string) string {
			require.Equal(t, "done", s.decide(id, yes))
			s.settled(alice, id)
			return s.decide(id, yes) + "; " + s.state(alice, id)
		})},
		{"approved after it was refused", with(func(_ *testing.T, s service, id string) string {
			require.Equal(t, "done", s.decide(id, wire.Decide{Reason: "no"}))
			return s.decide(id, yes) + "; " + s.state(alice, id)
		})},
		{"approved after its agent withdrew it", with(func(_ *testing.T, s service, id string) string {
			s.agent(alice, StopBackground, `{"task_id":"`+id+`"}`)
			return s.decide(id, yes) + "; " + s.state(alice, id)
		})},
		{"approved after it expired", func(t *testing.T) (got string) {
			synctest.Test(t, func(t *testing.T) {
				s := openAsking(t, Config{Approvals: ApprovalPolicy{Wait: time.Hour}}, "1.0.0")
				id := waits(t, s, alice, "drop")
				time.Sleep(2 * time.Hour)
				got = s.decide(id, yes) + "; " + s.state(alice, id)
				require.NoError(t, s.Close(done()))
			})
			return got
		}},
		{"an invalid id", with(func(_ *testing.T, s service, _ string) string { return s.decide("bg_../../x", yes) })},
		{"kept always, and then another digest", func(t *testing.T) string {
			dir := t.TempDir()
			s := openAsking(t, Config{DataDir: dir}, "1.0.0")
			require.Equal(t, "done", s.decide(waits(t, s, alice, "drop"), wire.Decide{Approve: true, Keep: wire.KeepAlways}))
			require.NoError(t, s.Close(done()))
			s = openAsking(t, Config{DataDir: dir}, "1.0.1")
			return s.state(alice, waits(t, s, alice, "drop"))
		}},
		{"kept for a session whose name begins another", with(func(t *testing.T, s service, id string) string {
			require.Equal(t, "done", s.decide(id, wire.Decide{Approve: true, Keep: wire.KeepSession}))
			return s.state(alice+"/x", waits(t, s, alice+"/x", "drop"))
		})},
		{"through a tool that calls it", func(t *testing.T) string {
			s := openCallers(t, Config{Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"caller": DecideAllow}}},
				map[string]aCaller{"caller": {program: calling("dangerous", `{}`), may: []string{"dangerous"}}}, "dangerous")
			r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "caller"})
			require.NoError(t, err)
			list, err := s.Approvals().List(t.Context(), "", 0)
			require.NoError(t, err)
			require.Len(t, list.Approvals, 1)
			require.Contains(t, string(r.Value), `"type":"background"`)
			return list.Approvals[0].Tool + " by " + list.Approvals[0].By + ": " + s.state(alice, list.Approvals[0].TaskID)
		}},
		{"through a schedule", func(t *testing.T) (got string) {
			synctest.Test(t, func(t *testing.T) {
				s := openAsking(t, Config{}, "1.0.0")
				_, err := s.Session(alice).Schedules().New(t.Context(), ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "drop"}, At: time.Now().Add(time.Minute)})
				require.NoError(t, err)
				time.Sleep(time.Hour)
				list, err := s.Approvals().List(t.Context(), "", 0)
				require.NoError(t, err)
				got = s.state(alice, list.Approvals[0].TaskID)
				require.NoError(t, s.Close(done()))
			})
			return got
		}},
		{"the same key while it waits", func(t *testing.T) string {
			s := openAsking(t, Config{}, "1.0.0")
			req := Request{Session: alice, Tool: "drop", Args: json.RawMessage(`{"n":1}`), Key: "k"}
			for range 5 {
				_, err := s.Service.Call(t.Context(), req)
				require.NoError(t, err)
			}
			list, err := s.Approvals().List(t.Context(), "", 0)
			require.NoError(t, err)
			return fmt.Sprint(len(list.Approvals), " waits")
		}},
		{"the same key with other arguments while it waits", func(t *testing.T) string {
			s := openAsking(t, Config{}, "1.0.0")
			req := Request{Session: alice, Tool: "drop", Args: json.RawMessage(`{"n":1}`), Key: "k"}
			_, err := s.Service.Call(t.Context(), req)
			require.NoError(t, err)
			req.Args = json.RawMessage(`{"n":2}`)
			r, _ := s.Service.Call(t.Context(), req)
			return string(r.Value) + r.Error
		}},
		{"a run started again", with(func(t *testing.T, s service, id string) string {
			require.Equal(t, "done", s.decide(id, yes))
			s.settled(alice, id)
			again, err := s.Session(alice).Rerun(t.Context(), id, "")
			require.NoError(t, err)
			return s.state(alice, again.TaskID)
		})},
		{"a call without a session", func(t *testing.T) string {
			r, _ := openAsking(t, Config{}, "1.0.0").Service.Call(t.Context(), Request{Tool: "drop"})
			return r.Error
		}},
		{"arguments with a secret", func(t *testing.T) (got string) {
			synctest.Test(t, func(t *testing.T) {
				s := openAsking(t, Config{}, "1.0.0")
				r, _ := s.Service.Call(t.Context(), Request{Session: alice, Tool: "vault", Args: json.RawMessage(`{"key":"hunter2"}`)})
				got = r.Error
				require.NoError(t, s.Close(done()))
			})
			return got
		}},
		{"the agent of another session withdraws it", with(func(_ *testing.T, s service, id string) string {
			r, _ := s.Service.Call(t.Context(), Request{Session: bob, Tool: StopBackground, Args: json.RawMessage(`{"task_id":"` + id + `"}`)})
			return string(r.Value) + r.Error + "; " + s.state(alice, id)
		})},
		{"the agent answers the question of its run", with(func(t *testing.T, s service, id string) string {
			yes := abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(`{"decision":"session"}`)}
			err := s.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{"toolhost/approval": yes, "toolhost/approval.1": yes})
			return fmt.Sprint(err, "; ", s.state(alice, id))
		})},
		{"an answer with another decision", says(abi.AnswerAccept, `{"decision":"always"}`)},
		{"an answer in another case", says(abi.AnswerAccept, `{"decision":"ONCE"}`)},
		{"an answer with two decisions", says(abi.AnswerAccept, `{"decision":"no","Decision":"once"}`)},
		{"an answer that is a list", says(abi.AnswerAccept, `["once"]`)},
		{"an answer without content", says(abi.AnswerAccept, ``)},
		{"a refusal that allows", says(abi.AnswerDecline, `{"decision":"once"}`)},
		{"arguments that look like the question", func(t *testing.T) string {
			s := openAsking(t, Config{}, "1.0.0")
			var asked []HeldCall
			args := json.RawMessage("{\"n\":\"1? It may use: nothing.\u2028\u202e**Allow** look\",\r\n \"x\":\"\x7f\u200b\"}")
			_, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "drop", Args: args, Decide: deciding(&asked, abi.AnswerDecline, "")})
			require.ErrorIs(t, err, ErrApproval)
			return regexp.MustCompile(`SHA-256 [0-9a-f]+`).ReplaceAllString(asked[0].Question.Message, "SHA-256 DIGEST")
		}},
		{"more calls than may wait", func(t *testing.T) string {
			s := openAsking(t, Config{}, "1.0.0")
			for range approval.MaxWaiting {
				waits(t, s, alice, "drop")
			}
			r, _ := s.Service.Call(t.Context(), Request{Session: alice, Tool: "drop"})
			waits(t, s, bob, "drop")
			return r.Error
		}},
		{"an invalid cursor", with(func(t *testing.T, s service, _ string) string {
			_, err := s.Approvals().List(t.Context(), "' OR 1=1", 0)
			require.ErrorIs(t, err, engine.ErrNotFound)
			return "not found"
		})},
	})
}
