package enginetest

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

func submitAndGet(t *testing.T, e background.Engine) {
	run := newRun("bg_a", "s")
	run.IdempotencyKey, run.Terms = "key", json.RawMessage(`{"fuel":5}`)
	require.NoError(t, e.Submit(t.Context(), run))
	same(t, run, get(t, e, "bg_a"))
}

func submitTwice(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	again := newRun("bg_a", "other")
	require.ErrorIs(t, e.Submit(t.Context(), again), background.ErrExists)
	require.Equal(t, "s", get(t, e, "bg_a").Session)
}

func submitRace(t *testing.T, e background.Engine) {
	won := race(16, func(i int) error { return e.Submit(t.Context(), newRun("bg_a", fmt.Sprint(i))) })
	require.Equal(t, 1, won)
}

func nothingShared(t *testing.T, e background.Engine) {
	run := newRun("bg_a", "s")
	run.Terms = json.RawMessage(`{"fuel":5}`)
	require.NoError(t, e.Submit(t.Context(), run))
	run.Args[0], run.Terms[0] = 'X', 'X'
	got := get(t, e, "bg_a")
	require.JSONEq(t, `{"limit":10}`, string(got.Args))
	require.JSONEq(t, `{"fuel":5}`, string(got.Terms))
	got.Args[0], got.Terms[0] = 'X', 'X'
	got = get(t, e, "bg_a")
	require.JSONEq(t, `{"limit":10}`, string(got.Args))
	require.JSONEq(t, `{"fuel":5}`, string(got.Terms))

	lease := claimed(t, e, "bg_a")
	code, result, content := 3, json.RawMessage(`{"a":1}`), json.RawMessage(`[{"b":2}]`)
	_, err := lease.Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{Result: result, Content: content, ExitCode: &code})
	require.NoError(t, err)
	code, result[0], content[0] = 4, 'X', 'X'
	require.Equal(t, 3, *get(t, e, "bg_a").ExitCode)
	require.JSONEq(t, `{"a":1}`, string(get(t, e, "bg_a").Result))
	require.JSONEq(t, `[{"b":2}]`, string(get(t, e, "bg_a").Content))
}

func list(t *testing.T, e background.Engine) {
	for i, session := range []string{"s", "other", "s", "s"} {
		run := newRun(fmt.Sprintf("bg_%d", i), session)
		if i == 2 {
			run.IdempotencyKey = "key"
		}
		require.NoError(t, e.Submit(t.Context(), run))
		time.Sleep(time.Millisecond)
	}
	complete(t, claimed(t, e, "bg_3"), background.StatusSucceeded)
	for _, c := range []struct {
		q    background.Query
		want string
	}{
		{background.Query{}, "bg_3 bg_2 bg_1 bg_0"},
		{background.Query{Session: "s"}, "bg_3 bg_2 bg_0"},
		{background.Query{Session: "s", Active: true}, "bg_2 bg_0"},
		{background.Query{Active: true}, "bg_2 bg_1 bg_0"},
		{background.Query{Session: "s", Limit: 2}, "bg_3 bg_2"},
		{background.Query{Session: "s", Active: true, Limit: 1}, "bg_2"},
		{background.Query{Session: "s", IdempotencyKey: "key"}, "bg_2"},
		{background.Query{Session: "other", IdempotencyKey: "key"}, ""},
		{background.Query{Session: "nobody"}, ""},
	} {
		runs, err := e.List(t.Context(), c.q)
		require.NoError(t, err)
		require.Equal(t, c.want, ids(runs), "%+v", c.q)
	}
}

func cancelQueued(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	c := background.Cancellation{At: time.Now(), By: "operator", Reason: "not needed"}
	run, err := e.Cancel(t.Context(), "bg_a", c)
	require.NoError(t, err)
	require.Equal(t, background.StatusCanceled, run.Status)
	require.True(t, run.FinishedAt.Equal(c.At))
	require.Equal(t, "operator", run.Cancel.By)
	require.Equal(t, background.NoticePending, run.Notice)
	same(t, run, get(t, e, "bg_a"))
	require.Empty(t, artifact(t, e, "bg_a", background.OutputLog))
	require.Contains(t, artifact(t, e, "bg_a", background.ResultJSON), "canceled")
	_, err = e.Claim(t.Context(), "bg_a")
	require.ErrorIs(t, err, background.ErrNotClaimable)
}

