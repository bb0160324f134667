package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/wire"
)

// A call with a key continues when its caller leaves, and what it calls then is held.
func TestHeldInsideAfterCallerLeft(t *testing.T) {
	for tool, args := range map[string]json.RawMessage{"later": json.RawMessage(`{}`), "exec": code(`await sleep(2000); return await tools.wipe({text: "a"})`)} {
		t.Run(tool, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var wiped []string
				later := gotool.Tool{Name: "later", Description: "Cleans later.", Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ struct{}) (string, error) {
					time.Sleep(2 * time.Second)
					r, err := c.CallTool(ctx, "wipe", scriptText{"a"})
					return string(r.Value), err
				})}
				s := openScripts(t, Config{
					Tools:     []gotool.Tool{wiper(&wiped, "wipe"), later},
					Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"later": DecideAllow, "exec": DecideAllow}},
				})
				ctx, leave := context.WithTimeout(t.Context(), time.Second)
				defer leave()
				_, err := s.Service.Call(ctx, Request{Session: alice, Tool: tool, Args: args, Key: "k"})
				require.ErrorIs(t, err, context.DeadlineExceeded)

				time.Sleep(5 * time.Second)
				list, err := s.Approvals().List(t.Context(), "", 0)
				require.NoError(t, err)
				require.Len(t, list.Approvals, 1)
				_, err = s.Approvals().Decide(t.Context(), list.Approvals[0].TaskID, "operator", wire.Decide{Approve: true})
				require.NoError(t, err)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, []string{"wipe a"}, wiped)
			})
		})
	}
}

// Runs that wait for what they have called leave their slots to it.
func TestHeldInsideHasSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var wiped atomic.Int32
		wipe := gotool.Tool{Name: "wipe", Description: "Deletes.", Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (gotool.None, error) {
			wiped.Add(1)
			return gotool.None{}, nil
		})}
		clean := gotool.Tool{Name: "clean", Description: "Cleans.", Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ struct{}) (gotool.None, error) {
			_, err := c.CallTool(ctx, "wipe", struct{}{})
			return gotool.None{}, err
		})}
		s := openScripts(t, Config{
			Runs: RunsConfig{PerHost: 4}, Tools: []gotool.Tool{wipe, clean},
			Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"clean": DecideAllow}},
		})
		for i := range 4 {
			r, err := s.Service.Call(t.Context(), Request{Session: fmt.Sprint("s", i), Tool: "clean"})
			require.NoError(t, err)
			require.Contains(t, string(r.Value), "It waits until a person approves a call of wipe (for an operator: toolhost approve bg_")
		}
		list, err := s.Approvals().List(t.Context(), "", 0)
		require.NoError(t, err)
		require.Len(t, list.Approvals, 4)
		for _, one := range list.Approvals {
			_, err := s.Approvals().Decide(t.Context(), one.TaskID, "operator", wire.Decide{Approve: true})
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 4, wiped.Load())
		active, err := s.Session("s0").Runs(t.Context(), RunQuery{Active: true})
		require.NoError(t, err)
		require.Empty(t, active)
	})
}

// An operator who takes the decision from users while one is asked has it.
func TestOperatorsDecideFromNowOn(t *testing.T) {
	s := openAsking(t, Config{}, "1.0.0")
	r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "drop", Args: json.RawMessage(`{"n":1}`), Decide: func(context.Context, HeldCall) (abi.Answer, error) {
		s.reconfigure(func(c *Config) { c.Approvals.By = ByOperator })
		return accepted(`{"decision":"session"}`), nil
	}})
	require.NoError(t, err)
	require.Contains(t, string(r.Value), "It waits until a person approves it")
}

