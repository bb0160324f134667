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
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
)

// TestToolCallLoop: tools that call each other come to an end.
func TestToolCallLoop(t *testing.T) {
	s := openCallers(t, Config{}, map[string]aCaller{
		"ping": {program: calling("pong", `{}`), may: []string{"pong"}},
		"pong": {program: calling("ping", `{}`), may: []string{"ping"}},
	})
	r := s.call(alice, "ping", `{}`)

	text := string(r.Value)
	require.Equal(t, abi.MaxToolDepth, strings.Count(text, `"success"`), text)
	require.Contains(t, text, "at most 8 tools can call each other in turn")
	require.Len(t, s.Figures().Calls(CallQuery{}), 1+abi.MaxToolDepth)
}

// TestToolCallBomb: a tool that calls itself twice makes a bounded number of calls.
func TestToolCallBomb(t *testing.T) {
	program := plugintest.Do()
	for range 3 {
		program.Request("tool.call", toolRequest("bomb", `{}`))
	}
	s := openCallers(t, Config{}, map[string]aCaller{"bomb": {program: program.Use("tool.call", toolRequest("bomb", `{}`)), may: []string{"bomb"}}})
	r := s.call(alice, "bomb", `{}`)

	require.Contains(t, string(r.Value), "at most 1000 calls of tools may begin with one call")
	tools := s.Figures().Tools()
	require.LessOrEqual(t, tools[0].Calls, int64(1+abi.MaxToolCalls))
	require.Greater(t, tools[0].Calls, int64(200), "the others were too deep")
	require.Len(t, s.Figures().Calls(CallQuery{}), 1+maxListed, "one call cannot push out all others")
}

// TestToolCallSlots: calls that wait for each other never hold all slots.
func TestToolCallSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openCallers(t, Config{Host: host.Config{TotalCalls: 2, Calls: 2}}, map[string]aCaller{
			"a": {program: calling("b", `{}`), may: []string{"b"}},
			"b": {program: calling("sleeper", `{}`), may: []string{"sleeper"}},
		}, "sleeper")
		results := make(chan abi.Result, 6)
		for range cap(results) {
			go func() {
				r, _ := s.Call(t.Context(), Request{Session: alice, Tool: "a", Limits: Limits{Timeout: 100 * time.Hour}})
				results <- r
			}()
		}
		for range cap(results) {
			r := <-results
			require.Equal(t, abi.Success, r.Kind, r.Error)
		}
	})
}

// TestToolCallSerial: a serial tool never waits for itself, and two never for each other.
func TestToolCallSerial(t *testing.T) {
	serial := abi.Hints{Concurrency: abi.Serial}
	s := openCallers(t, Config{}, map[string]aCaller{
		"alone":  {program: calling("alone", `{}`), may: []string{"alone"}, hints: serial},
		"around": {program: calling("middle", `{}`), may: []string{"middle"}, hints: serial},
		"middle": {program: calling("around", `{}`), may: []string{"around"}},
	})
	require.JSONEq(t, `{"kind":"tool_error","error":"the plugin alone runs one call of a session at a time, and the call that waits for this one is of it: this one would wait for itself"}`,
		string(s.call(alice, "alone", `{}`).Value))
	require.Contains(t, string(s.call(alice, "around", `{}`).Value), "this one would wait for itself")
	require.Contains(t, string(s.call(alice, "middle", `{}`).Value), "this one would wait for itself")

	bubble(t, func(t *testing.T) {
		clock := map[string]plugins.Grant{"left": {Clock: true}, "right": {Clock: true}}
		s := openCallers(t, Config{Grants: clock}, map[string]aCaller{
			"left":  {program: plugintest.Do().Sleep(1).Use("tool.call", toolRequest("right", `{}`)), may: []string{"right"}, hints: serial},
			"right": {program: plugintest.Do().Sleep(1).Use("tool.call", toolRequest("left", `{}`)), may: []string{"left"}, hints: serial},
		})
		results := make(chan string, 2)
		for _, tool := range []string{"left", "right"} {
			go func() { results <- string(s.call(alice, tool, `{}`).Value) }()
		}
		began := time.Now()
		require.Contains(t, <-results+<-results, "another one is running: retry when that has ended")
		require.Less(t, time.Since(began), 10*time.Second)
	})
}

