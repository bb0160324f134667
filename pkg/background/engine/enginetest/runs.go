package enginetest

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func submitAndGet(t *testing.T, e *store) {
	run := newRun("bg_a", "s")
	run.IdempotencyKey, run.Terms = "key", json.RawMessage(`{"fuel":5}`)
	require.NoError(t, e.Submit(t.Context(), run))
	same(t, run, whole(t, e, "bg_a"))
}

func submitTwice(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	again := newRun("bg_a", "other")
	require.ErrorIs(t, e.Submit(t.Context(), again), engine.ErrExists)
	require.Equal(t, "s", get(t, e, "bg_a").Session)
}

func submitRace(t *testing.T, e *store) {
	won := race(16, func(i int) error { return e.Submit(t.Context(), newRun("bg_a", fmt.Sprint(i))) })
	require.Equal(t, 1, won)
}

func list(t *testing.T, e *store) {
	for i, session := range []string{"s", "other", "s", "s"} {
		run := newRun(fmt.Sprintf("bg_%d", i), session)
		if i == 2 {
			run.IdempotencyKey = "key"
		}
		require.NoError(t, e.Submit(t.Context(), run))
		time.Sleep(time.Millisecond)
	}
	complete(t, started(t, e, "bg_3"), engine.StatusSucceeded)
	for _, c := range []struct {
		q    engine.Query
		want string
	}{
		{engine.Query{}, "bg_3 bg_2 bg_1 bg_0"},
		{engine.Query{Session: "s"}, "bg_3 bg_2 bg_0"},
		{engine.Query{Session: "s", Active: true}, "bg_2 bg_0"},
		{engine.Query{Active: true}, "bg_2 bg_1 bg_0"},
		{engine.Query{Session: "s", Limit: 2}, "bg_3 bg_2"},
		{engine.Query{Session: "s", Active: true, Limit: 1}, "bg_2"},
		{engine.Query{Session: "s", IdempotencyKey: "key"}, "bg_2"},
		{engine.Query{Session: "other", IdempotencyKey: "key"}, ""},
		{engine.Query{Session: "nobody"}, ""},
	} {
		runs, err := e.List(t.Context(), c.q)
		require.NoError(t, err)
		require.Equal(t, c.want, ids(runs), "%+v", c.q)
	}
}

func cancelQueued(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	c := engine.Cancellation{At: time.Now(), By: "operator", Reason: "not needed"}
	run, err := e.Cancel(t.Context(), "bg_a", c)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCanceled, run.Status)
	require.True(t, run.FinishedAt.Equal(c.At))
	require.Equal(t, "operator", run.Cancel.By)
	require.Equal(t, engine.NoticePending, run.Notice)
	same(t, run, get(t, e, "bg_a"))
	require.Empty(t, artifact(t, e, "bg_a", engine.OutputLog))
	require.Contains(t, artifact(t, e, "bg_a", engine.ResultJSON), "canceled")
	_, err = e.Start(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrFenced)
}

func cancelRunning(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	lease := started(t, e, "bg_a")
	for _, by := range []string{"first", "second"} {
		run, err := e.Cancel(t.Context(), "bg_a", engine.Cancellation{At: time.Now(), By: by})
		require.NoError(t, err)
		require.Equal(t, engine.StatusRunning, run.Status)
		require.Equal(t, "first", run.Cancel.By)
		require.False(t, run.Cancel.Force)
	}
	for _, force := range []bool{true, false} {
		_, err := e.Cancel(t.Context(), "bg_a", engine.Cancellation{At: time.Now(), By: "third", Force: force})
		require.NoError(t, err)
		require.True(t, get(t, e, "bg_a").Cancel.Force, "a later request can force the end")
		require.Equal(t, "first", get(t, e, "bg_a").Cancel.By)
	}
	news, err := e.worker.Renew(t.Context(), map[string]engine.Beat{"bg_a": {}})
	require.NoError(t, err)
	require.Equal(t, []string{"bg_a"}, news.Stops)
	complete(t, lease, engine.StatusSucceeded)
	run := get(t, e, "bg_a")
	require.Equal(t, engine.StatusSucceeded, run.Status)
	require.Equal(t, "first", run.Cancel.By)
}

