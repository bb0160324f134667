package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// A call that takes long is no error: it continues in the background, and the
// agent is notified.
func TestPark(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		before := time.Now()
		r := s.call(alice, "sleeper", `{"n":1}`)
		require.Equal(t, 10*time.Minute, time.Since(before))
		require.True(t, r.IsSuccess())
		var answer object
		require.NoError(t, json.Unmarshal(r.Value, &answer))
		id, _ := answer["task_id"].(string)
		require.Regexp(t, `^bg_[a-z2-7]{26}$`, id)
		require.Equal(t, object{
			"type": "background", "task_id": id, "background_id": id, "tool": "sleeper", "timeout_seconds": 600.0, "status": "running",
			"message": "Still running after 600s. It continues in the background: its end comes with a later tool result, and check_background waits for it. Do not repeat the call. stop_background stops it.",
		}, answer)

		run, err := s.runs.Get(t.Context(), alice, id)
		require.NoError(t, err)
		run = s.whole(run)
		require.Equal(t, engine.OriginParked, run.Origin)
		require.Equal(t, before, run.StartedAt)
		require.Equal(t, before.Add(10*time.Minute), run.ParkedAt)
		require.JSONEq(t, `{"n":1}`, string(run.Args))
		report := s.check(alice, id, `,"wait_seconds":0`)
		require.Equal(t, 600.0, report["elapsed_seconds"], "since the call began")
		require.Equal(t, 300.0, report["deadline_in_seconds"])
		require.Equal(t, "working\n", report["output"].(map[string]any)["text"], "what came before is there")

		report = s.check(alice, id, `,"wait_seconds":540`)
		require.Equal(t, map[string]any{"kind": "timeout", "message": "The run's deadline of 15m0s passed"}, report["error"])
		require.Equal(t, 900.0, report["elapsed_seconds"])
	})
}

// TestParkSaysOnceHowItEnds: also a caller without a session reads once how to wait.
func TestParkSaysOnceHowItEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		for unnamed, how := range map[bool]string{
			false: "its end comes with a later tool result, and check_background waits for it",
			true:  "wait for its end with check_background",
		} {
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: "sleeper", Unnamed: unnamed})
			require.NoError(t, err)
			require.Contains(t, string(r.Value), how)
			require.Equal(t, 1, strings.Count(string(r.Value), CheckBackground), "%s", r.Value)
		}
	})
}

// A parked call takes no place from direct ones.
func TestParkedCallGivesItsPlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Host: host.Config{TotalCalls: 1}, ParkAfter: 15 * time.Second}, "sleeper", "echo")
		s.park(alice, "sleeper", `{}`)
		require.True(t, s.call(alice, "echo", `{}`).IsSuccess())
	})
}

// A parked call that ends leaves its result to check, and a notice, and the
// end of the call that was waited for is its own.
func TestParkedCallEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: 15 * time.Second}, "chatty")
		id := s.park(alice, "chatty", `{}`)
		require.Empty(t, s.notices(alice))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		notices := s.notices(alice)
		require.Len(t, notices, 1)
		require.Equal(t, id, notices[0].TaskID)
		require.Equal(t, wire.StatusSucceeded, notices[0].Status)
		report := s.check(alice, id, "")
		require.Equal(t, "one\ntwo\nthree\n", report["output"].(map[string]any)["text"])
		require.Equal(t, 20.0, report["elapsed_seconds"])
		require.Empty(t, s.notices(alice), "an agent that saw the end is not notified")
	})
}

// park calls a tool that is parked, and returns the id of the run.
func (s service) park(session, tool, args string) string {
	s.t.Helper()
	answer := s.agent(session, tool, args)
	require.Equal(s.t, "background", answer["type"], "%v", answer)
	return answer["task_id"].(string)
}

// closable is a writer that must not be used once its owner has gone.
type closable struct {
	strings.Builder
	closed atomic.Bool
}

func (c *closable) Write(p []byte) (int, error) {
	if c.closed.Load() {
		panic("written to after the call has returned")
	}
	return c.Builder.Write(p)
}

// The caller's writers are not touched after the call has returned, however it
// did. The race detector would see it too.
func TestParkDetachesTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: 5 * time.Second}, "chatty", "sleeper")
		var stdout, stderr closable
		var told []host.Progress
		call := func(tool string) {
			stdout.Reset()
			_, err := s.Call(t.Context(), Request{Session: alice, Tool: tool, Stdout: &stdout, Stderr: &stderr, Progress: func(p host.Progress) { told = append(told, p) }})
			require.NoError(t, err)
		}
		call("sleeper")
		require.Equal(t, "working\n", stdout.String())
		require.Equal(t, []host.Progress{{Done: 1, Total: 2, Message: "half way"}}, told)
		call("chatty")
		require.Equal(t, "one\n", stdout.String())
		stdout.closed.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, "one\n", stdout.String())
		require.Empty(t, stderr.String())
	})
}