// TestToolCallFuel: what inner calls use is the outer call's, and bounded by it.
func TestToolCallFuel(t *testing.T) {
	s := openCallers(t, Config{}, map[string]aCaller{
		"counter": {program: plugintest.Do().Count(1_000_000)},
		"caller":  {program: plugintest.Do().Request("tool.call", toolRequest("counter", `{}`)).Request("tool.call", toolRequest("counter", `{}`)).Echo(), may: []string{"counter"}},
		"outer":   {program: calling("caller", `{}`), may: []string{"caller"}},
		"wasteful": {program: plugintest.Do().Use("tool.call", toolRequest("spin", `{}`)), may: []string{"spin"},
			limits: abi.Limits{Fuel: 5_000_000}},
	}, "spin")
	counter, caller, outer := s.call(alice, "counter", `{}`), s.call(alice, "caller", `{}`), s.call(alice, "outer", `{}`)
	require.Greater(t, caller.Usage.Fuel, 2*counter.Usage.Fuel)
	require.Less(t, caller.Usage.Fuel, 2*counter.Usage.Fuel+300_000)
	require.Greater(t, outer.Usage.Fuel, caller.Usage.Fuel)
	require.Less(t, outer.Usage.Fuel, caller.Usage.Fuel+150_000)
	listed := s.Figures().Calls(CallQuery{Limit: 2})
	require.Equal(t, "outer", listed[1].OuterTool)
	require.Equal(t, outer.Usage.Fuel, listed[0].Cost.Fuel)
	require.Greater(t, outer.Usage.MemoryPeak, caller.Usage.MemoryPeak)

	before := s.Stats().Host.Fuel
	r := s.call(alice, "outer", `{}`)
	require.Equal(t, r.Usage.Fuel, s.Stats().Host.Fuel-before, "nothing is counted twice")

	r, err := s.Call(t.Context(), Request{Session: alice, Tool: "wasteful"})
	require.ErrorIs(t, err, host.ErrFuel)
	require.Equal(t, "out of fuel after 5000000 units", r.Error)
	require.Equal(t, int64(5_000_000), r.Usage.Fuel)
}

// TestToolCallTime: an inner call ends at its own time limit, and with the outer call.
func TestToolCallTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openCallers(t, Config{}, map[string]aCaller{
			"brief": {program: plugintest.Do().Use("tool.call", `{"tool":"sleeper","timeout_ms":1500}`), may: []string{"sleeper"}},
			"long":  {program: calling("sleeper", `{}`), may: []string{"sleeper"}},
		}, "sleeper")
		began := time.Now()
		r := s.call(alice, "brief", `{}`)
		require.JSONEq(t, `{"kind":"limit","limit":"time","error":"time limit of 1.5s reached"}`, string(r.Value))
		require.Equal(t, 1500*time.Millisecond, time.Since(began))

		r, err := s.Call(t.Context(), Request{Session: alice, Tool: "long", Limits: Limits{Timeout: 7 * time.Second}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "time limit of 7s reached", r.Error)
		require.Equal(t, 8500*time.Millisecond, time.Since(began))
	})
}

// TestToolCallStop: a stop of a run reaches what its tool waits for.
func TestToolCallStop(t *testing.T) {
	stop := func(t *testing.T, tool, want string, begun func(s service)) {
		s := openCallers(t, Config{}, map[string]aCaller{
			"outer":  {program: calling("caller", `{}`), may: []string{"caller"}, hints: abi.Hints{SupportsBackground: true}},
			"caller": {program: calling(tool, `{}`), may: []string{tool}},
		}, tool)
		id := s.spawn(alice, "outer", `{}`)
		begun(s)
		r := s.agent(alice, StopBackground, `{"task_id":"`+id+`"}`)

		result, err := json.Marshal(r["result"])
		require.NoError(t, err)
		require.Contains(t, string(result), want, "%v", r)
		require.Zero(t, s.Stats().Host.Running)
	}

	for tool, want := range map[string]string{
		"sleeper":  `{"kind":"success","value":{"error":"interrupted","kind":"tool_error"}}`,
		"stubborn": `{"kind":"success","value":{"kind":"success","value":{"partial":true}}}`, // it has a result
	} {
		bubble(t, func(t *testing.T) {
			began := time.Now()
			stop(t, tool, want, func(service) { synctest.Wait() })
			require.Equal(t, began, time.Now(), "at once")
		})
	}
	stop(t, "spin", `{"code":"canceled","message":"the call is being stopped"}`, func(s service) {
		require.Eventually(t, func() bool { return s.Stats().Host.Running == 3 }, 2*time.Minute, time.Millisecond)
	})
}