// cancelRequeued cancels a requeued run.
func cancelRequeued(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	require.NoError(t, started(t, e, "bg_a").Append(t.Context(), 0, []byte("so far")))
	_, err := e.Cancel(t.Context(), "bg_a", engine.Cancellation{At: time.Now(), By: "first"})
	require.NoError(t, err)
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	time.Sleep(time.Hour)
	run, err := e.Cancel(t.Context(), "bg_a", engine.Cancellation{At: time.Now(), By: "second"})
	require.NoError(t, err)
	require.Equal(t, engine.StatusCanceled, run.Status)
	require.Equal(t, "first", run.Cancel.By)
	require.True(t, run.FinishedAt.Equal(time.Now()))
	require.Equal(t, 1, run.Attempt)
	require.Equal(t, "so far", artifact(t, e, "bg_a", engine.OutputLog))
	same(t, run, get(t, e, "bg_a"))
}

func notFound(t *testing.T, e *store) {
	_, err := e.Get(t.Context(), "bg_x")
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = e.Start(t.Context(), "bg_x")
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = e.Cancel(t.Context(), "bg_x", engine.Cancellation{})
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = e.Tail(t.Context(), "bg_x", 0, 1)
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_x", 1), engine.ErrNotFound)
	_, err = e.Abandon(t.Context(), "bg_x", 1, engine.StatusFailed, engine.Beat{}, engine.End{})
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = e.Open(t.Context(), "bg_x", engine.OutputLog)
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = e.GetSchedule(t.Context(), "sc_x")
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_x"}))
}

func adopt(t *testing.T, e *store) {
	run := newRun("bg_a", "s")
	run.Origin, run.StartedAt, run.ParkedAt = engine.OriginParked, time.Now(), time.Now().Add(time.Minute)
	run.Terms = json.RawMessage(`{"fuel":5}`)
	time.Sleep(time.Minute)
	lease, err := e.Adopt(t.Context(), run)
	require.NoError(t, err)
	got := lease.Run()
	require.Equal(t, engine.StatusRunning, got.Status)
	require.Equal(t, 1, got.Attempt)
	require.True(t, got.StartedAt.Equal(run.StartedAt))
	require.True(t, got.HeartbeatAt.Equal(time.Now()))
	require.JSONEq(t, string(run.Args), string(got.Args))
	require.Nil(t, lease.Checkpoint())
	same(t, got, whole(t, e, "bg_a"))

	require.NoError(t, lease.Append(t.Context(), 0, []byte("so far")))
	require.Equal(t, "so far", read(t, e, "bg_a"))
	_, err = e.Adopt(t.Context(), run)
	require.ErrorIs(t, err, engine.ErrExists)
	require.ErrorIs(t, e.Submit(t.Context(), run), engine.ErrExists)
	_, err = e.Start(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrFenced)
	complete(t, lease, engine.StatusSucceeded)

	submit(t, e, "bg_b", "s")
	run.ID = "bg_b"
	_, err = e.Adopt(t.Context(), run)
	require.ErrorIs(t, err, engine.ErrExists)
	require.Equal(t, engine.StatusQueued, get(t, e, "bg_b").Status)

	run.ID = "bg_c"
	_, err = e.Adopt(t.Context(), run)
	require.NoError(t, err)
	require.NoError(t, e.Requeue(t.Context(), "bg_c", 1))
	got = started(t, e, "bg_c").Run()
	require.Equal(t, 2, got.Attempt)
	require.JSONEq(t, string(run.Terms), string(got.Terms))
}

