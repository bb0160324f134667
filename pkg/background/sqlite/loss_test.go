package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// killed8 is a data directory as a killed process leaves it: eight runs that
// ended, with folders, and one that is queued, all in the write-ahead log.
func killed8(t *testing.T) string {
	dir, copied := t.TempDir(), t.TempDir()
	e := opened(t, dir)
	for i := range 8 {
		ended(t, e, fmt.Sprintf("bg_%d", i), "hello")
	}
	submitted(t, e, "bg_queued")
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	require.NoError(t, e.Close())
	return copied
}

// A database that lacks acknowledged changes is refused, and left unchanged. It is opened once
// its files are back, or, without its mark, as a copy.
func TestLostDatabase(t *testing.T) {
	flip := func(name string, at int64) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[at] ^= 1
			require.NoError(t, os.WriteFile(path, data, 0o600))
		}
	}
	remove := func(names ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				require.NoError(t, os.Remove(filepath.Join(dir, name)))
			}
		}
	}
	for name, test := range map[string]struct {
		damage func(t *testing.T, dir string)
		says   string
	}{
		"deleted": {remove(databaseName), `state.db is missing or empty, but the folder has runs`},
		"deleted with its log and mark": {remove(databaseName, databaseName+"-wal", databaseName+"-shm", markName),
			`state.db is missing or empty, but the folder has runs`},
		"empty": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, databaseName), 0))
		}, `state.db is missing or empty`},
		"its log deleted":               {remove(databaseName + "-wal"), `another database|not the database|missing`},
		"a bit of the first frame":      {flip(databaseName+"-wal", walHeader+frameHeader+2000), `not the database|\d+ of \d+ transactions`},
		"a bit in the middle":           {flip(databaseName+"-wal", walHeader+100*(frameHeader+4096)+2000), `has \d+ of \d+ transactions`},
		"the end of the log is cut off": {func(t *testing.T, dir string) { cutOff(t, filepath.Join(dir, databaseName+"-wal"), 5000) }, `has \d+ of \d+ transactions`},
	} {
		t.Run(name, func(t *testing.T) {
			dir, whole := killed8(t), t.TempDir()
			require.NoError(t, os.CopyFS(whole, os.DirFS(dir)))
			test.damage(t, dir)

			left := tree(t, dir)
			_, err := Open(t.Context(), dir, Config{})
			require.ErrorIs(t, err, ErrDamaged)
			require.Regexp(t, test.says, err)
			require.Equal(t, left, tree(t, dir), "nothing is changed")

			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
			e := opened(t, dir)
			require.Equal(t, engine.StatusQueued, get(t, e, "bg_queued").Status)
			for i := range 8 {
				require.Equal(t, "hello", tail(t, e, fmt.Sprintf("bg_%d", i)))
			}
		})
	}
}

// The position of a frame in a write-ahead log, see https://www.sqlite.org/fileformat2.html.
const (
	walHeader   = 32
	frameHeader = 24
)

func cutOff(t *testing.T, path string, n int64) {
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-n))
}

// An older copy of the database is refused, unless the mark is removed. What was queued in it
// may have been started since, and done something that must not be done twice.
func TestDatabaseOfThePast(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	submitted(t, e, "bg_waits")
	require.NoError(t, e.Close())
	path := filepath.Join(dir, databaseName)
	past, err := os.ReadFile(path)
	require.NoError(t, err)

	e = opened(t, dir)
	require.Equal(t, engine.StatusQueued, get(t, e, "bg_waits").Status)
	completed(t, claimed(t, e, "bg_waits"))
	ended(t, e, "bg_later", "hello")
	require.NoError(t, e.Close())
	require.NoError(t, os.WriteFile(path, past, 0o600))
	_, err = Open(t.Context(), dir, Config{})
	require.ErrorIs(t, err, ErrDamaged)
	require.Regexp(t, `state.db has \d+ of \d+ transactions.*remove state.mark`, err)

	require.NoError(t, os.Remove(filepath.Join(dir, markName)))
	e = opened(t, dir)
	run := get(t, e, "bg_waits")
	require.Equal(t, engine.StatusRunning, run.Status)
	require.Equal(t, 1, run.Attempt)
	require.FileExists(t, filepath.Join(dir, runsFolder, "bg_later", engine.OutputLog), "nothing is deleted")
	require.NoError(t, e.Close())
	require.Equal(t, engine.StatusRunning, get(t, opened(t, dir), "bg_waits").Status)
}

// A database that is deleted or replaced under a running server stores nothing,
// so the server acknowledges nothing either.
func TestReplacedDatabase(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("nobody can delete or rename a file that is open")
	}
	for name, damage := range map[string]func(t *testing.T, path string){
		"deleted": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"renamed": func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+".old")) },
		"replaced": func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".new", data, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
		},
		"without its log": func(t *testing.T, path string) { require.NoError(t, os.Remove(path+"-wal")) },
		"in a folder that is moved": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			e := opened(t, dir)
			l := started(t, e, "bg_a")
			damage(t, filepath.Join(dir, databaseName))

			require.ErrorIs(t, e.Submit(t.Context(), newRun("bg_b")), engine.ErrStorageLost)
			_, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{FinishedAt: time.Now()})
			require.ErrorIs(t, err, engine.ErrStorageLost)
			require.ErrorIs(t, e.Err(), engine.ErrStorageLost)
			require.Equal(t, 1, e.Stats().Problems, "it is reported once")
			require.NotEmpty(t, e.Stats().Failed)
			require.Equal(t, engine.StatusRunning, get(t, e, "bg_a").Status, "what was stored can be read")
		})
	}
}

// A prune that is cut short has removed folders of records that are still there:
// that is no loss of records, and the next prune removes these.
func TestCrashInAPrune(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	for i := range 3 {
		ended(t, e, fmt.Sprintf("bg_%d", i), "hello")
	}
	require.NoError(t, e.Close())
	require.NoError(t, os.RemoveAll(filepath.Join(dir, runsFolder, "bg_0")))

	e = opened(t, dir)
	require.Zero(t, e.Stats().Problems)
	n, err := e.Prune(t.Context(), engine.Retention{Keep: 1, Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for _, id := range []string{"bg_0", "bg_1"} {
		_, err := e.Get(t.Context(), id)
		require.ErrorIs(t, err, engine.ErrNotFound)
		require.NoDirExists(t, filepath.Join(dir, runsFolder, id))
	}
	require.Equal(t, "hello", tail(t, e, "bg_2"))
}
