package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// suspended makes a new run wait.
func suspended(t testing.TB, e *tester, id string, s engine.Suspension) {
	t.Helper()
	run := engine.Run{ID: id, Session: "s", Tool: "waits", Args: []byte("{}"), OutputCap: 100, CreatedAt: time.Now()}
	require.NoError(t, e.worker.Submit(t.Context(), run, &engine.Permits{}))
	l, err := e.worker.Start(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, l.Append(t.Context(), 0, []byte("output of "+id)))
	if s.State == nil {
		s.State = []byte("state of " + id)
	}
	_, err = l.Suspend(t.Context(), s)
	require.NoError(t, err)
}

func statusOfRun(t testing.TB, e *tester, id string) engine.Status {
	t.Helper()
	run, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	return run.Status
}

// TestWaitingRestart: after a restart runs wait as before, and those for which something
// happened that was not stored with them continue.
func TestWaitingRestart(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	at := time.Now().Add(time.Hour)
	suspended(t, e, "bg_time", engine.Suspension{Wake: at})
	suspended(t, e, "bg_child", engine.Suspension{
		Await:    []string{"bg_child-1"},
		Children: []engine.Run{{ID: "bg_child-1", Parent: "bg_child", Session: "s", Tool: "t", CreatedAt: at}},
	})
	suspended(t, e, "bg_ended", engine.Suspension{
		Await:    []string{"bg_ended-1"},
		Children: []engine.Run{{ID: "bg_ended-1", Parent: "bg_ended", Session: "s", Tool: "t", CreatedAt: at}},
	})
	suspended(t, e, "bg_mail", engine.Suspension{})
	_, err := e.Cancel(t.Context(), "bg_ended-1", engine.Cancellation{At: at})
	require.NoError(t, err)
	_, err = e.PutValue(t.Context(), engine.Scope{Session: "s", Run: "bg_mail"}, engine.Value{Data: []byte("1")}, engine.ValueLimit{Count: 9, Bytes: 99})
	require.NoError(t, err)
	recorded := e.Recorded()
	require.NoError(t, e.Close())

	e = opened(t, dir)
	require.Equal(t, recorded, e.Recorded())
	require.Equal(t, engine.StatusWaiting, statusOfRun(t, e, "bg_time"))
	require.Equal(t, engine.StatusWaiting, statusOfRun(t, e, "bg_child"))
	require.Equal(t, engine.StatusQueued, statusOfRun(t, e, "bg_child-1"))
	require.Equal(t, engine.StatusQueued, statusOfRun(t, e, "bg_ended"))
	require.Equal(t, engine.StatusQueued, statusOfRun(t, e, "bg_mail"))

	woken, next, err := e.worker.Wake(t.Context(), at, 10)
	require.NoError(t, err)
	require.Equal(t, 1, woken)
	require.Zero(t, next)
	_, err = e.worker.Claim(t.Context(), 10, engine.Permits{})
	require.NoError(t, err)
	l, err := e.worker.Start(t.Context(), "bg_time")
	require.NoError(t, err)
	require.Equal(t, "state of bg_time", string(l.State()))
	require.Equal(t, 1, l.Run().Attempt)
	chunk, err := e.Tail(t.Context(), "bg_time", 0, 100)
	require.NoError(t, err)
	require.Equal(t, "output of bg_time", string(chunk.Data))

	_, err = l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{FinishedAt: at})
	require.NoError(t, err)
	require.Zero(t, count(t, e, `SELECT count(*) FROM states JOIN runs USING (seq) WHERE id = 'bg_time'`))
}

// TestWaitingCopy: in a copy of a database a waiting run may have continued since. It counts
// as interrupted, and has no state to continue from.
func TestWaitingCopy(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	suspended(t, e, "bg_a", engine.Suspension{})
	size := count(t, e, "SELECT size FROM runs")
	require.NoError(t, e.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, markName)))

	e = opened(t, dir)
	run, err := e.Get(t.Context(), "bg_a")
	require.NoError(t, err)
	require.Equal(t, engine.StatusRunning, run.Status)
	require.Equal(t, engine.Waiting{}, run.Waiting)
	require.Zero(t, count(t, e, "SELECT count(*) FROM states"))
	require.EqualValues(t, size-int64(len("state of bg_a")), count(t, e, "SELECT size FROM runs"))
}

