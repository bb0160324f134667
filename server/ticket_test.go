package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// secretCall is a call to a tool that needs approval, with a secret argument.
var secretCall = Request{Session: alice, Tool: "vault", Args: json.RawMessage(`{"n":1,"key":"hunter2"}`)}

// stores reports whether a file below a folder has a text.
func stores(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || strings.Contains(string(data), text)
		return err
	}))
	return found
}

// waitingCall returns the only call that waits for approval, once it does.
func (s service) waitingCall() wire.WaitingCall {
	s.t.Helper()
	for range 60 {
		list, err := s.Approvals().List(s.t.Context(), "", 0)
		require.NoError(s.t, err)
		if len(list.Approvals) == 1 {
			return list.Approvals[0]
		}
		time.Sleep(time.Second)
	}
	require.Fail(s.t, "no call waits for approval")
	return wire.WaitingCall{}
}

// noRuns checks that a session has no record.
func (s service) noRuns(session string) {
	s.t.Helper()
	runs, err := s.Session(session).Runs(s.t.Context(), RunQuery{})
	require.NoError(s.t, err)
	require.Empty(s.t, runs)
}

// A call with a secret argument is made once its user has approved it. Neither the question
// nor the stored data has the secret.
func TestSecretCallIsApproved(t *testing.T) {
	dir, audited := t.TempDir(), t.TempDir()
	s := openAsking(t, Config{DataDir: dir, AuditDir: audited}, "1.0.0")
	var asked []HeldCall
	req := secretCall
	req.Decide = deciding(&asked, abi.AnswerAccept, "once")
	for i := range 2 {
		r, err := s.Service.Call(t.Context(), req)
		require.NoError(t, err)
		require.JSONEq(t, string(req.Args), string(r.Value))
		require.Len(t, asked, i+1, "once is once")
	}
	require.Regexp(t, `Its secret arguments are not shown\. Its arguments: \{"n":1\}$`, asked[0].Question.Message)
	require.NotContains(t, string(asked[0].Question.Schema), `"arguments"`)
	s.noRuns(alice)

	req.Decide = deciding(&asked, abi.AnswerDecline, "")
	_, err := s.Service.Call(t.Context(), req)
	require.ErrorIs(t, err, ErrApproval)
	require.ErrorContains(t, err, "the user did not allow it")

	req.Decide = deciding(&asked, abi.AnswerAccept, "session")
	_, err = s.Service.Call(t.Context(), req)
	require.NoError(t, err)
	_, err = s.Service.Call(t.Context(), secretCall)
	require.NoError(t, err, "it is kept for the session")
	require.NoError(t, s.Close(done()))
	require.False(t, stores(t, dir, "hunter2"))
	require.False(t, stores(t, audited, "hunter2"))
	require.True(t, stores(t, audited, `"approved"`))
}

// An operator decides while the caller waits.
func TestOperatorApprovesSecretCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openAsking(t, Config{}, "1.0.0")
		answers := make(chan abi.Result, 1)
		begin := func() {
			go func() {
				r, _ := s.Service.Call(t.Context(), secretCall)
				answers <- r
			}()
		}

		begin()
		held := s.waitingCall()
		require.Equal(t, `{"n":1}`, held.Args)
		require.True(t, held.ArgsIncomplete)
		_, err := s.Approvals().Decide(t.Context(), held.TaskID, "operator", wire.Decide{Approve: true, Keep: wire.KeepArguments})
		require.ErrorContains(t, err, "secret arguments")
		require.Equal(t, "done", s.decide(held.TaskID, wire.Decide{Approve: true}))
		require.JSONEq(t, string(secretCall.Args), string((<-answers).Value))
		s.noRuns(alice)
		require.NotEqual(t, "done", s.decide(held.TaskID, wire.Decide{Approve: true}))

		begin()
		require.Equal(t, "done", s.decide(s.waitingCall().TaskID, wire.Decide{Reason: "not today"}))
		require.Equal(t, "denied: the tool needs a person's approval: not today", (<-answers).Error)

		begin()
		id := s.waitingCall().TaskID
		s.agent(alice, StopBackground, `{"task_id":"`+id+`"}`)
		require.Contains(t, (<-answers).Error, "the tool needs a person's approval")
	})
}

// A call with a secret argument waits no longer than its caller.
func TestSecretCallIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openAsking(t, Config{}, "1.0.0")
		_, err := s.Service.Call(t.Context(), secretCall)
		require.ErrorIs(t, err, ErrApproval)
		require.ErrorContains(t, err, "call again")

		ctx, leave := context.WithCancelCause(t.Context())
		gone := errors.New("the client left")
		go func() {
			s.waitingCall()
			leave(gone)
		}()
		_, err = s.Service.Call(ctx, secretCall)
		require.ErrorIs(t, err, gone)

		list, err := s.Approvals().List(t.Context(), "", 0)
		require.NoError(t, err)
		require.Empty(t, list.Approvals)
		_, err = s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "vault", Args: secretCall.Args})
		require.Error(t, err)
	})
}