func cancelRunning(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	for _, by := range []string{"first", "second"} {
		run, err := e.Cancel(t.Context(), "bg_a", background.Cancellation{At: time.Now(), By: by})
		require.NoError(t, err)
		require.Equal(t, background.StatusRunning, run.Status)
		require.Equal(t, "first", run.Cancel.By)
	}
	c, err := lease.Extend(t.Context(), background.Beat{})
	require.NoError(t, err)
	require.Equal(t, "first", c.By)
	complete(t, lease, background.StatusSucceeded)
	run := get(t, e, "bg_a")
	require.Equal(t, background.StatusSucceeded, run.Status)
	require.Equal(t, "first", run.Cancel.By)
}

// cancelRequeued cancels a run again that is to be started again.
func cancelRequeued(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	require.NoError(t, claimed(t, e, "bg_a").Append(t.Context(), 0, []byte("so far")))
	_, err := e.Cancel(t.Context(), "bg_a", background.Cancellation{At: time.Now(), By: "first"})
	require.NoError(t, err)
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	time.Sleep(time.Hour)
	run, err := e.Cancel(t.Context(), "bg_a", background.Cancellation{At: time.Now(), By: "second"})
	require.NoError(t, err)
	require.Equal(t, background.StatusCanceled, run.Status)
	require.Equal(t, "first", run.Cancel.By)
	require.True(t, run.FinishedAt.Equal(time.Now()))
	require.Equal(t, 1, run.Attempt)
	require.Equal(t, "so far", artifact(t, e, "bg_a", background.OutputLog))
	same(t, run, get(t, e, "bg_a"))
}

func notFound(t *testing.T, e background.Engine) {
	_, err := e.Get(t.Context(), "bg_x")
	require.ErrorIs(t, err, background.ErrNotFound)
	_, err = e.Claim(t.Context(), "bg_x")
	require.ErrorIs(t, err, background.ErrNotFound)
	_, err = e.Cancel(t.Context(), "bg_x", background.Cancellation{})
	require.ErrorIs(t, err, background.ErrNotFound)
	_, err = e.Tail(t.Context(), "bg_x", 0, 1)
	require.ErrorIs(t, err, background.ErrNotFound)
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_x", 1), background.ErrNotFound)
	_, err = e.Abandon(t.Context(), "bg_x", 1, background.StatusFailed, background.Beat{}, background.End{})
	require.ErrorIs(t, err, background.ErrNotFound)
	_, err = e.Open(t.Context(), "bg_x", background.OutputLog)
	require.ErrorIs(t, err, background.ErrNotFound)
	_, err = e.GetSchedule(t.Context(), "sc_x")
	require.ErrorIs(t, err, background.ErrNotFound)
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_x"}))
}

func adopt(t *testing.T, e background.Engine) {
	run := newRun("bg_a", "s")
	run.Origin, run.StartedAt, run.ParkedAt = background.OriginParked, time.Now(), time.Now().Add(time.Minute)
	run.Terms = json.RawMessage(`{"fuel":5}`)
	time.Sleep(time.Minute)
	lease, err := e.Adopt(t.Context(), run)
	require.NoError(t, err)
	got := lease.Run()
	require.Equal(t, background.StatusRunning, got.Status)
	require.Equal(t, 1, got.Attempt)
	require.True(t, got.StartedAt.Equal(run.StartedAt))
	require.True(t, got.HeartbeatAt.Equal(time.Now()))
	require.JSONEq(t, string(run.Args), string(got.Args))
	require.Nil(t, lease.Checkpoint())
	same(t, got, get(t, e, "bg_a"))

	require.NoError(t, lease.Append(t.Context(), 0, []byte("so far")))
	require.Equal(t, "so far", read(t, e, "bg_a"))
	_, err = e.Adopt(t.Context(), run)
	require.ErrorIs(t, err, background.ErrExists)
	require.ErrorIs(t, e.Submit(t.Context(), run), background.ErrExists)
	_, err = e.Claim(t.Context(), "bg_a")
	require.ErrorIs(t, err, background.ErrNotClaimable)
	complete(t, lease, background.StatusSucceeded)

	submit(t, e, "bg_b", "s")
	run.ID = "bg_b"
	_, err = e.Adopt(t.Context(), run)
	require.ErrorIs(t, err, background.ErrExists)
	require.Equal(t, background.StatusQueued, get(t, e, "bg_b").Status)

	run.ID = "bg_c"
	_, err = e.Adopt(t.Context(), run)
	require.NoError(t, err)
	time.Sleep(background.LeaseTTL)
	require.NoError(t, e.Requeue(t.Context(), "bg_c", 1))
	got = claimed(t, e, "bg_c").Run()
	require.Equal(t, 2, got.Attempt)
	require.JSONEq(t, string(run.Terms), string(got.Terms))
}

