// Package enginetest checks an implementation of [background.Engine] against
// its contract.
package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

// Run runs the suite over the engines open returns, which must be empty. Every
// test runs in a [synctest.Test] bubble, so that time is not waited for; open
// is called inside of it.
func Run(t *testing.T, open func(t *testing.T) background.Engine) {
	for name, test := range map[string]func(*testing.T, background.Engine){
		"submit and get":                 submitAndGet,
		"submit refuses a second":        submitTwice,
		"one of many submits wins":       submitRace,
		"nothing is shared":              nothingShared,
		"list":                           list,
		"claim":                          claim,
		"claim of a stale lease fences":  claimStale,
		"extend":                         extend,
		"complete is final":              completeFinal,
		"one of many completes wins":     completeRace,
		"cancel queued":                  cancelQueued,
		"cancel running keeps the first": cancelRunning,
		"log":                            logBothEnds,
		"log of a new attempt is empty":  logNewAttempt,
		"prune":                          prune,
		"prune of the same instant":      pruneSameInstant,
		"not found":                      notFound,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, open(t)) })
		})
	}
}

const outputCap = 64

func newRun(id, session string) background.Run {
	return background.Run{
		ID: id, Session: session, Tool: "primes", Args: json.RawMessage(`{"limit":10}`), Title: "Primes",
		Origin: background.OriginSpawned, SignalOnCompletion: true, Timeout: time.Minute, OutputCap: outputCap,
		CreatedAt: time.Now(), Status: background.StatusQueued,
	}
}

func submit(t *testing.T, e background.Engine, id, session string) {
	t.Helper()
	require.NoError(t, e.Submit(t.Context(), newRun(id, session)))
}

func get(t *testing.T, e background.Engine, id string) background.Run {
	t.Helper()
	run, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	return run
}

func claimed(t *testing.T, e background.Engine, id string) background.Lease {
	t.Helper()
	lease, err := e.Claim(t.Context(), id)
	require.NoError(t, err)
	return lease
}

func complete(t *testing.T, l background.Lease, status background.Status) {
	t.Helper()
	_, err := l.Complete(t.Context(), status, background.Beat{}, background.End{FinishedAt: time.Now()})
	require.NoError(t, err)
}

// same compares the stored form, which is what an engine has to keep.
func same(t *testing.T, want, got background.Run) {
	t.Helper()
	w, err := json.Marshal(want)
	require.NoError(t, err)
	g, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(w), string(g))
}

func submitAndGet(t *testing.T, e background.Engine) {
	run := newRun("bg_a", "s")
	run.IdempotencyKey = "key"
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

// race runs f n times at once and returns how many of them returned nil.
func race(n int, f func(i int) error) (won int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if f(i) == nil {
				mu.Lock()
				defer mu.Unlock()
				won++
			}
		})
	}
	all.Wait()
	return won
}

func nothingShared(t *testing.T, e background.Engine) {
	run := newRun("bg_a", "s")
	require.NoError(t, e.Submit(t.Context(), run))
	run.Args[0] = 'X'
	got := get(t, e, "bg_a")
	require.JSONEq(t, `{"limit":10}`, string(got.Args))
	got.Args[0] = 'X'
	require.JSONEq(t, `{"limit":10}`, string(get(t, e, "bg_a").Args))

	lease := claimed(t, e, "bg_a")
	code, result := 3, json.RawMessage(`{"a":1}`)
	_, err := lease.Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{Result: result, ExitCode: &code})
	require.NoError(t, err)
	code, result[0] = 4, 'X'
	require.Equal(t, 3, *get(t, e, "bg_a").ExitCode)
	require.JSONEq(t, `{"a":1}`, string(get(t, e, "bg_a").Result))
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

