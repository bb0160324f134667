package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/wire"
)

// Direct calls are remembered with their outcome and their cost, and without their
// arguments and results; each tool has figures.
func TestCallsAreRemembered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Second}, "echo", "fails", "traps", "spin", "chatty", "panics")
		for _, c := range []struct{ session, tool, args string }{
			{alice, "echo", `{"n":1}`}, {alice, "fails", `{}`}, {"bob/x", "traps", `{}`}, {alice, "nothing" + strings.Repeat("x", 200), `{}`},
			{alice, "echo", `{"n":"hunter2"}`}, {alice, CheckBackground, `{}`}, {"bob/y", "panics", `{}`}, {alice, "chatty", `{}`},
		} {
			_, _ = s.Call(t.Context(), Request{Session: c.session, Tool: c.tool, Args: []byte(c.args)})
		}
		_, err := s.Call(t.Context(), Request{Session: alice, Tool: "spin", Limits: Limits{Fuel: 1000}})
		require.ErrorIs(t, err, host.ErrFuel)

		type short struct {
			tool, plugin string
			outcome      abi.Kind
			code         wire.Code
		}
		var got []short
		calls := s.Figures().Calls(CallQuery{})
		for _, c := range calls {
			got = append(got, short{c.Tool, c.Plugin, c.Outcome, c.Code})
		}
		require.Equal(t, []short{
			{"spin", "spin", abi.LimitReached, wire.CodeFuel}, {"chatty", "chatty", abi.Success, ""}, {"panics", "panics", abi.Internal, wire.CodeTrap},
			{CheckBackground, "", abi.Success, ""}, {"echo", "echo", abi.ToolError, ""},
			{"nothing" + strings.Repeat("x", 121), "", abi.ToolError, wire.CodeNotFound}, {"traps", "traps", abi.Internal, wire.CodeTrap},
			{"fails", "fails", abi.ToolError, ""}, {"echo", "echo", abi.Success, ""},
		}, got)
		require.Regexp(t, "^bg_", calls[1].TaskID)
		require.Nil(t, calls[1].Cost, "its run has it")
		require.EqualValues(t, 1, calls[1].ElapsedSeconds)
		require.Equal(t, "the plugin crashed: it panicked: the key is hunter2", calls[2].Diagnosis.Reason)
		require.Positive(t, calls[8].Cost.Fuel)
		require.NotEmpty(t, calls[6].Diagnosis.Trace)

		require.Len(t, s.Figures().Calls(CallQuery{Owner: "bob/"}), 2)
		require.Len(t, s.Figures().Calls(CallQuery{Session: "bob/x"}), 1)
		require.Len(t, s.Figures().Calls(CallQuery{Tool: "echo"}), 2)
		require.Len(t, s.Figures().Calls(CallQuery{Tool: "echo", Failed: true}), 1)
		require.Len(t, s.Figures().Calls(CallQuery{Limit: 3}), 3)

		tools := map[string]wire.ToolFigures{}
		for _, f := range s.Figures().Tools() {
			tools[f.Tool] = f
		}
		require.Len(t, tools, 7, "unknown tools have no figures")
		require.Equal(t, map[string]int64{"tool_error": 1}, tools["echo"].Errors)
		require.EqualValues(t, 2, tools["echo"].Calls)
		require.Equal(t, map[string]int64{"tool_error": 1}, tools["fails"].Errors)
		require.Equal(t, map[string]int64{"fuel": 1}, tools["spin"].Errors)
		require.Positive(t, tools["spin"].Fuel)
		require.EqualValues(t, 1, tools["chatty"].MaxSeconds)
	})
}

// The last hour is kept by minute: what happened in it, and the most there was at once.
func TestHistory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Runs: RunsConfig{PerSession: 10}}, "echo", "fails", "sleeper")
		synctest.Wait()
		begin := time.Now().UTC()
		require.Equal(t, []wire.Minute{{At: begin}}, s.Figures().History())

		s.call(alice, "echo", `{}`)
		s.refused(alice, "fails", `{}`)
		s.spawn(alice, "echo", `{}`)
		s.spawn(alice, "fails", `{}`)
		slow := s.spawn(alice, "sleeper", `{}`)
		synctest.Wait()
		time.Sleep(90 * time.Second)
		s.agent(alice, StopBackground, `{"task_id":"`+slow+`"}`)
		synctest.Wait()
		minutes := s.Figures().History()
		require.Len(t, minutes, 2)
		first, second := minutes[0], minutes[1]
		require.Equal(t, begin, first.At)
		require.EqualValues(t, []int64{3, 1, 1, 0, 5, 1}, []int64{first.RunsSpawned, first.RunsSucceeded, first.RunsFailed, first.RunsCanceled, first.Calls, first.CallErrors})
		require.Equal(t, 1, first.RunsActive)
		require.Positive(t, first.Fuel)
		require.Positive(t, first.MemoryPeak)
		require.EqualValues(t, 1, second.RunsCanceled)
		require.EqualValues(t, 1, second.Calls)

		time.Sleep(2 * time.Hour)
		synctest.Wait()
		minutes = s.Figures().History()
		require.Len(t, minutes, 61)
		require.Equal(t, time.Now().UTC().Truncate(time.Minute), minutes[60].At)
		for i, m := range minutes {
			require.Equal(t, minutes[0].At.Add(time.Duration(i)*time.Minute), m.At)
			require.Zero(t, m.Calls+m.RunsSpawned)
		}
	})
}

// The calls to a tool are kept by minute, with what they cost and how long they took.
func TestHistoryOf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: -1}, "echo", "fails", "chatty")
		require.Empty(t, s.Figures().HistoryOf("echo"))
		s.call(alice, "echo", `{}`)
		s.refused(alice, "fails", `{}`)
		time.Sleep(3 * time.Minute)
		s.call(alice, "echo", `{}`)
		s.call(alice, "chatty", `{}`)

		minutes := s.Figures().HistoryOf("echo")
		require.Len(t, minutes, 4, "they begin with the first call")
		require.EqualValues(t, []int64{1, 0, 0, 1}, []int64{minutes[0].Calls, minutes[1].Calls, minutes[2].Calls, minutes[3].Calls})
		require.Positive(t, minutes[0].Fuel)
		require.Positive(t, minutes[0].MemoryPeak)
		require.EqualValues(t, 1, s.Figures().HistoryOf("fails")[0].CallErrors)
		slow := s.Figures().HistoryOf("chatty")
		require.Positive(t, slow[len(slow)-1].CallP50Seconds)
		all := s.Figures().History()
		require.Equal(t, slow[len(slow)-1].CallP95Seconds, all[len(all)-1].CallP95Seconds, "the slowest of the minute")

		time.Sleep(2 * time.Hour)
		require.Empty(t, s.Figures().HistoryOf("echo"))
	})
}