// A call that has waited for its user can ask them too, in both ways that clients answer.
func TestAskAfterHeld(t *testing.T) {
	args := code(`await tools.wipe({text: "a"}); return await ask("Who?")`)
	ana := func(_ context.Context, q abi.Questions) (abi.Answers, error) {
		out := abi.Answers{Answers: map[string]abi.Answer{}}
		for key := range q.Questions {
			out.Answers[key] = accepted(`{"answer":"Ana"}`)
		}
		return out, nil
	}
	bubble(t, func(t *testing.T) {
		var wiped []string
		s := openWipers(t, &wiped)
		r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "exec", Args: args, Ask: ana, Decide: func(context.Context, HeldCall) (abi.Answer, error) {
			time.Sleep(5 * time.Second)
			return accepted(`{"decision":"once"}`), nil
		}})
		require.NoError(t, err)
		require.Equal(t, `"Ana"`, string(r.Value))
	})
	bubble(t, func(t *testing.T) {
		var wiped []string
		s := openWipers(t, &wiped)
		m := &remember{answer: map[string]string{}}
		var run wire.Run
		req := Request{Session: alice, Tool: "exec", Args: args, Ask: ana, Decide: m.decide, OnPark: func(r wire.Run) { run = r }}
		_, err := s.Service.Call(t.Context(), req)
		require.ErrorIs(t, err, ErrAskAgain)
		time.Sleep(time.Minute)
		req.Resumes, m.answer = run.TaskID, map[string]string{m.asked[0].Run: "once"}
		r, err := s.Service.Call(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, `"Ana"`, string(r.Value))
	})
}

// A held call expires also if the policy asks about nothing any more.
func TestHeldCallExpiresAfterRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		s := openAsking(t, Config{DataDir: dir, Approvals: ApprovalPolicy{Wait: time.Hour}}, "1.0.0")
		id := waits(t, s, alice, "drop")
		require.NoError(t, s.Close(done()))
		s = openFolder(t, Config{DataDir: dir, Approvals: ApprovalPolicy{Wait: time.Hour}}, nil)
		time.Sleep(2 * time.Hour)
		require.Equal(t, "canceled approval attempt 0", s.state(alice, id))
		require.NoError(t, s.Close(done()))
	})
}

// A host that shares its engine asks its users also if it misses the events of held calls.
func TestHeldInsideWithoutEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var wiped []string
		s := openScripts(t, Config{
			Engine: deaf{memory.New()}, Tools: []gotool.Tool{wiper(&wiped, "wipe"), wiper(&wiped, "nuke"), cleaner},
			Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"exec": DecideAllow}},
		})
		var asked []HeldCall
		_, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "exec", Args: asWell, Decide: deciding(&asked, abi.AnswerAccept, "once")})
		require.NoError(t, err)
		require.Len(t, asked, 3)
	})
}

// A session has no more held calls than it may, however many come at once.
func TestHeldCallsAtOnce(t *testing.T) {
	s := openAsking(t, Config{}, "1.0.0")
	var calls sync.WaitGroup
	for i := range 3 * approval.MaxWaiting {
		calls.Go(func() {
			_, _ = s.Service.Call(t.Context(), Request{Session: alice, Tool: "drop", Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
		})
	}
	calls.Wait()
	list, err := s.Approvals().List(t.Context(), "", 0)
	require.NoError(t, err)
	require.Len(t, list.Approvals, approval.MaxWaiting)
}

// A call that cannot become a run, because too many have, is refused what it calls, and continues.
func TestHeldInsideWithoutRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var wiped []string
		s := openScripts(t, Config{
			Runs: RunsConfig{Parked: 1}, Tools: []gotool.Tool{wiper(&wiped, "wipe"), wiper(&wiped, "nuke"), cleaner},
			Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"clean": DecideAllow, "exec": DecideAllow}},
		})
		for _, tool := range []string{"clean", "exec"} {
			_, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "clean"})
			require.NoError(t, err)
			r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: tool, Args: map[string]json.RawMessage{"exec": asWell}[tool]})
			require.NoError(t, err)
			require.Contains(t, string(r.Value), "the tool needs a person's approval: ")
		}
		require.Empty(t, wiped)
	})
}

// A call that waits for its user ends with the server, and stays held.
func TestHeldCallWhenServerCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		s := openAsking(t, Config{DataDir: dir}, "1.0.0")
		asked, ended := make(chan string, 1), make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = s.Service.Call(t.Context(), Request{Session: alice, Tool: "drop", Decide: func(ctx context.Context, call HeldCall) (abi.Answer, error) {
				asked <- call.Run
				<-ctx.Done()
				return abi.Answer{}, ctx.Err()
			}})
		}()
		synctest.Wait()
		require.Len(t, asked, 1)
		id := <-asked
		require.NoError(t, s.Close(done()))
		<-ended
		s = openAsking(t, Config{DataDir: dir}, "1.0.0")
		require.Equal(t, "queued approval attempt 0", s.state(alice, id))
		require.NoError(t, s.Close(done()))
	})
}