func ids(runs []background.Run) string {
	var out []string
	for _, r := range runs {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

func claim(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	time.Sleep(time.Second)
	lease := claimed(t, e, "bg_a")
	run := lease.Run()
	require.Equal(t, background.StatusRunning, run.Status)
	require.Equal(t, 1, run.Attempt)
	require.True(t, run.StartedAt.Equal(time.Now()))
	require.True(t, run.HeartbeatAt.Equal(time.Now()))
	same(t, run, get(t, e, "bg_a"))

	_, err := e.Claim(t.Context(), "bg_a")
	require.ErrorIs(t, err, background.ErrNotClaimable, "while the lease lasts")
	complete(t, lease, background.StatusFailed)
	time.Sleep(2 * background.LeaseTTL)
	_, err = e.Claim(t.Context(), "bg_a")
	require.ErrorIs(t, err, background.ErrNotClaimable, "of a terminal run")
}

func claimStale(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	old := claimed(t, e, "bg_a")
	time.Sleep(background.LeaseTTL - time.Second)
	_, err := old.Extend(t.Context(), background.Beat{Detail: "old"})
	require.NoError(t, err)
	time.Sleep(background.LeaseTTL - time.Second)
	_, err = e.Claim(t.Context(), "bg_a")
	require.ErrorIs(t, err, background.ErrNotClaimable, "the extension counts")
	time.Sleep(time.Second)

	next := claimed(t, e, "bg_a")
	require.Equal(t, 2, next.Run().Attempt)
	before := get(t, e, "bg_a")
	_, err = old.Extend(t.Context(), background.Beat{Detail: "zombie"})
	require.ErrorIs(t, err, background.ErrFenced)
	require.ErrorIs(t, old.Append(t.Context(), 0, []byte("zombie")), background.ErrFenced)
	_, err = old.Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{Summary: "zombie"})
	require.ErrorIs(t, err, background.ErrFenced)
	same(t, before, get(t, e, "bg_a"))
	require.Empty(t, read(t, e, "bg_a"))
	complete(t, next, background.StatusSucceeded)
}

func extend(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	time.Sleep(time.Second)
	c, err := lease.Extend(t.Context(), background.Beat{Detail: "half", Progress: &background.Progress{Done: 1, Total: 2}, OutputBytes: 7})
	require.NoError(t, err)
	require.Nil(t, c)
	run := get(t, e, "bg_a")
	require.Equal(t, "half", run.Detail)
	require.Equal(t, &background.Progress{Done: 1, Total: 2}, run.Progress)
	require.EqualValues(t, 7, run.OutputBytes)
	require.True(t, run.HeartbeatAt.Equal(time.Now()))
	require.Equal(t, background.StatusRunning, run.Status)
}

func completeFinal(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	end := background.End{Summary: "no", Error: &background.RunError{Kind: background.KindTrap, Message: "unreachable"}, FinishedAt: time.Now()}
	stored, err := lease.Complete(t.Context(), background.StatusFailed, background.Beat{OutputBytes: 5}, end)
	require.NoError(t, err)
	require.Equal(t, background.StatusFailed, stored.Status)
	require.Equal(t, background.KindTrap, stored.Error.Kind)
	require.EqualValues(t, 5, stored.OutputBytes)
	same(t, stored, get(t, e, "bg_a"))

	_, err = lease.Complete(t.Context(), background.StatusSucceeded, background.Beat{}, background.End{})
	require.ErrorIs(t, err, background.ErrFenced)
	_, err = lease.Extend(t.Context(), background.Beat{Detail: "late"})
	require.ErrorIs(t, err, background.ErrFenced)
	require.ErrorIs(t, lease.Append(t.Context(), 0, []byte("late")), background.ErrFenced)
	after, err := e.Cancel(t.Context(), "bg_a", background.Cancellation{By: "late"})
	require.NoError(t, err)
	same(t, stored, after)
	same(t, stored, get(t, e, "bg_a"))
}

func completeRace(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	var mu sync.Mutex // a lease is used by one goroutine at a time
	won := race(16, func(int) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := lease.Complete(context.Background(), background.StatusSucceeded, background.Beat{}, background.End{})
		return err
	})
	require.Equal(t, 1, won)
}

