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

// folderOf is where the folder of a run is: in its place, or in the quarantine.
func folderOf(dir, id string) string {
	for _, parent := range []string{runsFolder, quarantineFolder} {
		if path := filepath.Join(dir, parent, id); exists(path) {
			return path
		}
	}
	return "gone"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

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

// reopened opens an engine, lets it look at all folders, and returns its problems.
func reopened(t *testing.T, dir string) (*tester, []Problem) {
	t.Helper()
	e := opened(t, dir)
	for e.keeper.swept.Load() == false {
		runtime.Gosched()
	}
	return e, e.Problems()
}

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
		says   string // of the first problem
		kept   int    // records of the eight
	}{
		"deleted": {remove(databaseName), `state.db is missing: all of its \d+ transactions are lost`, 0},
		"deleted with its log and mark": {remove(databaseName, databaseName+"-wal", databaseName+"-shm", markName),
			`state.db is missing, and there are 8 folders of runs`, 0},
		"empty": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, databaseName), 0))
		}, `state.db is empty`, 0},
		"its log deleted":               {remove(databaseName + "-wal"), `another database|went back|missing`, 0},
		"a bit of the first frame":      {flip(databaseName+"-wal", walHeader+frameHeader+2000), `the write-ahead log is torn`, 8},
		"a bit in the middle":           {flip(databaseName+"-wal", walHeader+100*(frameHeader+pageSize)+2000), `the write-ahead log is torn after \d+ of \d+ transactions`, 8},
		"the end of the log is cut off": {func(t *testing.T, dir string) { cutOff(t, filepath.Join(dir, databaseName+"-wal"), 5000) }, `went back in time: it has \d+ of \d+ transactions`, 8},
	} {
		t.Run(name, func(t *testing.T) {
			dir := killed8(t)
			test.damage(t, dir)

			e, problems := reopened(t, dir)
			require.NotEmpty(t, problems, "it is reported")
			require.Equal(t, ProblemDatabase, problems[0].Kind)
			require.Regexp(t, test.says, problems[0].Reason)
			kept := 0
			for i := range 8 {
				id := fmt.Sprintf("bg_%d", i)
				require.FileExists(t, filepath.Join(folderOf(dir, id), engine.OutputLog), "nothing is deleted")
				if run, err := e.Get(t.Context(), id); err == nil {
					kept++
					require.Equal(t, "hello", tail(t, e, id))
					require.Equal(t, engine.StatusSucceeded, run.Status)
				}
			}
			require.Equal(t, test.kept, kept)
			require.EqualValues(t, 8-kept, e.Stats().Quarantine)
			submitted(t, e, "bg_new")
			require.NoError(t, e.Close())

			e, problems = reopened(t, dir)
			require.Empty(t, problems, "it is reported once")
			get(t, e, "bg_new")
		})
	}
}

func cutOff(t *testing.T, path string, n int64) {
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-n))
}

// An older copy of the database is put back. What was queued in it may have been
// started since, and done something that must not be done twice.
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
	require.Empty(t, e.Problems(), "a whole database")
	completed(t, claimed(t, e, "bg_waits"))
	ended(t, e, "bg_later", "hello")
	require.NoError(t, e.Close())
	require.NoError(t, os.WriteFile(path, past, 0o600))

	e, problems := reopened(t, dir)
	require.Regexp(t, `went back in time.*1 queued or waiting runs may have been started since`, problems[0].Reason)
	require.Equal(t, ProblemFolders, problems[1].Kind)
	require.Equal(t, 2, e.Stats().Problems)
	run := get(t, e, "bg_waits")
	require.Equal(t, engine.StatusRunning, run.Status)
	require.Equal(t, 1, run.Attempt)
	require.FileExists(t, filepath.Join(dir, quarantineFolder, "bg_later", engine.OutputLog))
}

// What is deleted or replaced under a running server stores nothing: it
// acknowledges nothing either.
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
			require.Len(t, e.Problems(), 1, "it is reported once")
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
	for _, name := range []string{"bg_unknown", "lost+found"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, runsFolder, name), 0o700))
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, runsFolder, "bg_0")))

	e, problems := reopened(t, dir)
	require.Len(t, problems, 1)
	require.Equal(t, ProblemFolders, problems[0].Kind)
	require.DirExists(t, filepath.Join(dir, quarantineFolder, "bg_unknown"))
	require.DirExists(t, filepath.Join(dir, runsFolder, "lost+found"), "it is not ours")
	n, err := e.Prune(t.Context(), engine.Retention{Keep: 1, Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for _, id := range []string{"bg_0", "bg_1"} {
		_, err := e.Get(t.Context(), id)
		require.ErrorIs(t, err, engine.ErrNotFound)
		require.Equal(t, "gone", folderOf(dir, id))
	}
	require.Equal(t, "hello", tail(t, e, "bg_2"))
}
