package sqlite

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// onDisk returns the size of the logs in a directory.
func onDisk(t *testing.T, dir string) (n int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, runsFolder), func(_ string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if !d.IsDir() && isLog(d.Name()) {
			info, err := d.Info()
			require.NoError(t, err)
			n += info.Size()
		}
		return nil
	}))
	return n
}

func TestQuota(t *testing.T) {
	dir := t.TempDir()
	e := openedWith(t, dir, Config{LogQuota: 4000})
	piece := bytes.Repeat([]byte{'x'}, 1000)
	for i := range 4 {
		ended(t, e, fmt.Sprintf("bg_%d", i), string(piece))
	}
	require.EqualValues(t, 4000, e.logs.used.Load())
	live := started(t, e, "bg_live")
	require.NoError(t, live.Append(t.Context(), 0, piece))
	require.LessOrEqual(t, onDisk(t, dir), int64(4000))
	chunk, err := e.Tail(t.Context(), "bg_0", 0, 100)
	require.NoError(t, err)
	require.EqualValues(t, 1000, chunk.Offset, "the oldest is gone")
	require.EqualValues(t, 1000, chunk.End)
	require.Equal(t, marker(1000), artifact(t, e, "bg_0", engine.OutputLog))
	require.Contains(t, artifact(t, e, "bg_0", engine.ResultJSON), "succeeded")
	require.Equal(t, engine.NoticePending, get(t, e, "bg_0").Notice)
	require.Equal(t, string(piece), tail(t, e, "bg_3"), "the newest is not")

	for i := range 3 { // until only logs of active runs are left
		require.NoError(t, started(t, e, fmt.Sprintf("bg_active%d", i)).Append(t.Context(), 0, piece))
	}
	require.Empty(t, tail(t, e, "bg_3"))
	other := started(t, e, "bg_other")
	require.ErrorIs(t, other.Append(t.Context(), 0, piece), engine.ErrQuota)
	require.Empty(t, tail(t, e, "bg_other"))
	require.Equal(t, string(piece), tail(t, e, "bg_live"), "running work is not cut")
	completed(t, live)
	require.NoError(t, other.Append(t.Context(), 0, piece), "the log that ended goes")
	require.Equal(t, onDisk(t, dir), e.logs.used.Load())
	completed(t, other)
	require.Zero(t, e.Stats().Problems)
}

// TestQuotaCounts compares the counted size with the actual one, after everything
// that changes it.
func TestQuotaCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		e := opened(t, dir)
		check := func(step string) {
			t.Helper()
			require.Equal(t, onDisk(t, dir), e.logs.used.Load(), step)
		}
		for i, n := range []int64{0, 10, testCap - 1, testCap, testCap + 1, 3 * testCap, 40 * testCap} {
			l := started(t, e, fmt.Sprintf("bg_%d", i))
			for at := int64(0); at < n; at += 100 {
				require.NoError(t, l.Append(t.Context(), at, stream(at, min(100, n-at))))
			}
			check("appended")
			require.NoError(t, l.Append(t.Context(), n+50, []byte("after a gap")))
			check("gap")
			if i%2 == 0 {
				require.NoError(t, e.Requeue(t.Context(), l.Run().ID, 1))
				l = claimed(t, e, l.Run().ID)
				require.NoError(t, l.Append(t.Context(), 0, stream(0, 2*testCap)))
				check("second attempt")
			}
			if i != 3 {
				completed(t, l)
				check("completed")
			}
		}
		before := e.logs.used.Load()
		require.NoError(t, e.Close())
		e = opened(t, dir)
		check("reopened, before anything else can happen")
		require.Equal(t, before, e.logs.used.Load())
		_, err := e.Prune(t.Context(), engine.Retention{Keep: 3, Notices: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		check("pruned")
		some, err := e.logs.evict(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, some)
		check("evicted")
		_, err = e.Prune(t.Context(), engine.Retention{Notices: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		check("all pruned")
		require.Positive(t, e.logs.used.Load(), "of the run that is not terminal")
	})
}

// TestLeftoversAreCounted puts into the folder of a run the files that are left
// there if the process dies while it ends an attempt.
func TestLeftoversAreCounted(t *testing.T) {
	for name, finish := range map[string]func(t *testing.T, e *tester){
		"abandoned": func(t *testing.T, e *tester) {
			_, err := e.Abandon(t.Context(), "bg_a", 1, engine.StatusFailed, engine.Beat{}, engine.End{FinishedAt: time.Now()})
			require.NoError(t, err)
		},
		"claimed and completed": func(t *testing.T, e *tester) { completed(t, claimed(t, e, "bg_a")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := opened(t, dir)
			require.NoError(t, started(t, e, "bg_a").Append(t.Context(), 0, stream(0, 3*testCap)))
			require.NoError(t, e.Close())
			for _, file := range []string{engine.OutputLog + ".new", segment{head: testCap / 4 * 3, off: testCap / 4 * 3}.name()} { // the second before a gap
				require.NoError(t, os.WriteFile(filepath.Join(dir, runsFolder, "bg_a", file), []byte("left"), 0o600))
			}
			e = opened(t, dir)
			require.Equal(t, onDisk(t, dir), e.logs.used.Load())
			finish(t, e)
			require.Equal(t, onDisk(t, dir), e.logs.used.Load())
			_, err := e.Prune(t.Context(), engine.Retention{Notices: time.Now().Add(time.Hour)})
			require.NoError(t, err)
			require.Zero(t, onDisk(t, dir))
			require.Zero(t, e.logs.used.Load())
		})
	}
}
