package server

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// relaying is a tool of the program that makes a call through the Service, which must be open
// by then, and answers with what came of it.
func relaying(s *service, req Request) gotool.Tool {
	return gotool.Tool{Name: "relay", Description: "For tests.", Handler: gotool.Handle(
		func(ctx context.Context, c *gotool.Call, _ noArguments) (string, error) {
			req := req
			req.Session = c.Session()
			r, _ := s.Call(ctx, req)
			return answerOf(r), nil
		})}
}

// A key that the session has used counts for a tool of the program too, whoever calls that.
func TestNestedKey(t *testing.T) {
	ran := 0
	count := gotool.Tool{Name: "count_up", Description: "For tests.", Handler: gotool.Handle(
		func(context.Context, *gotool.Call, noArguments) (int, error) { ran++; return ran, nil })}
	var s service
	relay := relaying(&s, Request{Tool: "count_up", Key: "k"})
	s = openCallers(t, Config{Tools: []gotool.Tool{relay, count, postLetter}}, map[string]aCaller{"caller": {program: calling("relay", `{}`), may: []string{"relay"}}})

	_, err := s.Call(t.Context(), Request{Session: alice, Tool: "count_up", Key: "k"})
	require.NoError(t, err)
	require.Contains(t, string(s.call(alice, "caller", `{}`).Value), "success: 1")
	_, err = s.Call(t.Context(), Request{Session: bob, Tool: "post_letter", Key: "k"})
	require.NoError(t, err)
	require.Contains(t, string(s.call(bob, "caller", `{}`).Value), "the idempotency key was used for another tool")
	require.Equal(t, 1, ran)
}

// A call to a tool can shorten the time that its manifest gives it, and not prolong it.
func TestNestedTime(t *testing.T) {
	for asked, want := range map[string]time.Duration{`{timeout: 3000000}`: time.Minute, `{timeout: 20000}`: 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			slow := gotool.Tool{
				Name: "slow_tool", Description: "For tests.", Hints: abi.Hints{SupportsBackground: true}, Limits: abi.Limits{TimeoutSeconds: 60, BackgroundSeconds: 60},
				Handler: gotool.Handle(func(ctx context.Context, _ *gotool.Call, _ noArguments) (noArguments, error) {
					<-ctx.Done()
					return noArguments{}, ctx.Err()
				}),
			}
			s := openScripts(t, Config{Tools: []gotool.Tool{slow}})
			defer s.Close(done())
			id := s.spawnScript(`return await tools.slow_tool({}, ` + asked + `)`)
			time.Sleep(time.Second)
			children, err := s.engine.List(t.Context(), engine.Query{Session: alice, Parent: id})
			require.NoError(t, err)
			require.Len(t, children, 1)
			require.Equal(t, want, children[0].Timeout)
		})
	}
}

// A person's refusal of a call that a tool makes is recorded as that.
func TestNestedRefusalIsRecorded(t *testing.T) {
	var wiped []string
	var asked []HeldCall
	s := openWipers(t, &wiped)
	_, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "clean", Decide: deciding(&asked, abi.AnswerAccept, "no")})
	require.NoError(t, err)
	calls := s.Figures().Calls(CallQuery{Tool: "nuke"})
	require.Len(t, calls, 1)
	require.Equal(t, wire.CodeDenied, calls[0].Code)
	require.Empty(t, wiped)
}

// A call that is held and that nobody waits for any more is stopped by its parent.
func TestNestedCallIsWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var wiped []string
		clean := cleaner
		clean.Hints = abi.Hints{SupportsBackground: true}
		s := openFolder(t, Config{
			Tools:     []gotool.Tool{clean, wiper(&wiped, "wipe"), wiper(&wiped, "nuke")},
			Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"clean": DecideAllow}},
		}, nil)
		defer s.Close(done())
		_, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "clean", Timeout: 5 * time.Second})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		held, err := s.engine.List(t.Context(), engine.Query{Session: alice, Filter: RunFilter{Tool: "wipe"}})
		require.NoError(t, err)
		require.NotEmpty(t, held)
		for _, run := range held {
			require.Equal(t, engine.StatusCanceled, run.Status)
			require.Equal(t, "parent", run.Cancel.By)
		}
	})
}

// A dry run does not continue the call that an earlier request has made.
func TestDryRunDoesNotResume(t *testing.T) {
	s := openAsking(t, Config{}, "1.0.0")
	m := &remember{answer: map[string]string{}}
	var run wire.Run
	req := Request{Session: alice, Tool: "drop", Args: json.RawMessage(`{"n":1}`), Decide: m.decide, OnPark: func(r wire.Run) { run = r }}
	_, err := s.Service.Call(t.Context(), req)
	require.ErrorIs(t, err, ErrAskAgain)
	req.Resumes, req.DryRun, m.answer = run.TaskID, true, map[string]string{run.TaskID: "once"}
	r, err := s.Service.Call(t.Context(), req)
	require.NoError(t, err)
	require.True(t, IsDryRun(r))
	require.NotEmpty(t, s.run(run.TaskID).Held)
}
