package server

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// calls are what a run of alice's has called, a line each.
func (s service) calls(id string) (lines []string) {
	s.t.Helper()
	called, err := s.Session(alice).Calls(s.t.Context(), id)
	require.NoError(s.t, err)
	for _, c := range called.Calls {
		lines = append(lines, fmt.Sprintf("%d in %d at %d: %s %gs %s%s%s", c.Number, c.Within, c.Depth, c.Tool, c.ElapsedSeconds, c.Outcome, c.Error, strings.TrimPrefix(c.TaskID, id)))
	}
	if called.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", called.More))
	}
	return lines
}

// TestCallsOfRuns: a run keeps what it has called, how long that took and how it ended,
// while it waits and once it has ended.
func TestCallsOfRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		s := openScripts(t, Config{Tools: l.tools()})
		defer s.Close(done())
		id := s.spawnScript(`
			await tools.put({text: "one", sleep: 2});
			await tools.count({text: "a"});
			await tools.fails({}).catch(() => {});
			await tools.count({text: 1}).catch(() => {});
			await tools.spawn_background({}).catch(() => {});
			const slow = tools.put({text: "two", sleep: 240});
			await sleep(120e3);
			return await slow`)
		time.Sleep(time.Minute)
		begun := []string{
			"1 in 0 at 1: put 2s success-1",
			"2 in 0 at 1: count 0s success",
			"3 in 0 at 1: fails 0s tool_error",
			"4 in 0 at 1: count 0s tool_error",
			"5 in 0 at 1: spawn_background 0s denied",
		}
		require.Equal(t, append(begun[:5:5], "6 in 0 at 1: put 58s -6"), s.calls(id))
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)

		time.Sleep(time.Hour)
		require.Equal(t, wire.StatusSucceeded, s.run(id).Status, "%+v", s.run(id).Error)
		require.Equal(t, append(begun[:5:5], "6 in 0 at 1: put 240s success-6"), s.calls(id))

		_, err := s.Session("eve").Calls(t.Context(), id)
		require.ErrorIs(t, err, engine.ErrNotFound)
	})
}

// TestCallsWithinCalls: the calls of the tools that a run calls are kept with it.
func TestCallsWithinCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openScripts(t, Config{})
		defer s.Close(done())
		id := s.spawnScript("return await tools.exec.raw({code: `return [await tools.exec({code: 'return await tools.count({text: \"a\"})'}), await tools.fails.raw({})]`})")
		time.Sleep(time.Minute)
		require.Equal(t, wire.StatusSucceeded, s.run(id).Status, "%+v", s.run(id).Error)
		require.Equal(t, []string{
			"1 in 0 at 1: exec 0s success-1",
			"2 in 1 at 2: exec 0s success-1-1",
			"3 in 2 at 3: count 0s success",
			"4 in 1 at 2: fails 0s tool_error",
		}, s.calls(id))
	})
}

// TestCallsAreBounded: of many calls the first are kept.
func TestCallsAreBounded(t *testing.T) {
	s := openScripts(t, Config{Limits: Limits{Background: time.Minute}})
	defer s.Close(done())
	id := s.spawnScript(`for (let i = 0; i < 300; i++) await tools.count({text: "a"}); return 1`)
	require.Equal(t, engine.StatusSucceeded, s.settled(alice, id).Status)
	lines := s.calls(id)
	require.Len(t, lines, wire.MaxInnerCalls+1)
	require.Equal(t, "and 100 more", lines[wire.MaxInnerCalls])
}

// TestCallsSurvive: what a run has called is there after a restart, and what was called
// then too.
func TestCallsSurvive(t *testing.T) {
	var l ledger
	cfg := Config{Tools: l.tools(), DataDir: t.TempDir()}
	s := openScripts(t, cfg)
	id := s.spawnScript(`await tools.put({text: "a"}); await tools.count({text: "b"}); await ask("Go on?"); await tools.put({text: "c"}); return 1`)
	s.untilAsked(id)
	before := s.called(id)
	require.Equal(t, []string{"put", "count"}, before)
	require.NoError(t, s.Close(done()))

	s = openScripts(t, cfg)
	s.untilAsked(id)
	s.answers(id, "yes")
	require.Equal(t, engine.StatusSucceeded, s.settled(alice, id).Status, "%+v", s.run(id).Error)
	require.Equal(t, []string{"put", "count", "put"}, s.called(id))
	require.NoError(t, s.Close(done()))

	s = openScripts(t, cfg)
	require.Equal(t, []string{"put", "count", "put"}, s.called(id))
	require.NoError(t, s.Close(done()))
}

// called are the tools that a run of alice's has called.
func (s service) called(id string) (names []string) {
	s.t.Helper()
	called, err := s.Session(alice).Calls(s.t.Context(), id)
	require.NoError(s.t, err)
	for _, c := range called.Calls {
		require.Equal(s.t, abi.Success, c.Outcome)
		names = append(names, c.Tool)
	}
	return names
}