func listPages(t *testing.T, e background.Engine) {
	for i, session := range []string{"s", "other", "s", "s", "s"} {
		run := newRun(fmt.Sprintf("bg_%d", i), session)
		if i == 2 || i == 4 {
			run.Schedule, run.ScheduledFor = "sc_a", time.Now().Add(time.Duration(i)*time.Hour)
		}
		require.NoError(t, e.Submit(t.Context(), run))
	}
	_, err := claimed(t, e, "bg_4").Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{Result: json.RawMessage(`1`), Content: json.RawMessage(`[]`), FinishedAt: time.Now()})
	require.NoError(t, err)
	for _, c := range []struct {
		q    background.Query
		want string
	}{
		{background.Query{Before: "bg_3"}, "bg_2 bg_1 bg_0"},
		{background.Query{Limit: 2}, "bg_4 bg_3"}, // page after page, whosever they are
		{background.Query{Before: "bg_3", Limit: 2}, "bg_2 bg_1"},
		{background.Query{Before: "bg_1", Limit: 2}, "bg_0"},
		{background.Query{Before: "bg_0", Limit: 2}, ""},
		{background.Query{Active: true, Limit: 2}, "bg_3 bg_2"},
		{background.Query{Active: true, Before: "bg_2", Limit: 2}, "bg_1 bg_0"},
		{background.Query{Active: true, Before: "bg_4"}, "bg_3 bg_2 bg_1 bg_0"}, // it has ended
		{background.Query{Session: "s", Before: "bg_3", Limit: 1}, "bg_2"},
		{background.Query{Session: "s", Before: "bg_2"}, "bg_0"},
		{background.Query{Session: "s", Before: "bg_0"}, ""},
		{background.Query{Session: "s", Before: "bg_1"}, ""}, // it is of another session
		{background.Query{Before: "bg_x"}, ""},
		{background.Query{Schedule: "sc_a"}, "bg_4 bg_2"},
		{background.Query{Schedule: "sc_a", Active: true}, "bg_2"},
		{background.Query{Schedule: "sc_a", Session: "other"}, ""},
		{background.Query{Schedule: "sc_x"}, ""},
		{background.Query{Notice: true}, "bg_4"},
		{background.Query{Notice: true, Session: "other"}, ""},
		{background.Query{Notice: true, Active: true}, ""},
	} {
		runs, err := e.List(t.Context(), c.q)
		require.NoError(t, err)
		require.Equal(t, c.want, ids(runs), "%+v", c.q)
		for _, r := range runs {
			require.Nil(t, r.Args)
			require.Nil(t, r.Result)
			require.Nil(t, r.Content)
			require.Equal(t, "Primes", r.Title)
		}
	}
	got, err := e.List(t.Context(), background.Query{Schedule: "sc_a"})
	require.NoError(t, err)
	want := get(t, e, "bg_4")
	want.Args, want.Result, want.Content = nil, nil, nil
	same(t, want, got[0])
}

func requeue(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 0), background.ErrFenced, "it is queued")
	lease := claimed(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("first")))
	before := get(t, e, "bg_a")
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 2), background.ErrFenced, "another attempt")
	same(t, before, get(t, e, "bg_a"))

	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	run := get(t, e, "bg_a")
	require.Equal(t, background.StatusQueued, run.Status)
	require.Equal(t, 1, run.Attempt)
	require.Equal(t, "first", read(t, e, "bg_a"), "until the next attempt")
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 1), background.ErrFenced)
	_, err := lease.Extend(t.Context(), background.Beat{})
	require.ErrorIs(t, err, background.ErrFenced)

	next := claimed(t, e, "bg_a")
	require.Equal(t, 2, next.Run().Attempt)
	require.Empty(t, read(t, e, "bg_a"))
	complete(t, next, background.StatusSucceeded)
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 2), background.ErrFenced, "it is terminal")
}

