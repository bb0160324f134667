package enginetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func notices(t *testing.T, e *store) {
	submit(t, e, "bg_noticed", "s")
	silent := newRun("bg_silent", "s")
	silent.SignalOnCompletion = false
	require.NoError(t, e.Submit(t.Context(), silent))
	require.Equal(t, engine.NoticeNone, get(t, e, "bg_noticed").Notice, "not before the end")
	for id, want := range map[string]engine.NoticeState{"bg_noticed": engine.NoticePending, "bg_silent": engine.NoticeNone} {
		ended, err := started(t, e, id).Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{FinishedAt: time.Now()})
		require.NoError(t, err)
		require.Equal(t, want, ended.Notice)
		require.Equal(t, want, get(t, e, id).Notice)
	}
	require.Equal(t, "bg_noticed", pending(t, e, "s"))
}

// pending returns the runs with a pending notice.
func pending(t *testing.T, e *store, session string) string {
	t.Helper()
	runs, total, err := e.Pending(t.Context(), session, time.Time{}, 0)
	require.NoError(t, err)
	require.Len(t, runs, total)
	return ids(runs)
}

func pendingPages(t *testing.T, e *store) {
	var ends []time.Time
	for _, id := range []string{"bg_c", "bg_a", "bg_d", "bg_b"} { // the first to end was not submitted first
		submit(t, e, id, "s")
	}
	submit(t, e, "bg_other", "other")
	for _, id := range []string{"bg_a", "bg_b", "bg_other", "bg_c", "bg_d"} {
		time.Sleep(time.Second)
		complete(t, started(t, e, id), engine.StatusSucceeded)
		ends = append(ends, get(t, e, id).FinishedAt)
	}

	for _, c := range []struct {
		session string
		since   time.Time
		max     int
		want    string
		total   int
	}{
		{"s", time.Time{}, 0, "bg_a bg_b bg_c bg_d", 4},
		{"s", time.Time{}, 2, "bg_a bg_b", 4},
		{"s", time.Time{}, 4, "bg_a bg_b bg_c bg_d", 4},
		{"s", time.Time{}, 9, "bg_a bg_b bg_c bg_d", 4},
		{"s", ends[1], 1, "bg_b", 3},
		{"s", ends[1].Add(time.Nanosecond), 0, "bg_c bg_d", 2},
		{"s", ends[4].Add(time.Nanosecond), 5, "", 0},
		{"other", time.Time{}, 5, "bg_other", 1},
		{"nobody", time.Time{}, 5, "", 0},
		{"", time.Time{}, 5, "", 0},
	} {
		runs, total, err := e.Pending(t.Context(), c.session, c.since, c.max)
		require.NoError(t, err)
		require.Equal(t, c.want, ids(runs), "%+v", c)
		require.Equal(t, c.total, total, "%+v", c)
		for _, r := range runs {
			require.Nil(t, r.Result, "no payload")
		}
	}

	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_a"}))
	runs, total, err := e.Pending(t.Context(), "s", time.Time{}, 1)
	require.NoError(t, err)
	require.Equal(t, "bg_b", ids(runs))
	require.Equal(t, 3, total)
}

func acknowledge(t *testing.T, e *store) {
	for _, id := range []string{"bg_a", "bg_b", "bg_c"} {
		submit(t, e, id, "s")
		complete(t, started(t, e, id), engine.StatusSucceeded)
	}
	submit(t, e, "bg_active", "s")
	before := get(t, e, "bg_a")
	require.NoError(t, e.Acknowledge(t.Context(), "other", []string{"bg_a", "bg_b", "bg_c"}))
	require.Equal(t, "bg_a bg_b bg_c", pending(t, e, "s"), "not by another session")
	for range 2 {
		require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_a", "bg_x", "bg_active", "bg_c"}))
		require.Equal(t, "bg_b", pending(t, e, "s"))
	}
	require.NoError(t, e.Acknowledge(t.Context(), "s", nil))
	before.Notice = engine.NoticeSeen
	same(t, before, get(t, e, "bg_a"))
	require.Equal(t, engine.NoticeNone, get(t, e, "bg_active").Notice)
	complete(t, started(t, e, "bg_active"), engine.StatusSucceeded)
	require.Equal(t, "bg_b bg_active", pending(t, e, "s"), "the notice of an end is not taken before it")
}

// taken returns the notices that a worker takes.
func taken(t *testing.T, w engine.Worker, max int) string {
	t.Helper()
	runs, err := w.Notices(t.Context(), max)
	require.NoError(t, err)
	for _, r := range runs {
		require.Equal(t, engine.NoticePending, r.Notice)
		require.Nil(t, r.Args)
		require.Nil(t, r.Result)
	}
	return ids(runs)
}

func noticesOnce(t *testing.T, e *store) {
	require.Empty(t, taken(t, e.worker, 10))
	for _, id := range []string{"bg_c", "bg_a", "bg_b", "bg_d"} {
		submit(t, e, id, "s")
		time.Sleep(time.Second)
	}

	for _, id := range []string{"bg_b", "bg_a", "bg_c", "bg_d"} {
		complete(t, started(t, e, id), engine.StatusSucceeded)
		time.Sleep(time.Second)
	}
	require.Equal(t, "bg_b bg_a", taken(t, e.worker, 2), "in the order of their ends")
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_a", "bg_c"}))
	require.Equal(t, "bg_d", taken(t, e.worker, 10))
	require.Empty(t, taken(t, e.worker, 10), "once")

	e.join(t, engine.WorkerInfo{TTL: forever})
	news, err := e.worker.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, news.Notices)
	require.Equal(t, "bg_b bg_d", taken(t, e.worker, 10), "again by the next worker, until they are acknowledged")
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_b", "bg_d"}))
	e.join(t, engine.WorkerInfo{TTL: forever})
	require.Empty(t, taken(t, e.worker, 10))
}
