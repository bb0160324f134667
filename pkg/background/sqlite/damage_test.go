package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// sql changes the database behind the engine's back.
func sql(t testing.TB, e *tester, statement string, args ...any) {
	t.Helper()
	require.NoError(t, e.db.write(t.Context(), func(w *conn) error {
		values := make([]any, len(args))
		copy(values, args)
		return w.run(fmt.Sprintf(statement, values...))
	}))
}

// count returns the number that a query selects.
func count(t testing.TB, e *tester, query string) (n int64) {
	t.Helper()
	require.NoError(t, e.db.read(t.Context(), func(c *conn) (err error) { n, err = c.number(query); return err }))
	return n
}

func TestDamagedRecord(t *testing.T) {
	for name, record := range map[string]string{
		"not JSON":          `CAST('{"task_id":' AS BLOB)`,
		"a number":          `42`,
		"text":              `'text'`,
		"another run's":     `(SELECT record FROM runs WHERE id = 'bg_good')`,
		"empty":             `x''`,
		"of a wrong type":   `CAST('{"task_id":"bg_bad","attempt":"one"}' AS BLOB)`,
		"zeros of the disk": `zeroblob(500)`,
	} {
		t.Run(name, func(t *testing.T) {
			for method, meet := range map[string]func(e *tester) error{
				"Get":   func(e *tester) error { _, err := e.Get(t.Context(), "bg_bad"); return err },
				"Claim": func(e *tester) error { _, err := e.Claim(t.Context(), "bg_bad"); return err },
				"Cancel": func(e *tester) error {
					_, err := e.Cancel(t.Context(), "bg_bad", engine.Cancellation{At: time.Now()})
					return err
				},
				"Tail": func(e *tester) error { _, err := e.Tail(t.Context(), "bg_bad", 0, 1); return err },
				"List": func(e *tester) error {
					runs, err := e.List(t.Context(), engine.Query{})
					require.NoError(t, err)
					require.Len(t, runs, 1, "the others")
					return engine.ErrNotFound
				},
			} {
				dir := t.TempDir()
				e := opened(t, dir)
				submitted(t, e, "bg_good")
				require.NoError(t, started(t, e, "bg_bad").Append(t.Context(), 0, []byte("output")))
				sql(t, e, "UPDATE runs SET record = "+record+" WHERE id = 'bg_bad'")
				require.NoError(t, e.Close())

				e = opened(t, dir)
				require.ErrorIs(t, meet(e), engine.ErrNotFound, method)
				require.Equal(t, 1, e.Stats().Problems, method)
				_, err := e.Get(t.Context(), "bg_bad")
				require.ErrorIs(t, err, engine.ErrNotFound)
				require.Equal(t, 1, e.Stats().Problems, "it is reported once")
				require.FileExists(t, filepath.Join(dir, "runs", "bg_bad", "output.log"))
				require.Zero(t, e.logs.used.Load())
				claimed(t, e, "bg_good")
				require.NoError(t, e.Close())

				e = opened(t, dir)
				require.Zero(t, e.Stats().Problems, "it counts as ended")
				_, err = e.Prune(t.Context(), engine.Retention{Before: time.Now()})
				require.NoError(t, err)
				require.Zero(t, count(t, e, "SELECT count(*) FROM runs WHERE id = 'bg_bad'"))
				require.NoDirExists(t, filepath.Join(dir, "runs", "bg_bad"))
				require.NoError(t, e.Close())
			}
		})
	}
}