// TestToolCallCanceled: a caller that leaves ends inner calls too.
func TestToolCallCanceled(t *testing.T) {
	s := openCallers(t, Config{Park: ParkNever}, map[string]aCaller{
		"outer":  {program: calling("caller", `{}`), may: []string{"caller"}},
		"caller": {program: calling("spin", `{}`), may: []string{"spin"}},
	}, "spin")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan abi.Result)
	go func() {
		r, _ := s.Call(ctx, Request{Session: alice, Tool: "outer"})
		ended <- r
	}()
	require.Eventually(t, func() bool { return s.Stats().Host.Running == 3 }, 2*time.Minute, time.Millisecond)
	cancel()
	require.Equal(t, abi.CanceledKind, (<-ended).Kind)
	require.Zero(t, s.Stats().Host.Running)
}

// TestToolCallMemory: an inner call is refused at once where the host has no memory for
// it, and an answer where its caller has none.
func TestToolCallMemory(t *testing.T) {
	large := gotool.Tool{Name: "large", Description: "Made for a test.", Handler: gotool.Handle(
		func(context.Context, *gotool.Call, struct{}) (string, error) {
			return strings.Repeat("x", 400_000), nil
		})}
	s := openCallers(t, Config{Tools: []gotool.Tool{large}, Host: host.Config{Memory: 1 << 20, Warm: -1}}, map[string]aCaller{
		"deep":  {program: calling("deep", `{}`), may: []string{"deep"}},
		"small": {program: calling("large", `{}`), may: []string{"large"}, limits: abi.Limits{MemoryBytes: 256 << 10}},
		"poor":  {program: plugintest.Do().Request("tool.call", toolRequest("large", `{}`)).Echo(), may: []string{"large"}},
	})
	require.Contains(t, string(s.call(alice, "deep", `{}`).Value), `{"kind":"limit","error":"out of memory on this host`)
	require.JSONEq(t, `{"code":"limit","message":"the answer of large has more than 262144 bytes, the memory limit of this plugin's call"}`, string(s.call(alice, "small", `{}`).Value))
	for range 20 { // what is held for an answer is given back
		require.True(t, s.call(alice, "poor", `{}`).IsSuccess())
	}
}

// TestToolCallUsage: what a call uses so far has what its inner calls use.
func TestToolCallUsage(t *testing.T) {
	s := openCallers(t, Config{}, map[string]aCaller{
		"outer":  {program: calling("caller", `{}`), may: []string{"caller"}, hints: abi.Hints{SupportsBackground: true}},
		"caller": {program: calling("spin", `{}`), may: []string{"spin"}},
	}, "spin")
	id := s.spawn(alice, "outer", `{}`)
	require.Eventually(t, func() bool {
		run, err := s.Session(alice).Run(t.Context(), id)
		return err == nil && run.Cost != nil && run.Cost.Fuel > 10_000_000 && run.Cost.MemoryPeak >= 3*256<<10 && run.Cost.CPUSeconds > 0
	}, 2*time.Minute, 10*time.Millisecond)
	s.agent(alice, StopBackground, `{"task_id":"`+id+`","force":true}`)
	run, err := s.Session(alice).Run(t.Context(), id)
	require.NoError(t, err)
	require.Greater(t, run.Cost.Fuel, int64(10_000_000))
}

// TestToolCallWhileClosing: a call that runs when the service is closed can finish.
func TestToolCallWhileClosing(t *testing.T) {
	for _, park := range []Park{ParkAll, ParkNever} {
		bubble(t, func(t *testing.T) {
			s := openCallers(t, Config{Park: park, Grants: map[string]plugins.Grant{"caller": {Clock: true}}}, map[string]aCaller{
				"caller": {program: plugintest.Do().Sleep(5).Use("tool.call", toolRequest("plain", `{}`)), may: []string{"plain"}},
			}, "plain")
			s.call(alice, "plain", `{}`) // so that it is compiled
			ended := make(chan abi.Result)
			go func() {
				r, _ := s.Call(t.Context(), Request{Session: alice, Tool: "caller"})
				ended <- r
			}()
			time.Sleep(time.Second)
			go func() { require.NoError(t, s.Close(t.Context())) }()
			require.JSONEq(t, `{"kind":"success","value":{}}`, string((<-ended).Value), park)
		})
	}
}
