package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
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

// However many calls and tools there are, a bounded number is remembered.
func TestFiguresAreBounded(t *testing.T) {
	f := &Figures{tools: map[string]*toolFigures{}}
	at := time.Now()
	for i := range 3 * maxTools {
		f.add(callNote{tool: strings.Repeat("i", i%127+1) + string(rune('a'+i%26)) + string(rune('α'+i)), known: true}, alice, at.Add(time.Duration(i)), abi.Result{Kind: abi.Success}, nil)
	}
	require.Len(t, f.Tools(), maxTools)
	calls := f.Calls(CallQuery{})
	require.Len(t, calls, maxCalls)
	for i, c := range calls {
		require.Equal(t, at.Add(time.Duration(3*maxTools-1-i)), c.At)
	}
}

// A quantile is off by at most an eighth, over the whole range.
func TestQuantiles(t *testing.T) {
	for _, d := range []time.Duration{0, time.Microsecond, 5 * time.Microsecond, 90 * time.Microsecond, 1234 * time.Microsecond, time.Second, 9 * time.Minute, 100 * time.Hour} {
		var h histogram
		h.add(d)
		h.add(10 * d)
		require.InEpsilon(t, d+time.Microsecond, h.quantile(0.5)+time.Microsecond, 0.13, d)
	}
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	require.InEpsilon(t, 500*time.Millisecond, h.quantile(0.5), 0.13)
	require.InEpsilon(t, 950*time.Millisecond, h.quantile(0.95), 0.13)
	require.Equal(t, time.Second, h.max)
	require.Zero(t, (&histogram{}).quantile(0.5))
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
		require.Len(t, minutes, maxMinutes)
		require.Equal(t, time.Now().UTC().Truncate(time.Minute), minutes[maxMinutes-1].At)
		for i, m := range minutes {
			require.Equal(t, minutes[0].At.Add(time.Duration(i)*time.Minute), m.At)
			require.Zero(t, m.Calls+m.RunsSpawned)
		}
	})
}

// A clock that jumps leaves no more minutes than there may be, and none twice.
func TestHistoryOfJumps(t *testing.T) {
	var h history
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, after := range []time.Duration{0, time.Minute, -30 * time.Minute, 2 * time.Minute, 90 * time.Minute, 300 * time.Hour, -time.Hour, 5 * time.Minute} {
		h.add(sample{at: at.Add(after), runs: background.Stats{Failed: map[engine.ErrorKind]int64{}}})
		require.LessOrEqual(t, len(h.minutes), maxMinutes)
		for i := 1; i < len(h.minutes); i++ {
			require.Equal(t, time.Minute, h.minutes[i].At.Sub(h.minutes[i-1].At))
		}
	}
}

// The calls of a tool are kept by minute, with what they cost and how long they took.
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

// However many calls there are, and however the clock jumps, an hour of them is kept.
func TestCallHour(t *testing.T) {
	var h callHour
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	add := func(after time.Duration) {
		h.add(&calledTool{at: at.Add(after), took: time.Duration(len(h.minutes)) * time.Millisecond, outcome: abi.Success})
	}
	for i := range 1000 {
		add(time.Duration(i) * 20 * time.Second)
	}
	require.Len(t, h.minutes, maxMinutes)
	newest := h.minutes[maxMinutes-1]
	add(5 * time.Hour) // the clock was put back, by less than is kept
	require.Equal(t, newest.calls+1, h.minutes[maxMinutes-1].calls)
	add(-100 * time.Hour)
	require.Len(t, h.minutes, 1, "another hour")
	require.Equal(t, at.Add(-100*time.Hour), time.Unix(60*h.minutes[0].minute, 0).UTC())
	add(1000 * time.Hour)
	require.Nil(t, h.at(at))
	require.EqualValues(t, 1, h.at(at.Add(1000*time.Hour)).calls)
}