func TestDamagedSchedule(t *testing.T) {
	for method, meet := range map[string]func(t *testing.T, e *tester){
		"Schedules": func(t *testing.T, e *tester) {
			found, err := e.Schedules(t.Context(), "s", true)
			require.NoError(t, err)
			require.Len(t, found, 1)
		},
		"GetSchedule": func(t *testing.T, e *tester) {
			_, err := e.GetSchedule(t.Context(), "sc_bad")
			require.ErrorIs(t, err, engine.ErrNotFound)
		},
		"PutSchedule": func(t *testing.T, e *tester) {
			_, err := e.PutSchedule(t.Context(), engine.Schedule{ID: "sc_bad", Session: "s", Revision: 1}, 5)
			require.ErrorIs(t, err, engine.ErrNotFound)
		},
	} {
		t.Run(method, func(t *testing.T) {
			e := opened(t, t.TempDir())
			for _, id := range []string{"sc_bad", "sc_good"} {
				_, err := e.PutSchedule(t.Context(), engine.Schedule{ID: id, Session: "s", Enabled: true}, 5)
				require.NoError(t, err)
			}
			sql(t, e, "UPDATE schedules SET record = x'7b' WHERE id = 'sc_bad'")
			meet(t, e)
			require.Equal(t, 1, e.Stats().Problems)
			_, err := e.GetSchedule(t.Context(), "sc_good")
			require.NoError(t, err)
		})
	}
}

func TestDamagedLog(t *testing.T) {
	long := strings.Repeat("0123456789", testCap)
	for name, damage := range map[string]func(t *testing.T, path string){
		"cut":    func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 3)) },
		"longer": func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte(long+"x"), 0o600)) },
		"a folder": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Mkdir(path, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := opened(t, dir)
			ended(t, e, "bg_a", long)
			ended(t, e, "bg_good", long)
			damage(t, filepath.Join(dir, "runs", "bg_a", "output.log"))
			chunk, err := e.Tail(t.Context(), "bg_a", 0, 100)
			require.NoError(t, err)
			require.Equal(t, engine.Chunk{Offset: int64(len(long)), Data: []byte{}, End: int64(len(long)), Attempt: 1}, chunk, "all of it is omitted")
			require.Equal(t, marker(int64(len(long))), artifact(t, e, "bg_a", engine.OutputLog))
			require.Equal(t, 1, e.Stats().Problems)
			require.Equal(t, engine.StatusSucceeded, get(t, e, "bg_a").Status)
			require.NotEmpty(t, tail(t, e, "bg_good"))
		})
	}
}

// A missing log is not damage: it was evicted.
func TestMissingLog(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	ended(t, e, "bg_a", "hello")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "runs", "bg_a")))
	chunk, err := e.Tail(t.Context(), "bg_a", 0, 100)
	require.NoError(t, err)
	require.EqualValues(t, 5, chunk.Offset)
	require.Equal(t, marker(5), artifact(t, e, "bg_a", engine.OutputLog))
	require.Zero(t, e.Stats().Problems)
}

func TestDamagedDatabase(t *testing.T) {
	for name, damage := range map[string]func(data []byte) []byte{
		"text":             func([]byte) []byte { return []byte(strings.Repeat("this is no database\n", 1000)) },
		"a broken header":  func(data []byte) []byte { copy(data, "garbage of a disk"); return data },
		"half of it":       func(data []byte) []byte { return data[:len(data)/2/4096*4096] },
		"zeros but a page": func(data []byte) []byte { clear(data[4096:]); return data },
		"a broken schema":  func(data []byte) []byte { clear(data[100:4096]); return data },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := opened(t, dir)
			for i := range 100 {
				submitted(t, e, fmt.Sprintf("bg_%d", i))
			}
			ended(t, e, "bg_a", "hello")
			require.NoError(t, e.Close())
			path := filepath.Join(dir, databaseName)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			broken := damage(bytes.Clone(data))
			require.NoError(t, os.WriteFile(path, broken, 0o600))

			left := tree(t, dir)
			_, err = Open(t.Context(), dir, Config{})
			require.ErrorIs(t, err, ErrDamaged)
			require.ErrorContains(t, err, path)
			require.Equal(t, left, tree(t, dir), "nothing is changed")

			require.NoError(t, os.WriteFile(path, data, 0o600))
			require.Equal(t, "hello", tail(t, opened(t, dir), "bg_a"))
		})
	}
}

// tree returns the content of the files below a folder, without those that need not be kept.
func tree(t *testing.T, dir string) map[string]string {
	files := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" || strings.HasSuffix(path, "-shm") {
			return err
		}
		data, err := os.ReadFile(path)
		if len(data) > 0 {
			files[path] = string(data)
		}
		return err
	}))
	return files
}