// A kept approval that a call in a script uses is one line of the audit log, whether the
// script is a direct call or a run.
func TestKeptApprovalIsAudited(t *testing.T) {
	for name, wait := range map[string]string{"direct call": "", "run": "await sleep(2000); "} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var wiped []string
				dir := t.TempDir()
				s := openScripts(t, Config{
					AuditDir: dir, Tools: []gotool.Tool{wiper(&wiped, "wipe")},
					Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"exec": DecideAllow}},
				})
				var asked []HeldCall
				script := func(text string) {
					_, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "exec", Args: code(text), ParkAfter: time.Second, Decide: deciding(&asked, abi.AnswerAccept, "session")})
					require.NoError(t, err)
					time.Sleep(time.Minute)
				}
				script(`await tools.wipe({text: "a"})`)
				script(wait + `await tools.wipe({text: "b"})`)
				synctest.Wait()
				require.Equal(t, []string{"wipe a", "wipe b"}, wiped)
				require.Len(t, asked, 1)
				require.NoError(t, s.Close(done()))

				found, _, err := audit.Search(dir, audit.Query{}, 1<<20)
				require.NoError(t, err)
				kept := slices.DeleteFunc(found, func(e audit.Event) bool { return e.Kind != audit.Approved || e.Action != "kept" })
				require.Len(t, kept, 1)
			})
		})
	}
}

// A run that begins again after a crash makes its held call again: the one before is
// withdrawn, so that one call is approved and made.
func TestHeldInsideAfterCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var wiped []string
		tidy := gotool.Tool{Name: "tidy", Description: "Cleans.", Hints: abi.Hints{SupportsBackground: true, Idempotent: true}, Handler: gotool.Handle(
			func(ctx context.Context, c *gotool.Call, _ struct{}) (string, error) {
				r, err := c.CallTool(ctx, "wipe", scriptText{"a"})
				return r.Error, err
			})}
		e := memory.New()
		dead, err := e.Join(t.Context(), engine.WorkerInfo{TTL: time.Second})
		require.NoError(t, err)
		s := openFolder(t, Config{
			Engine: e, Tools: []gotool.Tool{wiper(&wiped, "wipe"), tidy}, Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"tidy": DecideAllow}},
		}, nil)
		tool, err := s.catalog.Lookup("tidy")
		require.NoError(t, err)
		version, err := tool.Version()
		require.NoError(t, err)

		outer := engine.Run{ID: "bg_outer", Session: alice, Tool: "tidy", Version: version, Args: json.RawMessage(`{}`), Timeout: time.Hour, OutputCap: 1 << 10, CreatedAt: time.Now()}
		_, err = dead.Adopt(t.Context(), outer, engine.Permits{})
		require.NoError(t, err)
		old := engine.Run{
			ID: "bg_old", Session: alice, Tool: "wipe", Args: json.RawMessage(`{"text":"a"}`), Timeout: time.Hour, OutputCap: 1 << 10, CreatedAt: time.Now(),
			Parent: "bg_outer", Depth: 1, Origin: engine.OriginParked, Held: approval.HeldFor, Terms: runs.Terms{Binding: approval.Binding{Fingerprint: "theirs"}}.Traced(t.Context()), By: "tidy",
		}
		require.NoError(t, dead.Submit(t.Context(), old, nil))
		time.Sleep(2 * time.Minute)

		require.Equal(t, "canceled approval attempt 0", s.state(alice, "bg_old"))
		held := s.waitingCall()
		require.Equal(t, "tidy", held.Caller)
		require.Equal(t, "done", s.decide(held.TaskID, wire.Decide{Approve: true}))
		time.Sleep(time.Minute)
		require.Equal(t, wire.StatusSucceeded, s.run("bg_outer").Status)
		require.NoError(t, s.Close(done()))
		require.Equal(t, []string{"wipe a"}, wiped)
	})
}
