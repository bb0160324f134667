package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// took returns the events that are waiting in a channel.
func took(t *testing.T, feed <-chan engine.Event) string {
	t.Helper()
	synctest.Wait()
	var out []string
	for {
		select {
		case e, ok := <-feed:
			switch {
			case !ok:
				return strings.Join(append(out, "closed"), ", ")
			case e.Run != nil:
				require.Nil(t, e.Run.Args)
				require.Nil(t, e.Run.Result)
				require.Equal(t, e.Session, e.Run.Session)
				out = append(out, fmt.Sprintf("%s %s %s", e.Kind, e.Run.ID, e.Run.Status))
			case e.Schedule != nil:
				require.Equal(t, e.Session, e.Schedule.Session)
				out = append(out, fmt.Sprintf("%s %s %d", e.Kind, e.Schedule.ID, e.Schedule.Revision))
			}
		default:
			return strings.Join(out, ", ")
		}
	}
}

func events(t *testing.T, e *store) {
	ctx, cancel := context.WithCancel(t.Context())
	feed := e.Watch(ctx, "")
	submit(t, e, "bg_a", "s")
	require.ErrorIs(t, e.Submit(t.Context(), newRun("bg_a", "s")), engine.ErrExists)
	require.Equal(t, "queued bg_a queued", took(t, feed), "what is refused did not happen")

	lease := started(t, e, "bg_a")
	require.Equal(t, "started bg_a running", took(t, feed))
	for range 2 {
		require.NoError(t, lease.Report(t.Context(), engine.Beat{Detail: "half"}))
	}
	require.Equal(t, "beat bg_a running", took(t, feed), "only what is new")
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	require.Equal(t, "queued bg_a queued", took(t, feed))
	lease = started(t, e, "bg_a")
	_, err := e.Cancel(t.Context(), "bg_a", engine.Cancellation{At: time.Now(), By: "operator"})
	require.NoError(t, err)
	require.Equal(t, "started bg_a running, stopping bg_a running", took(t, feed))
	_, err = lease.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Result: json.RawMessage(`1`), FinishedAt: time.Now()})
	require.NoError(t, err)
	require.Equal(t, "ended bg_a succeeded", took(t, feed))
	_, err = e.Cancel(t.Context(), "bg_a", engine.Cancellation{})
	require.NoError(t, err)
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_a"}))
	require.Equal(t, "seen bg_a succeeded", took(t, feed))
	_, err = e.Prune(t.Context(), engine.Retention{})
	require.NoError(t, err)
	require.Equal(t, "purged bg_a succeeded", took(t, feed))

	cancel()
	require.Equal(t, "closed", took(t, feed))
	submit(t, e, "bg_b", "s")
	require.Equal(t, "closed", took(t, feed))
}

func eventsOfSession(t *testing.T, e *store) {
	feed := e.Watch(t.Context(), "s")
	submit(t, e, "bg_other", "other")
	submit(t, e, "bg_a", "s")
	_, err := e.Cancel(t.Context(), "bg_a", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)
	adopted := newRun("bg_b", "s")
	_, err = e.Adopt(t.Context(), adopted)
	require.NoError(t, err)
	_, err = e.Abandon(t.Context(), "bg_b", 1, engine.StatusFailed, engine.Beat{}, engine.End{FinishedAt: time.Now()})
	require.NoError(t, err)
	require.Equal(t, "queued bg_a queued, ended bg_a canceled, started bg_b running, ended bg_b failed", took(t, feed))

	put(t, e, newSchedule("sc_other", "other"))
	s := put(t, e, newSchedule("sc_a", "s"))
	s.Enabled = false
	put(t, e, s)
	_, err = e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(time.Hour), Keep: 100})
	require.NoError(t, err)
	require.Equal(t, "scheduled sc_a 1, scheduled sc_a 2, purged sc_a 2", took(t, feed))
}

// eventsMissed: nobody waits for a slow watcher, which learns that it has missed events.
func eventsMissed(t *testing.T, e *store) {
	feed := e.Watch(t.Context(), "")
	for i := range 1000 {
		queue(t, e, fmt.Sprintf("bg_%d", i), "s")
	}
	synctest.Wait()
	require.Eventually(t, func() bool { return (<-feed).Kind == engine.EventMissed }, time.Second, time.Millisecond)
}