// Damage that SQLite meets while the engine runs is logged and counted, and the next start
// refuses it.
func TestDamageMetLater(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	fill(t, e, 1000)
	path := filepath.Join(dir, databaseName)
	e.db.suspect(damageOf(t))
	e.db.suspect(damageOf(t))
	require.Equal(t, 1, e.Stats().Problems)
	require.NoError(t, e.Close())

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	copy(data[len(data)/4096/2*4096:], bytes.Repeat([]byte{0xff}, 4096))
	require.NoError(t, os.WriteFile(path, data, 0o600))
	_, err = Open(t.Context(), dir, Config{})
	require.ErrorIs(t, err, ErrDamaged)
}

// Damage among large values is found before the start too, and so is a page that is in use
// twice.
func TestDamagedValues(t *testing.T) {
	for name, damage := range map[string]func(page []byte){
		"zeros":                   func(page []byte) { clear(page) },
		"ones":                    func(page []byte) { copy(page, bytes.Repeat([]byte{0xff}, 4096)) },
		"a page of another table": func(page []byte) { copy(page, []byte{0, 0, 0, 2}) }, // the next one of the value
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := opened(t, dir)
			submitted(t, e, "bg_a")
			sql(t, e, "INSERT INTO states VALUES (1000, randomblob(1000000))")
			last := count(t, e, "PRAGMA page_count")
			require.NoError(t, e.Close())
			path := filepath.Join(dir, databaseName)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			damage(data[(last-100)*4096 : (last-99)*4096])
			require.NoError(t, os.WriteFile(path, data, 0o600))

			_, err = Open(t.Context(), dir, Config{})
			require.ErrorIs(t, err, ErrDamaged)
		})
	}
}

// damageOf returns an error of SQLite that says that a file is damaged.
func damageOf(t *testing.T) error {
	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600))
	c, err := connect(path, "ro")
	require.NoError(t, err)
	_, damage := c.number("SELECT count(*) FROM sqlite_schema")
	require.NoError(t, c.close())
	require.True(t, damagedFile(damage))
	return damage
}

func TestVersions(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	submitted(t, e, "bg_a")
	sql(t, e, "PRAGMA user_version = 99")
	require.NoError(t, e.Close())
	_, err := Open(t.Context(), dir, Config{})
	require.ErrorIs(t, err, ErrNewer)
	require.ErrorContains(t, err, "version 99")

	dir = t.TempDir()
	e = opened(t, dir)
	sql(t, e, "PRAGMA user_version = 7")
	require.NoError(t, e.Close())
	_, err = Open(t.Context(), dir, Config{})
	require.ErrorIs(t, err, ErrForeign)
	require.ErrorContains(t, err, "state.db has version 7, of a program before the first release")

	dir = t.TempDir()
	path := filepath.Join(dir, databaseName)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	c, err := connect(path, "rw")
	require.NoError(t, err)
	require.NoError(t, c.script("CREATE TABLE customers (name)"))
	require.NoError(t, c.close())
	_, err = Open(t.Context(), dir, Config{})
	require.ErrorIs(t, err, ErrForeign)
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	c, err := connect(path, "rw")
	require.NoError(t, err)
	defer func() { require.NoError(t, c.close()) }()
	require.NoError(t, migrate(c, path, migrations[:]))
	require.NoError(t, c.run(`INSERT INTO meta VALUES ('a', 1)`))
	steps := append(slices.Clone(migrations[:]), `ALTER TABLE meta ADD COLUMN note TEXT;`, `UPDATE meta SET note = 'two'; CREATE TABLE broken (;`)
	require.Error(t, migrate(c, path, steps))
	version, err := c.number("PRAGMA user_version")
	require.NoError(t, err)
	require.EqualValues(t, firstVersion+len(steps)-2, version, "steps are taken whole")
	steps[len(steps)-1] = `UPDATE meta SET note = 'two';`
	for range 2 {
		require.NoError(t, migrate(c, path, steps))
		row, err := c.one("SELECT note FROM meta")
		require.NoError(t, err)
		require.Equal(t, "two", row[0])
	}
}