// TestRestoreMany: records that are decoded in batches are as they were, in their order,
// and those that are damaged are left out.
func TestRestoreMany(t *testing.T) {
	const runs = 2*restoreBatch + 20
	dir := t.TempDir()
	e := opened(t, dir)
	var order []string
	for i := range runs {
		id := fmt.Sprintf("bg_%d", i)
		if i%3 == 0 {
			suspended(t, e, id, engine.Suspension{Wake: time.Now().Add(time.Hour)})
			continue
		}
		require.NoError(t, e.Submit(t.Context(), newRun(id)))
		if i != restoreBatch+1 && i != runs-2 {
			order = append(order, id)
		}
	}
	suspendedQuietly(t, e, "bg_quiet")
	sql(t, e, fmt.Sprintf("UPDATE runs SET record = x'7b' WHERE id IN ('bg_%d', 'bg_%d')", restoreBatch+1, runs-2))
	used := e.logs.used.Load()
	require.NoError(t, e.Close())

	e = opened(t, dir)
	require.Equal(t, used, e.logs.used.Load())
	require.Equal(t, engine.StatusWaiting, statusOfRun(t, e, "bg_quiet"))
	require.Equal(t, 2, e.Stats().Problems)
	claimed, err := e.worker.Claim(t.Context(), runs, engine.Permits{})
	require.NoError(t, err)
	var ids []string
	for _, run := range claimed {
		ids = append(ids, run.ID)
	}
	require.Equal(t, order, ids)
	woken, _, err := e.worker.Wake(t.Context(), time.Now().Add(2*time.Hour), 10*runs)
	require.NoError(t, err)
	require.Equal(t, (runs+2)/3+1, woken)
}

// suspendedQuietly makes a new run wait that has written nothing.
func suspendedQuietly(t testing.TB, e *tester, id string) {
	t.Helper()
	l, err := e.Adopt(t.Context(), newRun(id))
	require.NoError(t, err)
	_, err = l.Suspend(t.Context(), engine.Suspension{State: []byte("state"), Wake: time.Now().Add(time.Hour)})
	require.NoError(t, err)
}

// A message that is refused wakes nobody.
func TestRefusedMessage(t *testing.T) {
	e := opened(t, t.TempDir())
	suspended(t, e, "bg_a", engine.Suspension{})
	_, err := e.PutValue(t.Context(), engine.Scope{Session: "s", Run: "bg_a"}, engine.Value{Data: []byte("too long")}, engine.ValueLimit{Bytes: 1})
	require.ErrorIs(t, err, engine.ErrValueBytes)
	require.Equal(t, engine.StatusWaiting, statusOfRun(t, e, "bg_a"))
}

// An alarm is forgotten once its run no longer waits for it.
func TestVoidAlarms(t *testing.T) {
	e := opened(t, t.TempDir())
	run := engine.Run{ID: "bg_a", Session: "s", Tool: "waits", Args: []byte("{}"), OutputCap: 100, CreatedAt: time.Now()}
	require.NoError(t, e.worker.Submit(t.Context(), run, &engine.Permits{}))
	for i := range 300 {
		if i > 0 {
			_, err := e.worker.Claim(t.Context(), 1, engine.Permits{})
			require.NoError(t, err)
		}
		l, err := e.worker.Start(t.Context(), "bg_a")
		require.NoError(t, err)
		box := engine.Scope{Session: "s", Run: "bg_a"}
		_, err = l.Suspend(t.Context(), engine.Suspension{State: []byte("x"), Wake: time.Now().Add(24 * time.Hour), Mail: int64(i)})
		require.NoError(t, err)
		_, err = e.PutValue(t.Context(), box, engine.Value{Data: []byte(fmt.Sprint(i))}, engine.ValueLimit{})
		require.NoError(t, err)
	}
	require.Less(t, len(e.active.waits.times), 200)
}

// TestWaitingWhenTheClockIsSetBack: a run continues at the time that was promised.
func TestWaitingWhenTheClockIsSetBack(t *testing.T) {
	e := opened(t, t.TempDir())
	now := time.Now()
	suspended(t, e, "bg_a", engine.Suspension{Wake: now.Add(time.Minute).Round(0)})
	back := func(t time.Time) time.Time { // with both clocks, but the wall clock an hour earlier
		*(*uint64)(unsafe.Pointer(&t)) -= 3600 << 30
		return t
	}

	woken, next, err := e.worker.Wake(t.Context(), back(now), 10)
	require.NoError(t, err)
	require.Zero(t, woken)
	require.InDelta(t, time.Minute, next.Sub(back(now)), float64(time.Second))
	woken, _, err = e.worker.Wake(t.Context(), back(now.Add(2*time.Minute)), 10)
	require.NoError(t, err)
	require.Equal(t, 1, woken)
}
