package enginetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

func notices(t *testing.T, e background.Engine) {
	submit(t, e, "bg_told", "s")
	silent := newRun("bg_silent", "s")
	silent.SignalOnCompletion = false
	require.NoError(t, e.Submit(t.Context(), silent))
	require.Equal(t, background.NoticeNone, get(t, e, "bg_told").Notice, "not before the end")
	for id, want := range map[string]background.NoticeState{"bg_told": background.NoticePending, "bg_silent": background.NoticeNone} {
		ended, err := claimed(t, e, id).Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{FinishedAt: time.Now()})
		require.NoError(t, err)
		require.Equal(t, want, ended.Notice)
		require.Equal(t, want, get(t, e, id).Notice)
	}
	require.Equal(t, "bg_told", pending(t, e, "s"))
}

// pending returns the runs whose notice is pending.
func pending(t *testing.T, e background.Engine, session string) string {
	t.Helper()
	runs, err := e.List(t.Context(), background.Query{Session: session, Notice: true})
	require.NoError(t, err)
	return ids(runs)
}

func acknowledge(t *testing.T, e background.Engine) {
	for _, id := range []string{"bg_a", "bg_b", "bg_c"} {
		submit(t, e, id, "s")
		complete(t, claimed(t, e, id), background.StatusSucceeded)
	}
	submit(t, e, "bg_active", "s")
	before := get(t, e, "bg_a")
	require.NoError(t, e.Acknowledge(t.Context(), "other", []string{"bg_a", "bg_b", "bg_c"}))
	require.Equal(t, "bg_c bg_b bg_a", pending(t, e, "s"), "not by another session")
	for range 2 {
		require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_a", "bg_x", "bg_active", "bg_c"}))
		require.Equal(t, "bg_b", pending(t, e, "s"))
	}
	require.NoError(t, e.Acknowledge(t.Context(), "s", nil))
	before.Notice = background.NoticeSeen
	same(t, before, get(t, e, "bg_a"))
	require.Equal(t, background.NoticeNone, get(t, e, "bg_active").Notice)
	complete(t, claimed(t, e, "bg_active"), background.StatusSucceeded)
	require.Equal(t, "bg_active bg_b", pending(t, e, "s"), "the notice of an end is not taken before it")
}
