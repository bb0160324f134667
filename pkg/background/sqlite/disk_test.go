package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// TestFullDatabase fills the database up to a size it may not exceed, which is
// a full disk to SQLite, and gives it room again.
func TestFullDatabase(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	l := started(t, e, "bg_running")
	require.NoError(t, l.Append(t.Context(), 0, []byte("output")))
	pages := int64(0)
	require.NoError(t, e.db.read(t.Context(), func(c *conn) (err error) { pages, err = c.number("PRAGMA page_count"); return err }))
	sql(t, e, "PRAGMA max_page_count = %d", pages+20)
	var stored []string
	var err error
	for i := 0; err == nil; i++ {
		require.Less(t, i, 10_000)
		run := newRun(fmt.Sprintf("bg_%d", i))
		run.Args = json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)
		if err = e.Submit(t.Context(), run); err == nil {
			stored = append(stored, run.ID)
		}
	}
	require.ErrorIs(t, err, engine.ErrFull)
	require.ErrorIs(t, e.Check(t.Context()), engine.ErrFull)
	require.NotEmpty(t, stored)
	for _, id := range stored {
		get(t, e, id)
	}
	_, err = e.Get(t.Context(), fmt.Sprintf("bg_%d", len(stored)))
	require.ErrorIs(t, err, engine.ErrNotFound, "what failed is not there")

	end := engine.End{Result: json.RawMessage(`"` + strings.Repeat("r", 1<<20) + `"`), FinishedAt: time.Now()}
	_, err = l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, end)
	require.Error(t, err)
	require.Equal(t, engine.StatusRunning, get(t, e, "bg_running").Status)
	err = l.Report(t.Context(), engine.Beat{Detail: "waiting for room"})
	require.NoError(t, err, "the lease lasts")
	require.Equal(t, "output", tail(t, e, "bg_running"))

	sql(t, e, "PRAGMA max_page_count = 1000000")
	require.NoError(t, e.Check(t.Context()))
	require.NoError(t, e.Check(t.Context()))
	_, err = l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, end)
	require.NoError(t, err, "there is room again")
	require.Equal(t, "output", artifact(t, e, "bg_running", engine.OutputLog))
	submitted(t, e, "bg_later")
	require.NoError(t, e.Close())
	e = opened(t, dir)
	for _, id := range append(stored, "bg_running", "bg_later") {
		get(t, e, id)
	}
	require.Zero(t, e.Stats().Problems)
}

// TestFullForOne: of many concurrent changes, only the one for which there is no room fails.
func TestFullForOne(t *testing.T) {
	e := opened(t, t.TempDir())
	submitted(t, e, "bg_first")
	pages := int64(0)
	require.NoError(t, e.db.read(t.Context(), func(c *conn) (err error) { pages, err = c.number("PRAGMA page_count"); return err }))
	sql(t, e, "PRAGMA max_page_count = %d", pages+100)
	errs := together(t, e, 20, func(i int) error {
		run := newRun(fmt.Sprintf("bg_%d", i))
		if i == 7 {
			run.Args = json.RawMessage(`"` + strings.Repeat("x", 10<<20) + `"`)
		}
		return e.Submit(t.Context(), run)
	})
	for i, err := range errs {
		if i == 7 {
			require.ErrorContains(t, err, "full")
		} else {
			require.NoError(t, err, "%d", i)
			get(t, e, fmt.Sprintf("bg_%d", i))
		}
	}
}

// together makes n changes that the writer finds at once.
func together(t *testing.T, e *tester, n int, change func(i int) error) []error {
	t.Helper()
	hold, holding := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = e.db.write(t.Context(), func(*conn) error { close(holding); <-hold; return nil })
	})
	<-holding
	errs := make([]error, n)
	var answered atomic.Int64 // without the writer
	for i := range n {
		all.Go(func() { errs[i] = change(i); answered.Add(1) })
	}
	for len(e.db.ops)+int(answered.Load()) < n {
		runtime.Gosched()
	}
	close(hold)
	all.Wait()
	return errs
}

// TestBatch mixes changes that are refused with those that are not.
func TestBatch(t *testing.T) {
	e := opened(t, t.TempDir())
	submitted(t, e, "bg_exists")
	feed := e.Watch(t.Context(), "")
	errs := together(t, e, 40, func(i int) error {
		switch i % 4 {
		case 0:
			return e.Submit(t.Context(), newRun("bg_exists"))
		case 1:
			return e.db.write(t.Context(), func(w *conn) error {
				if err := w.run("DELETE FROM runs"); err != nil {
					return err
				}
				return w.run("INSERT INTO nowhere VALUES (1)")
			})
		default:
			return e.Submit(t.Context(), newRun(fmt.Sprintf("bg_%d", i)))
		}
	})
	for i, err := range errs {
		switch i % 4 {
		case 0:
			require.ErrorIs(t, err, engine.ErrExists)
		case 1:
			require.ErrorContains(t, err, "nowhere")
		default:
			require.NoError(t, err)
			get(t, e, fmt.Sprintf("bg_%d", i))
		}
	}
	require.Len(t, feed, 20, "one event for each that was stored")
	get(t, e, "bg_exists")
}

