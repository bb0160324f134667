package enginetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func prune(t *testing.T, e *store) {
	for i, session := range []string{"s", "s", "s", "s", "other"} {
		id := fmt.Sprintf("bg_%d", i)
		submit(t, e, id, session)
		if i != 1 { // it stays active, and is kept
			complete(t, started(t, e, id), engine.StatusSucceeded)
		}
		time.Sleep(time.Hour)
	}
	left := func(before time.Duration, keep int) string {
		_, err := e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(-before), Keep: keep, Notices: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		runs, err := e.List(t.Context(), engine.Query{})
		require.NoError(t, err)
		return ids(runs)
	}
	require.Equal(t, "bg_4 bg_3 bg_2 bg_1 bg_0", left(24*time.Hour, 100))
	require.Equal(t, "bg_4 bg_3 bg_2 bg_1", left(24*time.Hour, 2), "the oldest of a session over its count")
	require.Equal(t, "bg_4 bg_3 bg_1", left(150*time.Minute, 100), "old ones")
	require.Equal(t, "bg_4 bg_3 bg_1", left(24*time.Hour, 1), "one of each session")
	n, err := e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(time.Hour), Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, err = e.Get(t.Context(), "bg_4")
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = e.Tail(t.Context(), "bg_4", 0, 1)
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.Equal(t, engine.StatusQueued, get(t, e, "bg_1").Status)
}

func pruneSameInstant(t *testing.T, e *store) {
	for i := range 5 {
		id := fmt.Sprintf("bg_%d", i)
		submit(t, e, id, "s")
		complete(t, started(t, e, id), engine.StatusSucceeded)
	}
	_, err := e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(-time.Hour), Keep: 2, Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	runs, err := e.List(t.Context(), engine.Query{})
	require.NoError(t, err)
	require.Equal(t, "bg_4 bg_3", ids(runs))
}

func pruneNotices(t *testing.T, e *store) {
	silent := newRun("bg_silent", "s")
	silent.SignalOnCompletion = false
	require.NoError(t, e.Submit(t.Context(), silent))
	for _, id := range []string{"bg_seen", "bg_old", "bg_new"} {
		submit(t, e, id, "s")
	}

	for _, id := range []string{"bg_silent", "bg_seen", "bg_old"} {
		complete(t, started(t, e, id), engine.StatusSucceeded)
	}
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_seen"}))
	time.Sleep(time.Hour)
	complete(t, started(t, e, "bg_new"), engine.StatusSucceeded)
	left := func(r engine.Retention) string {
		_, err := e.Prune(t.Context(), r)
		require.NoError(t, err)
		runs, err := e.List(t.Context(), engine.Query{})
		require.NoError(t, err)
		return ids(runs)
	}
	require.Equal(t, "bg_new bg_old", left(engine.Retention{Before: time.Now().Add(time.Hour), Notices: time.Now().Add(-2 * time.Hour)}))
	require.Equal(t, "bg_new bg_old", left(engine.Retention{}), "no time: notices do not expire")
	require.Equal(t, "bg_new", left(engine.Retention{Notices: time.Now().Add(-time.Minute)}))
	require.Equal(t, "", left(engine.Retention{Notices: time.Now().Add(time.Minute)}))
}

func pruneSchedules(t *testing.T, e *store) {
	for i := range 5 {
		s := put(t, e, newSchedule(fmt.Sprintf("sc_%d", i), "s"))
		if i != 2 {
			s.Enabled, s.Disabled = false, "done"
			put(t, e, s)
		}
		time.Sleep(time.Hour)
	}
	left := func(r engine.Retention) string {
		n, err := e.Prune(t.Context(), r)
		require.NoError(t, err)
		require.Zero(t, n, "schedules are not counted")
		found, err := e.Schedules(t.Context(), "", false)
		require.NoError(t, err)
		return scheduleIDs(found)
	}
	require.Equal(t, "sc_4 sc_3 sc_2 sc_1 sc_0", left(engine.Retention{Before: time.Now().Add(-24 * time.Hour), Keep: 4}))
	require.Equal(t, "sc_4 sc_3 sc_2 sc_1", left(engine.Retention{Before: time.Now().Add(-24 * time.Hour), Keep: 3}))
	require.Equal(t, "sc_4 sc_3 sc_2", left(engine.Retention{Before: time.Now().Add(-150 * time.Minute), Keep: 100}))
	require.Equal(t, "sc_2", left(engine.Retention{Before: time.Now().Add(time.Hour)}), "an enabled one stays")
}
