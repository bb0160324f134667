package background

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 50, Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			sink.Progress(3, 10, "")
			sink.Status("reading </background-results>")
			return script(ctx, engine.Run{Tool: "sleep"}, sink)
		}})
		require.Empty(t, must(m.Snapshot(t.Context(), alice, "check_background list=true")))
		spawn(t, m, bob, "sleep")
		s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "crawl", Title: "The whole site"})
		require.NoError(t, err)
		time.Sleep(42 * time.Second)
		require.Equal(t, "Active background tasks of this session: 1\n"+
			s.ID+` running crawl "The whole site" for 42s, 3/10: reading &lt;/background-results&gt;`+"\n", must(m.Snapshot(t.Context(), alice, "check_background list=true")))

		for range 40 {
			_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "crawl", Title: strings.Repeat("<ü>", 40)})
			require.NoError(t, err)
		}
		text := must(m.Snapshot(t.Context(), alice, "check_background list=true"))
		require.LessOrEqual(t, utf8.RuneCountInString(text), 1000)
		require.Greater(t, utf8.RuneCountInString(text), 600)
		require.Regexp(t, `\+\d+ more: check_background list=true\n$`, text)
		lines := strings.Count(text, "\n")
		require.Contains(t, text, fmt.Sprintf("+%d more", 41-(lines-2)))
	})
}

func TestSnapshotOfHeldRun(t *testing.T) {
	run := engine.Run{ID: "bg_held", Tool: "mail", Title: "Mail", Status: engine.StatusQueued}
	require.Equal(t, `bg_held queued mail "Mail"`, snapshotLine(run, time.Now()))
	run.Held = "approval"
	require.Equal(t, `bg_held queued mail "Mail", waits for approval`, snapshotLine(run, time.Now()))
}

func TestEndOfASession(t *testing.T) {
	for policy, goesOn := range map[SessionEnd]bool{"": true, EndParked: true, EndAll: false} {
		bubble(t, string(policy), func(t *testing.T) {
			var log testlog.Buffer
			m := newManager(t, Config{EndSession: policy, PerSession: 1, Logger: logTo(&log)})
			parked := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: works(time.Hour)}).Run.ID
			running, queued := spawned(t, m, alice, "sleep"), fired(t, m, alice, "sleep", "")
			other := call1(t, m, bob, RunRequest{ParkAfter: time.Second, Work: works(time.Minute)}).Run.ID
			began := time.Now()
			require.NoError(t, m.EndSession(t.Context(), alice))
			require.Zero(t, time.Since(began))
			require.Contains(t, log.String(), fmt.Sprintf(`"stopped":%d`, map[bool]int{true: 1, false: 3}[goesOn]), "the operator is told how many")
			run := must(m.Get(t.Context(), alice, parked))
			require.Equal(t, engine.StatusCanceled, run.Status)
			require.Equal(t, "the session ended", run.Cancel.Reason)
			require.Equal(t, goesOn, !must(m.Get(t.Context(), alice, running)).Status.Terminal())
			require.Equal(t, goesOn, !must(m.Get(t.Context(), alice, queued)).Status.Terminal())
			require.Equal(t, engine.StatusRunning, status(t, m, bob, other))
			require.NoError(t, m.EndSession(t.Context(), alice), "again")
			require.NoError(t, m.EndSession(t.Context(), "nobody"))
			for _, id := range []string{running, queued} {
				_, err := m.Stop(t.Context(), alice, id, StopRequest{})
				require.NoError(t, err)
			}
		})
	}
}

func TestEndOfASessionDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{EndSession: EndAll})
		id := spawned(t, m, alice, "undead")
		began := time.Now()
		require.NoError(t, m.EndSession(t.Context(), alice))
		require.Equal(t, 6*time.Second, time.Since(began))
		require.NotNil(t, must(m.Get(t.Context(), alice, id)).Cancel)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.EndSession(ctx, alice), context.DeadlineExceeded)
		time.Sleep(time.Hour)
	})
}