// The time of a call that could not be parked is reported in the same words whichever
// of its two clocks went off first, and with what it waited for.
func TestOutOfTime(t *testing.T) {
	for _, clock := range []error{host.TimeLimit(time.Hour), context.DeadlineExceeded} {
		err := outOfTime(time.Hour, &host.CallError{Tool: "slow", Err: clock})
		require.EqualError(t, err, "time limit of 1h0m0s reached")
		err = outOfTime(time.Hour, &host.CallError{Tool: "slow", Err: &host.WaitedError{Err: clock, For: "its turn"}})
		require.EqualError(t, err, "time limit of 1h0m0s reached while the call waited: its turn")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// Which calls are parked, when, and how long they may take then.
func TestWhatIsParked(t *testing.T) {
	const never = 0
	for _, test := range []struct {
		name           string
		cfg            Config
		tool           abi.Limits
		hinted         bool
		call           Limits
		session        string
		park, deadline time.Duration
	}{
		{"a tool with the hint", Config{}, abi.Limits{}, true, Limits{}, alice, 10 * time.Minute, 15 * time.Minute},
		{"a tool without it", Config{}, abi.Limits{}, false, Limits{}, alice, 2 * time.Minute, 7 * time.Minute},
		{"all tools", Config{Park: ParkAll}, abi.Limits{}, false, Limits{}, alice, 10 * time.Minute, 15 * time.Minute},
		{"none", Config{Park: ParkNever}, abi.Limits{}, true, Limits{}, alice, never, 2 * time.Minute},
		{"after no time", Config{ParkAfter: -1}, abi.Limits{}, true, Limits{}, alice, never, 2 * time.Minute},
		{"the operator's time", Config{ParkAfter: time.Minute}, abi.Limits{}, true, Limits{}, alice, time.Minute, 6 * time.Minute},
		{"no session it could belong to", Config{}, abi.Limits{}, true, Limits{}, "", never, 2 * time.Minute},
		{"the tool wants it sooner", Config{}, abi.Limits{ParkAfterSeconds: 30}, true, Limits{}, alice, 30 * time.Second, 5*time.Minute + 30*time.Second},
		{"the tool wants it later", Config{}, abi.Limits{ParkAfterSeconds: 3000}, true, Limits{}, alice, 10 * time.Minute, 15 * time.Minute},
		{"the tool has more time", Config{}, abi.Limits{TimeoutSeconds: 1800}, true, Limits{}, alice, 10 * time.Minute, 30 * time.Minute},
		{"the tool has more time in the background", Config{}, abi.Limits{BackgroundSeconds: 1800}, true, Limits{}, alice, 10 * time.Minute, 30 * time.Minute},
		{"the caller has less", Config{}, abi.Limits{}, true, Limits{Timeout: time.Minute}, alice, never, time.Minute},
		{"the caller has more", Config{}, abi.Limits{}, true, Limits{Timeout: 20 * time.Minute}, alice, 10 * time.Minute, 20 * time.Minute},
		{"the longest run is short", Config{MaxLimits: Limits{Background: 8 * time.Minute}}, abi.Limits{}, true, Limits{}, alice, 3 * time.Minute, 8 * time.Minute},
		{"the longest run is too short", Config{MaxLimits: Limits{Background: 5 * time.Minute}}, abi.Limits{}, true, Limits{}, alice, never, 2 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := plugintest.Manifest("slow")
				m.Needs.Clock = true
				m.Tools[0].Limits, m.Tools[0].Hints.SupportsBackground = test.tool, test.hinted
				test.cfg.Grants = map[string]plugins.Grant{"slow": {Clock: true}}
				s := openFolder(t, test.cfg, fstest.MapFS{"slow.wasm": {Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Sleep(1e6)}.Wasm()}})
				before := time.Now()
				r, err := s.Call(t.Context(), Request{Session: test.session, Tool: "slow", Limits: test.call})
				if test.park == never {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, abi.LimitTime, r.Limit)
					require.Equal(t, fmt.Sprintf("time limit of %v reached", test.deadline), r.Error)
					require.Equal(t, test.deadline, time.Since(before))
					return
				}
				require.NoError(t, err)
				require.Equal(t, test.park, time.Since(before))
				var answer struct {
					ID string `json:"task_id"`
				}
				require.NoError(t, json.Unmarshal(r.Value, &answer))
				run, err := s.runs.Get(t.Context(), alice, answer.ID)
				require.NoError(t, err)
				require.Equal(t, test.deadline, run.Timeout)
			})
		})
	}
}