func listPages(t *testing.T, e *store) {
	put(t, e, newSchedule("sc_a", "s"))
	for i, session := range []string{"s", "other", "s", "s", "s"} {
		run := newRun(fmt.Sprintf("bg_%d", i), session)
		if i == 2 || i == 4 {
			run.Schedule, run.ScheduledFor = "sc_a", time.Now().Add(time.Duration(i)*time.Hour)
		}
		require.NoError(t, e.Submit(t.Context(), run))
	}
	_, err := started(t, e, "bg_4").Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Result: json.RawMessage(`1`), Content: json.RawMessage(`[]`), FinishedAt: time.Now()})
	require.NoError(t, err)
	for _, c := range []struct {
		q    engine.Query
		want string
	}{
		{engine.Query{Before: "bg_3"}, "bg_2 bg_1 bg_0"},
		{engine.Query{Limit: 2}, "bg_4 bg_3"}, // page after page, over all sessions
		{engine.Query{Before: "bg_3", Limit: 2}, "bg_2 bg_1"},
		{engine.Query{Before: "bg_1", Limit: 2}, "bg_0"},
		{engine.Query{Before: "bg_0", Limit: 2}, ""},
		{engine.Query{Active: true, Limit: 2}, "bg_3 bg_2"},
		{engine.Query{Active: true, Before: "bg_2", Limit: 2}, "bg_1 bg_0"},
		{engine.Query{Active: true, Before: "bg_4"}, "bg_3 bg_2 bg_1 bg_0"}, // bg_4 has ended
		{engine.Query{Session: "s", Before: "bg_3", Limit: 1}, "bg_2"},
		{engine.Query{Session: "s", Before: "bg_2"}, "bg_0"},
		{engine.Query{Session: "s", Before: "bg_0"}, ""},
		{engine.Query{Session: "s", Before: "bg_1"}, ""}, // bg_1 belongs to another session
		{engine.Query{Before: "bg_x"}, ""},
		{engine.Query{Schedule: "sc_a"}, "bg_4 bg_2"},
		{engine.Query{Schedule: "sc_a", Active: true}, "bg_2"},
		{engine.Query{Schedule: "sc_a", Session: "other"}, ""},
		{engine.Query{Schedule: "sc_x"}, ""},
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
	got, err := e.List(t.Context(), engine.Query{Schedule: "sc_a"})
	require.NoError(t, err)
	same(t, get(t, e, "bg_4"), got[0])
}

func requeue(t *testing.T, e *store) {
	queue(t, e, "bg_a", "s")
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 0), engine.ErrFenced, "it is nobody's")
	require.Equal(t, "bg_a", claimUpTo(t, e.worker, 1, everything))
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 0), "it was not started")
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 0), engine.ErrFenced, "once")
	lease := started(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("first")))
	before := get(t, e, "bg_a")
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 2), engine.ErrFenced, "another attempt")
	same(t, before, get(t, e, "bg_a"))

	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	run := get(t, e, "bg_a")
	require.Equal(t, engine.StatusQueued, run.Status)
	require.Equal(t, 1, run.Attempt)
	require.Equal(t, "first", read(t, e, "bg_a"), "until the next attempt")
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 1), engine.ErrFenced)
	require.ErrorIs(t, lease.Report(t.Context(), engine.Beat{}), engine.ErrFenced)

	next := started(t, e, "bg_a")
	require.Equal(t, 2, next.Run().Attempt)
	require.Empty(t, read(t, e, "bg_a"))
	complete(t, next, engine.StatusSucceeded)
	require.ErrorIs(t, e.Requeue(t.Context(), "bg_a", 2), engine.ErrFenced, "it is terminal")
}

func abandon(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	lease := started(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("so far")))
	end := engine.End{Error: &engine.RunError{Kind: engine.KindOrphaned, Message: "lost"}, FinishedAt: time.Now()}
	_, err := e.Abandon(t.Context(), "bg_a", 2, engine.StatusFailed, engine.Beat{}, end)
	require.ErrorIs(t, err, engine.ErrFenced)
	require.Equal(t, engine.StatusRunning, get(t, e, "bg_a").Status)

	ended, err := e.Abandon(t.Context(), "bg_a", 1, engine.StatusFailed, engine.Beat{Detail: "half"}, end)
	require.NoError(t, err)
	require.Equal(t, engine.StatusFailed, ended.Status)
	require.Equal(t, engine.KindOrphaned, ended.Error.Kind)
	require.Equal(t, 1, ended.Attempt)
	require.Equal(t, "half", ended.Detail)
	require.Equal(t, engine.NoticePending, ended.Notice)
	require.GreaterOrEqual(t, ended.OutputBytes, int64(len("so far")))
	same(t, ended, get(t, e, "bg_a"))
	require.Equal(t, "so far", read(t, e, "bg_a"))
	require.Equal(t, "so far", artifact(t, e, "bg_a", engine.OutputLog))
	require.ErrorIs(t, lease.Append(t.Context(), 6, []byte("zombie")), engine.ErrFenced)
	_, err = e.Abandon(t.Context(), "bg_a", 1, engine.StatusCanceled, engine.Beat{}, engine.End{})
	require.ErrorIs(t, err, engine.ErrFenced, "it is terminal")
	same(t, ended, get(t, e, "bg_a"))
}

