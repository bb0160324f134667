package enginetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

func prune(t *testing.T, e background.Engine) {
	for i, session := range []string{"s", "s", "s", "s", "other"} {
		id := fmt.Sprintf("bg_%d", i)
		submit(t, e, id, session)
		if i != 1 { // it stays active, and so stays
			complete(t, claimed(t, e, id), background.StatusSucceeded)
		}
		time.Sleep(time.Hour)
	}
	left := func(session string, before time.Duration, keep int) string {
		_, err := e.Prune(t.Context(), background.Retention{Session: session, Before: time.Now().Add(-before), Keep: keep, Notices: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		runs, err := e.List(t.Context(), background.Query{})
		require.NoError(t, err)
		return ids(runs)
	}
	require.Equal(t, "bg_4 bg_3 bg_2 bg_1 bg_0", left("", 24*time.Hour, 100))
	require.Equal(t, "bg_4 bg_3 bg_2 bg_1", left("s", 24*time.Hour, 2), "the oldest of one session over its count")
	require.Equal(t, "bg_4 bg_3 bg_1", left("", 150*time.Minute, 100), "old ones of any session")
	require.Equal(t, "bg_4 bg_1", left("s", 24*time.Hour, 0))
	n, err := e.Prune(t.Context(), background.Retention{Before: time.Now().Add(time.Hour), Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = e.Get(t.Context(), "bg_4")
	require.ErrorIs(t, err, background.ErrNotFound)
	_, err = e.Tail(t.Context(), "bg_4", 0, 1)
	require.ErrorIs(t, err, background.ErrNotFound)
	require.Equal(t, background.StatusQueued, get(t, e, "bg_1").Status)
}

func pruneSameInstant(t *testing.T, e background.Engine) {
	for i := range 5 {
		id := fmt.Sprintf("bg_%d", i)
		submit(t, e, id, "s")
		complete(t, claimed(t, e, id), background.StatusSucceeded)
	}
	_, err := e.Prune(t.Context(), background.Retention{Session: "s", Before: time.Now().Add(-time.Hour), Keep: 2, Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	runs, err := e.List(t.Context(), background.Query{})
	require.NoError(t, err)
	require.Equal(t, "bg_4 bg_3", ids(runs))
}

func pruneNotices(t *testing.T, e background.Engine) {
	silent := newRun("bg_silent", "s")
	silent.SignalOnCompletion = false
	require.NoError(t, e.Submit(t.Context(), silent))
	for _, id := range []string{"bg_seen", "bg_old", "bg_new"} {
		submit(t, e, id, "s")
	}
	for _, id := range []string{"bg_silent", "bg_seen", "bg_old"} {
		complete(t, claimed(t, e, id), background.StatusSucceeded)
	}
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_seen"}))
	time.Sleep(time.Hour)
	complete(t, claimed(t, e, "bg_new"), background.StatusSucceeded)
	left := func(r background.Retention) string {
		_, err := e.Prune(t.Context(), r)
		require.NoError(t, err)
		runs, err := e.List(t.Context(), background.Query{})
		require.NoError(t, err)
		return ids(runs)
	}
	require.Equal(t, "bg_new bg_old", left(background.Retention{Before: time.Now().Add(time.Hour), Notices: time.Now().Add(-2 * time.Hour)}))
	require.Equal(t, "bg_new bg_old", left(background.Retention{Session: "s"}), "no time: notices do not expire")
	require.Equal(t, "bg_new", left(background.Retention{Session: "s", Notices: time.Now().Add(-time.Minute)}))
	require.Equal(t, "", left(background.Retention{Notices: time.Now().Add(time.Minute)}))
}

func pruneSchedules(t *testing.T, e background.Engine) {
	for i := range 5 {
		s := put(t, e, newSchedule(fmt.Sprintf("sc_%d", i), "s"))
		if i != 2 {
			s.Enabled, s.Disabled = false, "done"
			put(t, e, s)
		}
		time.Sleep(time.Hour)
	}
	left := func(r background.Retention) string {
		n, err := e.Prune(t.Context(), r)
		require.NoError(t, err)
		require.Zero(t, n, "schedules are not counted")
		found, err := e.Schedules(t.Context(), "", false)
		require.NoError(t, err)
		return scheduleIDs(found)
	}
	require.Equal(t, "sc_4 sc_3 sc_2 sc_1 sc_0", left(background.Retention{Before: time.Now().Add(-24 * time.Hour), Keep: 4}))
	require.Equal(t, "sc_4 sc_3 sc_2 sc_1 sc_0", left(background.Retention{Session: "other", Before: time.Now()}))
	require.Equal(t, "sc_4 sc_3 sc_2 sc_1", left(background.Retention{Session: "s", Before: time.Now().Add(-24 * time.Hour), Keep: 3}))
	require.Equal(t, "sc_4 sc_3 sc_2", left(background.Retention{Before: time.Now().Add(-150 * time.Minute), Keep: 100}))
	require.Equal(t, "sc_2", left(background.Retention{Before: time.Now().Add(time.Hour)}), "an enabled one stays")
}