func abandon(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("so far")))
	end := background.End{Error: &background.RunError{Kind: background.KindOrphaned, Message: "lost"}, FinishedAt: time.Now()}
	_, err := e.Abandon(t.Context(), "bg_a", 2, background.StatusFailed, background.Beat{}, end)
	require.ErrorIs(t, err, background.ErrFenced)
	require.Equal(t, background.StatusRunning, get(t, e, "bg_a").Status)

	ended, err := e.Abandon(t.Context(), "bg_a", 1, background.StatusFailed, background.Beat{Detail: "half"}, end)
	require.NoError(t, err)
	require.Equal(t, background.StatusFailed, ended.Status)
	require.Equal(t, background.KindOrphaned, ended.Error.Kind)
	require.Equal(t, 1, ended.Attempt)
	require.Equal(t, "half", ended.Detail)
	require.Equal(t, background.NoticePending, ended.Notice)
	require.GreaterOrEqual(t, ended.OutputBytes, int64(len("so far")))
	same(t, ended, get(t, e, "bg_a"))
	require.Equal(t, "so far", read(t, e, "bg_a"))
	require.Equal(t, "so far", artifact(t, e, "bg_a", background.OutputLog))
	require.ErrorIs(t, lease.Append(t.Context(), 6, []byte("zombie")), background.ErrFenced)
	_, err = e.Abandon(t.Context(), "bg_a", 1, background.StatusCanceled, background.Beat{}, background.End{})
	require.ErrorIs(t, err, background.ErrFenced, "it is terminal")
	same(t, ended, get(t, e, "bg_a"))
}

func abandonQueued(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	end := background.End{Error: &background.RunError{Kind: background.KindRejected, Message: "no such tool"}, FinishedAt: time.Now()}
	ended, err := e.Abandon(t.Context(), "bg_a", 0, background.StatusFailed, background.Beat{}, end)
	require.NoError(t, err)
	require.Zero(t, ended.Attempt)
	require.Contains(t, artifact(t, e, "bg_a", background.ResultJSON), "no such tool")

	submit(t, e, "bg_b", "s")
	require.NoError(t, claimed(t, e, "bg_b").Append(t.Context(), 0, []byte("first attempt")))
	require.NoError(t, e.Requeue(t.Context(), "bg_b", 1))
	_, err = e.Abandon(t.Context(), "bg_b", 1, background.StatusFailed, background.Beat{}, end)
	require.NoError(t, err)
	require.Equal(t, "first attempt", artifact(t, e, "bg_b", background.OutputLog))
}

func cancelRace(t *testing.T, e background.Engine) {
	for i := range 50 {
		id := fmt.Sprintf("bg_%d", i)
		submit(t, e, id, "s")
		claims := race(2, func(i int) error {
			if i == 0 {
				_, err := e.Claim(t.Context(), id)
				return err
			}
			_, err := e.Cancel(t.Context(), id, background.Cancellation{At: time.Now(), By: "operator"})
			require.NoError(t, err)
			return background.ErrNotClaimable
		})
		run := get(t, e, id)
		require.Equal(t, "operator", run.Cancel.By)
		if claims == 1 {
			require.Equal(t, background.StatusRunning, run.Status)
		} else {
			require.Equal(t, background.StatusCanceled, run.Status)
		}
	}
}

// What of a run may have megabytes is not copied to be left out.
func listIsLight(t *testing.T, e background.Engine) {
	large := json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)
	run := newRun("bg_a", "s")
	run.Args = large
	require.NoError(t, e.Submit(t.Context(), run))
	_, err := claimed(t, e, "bg_a").Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{Result: large, Content: large, FinishedAt: time.Now()})
	require.NoError(t, err)
	for _, q := range []background.Query{{}, {Session: "s"}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 10 {
			runs, err := e.List(t.Context(), q)
			require.NoError(t, err)
			require.Len(t, runs, 1)
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(len(large)))
	}
}
