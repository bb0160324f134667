package calllog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/wire"
)

// lines are calls, a line each.
func lines(called wire.InnerCalls) (all []string) {
	for _, c := range called.Calls {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d in %d at %d: %s %gs %s%s %s", c.Number, c.Within, c.Depth, c.Tool, c.ElapsedSeconds, c.Outcome, c.Error, c.TaskID)))
	}
	if called.More > 0 {
		all = append(all, fmt.Sprintf("and %d more", called.More))
	}
	return all
}

// A log has who called whom, how long that took, and how it ended.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := output.NewSink(0)
		ctx := With(t.Context(), sink, 1)
		require.Nil(t, sink.Called(), "nothing was called")

		l := Of(ctx)
		outer := l.Begin(0, "exec", "")
		time.Sleep(time.Second)
		inner := l.Begin(outer, "count", "")
		time.Sleep(time.Second)
		l.End(inner, abi.Result{Kind: abi.Success, Usage: abi.Usage{Fuel: 7}}, nil)
		l.End(outer, abi.Result{}, errors.New("internal"))
		l.Begin(0, "send", "bg_1")
		l.Begin(0, strings.Repeat("é", 100), "")
		l.EndRun("bg_1", abi.Result{Kind: abi.ToolError}, nil)
		l.EndRun("bg_2", abi.Result{Kind: abi.ToolError}, nil) // it is not listed
		require.Equal(t, []string{
			"1 in 0 at 1: exec 2s internal",
			"2 in 1 at 2: count 1s success",
			"3 in 0 at 1: send 0s tool_error bg_1",
			"4 in 0 at 1: " + strings.Repeat("é", abi.MaxAgentName/2) + "… 0s lost",
		}, lines(resume(sink.Called(), 1).called))
	})
}

// Without a run nothing is kept, and nothing fails.
func TestNoLog(t *testing.T) {
	l := Of(t.Context())
	require.Nil(t, l)
	require.Zero(t, l.Begin(0, "count", ""))
	l.End(1, abi.Result{}, nil)
	l.EndRun("bg_1", abi.Result{}, nil)
}

// A call without a result has a code, which never quotes the error.
func TestErrors(t *testing.T) {
	for want, err := range map[string]error{
		"lost":     &host.Refusal{Code: abi.CallLost, Message: "secret"},
		"limit":    &host.Refusal{Code: abi.CallLimit, Message: "secret"},
		"denied":   fmt.Errorf("secret: %w", &host.Refusal{Code: abi.CallDenied, Message: "secret"}),
		"internal": errors.New("secret"),
		"memory":   host.ErrMemory,
		"":         nil,
	} {
		require.Equal(t, want, errorOf(err), "%v", err)
	}
	require.Equal(t, "internal", errorOf(&host.Refusal{Code: abi.CallInvalid, Message: "secret"}))
}

// A run that continues keeps its log. What was open then is lost, unless it is a run.
func TestResume(t *testing.T) { synctest.Test(t, testResume) }

func testResume(t *testing.T) {
	before := &Log{}
	before.End(before.Begin(0, "put", ""), abi.Result{Kind: abi.Success}, nil)
	before.Begin(0, "open", "")
	before.Begin(0, "send", "bg_1")

	l := resume(before.encode(), 2)
	require.Equal(t, 4, l.Begin(0, "again", ""))
	require.Equal(t, []string{
		"1 in 0 at 1: put 0s success",
		"2 in 0 at 1: open 0s lost",
		"3 in 0 at 1: send 0s  bg_1",
		"4 in 0 at 1: again 0s",
	}, lines(l.called))

	require.Empty(t, resume([]byte("{"), 1).called.Calls, "it is damaged")
	require.Nil(t, resume(nil, 1).encode())
	require.NotNil(t, resume(nil, 2).encode(), "it replaces that of the first attempt")
}

// Of many calls the first are kept, whatever their names are.
func TestBounded(t *testing.T) {
	var l Log
	for range 300 {
		l.Begin(0, strings.Repeat("\x01", 100), strings.Repeat("x", 100))
	}
	require.LessOrEqual(t, len(l.encode()), engine.MaxCalls)
	require.Len(t, l.called.Calls, wire.MaxInnerCalls, "of which not all are stored")
	require.Equal(t, 100, l.called.More)
	require.Equal(t, 300, func() int { kept := resume(l.encode(), 1).called; return len(kept.Calls) + kept.More }())
	require.Zero(t, l.Begin(0, "more", ""))
	require.Zero(t, l.Begin(1000, "within a call that is not listed", ""))
}