func abandonQueued(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	end := engine.End{Error: &engine.RunError{Kind: engine.KindRejected, Message: "no such tool"}, FinishedAt: time.Now()}
	ended, err := e.Abandon(t.Context(), "bg_a", 0, engine.StatusFailed, engine.Beat{}, end)
	require.NoError(t, err)
	require.Zero(t, ended.Attempt)
	require.Contains(t, artifact(t, e, "bg_a", engine.ResultJSON), "no such tool")

	submit(t, e, "bg_b", "s")
	require.NoError(t, started(t, e, "bg_b").Append(t.Context(), 0, []byte("first attempt")))
	require.NoError(t, e.Requeue(t.Context(), "bg_b", 1))
	_, err = e.Abandon(t.Context(), "bg_b", 1, engine.StatusFailed, engine.Beat{}, end)
	require.ErrorIs(t, err, engine.ErrFenced, "it is nobody's")
	require.Equal(t, "bg_b", claimUpTo(t, e.worker, 1, everything))
	_, err = e.Abandon(t.Context(), "bg_b", 1, engine.StatusFailed, engine.Beat{}, end)
	require.NoError(t, err)
	require.Equal(t, "first attempt", artifact(t, e, "bg_b", engine.OutputLog))
}

func cancelRace(t *testing.T, e *store) {
	for i := range 50 {
		id := fmt.Sprintf("bg_%d", i)
		submit(t, e, id, "s")
		claims := race(2, func(i int) error {
			if i == 0 {
				_, err := e.Start(t.Context(), id)
				return err
			}
			_, err := e.Cancel(t.Context(), id, engine.Cancellation{At: time.Now(), By: "operator"})
			require.NoError(t, err)
			return engine.ErrFenced
		})
		run := get(t, e, id)
		require.Equal(t, "operator", run.Cancel.By)
		if claims == 1 {
			require.Equal(t, engine.StatusRunning, run.Status)
		} else {
			require.Equal(t, engine.StatusCanceled, run.Status)
		}
	}
}

// The large parts of a run are not copied just to be left out.
func readsAreLight(t *testing.T, e *store) {
	large := json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)
	run := newRun("bg_a", "s")
	run.Args = large
	require.NoError(t, e.Submit(t.Context(), run))
	_, err := started(t, e, "bg_a").Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Result: large, Content: large, FinishedAt: time.Now()})
	require.NoError(t, err)

	reads := map[string]func() ([]engine.Run, error){
		"get":             func() ([]engine.Run, error) { run, err := e.Get(t.Context(), "bg_a"); return []engine.Run{run}, err },
		"list":            func() ([]engine.Run, error) { return e.List(t.Context(), engine.Query{}) },
		"list of session": func() ([]engine.Run, error) { return e.List(t.Context(), engine.Query{Session: "s"}) },
	}

	for name, read := range reads {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 10 {
			runs, err := read()
			require.NoError(t, err)
			require.Len(t, runs, 1)
			require.Nil(t, runs[0].Args)
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(len(large)), name)
	}
}

func payload(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	part := func(p engine.Part) string {
		data, err := e.Payload(t.Context(), "bg_a", p)
		require.NoError(t, err)
		return string(data)
	}

	for range 2 {
		require.Equal(t, `{"limit":10}`, part(engine.PartArgs))
		require.Empty(t, part(engine.PartResult))
		require.Empty(t, part(engine.PartContent))
	}
	end := engine.End{Result: json.RawMessage(`1`), Content: json.RawMessage(`["x"]`), FinishedAt: time.Now()}
	ended, err := started(t, e, "bg_a").Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, end)
	require.NoError(t, err)
	require.Nil(t, ended.Result)
	require.Nil(t, ended.Content)
	require.Nil(t, ended.Args)
	for range 2 {
		require.Equal(t, `{"limit":10}`, part(engine.PartArgs))
		require.Equal(t, `1`, part(engine.PartResult))
		require.Equal(t, `["x"]`, part(engine.PartContent))
		require.Empty(t, part("other"))
	}
	require.Empty(t, part(engine.PartCalls))
	_, err = e.Payload(t.Context(), "bg_x", engine.PartArgs)
	require.ErrorIs(t, err, engine.ErrNotFound)
}
