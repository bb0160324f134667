package sqlite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// The kinds of pages, by their first byte.
const (
	leafOfIndex = 0x0a
	leafOfTable = 0x0d
)

// salvageable is a database of runs in all states, and a schedule. It returns the
// runs and the whole schedule as they are stored.
func salvageable(t *testing.T, dir string, n int) (runs map[string]engine.Run, schedule engine.Schedule) {
	t.Helper()
	e := opened(t, dir)
	for i := range n {
		run := newRun(fmt.Sprintf("bg_%d", i))
		run.Args = fmt.Appendf(nil, `{"n":%d,"pad":"%0*d"}`, i, i%7*300, i)
		require.NoError(t, e.Submit(t.Context(), run))
		if i%4 == 0 {
			continue // it stays queued
		}
		l := claimed(t, e, run.ID)
		require.NoError(t, l.Save(t.Context(), []byte(run.ID)))
		if i%4 == 1 {
			continue // it runs on
		}
		end := engine.End{Result: fmt.Appendf(nil, `{"of":%d,"pad":"%0*d"}`, i, i%5*1500, i), Content: json.RawMessage(`["x"]`), FinishedAt: time.Now()}
		_, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, end)
		require.NoError(t, err)
		if i%4 == 2 {
			require.NoError(t, e.Acknowledge(t.Context(), "s", []string{run.ID}))
		}
	}
	s, err := e.PutSchedule(t.Context(), engine.Schedule{ID: "sc_a", Session: "s", Args: json.RawMessage(`{"a":1}`), Enabled: true}, 5)
	require.NoError(t, err)

	runs = make(map[string]engine.Run)
	for i := range n {
		run := get(t, e, fmt.Sprintf("bg_%d", i))
		runs[run.ID] = run
	}
	require.NoError(t, e.Close())
	return runs, s
}

// damagePages overwrites those of the pages of a database behind the first that
// which says.
func damagePages(t *testing.T, path string, which func(number int, page []byte) bool) (n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := 1; i < len(data)/pageSize; i++ {
		if page := data[i*pageSize:][:pageSize]; which(i, page) {
			copy(page, bytes.Repeat([]byte{0xff}, pageSize))
			n++
		}
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
	require.NoError(t, os.WriteFile(path+suspectSuffix, nil, 0o600), "SQLite has met it")
	return n
}

func TestSalvage(t *testing.T) {
	const n = 300
	random := rand.New(rand.NewPCG(1, 2))
	for name, test := range map[string]struct {
		which func(number int, page []byte) bool
		least int // runs that are read at least
	}{
		"indexes": {func(_ int, p []byte) bool { return p[0] == leafOfIndex }, n},
		"a part of a table": {func(_ int, p []byte) bool {
			return p[0] == leafOfTable && bytes.Contains(p, []byte(`"task_id":"bg_150"`))
		}, n - 20},
		"arguments of one": {func(_ int, p []byte) bool { return p[0] == leafOfTable && bytes.Contains(p, []byte(`{"n":100,`)) }, n - 20},
		"a tenth of all":   {func(i int, _ []byte) bool { return i > 25 && random.IntN(10) == 0 }, n / 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			runs, schedule := salvageable(t, dir, n)
			require.Positive(t, damagePages(t, filepath.Join(dir, databaseName), test.which))

			e, problems := reopened(t, dir)
			require.Equal(t, ProblemDatabase, problems[0].Kind)
			require.Regexp(t, `\d+ records were read from it`, problems[0].Reason)
			found, err := e.List(t.Context(), engine.Query{})
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(found), test.least)
			require.GreaterOrEqual(t, e.Stats().Salvaged, int64(len(found)))
			for _, run := range found {
				checkSalvaged(t, e, runs[run.ID])
			}
			if s, err := e.GetSchedule(t.Context(), "sc_a"); err == nil {
				require.Equal(t, schedule.Args, s.Args)
				require.True(t, s.Enabled)
			} else {
				require.Equal(t, "a tenth of all", name)
			}

			e.limit(t, engine.Quota{Max: 1 << 30, Each: 1 << 30})
			require.Equal(t, count(t, e, "SELECT sum(size) FROM (SELECT size FROM runs UNION ALL SELECT size FROM schedules)"), e.Recorded())
			for id := range maps.Keys(runs) {
				require.True(t, slices.ContainsFunc(found, func(r engine.Run) bool { return r.ID == id }) || !exists(filepath.Join(dir, runsFolder, id)),
					"the folder of %s has a record, or is set aside", id)
			}
			submitted(t, e, "bg_new")
			require.NoError(t, e.Close())
			require.Empty(t, opened(t, dir).Problems())
		})
	}
}