// A parkable tool that ends in time answers as any other.
func TestParkableCallsAnswerAlike(t *testing.T) {
	small := Limits{Fuel: 1_000_000, Memory: 1 << 20, Output: 1 << 20}
	s := open(t, Config{MaxLimits: small})
	for _, tool := range []string{"echo", "fails", "exits", "traps", "panics", "spin", "hog", "flood", "connect", "liar", "picture", "large"} {
		want, wantErr := s.Call(t.Context(), Request{Tool: tool, Args: []byte(`{"n":1}`)})
		got, err := s.Call(t.Context(), Request{Tool: tool, Args: []byte(`{"n":1}`), Session: alice})
		for _, u := range []*abi.Usage{&want.Usage, &got.Usage} {
			u.CPU, u.Wall, u.Wait = 0, 0, 0
		}
		require.Equal(t, want, got, tool)
		require.Equal(t, wantErr == nil, err == nil, tool)
		if err != nil {
			require.Equal(t, wantErr.Error(), err.Error())
		}
	}
	require.EqualValues(t, 0, s.agent(alice, CheckBackground, `{}`)["finished"], "no trace is left")
	require.Zero(t, s.Stats().Runs.Active)
}

// A caller that goes away before the call is parked takes it with it; after
// that it takes nothing.
func TestParkCanceled(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, 10 * time.Minute, 11 * time.Minute} {
		bubble(t, func(t *testing.T) {
			s := open(t, Config{}, "sleeper")
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := errors.New("the caller has gone")
			time.AfterFunc(after, func() { cancel(gone) })
			r, err := s.Call(ctx, Request{Session: alice, Tool: "sleeper"})
			synctest.Wait()
			active := s.agent(alice, CheckBackground, `{}`)["active"]
			switch {
			case after < 10*time.Minute, after == 10*time.Minute && err != nil: // at the same moment it is one of both
				require.ErrorIs(t, err, gone)
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, abi.CanceledKind, r.Kind)
				require.Equal(t, "the caller has gone", r.Error)
				require.EqualValues(t, 0, active)
				require.EqualValues(t, 0, s.agent(alice, CheckBackground, `{}`)["finished"])
			default:
				require.NoError(t, err)
				require.EqualValues(t, 1, active)
				time.Sleep(2 * time.Minute)
				require.EqualValues(t, 1, s.agent(alice, CheckBackground, `{}`)["active"])
			}
		})
	}
}

// A caller that goes away at the very moment its call is parked: the call is
// either canceled or continues, never both and never neither.
func TestParkRacesWithTheCaller(t *testing.T) {
	const calls = 200
	s := open(t, Config{Runs: RunsConfig{Parked: calls, PerHost: calls}, ParkAfter: 5 * time.Millisecond}, "sleeper")
	_, _ = s.Call(t.Context(), Request{Tool: "sleeper", Limits: Limits{Timeout: time.Millisecond}}) // compiles it
	var callers sync.WaitGroup
	var parked atomic.Int32
	for i := range calls {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond/10)
			defer cancel()
			r, err := s.Call(ctx, Request{Session: alice, Tool: "sleeper"})
			if r.IsSuccess() {
				parked.Add(1)
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v %v", r, err)
			}
		})
	}
	callers.Wait()
	t.Logf("%d of %d calls were parked", parked.Load(), calls)
	require.EqualValues(t, parked.Load(), s.agent(alice, CheckBackground, `{}`)["active"])
	require.EqualValues(t, parked.Load(), s.Stats().Runs.Active)
	require.EqualValues(t, 0, s.agent(alice, CheckBackground, `{}`)["finished"])
}

