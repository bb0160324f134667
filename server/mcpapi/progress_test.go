package mcpapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// notice is a notification to a client.
type notice struct {
	done, total float64
	message     string
}

func noticeOf(p *mcp.ProgressNotificationParams) notice {
	return notice{p.Progress, p.Total, p.Message}
}

// told is a notice with the time at which it came.
type told struct {
	notice
	at time.Duration
}

// follow runs a tool with a reporter and returns what a client is told.
func follow(t *testing.T, tool func(r *reporter)) []told {
	t.Helper()
	var all []told
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := startReporter(t.Context(), func(_ context.Context, p *mcp.ProgressNotificationParams) {
			all = append(all, told{noticeOf(p), time.Since(start)})
		})
		tool(r)
		r.stop(t.Context())
		before := len(all)
		r.report(server.Progress{Done: 1e9, Message: "too late"})
		time.Sleep(time.Hour)
		require.Len(t, all, before, "notices after the end")
	})
	for i := 1; i < len(all); i++ {
		require.Greater(t, all[i].done, all[i-1].done, "notice %d", i)
		require.LessOrEqual(t, all[i].at-all[i-1].at, 15*time.Second, "notice %d", i)
		require.GreaterOrEqual(t, all[i].at-all[i-1].at, noticeInterval, "notice %d", i)
	}
	return all
}

func TestProgressIsThrottled(t *testing.T) {
	all := follow(t, func(r *reporter) {
		for i := range 1000 {
			r.report(server.Progress{Done: float64(i), Total: 1000, Message: "working"})
			time.Sleep(10 * time.Millisecond)
		}
	})
	require.Equal(t, told{notice{0, 1000, "working"}, 0}, all[0])
	require.InDelta(t, 10*time.Second/noticeInterval, len(all), 2)
	require.Greater(t, all[len(all)-1].done, 950.0)
}

func TestHeartbeats(t *testing.T) {
	t.Run("of a tool that says nothing", func(t *testing.T) {
		all := follow(t, func(*reporter) { time.Sleep(35 * time.Second) })
		require.Len(t, all, 3)
		require.Equal(t, told{notice{0, 0, "running for 10s"}, 10 * time.Second}, all[0])
		require.Equal(t, "running for 30s", all[2].message)
		require.Less(t, all[2].done, 0.001, "a tool's own number may be small")
	})
	t.Run("after its last word", func(t *testing.T) {
		all := follow(t, func(r *reporter) {
			time.Sleep(12 * time.Second)
			r.report(server.Progress{Done: 50, Total: 100, Message: "half"})
			time.Sleep(21 * time.Second)
			r.report(server.Progress{Done: 51, Total: 100, Message: "more"})
			time.Sleep(time.Second)
		})
		require.Len(t, all, 5)
		require.Equal(t, notice{50, 100, "half"}, all[1].notice)
		require.Equal(t, "half", all[3].message)
		require.InDelta(t, 50, all[3].done, 0.001)
		require.Equal(t, notice{51, 100, "more"}, all[4].notice)
	})
	t.Run("of a tool that goes back", func(t *testing.T) {
		all := follow(t, func(r *reporter) {
			for _, done := range []float64{70, 10, 10, 1e300, 1e308, 0, 71} {
				r.report(server.Progress{Done: done, Total: -1})
				time.Sleep(time.Second)
			}
		})
		require.Len(t, all, 7)
		require.Equal(t, notice{71, 0, "running for 6s"}, all[6].notice)
	})
	t.Run("of a tool with sentences", func(t *testing.T) {
		all := follow(t, func(r *reporter) {
			r.report(server.Progress{Total: -1, Narration: "Reading"})
			time.Sleep(time.Second)
			r.report(server.Progress{Done: 1, Total: 3, Unit: "files", Status: "opening", Narration: "Reading"})
			time.Sleep(15 * time.Second)
			r.report(server.Progress{Done: 1, Total: 3, Unit: "files", Status: "opening", Narration: "Read"})
		})
		require.Zero(t, all[0].done, "no number that the tool has not said")
		var messages []string
		for _, n := range all {
			messages = append(messages, n.message)
		}
		require.Equal(t, []string{"Reading", "opening: 1 of 3 files", "opening: 1 of 3 files", "Read"}, messages)
	})
	t.Run("end with the call's context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			r := startReporter(ctx, func(context.Context, *mcp.ProgressNotificationParams) { n++ })
			cancel()
			time.Sleep(time.Minute)
			require.Zero(t, n)
			r.stop(t.Context())
		})
	})
}

// A client that does not read holds up its own notices, never the tool.
func TestReportsDoNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var last notice
		r := startReporter(t.Context(), func(_ context.Context, p *mcp.ProgressNotificationParams) { <-release; last = noticeOf(p) })
		for i := range 1000 {
			r.report(server.Progress{Done: float64(i)})
			synctest.Wait()
		}
		close(release)
		time.Sleep(time.Second)
		r.stop(t.Context())
		require.Equal(t, 999.0, last.done)
	})
}