// TestSalvageThatWasCutShort: a start that ends while it replaces a damaged
// database is continued by the next, however far it came.
func TestSalvageThatWasCutShort(t *testing.T) {
	const n = 60
	rename := func(t *testing.T, dir string, suffixes ...string) {
		for _, suffix := range suffixes {
			err := os.Rename(filepath.Join(dir, databaseName+suffix), filepath.Join(dir, databaseName+".corrupt-1"+suffix))
			require.True(t, err == nil || errors.Is(err, fs.ErrNotExist), err)
		}
	}

	for name, cut := range map[string]func(t *testing.T, dir, salvaged string){
		"in the new database": func(t *testing.T, dir, _ string) {
			for _, suffix := range []string{imageSuffix, salvagingSuffix, salvagingSuffix + "-wal"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, databaseName+suffix), []byte("half of it"), 0o600))
			}
		},
		"with a new database": func(t *testing.T, dir, salvaged string) {
			require.NoError(t, os.Rename(salvaged, filepath.Join(dir, databaseName+salvagedSuffix)))
		},
		"while the old one is renamed": func(t *testing.T, dir, salvaged string) {
			require.NoError(t, os.Rename(salvaged, filepath.Join(dir, databaseName+salvagedSuffix)))
			rename(t, dir, "-wal")
		},
		"when the old one is renamed": func(t *testing.T, dir, salvaged string) {
			require.NoError(t, os.Rename(salvaged, filepath.Join(dir, databaseName+salvagedSuffix)))
			rename(t, dir, databaseSuffixes...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			salvageable(t, dir, n)
			require.Positive(t, damagePages(t, filepath.Join(dir, databaseName), func(_ int, p []byte) bool { return p[0] == leafOfIndex }))
			require.NoError(t, os.CopyFS(other, os.DirFS(dir)))
			require.NoError(t, opened(t, other).Close())
			cut(t, dir, filepath.Join(other, databaseName))

			e, _ := reopened(t, dir)
			found, err := e.List(t.Context(), engine.Query{})
			require.NoError(t, err)
			require.Len(t, found, n)
			require.NoError(t, e.Close())
			require.Empty(t, opened(t, dir).Problems())
			left, err := filepath.Glob(filepath.Join(dir, databaseName+".*"))
			require.NoError(t, err)
			require.Len(t, left, 1, "the damaged one")
		})
	}
}

// checkSalvaged makes sure that a run is as it was, or that nobody can take it
// for one that was not started.
func checkSalvaged(t *testing.T, e *tester, was engine.Run) {
	t.Helper()
	now := get(t, e, was.ID)
	require.Equal(t, string(was.Result), string(now.Result), was.ID)
	require.Equal(t, was.Notice, now.Notice, was.ID)
	if was.Status.Terminal() {
		require.Equal(t, was.Status, now.Status, was.ID)
		return
	}
	require.Equal(t, engine.StatusRunning, now.Status, "what was queued may have been started since")
	require.Equal(t, string(was.Args), string(now.Args), was.ID)
	if was.Status == engine.StatusRunning {
		require.Equal(t, was.ID, string(claimed(t, e, was.ID).Checkpoint()))
	}
}

// The notices of runs that were read stay pending, and their results come from their
// files where the database has lost them.
func TestSalvageResultFromItsFile(t *testing.T) {
	dir := t.TempDir()
	runs, _ := salvageable(t, dir, 40)
	n := damagePages(t, filepath.Join(dir, databaseName), func(_ int, p []byte) bool {
		return p[0] == leafOfTable && bytes.Contains(p, []byte(`{"of":`))
	})
	require.Positive(t, n)

	e, _ := reopened(t, dir)
	for id, was := range runs {
		checkSalvaged(t, e, runs[id])
		require.Equal(t, string(was.Content), string(get(t, e, id).Content))
	}
	pending := 0
	all, err := e.List(t.Context(), engine.Query{})
	require.NoError(t, err)
	for _, r := range all {
		if r.Notice == engine.NoticePending {
			pending++
		}
	}
	require.Equal(t, 10, pending)
}