func cancelQueued(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	c := background.Cancellation{At: time.Now(), By: "operator", Reason: "not needed"}
	run, err := e.Cancel(t.Context(), "bg_a", c)
	require.NoError(t, err)
	require.Equal(t, background.StatusCanceled, run.Status)
	require.True(t, run.FinishedAt.Equal(c.At))
	require.Equal(t, "operator", run.Cancel.By)
	same(t, run, get(t, e, "bg_a"))
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

func read(t *testing.T, e background.Engine, id string) string {
	t.Helper()
	chunk, err := e.Tail(t.Context(), id, 0, 1<<20)
	require.NoError(t, err)
	return string(chunk.Data)
}

func logBothEnds(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	require.Empty(t, read(t, e, "bg_a"), "before the start")
	lease := claimed(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("hello ")))
	require.NoError(t, lease.Append(t.Context(), 6, []byte("world")))
	require.Equal(t, "hello world", read(t, e, "bg_a"))
	require.NoError(t, lease.Append(t.Context(), 6, []byte("world!")), "an append that was repeated")
	require.Equal(t, "hello world!", read(t, e, "bg_a"))

	tail := strings.Repeat("t", outputCap/4)
	require.NoError(t, lease.Append(t.Context(), 1000, []byte(tail)))
	complete(t, lease, background.StatusSucceeded)
	for _, c := range []struct {
		offset int64
		max    int
		from   int64
		want   string
	}{
		{0, 1 << 20, 0, "hello world!"},
		{6, 3, 6, "wor"},
		{12, 1 << 20, 1000, tail},
		{500, 2, 1000, "tt"},
		{1000, 1 << 20, 1000, tail},
		{1000 + outputCap/4, 10, 1000 + outputCap/4, ""},
		{9999, 10, 1000 + outputCap/4, ""},
		{-3, 10, 1000 + outputCap/4 - 3, "ttt"},
		{-1 << 20, 1 << 20, 1000, tail},
	} {
		chunk, err := e.Tail(t.Context(), "bg_a", c.offset, c.max)
		require.NoError(t, err)
		require.Equal(t, c.want, string(chunk.Data), "%+v", c)
		require.Equal(t, c.from, chunk.Offset, "%+v", c)
		require.EqualValues(t, 1000+outputCap/4, chunk.End)
	}
}

func logNewAttempt(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	require.NoError(t, claimed(t, e, "bg_a").Append(t.Context(), 0, []byte("first attempt")))
	time.Sleep(background.LeaseTTL)
	next := claimed(t, e, "bg_a")
	require.Empty(t, read(t, e, "bg_a"))
	require.NoError(t, next.Append(t.Context(), 0, []byte("second")))
	require.Equal(t, "second", read(t, e, "bg_a"))
}

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
		_, err := e.Prune(t.Context(), background.Retention{Session: session, Before: time.Now().Add(-before), Keep: keep})
		require.NoError(t, err)
		runs, err := e.List(t.Context(), background.Query{})
		require.NoError(t, err)
		return ids(runs)
	}
	require.Equal(t, "bg_4 bg_3 bg_2 bg_1 bg_0", left("", 24*time.Hour, 100))
	require.Equal(t, "bg_4 bg_3 bg_2 bg_1", left("s", 24*time.Hour, 2), "the oldest of one session over its count")
	require.Equal(t, "bg_4 bg_3 bg_1", left("", 150*time.Minute, 100), "old ones of any session")
	require.Equal(t, "bg_4 bg_1", left("s", 24*time.Hour, 0))
	n, err := e.Prune(t.Context(), background.Retention{Before: time.Now().Add(time.Hour)})
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
	_, err := e.Prune(t.Context(), background.Retention{Session: "s", Before: time.Now().Add(-time.Hour), Keep: 2})
	require.NoError(t, err)
	runs, err := e.List(t.Context(), background.Query{})
	require.NoError(t, err)
	require.Equal(t, "bg_4 bg_3", ids(runs))
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
}