// In a database of the first step, the runs that have not ended were in facets too.
func TestMigrateFacets(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	submitted(t, e, "bg_a")
	completed(t, started(t, e, "bg_b"))
	require.NoError(t, e.db.write(t.Context(), func(w *conn) error {
		for _, old := range []string{
			`DROP INDEX runs_ended`, `CREATE INDEX runs_session ON runs (session)`,
			`CREATE INDEX runs_ended ON runs (session, finished DESC, seq DESC, notice) WHERE finished IS NOT NULL`,
			`INSERT INTO facets SELECT seq, session, 'work', '', '', '', NULL, 0, NULL, 'work' FROM runs WHERE finished IS NULL`,
			fmt.Sprintf(`PRAGMA user_version = %d`, firstVersion),
		} {
			if err := w.run(old); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, e.Close())

	e = opened(t, dir)
	completed(t, claimed(t, e, "bg_a"))
	for _, q := range []engine.Query{{}, {Session: get(t, e, "bg_a").Session}, {Filter: engine.Filter{Statuses: []engine.Status{engine.StatusSucceeded}}}} {
		found, err := e.List(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, found, 2)
		require.Equal(t, "bg_b", found[0].ID)
	}
}

// A crash in the middle of a migration leaves the previous version intact, and
// the next start takes the step.
func TestCrashInAMigration(t *testing.T) {
	dir, after := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, databaseName)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	c, err := connect(path, "rw")
	require.NoError(t, err)
	defer func() { require.NoError(t, c.close()) }()
	require.NoError(t, c.script("PRAGMA journal_mode = WAL"))
	// With no cache, and more in the step than fits, pages reach the disk before the end of it.
	require.NoError(t, c.script("PRAGMA cache_size = 1; BEGIN IMMEDIATE; "+schema1+
		" INSERT INTO contents WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, randomblob(1000) FROM n; PRAGMA user_version = 8;"))
	require.NoError(t, os.CopyFS(after, os.DirFS(dir)))
	wal, err := os.ReadFile(filepath.Join(after, databaseName+"-wal"))
	require.NoError(t, err)
	require.Greater(t, len(wal), 1<<19, "or nothing of the step was on the disk")

	e := opened(t, after)
	require.Zero(t, e.Stats().Problems)
	l := started(t, e, "bg_a")
	_, err = l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Content: json.RawMessage(`[]`), FinishedAt: time.Now()})
	require.NoError(t, err)
	require.JSONEq(t, `[]`, string(get(t, e, "bg_a").Content))
	require.NoError(t, e.Close())
}

// The content that a run showed is removed with its record, damaged or not.
func TestContentGoesWithItsRun(t *testing.T) {
	e := opened(t, t.TempDir())
	defer func() { require.NoError(t, e.Close()) }()
	for _, id := range []string{"bg_a", "bg_bad"} {
		_, err := started(t, e, id).Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Result: json.RawMessage(`1`), Content: json.RawMessage(`["` + id + `"]`), FinishedAt: time.Now()})
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, count(t, e, "SELECT count(*) FROM contents"))
	sql(t, e, "UPDATE runs SET record = x'00' WHERE id = 'bg_bad'")
	_, err := e.Get(t.Context(), "bg_bad")
	require.ErrorIs(t, err, engine.ErrNotFound)
	n, err := e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(time.Hour), Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for _, table := range []string{"runs", "args", "results", "contents", "checkpoints"} {
		require.Zero(t, count(t, e, "SELECT count(*) FROM "+table), table)
	}
}