// A client that answers with its next request sends the secret again. An approval counts for
// one such request, with the arguments that were shown.
func TestSecretCallIsAskedAgain(t *testing.T) {
	s := openAsking(t, Config{}, "1.0.0")
	m := &remember{answer: map[string]string{}}
	var run wire.Run
	req := secretCall
	req.Decide, req.OnPark = m.decide, func(r wire.Run) { run = r }
	_, err := s.Service.Call(t.Context(), req)
	require.ErrorIs(t, err, ErrAskAgain)
	require.Equal(t, "queued approval attempt 0", s.state(alice, run.TaskID))

	req.Resumes, m.answer = run.TaskID, map[string]string{run.TaskID: "once"}
	other := req
	other.Args = json.RawMessage(`{"n":2,"key":"hunter2"}`)
	_, err = s.Service.Call(t.Context(), other)
	require.ErrorIs(t, err, ErrAskAgain, "other arguments are another call")

	run.TaskID, req.OnPark = req.Resumes, nil
	var made atomic.Int32
	var calls sync.WaitGroup
	require.Equal(t, "done", s.decide(run.TaskID, wire.Decide{Approve: true})) // while no request waits
	for range 8 {
		calls.Go(func() {
			if r, _ := s.Service.Call(t.Context(), req); r.Kind == abi.Success {
				made.Add(1)
			}
		})
	}
	calls.Wait()
	require.EqualValues(t, 1, made.Load())
}

// A ticket ends with the process that has the secret.
func TestSecretCallAfterRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		s := openAsking(t, Config{DataDir: dir}, "1.0.0")
		m := &remember{answer: map[string]string{}}
		req := secretCall
		req.Decide = m.decide
		_, err := s.Service.Call(t.Context(), req)
		require.ErrorIs(t, err, ErrAskAgain)
		require.NoError(t, s.Close(done()))

		s = openAsking(t, Config{DataDir: dir}, "1.0.0")
		time.Sleep(time.Second)
		run, err := s.engine.Get(t.Context(), m.asked[0].Run)
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, run.Status)
		require.Contains(t, run.Cancel.Reason, "call again")
		require.NoError(t, s.Close(done()))
	})
}

// A tool can make such a call too, and waits for the decision.
func TestSecretCallInside(t *testing.T) {
	for tool, args := range map[string]json.RawMessage{"opener": json.RawMessage(`{}`), "exec": code(`return await tools.vault({n: 1, key: "hunter2"})`)} {
		t.Run(tool, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				dir := t.TempDir()
				vault := gotool.Tool{Name: "vault", Description: "Opens.", Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in struct {
					N   int    `json:"n"`
					Key string `json:"key" secret:"true"`
				}) (int, error) {
					return len(in.Key), nil
				})}
				opener := gotool.Tool{Name: "opener", Description: "Opens.", Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ struct{}) (int, error) {
					r, err := c.CallTool(ctx, "vault", map[string]any{"n": 1, "key": "hunter2"})
					return len(r.Value), err
				})}
				s := openScripts(t, Config{
					DataDir: dir, Tools: []gotool.Tool{vault, opener},
					Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"opener": DecideAllow, "exec": DecideAllow}},
				})
				var asked []HeldCall
				r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: tool, Args: args, Decide: deciding(&asked, abi.AnswerAccept, "once")})
				require.NoError(t, err)
				require.Equal(t, map[string]string{"opener": "1", "exec": "7"}[tool], string(r.Value), r.Error)
				require.Len(t, asked, 1)
				require.Contains(t, asked[0].Question.Message, "Allow vault, called by "+tool)
				left, err := s.engine.List(t.Context(), engine.Query{Session: alice, Filter: RunFilter{Tool: "vault"}})
				require.NoError(t, err)
				require.Empty(t, left)
				require.NoError(t, s.Close(done()))
				require.False(t, tool != "exec" && stores(t, dir, "hunter2")) // the code of a script is no secret
			})
		})
	}
}

// askedSecretCall makes a call with secret arguments whose user is asked, and returns the
// request that repeats it, with the id of its ticket.
func askedSecretCall(t *testing.T, s service, args string) (Request, string) {
	t.Helper()
	var run wire.Run
	req := secretCall
	req.Args, req.Decide, req.OnPark = json.RawMessage(args), (&remember{answer: map[string]string{}}).decide, func(r wire.Run) { run = r }
	_, err := s.Service.Call(t.Context(), req)
	require.ErrorIs(t, err, ErrAskAgain)
	req.Resumes = run.TaskID
	return req, run.TaskID
}

// The answer to the question about a call counts, also if all such calls were approved
// meanwhile.
func TestSecretCallIsRefusedBesideAnother(t *testing.T) {
	s := openAsking(t, Config{}, "1.0.0")
	first, one := askedSecretCall(t, s, `{"n":1,"key":"a"}`)
	second, two := askedSecretCall(t, s, `{"n":2,"key":"b"}`)
	first.Decide = (&remember{answer: map[string]string{one: "session"}}).decide
	_, err := s.Service.Call(t.Context(), first)
	require.NoError(t, err)

	second.Decide = (&remember{answer: map[string]string{two: "no"}}).decide
	_, err = s.Service.Call(t.Context(), second)
	require.ErrorIs(t, err, ErrApproval)
}

// A ticket ends when its agent can no longer come back.
func TestSecretCallOfAnAgentThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openAsking(t, Config{}, "1.0.0")
		_, id := askedSecretCall(t, s, `{"n":1,"key":"a"}`)
		time.Sleep(MaxAskAgain / 2)
		require.Equal(t, "queued approval attempt 0", s.state(alice, id))
		time.Sleep(MaxAskAgain)
		require.NotEqual(t, "queued approval attempt 0", s.state(alice, id))
		require.NoError(t, s.Close(done()))
	})
}