// TestReadOnly makes the database refuse every write for a while.
func TestReadOnly(t *testing.T) {
	e := opened(t, t.TempDir())
	l := started(t, e, "bg_a")
	var writer *conn // used between changes only
	require.NoError(t, e.db.write(t.Context(), func(w *conn) error { writer = w; return nil }))
	require.NoError(t, writer.script("PRAGMA query_only = ON"))
	require.Error(t, e.Submit(t.Context(), newRun("bg_b")))
	_, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{FinishedAt: time.Now()})
	require.Error(t, err)
	require.Error(t, e.Requeue(t.Context(), "bg_a", 1))
	_, err = e.Claim(t.Context(), "bg_a")
	require.Error(t, err)
	require.Equal(t, engine.StatusRunning, get(t, e, "bg_a").Status)
	require.Error(t, l.Save(t.Context(), []byte("x")))
	require.NoError(t, l.Append(t.Context(), 0, []byte("still")))
	require.NoError(t, writer.script("PRAGMA query_only = OFF"))
	completed(t, l)
	require.Equal(t, "still", tail(t, e, "bg_a"))
}

// TestArtifactsThatCannotBeWritten puts a file in the place of a folder.
func TestArtifactsThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	l := started(t, e, "bg_a")
	blocked := filepath.Join(dir, "runs", "bg_a")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	require.Error(t, l.Append(t.Context(), 0, []byte("output")))
	run := completed(t, l)
	require.Equal(t, engine.StatusSucceeded, run.Status, "it ends nevertheless")
	require.NotEmpty(t, run.ArtifactError)
	require.NotContains(t, run.ArtifactError, dir)
	require.Contains(t, artifact(t, e, "bg_a", engine.ResultJSON), "succeeded")
	require.Empty(t, artifact(t, e, "bg_a", engine.OutputLog))
	require.Zero(t, e.logs.used.Load())
}

// TestFullLog keeps a log on a device that is always full, and then on one that is not.
func TestFullLog(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	dir := t.TempDir()
	e := opened(t, dir)
	l := started(t, e, "bg_a")
	path := filepath.Join(dir, "runs", "bg_a", "output.log")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	require.NoError(t, os.Symlink("/dev/full", path))
	require.ErrorContains(t, l.Append(t.Context(), 0, []byte("hello ")), "no space left")
	require.Zero(t, e.logs.used.Load())
	require.Empty(t, tail(t, e, "bg_a"))
	require.NoError(t, os.Remove(path))
	require.NoError(t, l.Append(t.Context(), 0, []byte("hello ")), "again")
	require.NoError(t, l.Append(t.Context(), 6, []byte("world")))
	completed(t, l)
	require.Equal(t, "hello world", tail(t, e, "bg_a"))

	l = started(t, e, "bg_b")
	long := stream(0, 4*testCap)
	require.NoError(t, l.Append(t.Context(), 0, long))
	path = filepath.Join(dir, "runs", "bg_b", engine.OutputLog)
	require.NoError(t, os.Rename(path, path+".head"))
	require.NoError(t, os.Mkdir(path, 0o700))
	run := completed(t, l)
	require.NotEmpty(t, run.ArtifactError, "the last form of the log cannot be written")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".head", path))
	checkLog(t, e, "bg_b", int64(len(long)))
	require.Contains(t, artifact(t, e, "bg_b", engine.OutputLog), string(long[len(long)-testCap/4:]), "but all of it is there")
}

// TestSlowDisk holds up the goroutine that writes.
func TestSlowDisk(t *testing.T) {
	e := opened(t, t.TempDir())
	l := started(t, e, "bg_a")
	hold, holding, held := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		held <- e.db.write(t.Context(), func(*conn) error { close(holding); <-hold; return nil })
	}()
	<-holding
	err := l.Report(t.Context(), engine.Beat{Detail: "on"})
	require.NoError(t, err)
	require.NoError(t, l.Append(t.Context(), 0, []byte("output")))
	require.Equal(t, "on", get(t, e, "bg_a").Detail)
	require.Equal(t, "output", tail(t, e, "bg_a"))
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() { given <- e.Submit(ctx, newRun("bg_b")) }()
	for len(e.db.ops) == 0 {
		runtime.Gosched()
	}
	cancel()
	close(hold)
	require.NoError(t, <-held)
	require.NoError(t, <-given, "the caller learns that it is stored")
	get(t, e, "bg_b")
	require.ErrorIs(t, e.Submit(ctx, newRun("bg_c")), context.Canceled)
	_, err = e.Get(t.Context(), "bg_c")
	require.ErrorIs(t, err, engine.ErrNotFound, "who gave up before changed nothing")
}

// TestFullTail cannot write what comes after a skip: what was appended before
// must still be there, even if the process dies now.
func TestFullTail(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	l := started(t, e, "bg_a")
	const before, skipped = 975, 600
	require.NoError(t, l.Append(t.Context(), 0, stream(0, before)))
	next := filepath.Join(dir, "runs", "bg_a", segment{head: testCap / 4 * 3, off: before + skipped - testCap/4}.name())
	require.NoError(t, os.Mkdir(next, 0o700))
	require.Error(t, l.Append(t.Context(), before, stream(before, skipped)))
	found, err := e.logs.find(l.Run())
	require.NoError(t, err)
	require.EqualValues(t, before, found.end)
	require.NoError(t, os.Remove(next))
	require.NoError(t, l.Append(t.Context(), before, stream(before, skipped)))
	checkLog(t, e, "bg_a", before+skipped)
	completed(t, l)
	checkLog(t, e, "bg_a", before+skipped)
	require.Equal(t, onDisk(t, dir), e.logs.used.Load())
}