// A crash may come between any two steps of the end of a run.
func TestCrashAtTheEnd(t *testing.T) {
	long := string(stream(0, 10*testCap))
	for name, c := range map[string]struct {
		crash  func(t *testing.T, e *tester, l engine.Lease)
		status engine.Status
	}{
		"before anything": {func(*testing.T, *tester, engine.Lease) {}, engine.StatusRunning},
		"after the log": {func(t *testing.T, e *tester, l engine.Lease) {
			_, err := e.find("bg_a").log.seal()
			require.NoError(t, err)
		}, engine.StatusRunning},
		"after half of the log": {func(t *testing.T, e *tester, l engine.Lease) {
			log := e.find("bg_a").log
			require.NoError(t, writeAt(log.output(), []byte("\n[system] 1"), log.head, false))
		}, engine.StatusRunning},
		"after the record": {func(t *testing.T, e *tester, l engine.Lease) {
			dir := e.find("bg_a").log.dir
			keep := t.TempDir()
			require.NoError(t, os.CopyFS(keep, os.DirFS(dir)))
			require.NoError(t, os.Remove(filepath.Join(keep, engine.OutputLog)))
			completed(t, l)
			require.NoError(t, os.CopyFS(dir, os.DirFS(keep)))
		}, engine.StatusSucceeded},
		"after the record, in an earlier version": {func(t *testing.T, e *tester, l engine.Lease) {
			dir := e.find("bg_a").log.dir
			keep := t.TempDir()
			require.NoError(t, os.CopyFS(keep, os.DirFS(dir)))
			completed(t, l)
			sealed, err := os.ReadFile(filepath.Join(dir, engine.OutputLog))
			require.NoError(t, err)
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.CopyFS(dir, os.DirFS(keep)))
			require.NoError(t, os.WriteFile(filepath.Join(dir, engine.OutputLog+".new"), sealed, 0o600))
		}, engine.StatusSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := opened(t, dir)
			l := started(t, e, "bg_a")
			require.NoError(t, l.Append(t.Context(), 0, []byte(long)))
			c.crash(t, e, l)
			require.NoError(t, e.Close())
			e = opened(t, dir)
			require.Equal(t, c.status, get(t, e, "bg_a").Status)
			checkLog(t, e, "bg_a", int64(len(long)))
			if c.status == engine.StatusRunning {
				_, err := e.Abandon(t.Context(), "bg_a", 1, engine.StatusFailed, engine.Beat{}, engine.End{FinishedAt: time.Now()})
				require.NoError(t, err)
			}
			want := long[:testCap/4*3] + marker(9*testCap) + long[len(long)-testCap/4:]
			require.Equal(t, want, artifact(t, e, "bg_a", engine.OutputLog))
			entries, err := os.ReadDir(filepath.Join(dir, "runs", "bg_a"))
			require.NoError(t, err)
			for _, entry := range entries {
				if c.status == engine.StatusRunning {
					require.Contains(t, []string{engine.OutputLog, engine.ResultJSON}, entry.Name(), "nothing else is left")
				}
			}
			require.Zero(t, e.Stats().Problems)
		})
	}
}

// The arguments of a schedule are removed with it.
func TestArgsGoWithTheirSchedule(t *testing.T) {
	e := opened(t, t.TempDir())
	defer func() { require.NoError(t, e.Close()) }()
	for _, id := range []string{"sc_a", "sc_bad"} {
		s, err := e.PutSchedule(t.Context(), engine.Schedule{ID: id, Session: "s", Enabled: true, Args: json.RawMessage(`["` + id + `"]`)}, 5)
		require.NoError(t, err)
		s.Enabled = false
		_, err = e.PutSchedule(t.Context(), s, 5)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, count(t, e, "SELECT count(*) FROM schedule_args"))
	sql(t, e, "UPDATE schedules SET record = x'00' WHERE id = 'sc_bad'")
	_, err := e.GetSchedule(t.Context(), "sc_bad")
	require.ErrorIs(t, err, engine.ErrNotFound)
	s, err := e.GetSchedule(t.Context(), "sc_a")
	require.NoError(t, err)
	require.Equal(t, `["sc_a"]`, string(s.Args))
	_, err = e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	for _, table := range []string{"schedules", "schedule_args"} {
		require.Zero(t, count(t, e, "SELECT count(*) FROM "+table), table)
	}
}