// Parked calls have places of their own. The one too many cannot be refused:
// it is stopped, and says why. None is ended to make room.
func TestParkedLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Minute}, "sleeper", "stubborn")
		for range background.DefaultPerSession {
			s.spawn(alice, "sleeper", `{}`)
		}
		var calls sync.WaitGroup
		for range background.DefaultParked {
			calls.Go(func() { s.park(alice, "sleeper", `{}`) })
		}
		calls.Wait()
		before := time.Now()
		text := s.refused(alice, "sleeper", `{}`)
		require.Equal(t, time.Minute, time.Since(before))
		require.True(t, strings.HasPrefix(text, "sleeper was stopped after 60s: it would have continued in the background, but this session already has the maximum of 32 calls"), text)
		require.Equal(t, background.DefaultParked, strings.Count(text, "bg_"))
		r := s.call(alice, "stubborn", `{}`)
		require.JSONEq(t, `{"partial":true}`, string(r.Value), "a result is not lost")
		require.EqualValues(t, background.DefaultParked+background.DefaultPerSession, s.agent(alice, CheckBackground, `{}`)["active"])
		s.park(bob, "sleeper", `{}`)
	})
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Runs: RunsConfig{PerHost: 1}, ParkAfter: time.Minute}, "sleeper")
		s.spawn(bob, "sleeper", `{}`)
		require.Equal(t, "sleeper was stopped after 60s: it would have continued in the background, but this host already runs the maximum of 1 background runs; try again when one has ended",
			s.refused(alice, "sleeper", `{}`))
	})
}

// The end of a session stops what its agent waited for, and leaves what it
// sent off; or all of it.
func TestEndSession(t *testing.T) {
	for _, test := range []struct {
		end     background.SessionEnd
		spawned string
	}{{"", "running"}, {background.EndParked, "running"}, {background.EndAll, "canceled"}} {
		bubble(t, func(t *testing.T) {
			s := open(t, Config{Runs: RunsConfig{EndSession: test.end}, ParkAfter: time.Second}, "sleeper")
			spawned, parked, other := s.spawn(alice, "sleeper", `{}`), s.park(alice, "sleeper", `{}`), s.park(bob, "sleeper", `{}`)
			require.NoError(t, s.Session(alice).End(t.Context()))
			require.Equal(t, test.spawned, s.check(alice, spawned, `,"wait_seconds":0`)["status"])
			require.Equal(t, "canceled", s.check(alice, parked, `,"wait_seconds":0`)["status"])
			require.Equal(t, "running", s.check(bob, other, `,"wait_seconds":0`)["status"])
		})
	}
}

// A configuration that contradicts itself is refused when it is loaded.
func TestParkConfig(t *testing.T) {
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{Park: "sometimes"}, `Park: expected "overdue", "hinted", "all" or "never", found "sometimes"`},
		{Config{ParkAfter: 56 * time.Minute}, "ParkAfter: a call that is parked after 56m0s may take 1h1m0s, but MaxLimits.Background is 1h0m0s: raise it, or park sooner"},
		{Config{ParkAfter: 1<<63 - 1}, "ParkAfter: a call that is parked after"},
		{Config{Park: ParkNever, ParkAfter: 56 * time.Minute}, ""},
		{Config{ParkAfter: 56 * time.Minute, MaxLimits: Limits{Background: 2 * time.Hour}}, ""},
		{Config{Runs: RunsConfig{EndSession: "never"}}, "EndSession"},
	} {
		s, err := Open(t.Context(), test.cfg)
		if test.want == "" {
			require.NoError(t, err)
			require.NoError(t, s.Close(t.Context()))
			continue
		}
		require.ErrorContains(t, err, test.want)
		require.ErrorIs(t, err, background.ErrInvalid)
	}
}

// Where calls may be parked, an agent has the tools to look after them.
func TestParkingNeedsTheAgentTools(t *testing.T) {
	s := open(t, Config{}, "plain")
	require.Len(t, s.Definitions(alice), 1)
	require.True(t, s.Definitions(alice)[0].MayPark, "seldom: the tools come with the first run")
	s = open(t, Config{Park: ParkHinted}, "plain")
	require.False(t, s.Definitions(alice)[0].MayPark)
	s = open(t, Config{Park: ParkAll}, "plain")
	require.Len(t, s.Definitions(alice), 4)
	require.True(t, s.Definitions(alice)[0].MayPark)
	require.False(t, s.Definitions(alice)[1].MayPark, "the agent's own tools never are")
}

// The end of the host ends a call that is waited for, and a parked one as any
// run.
func TestCloseEndsParkableCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Minute}, "sleeper")
		id := s.park(alice, "sleeper", `{}`)
		ended := make(chan error)
		go func() {
			_, err := s.Call(t.Context(), Request{Session: alice, Tool: "sleeper"})
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close(done()))
		require.ErrorIs(t, <-ended, host.ErrClosed)
		require.Equal(t, "interrupted", s.check(alice, id, "")["error"].(map[string]any)["kind"])
	})
}
