package sqlite

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// backedUp returns a backup.
func backedUp(t testing.TB, e *tester) []byte {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, e.Backup(t.Context(), &file))
	return file.Bytes()
}

func restore(t testing.TB, backup []byte, dir string) error {
	return Restore(t.Context(), bytes.NewReader(backup), int64(len(backup)), dir)
}

// restored restores a backup and opens it.
func restored(t testing.TB, backup []byte) *tester {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new", "data")
	require.NoError(t, restore(t, backup, dir))
	return opened(t, dir)
}

// The backup contains runs in all states, with their logs in all forms.
func TestBackup(t *testing.T) {
	long := strings.Repeat("0123456789", testCap)
	dir := t.TempDir()
	e := opened(t, dir)
	ended(t, e, "bg_ended", "hello")
	ended(t, e, "bg_long", long)
	submitted(t, e, "bg_queued")
	require.NoError(t, started(t, e, "bg_running").Append(t.Context(), 0, []byte("so far")))
	require.NoError(t, started(t, e, "bg_busy").Append(t.Context(), 0, stream(0, 10*testCap)))
	suspended(t, e, "bg_waits", engine.Suspension{})
	held := newRun("bg_held")
	held.Held = "approval"
	require.NoError(t, e.worker.Submit(t.Context(), held, nil))
	_, err := e.PutSchedule(t.Context(), engine.Schedule{ID: "sc_a", Session: "s", Enabled: true}, 5)
	require.NoError(t, err)
	_, err = e.PutValue(t.Context(), engine.Scope{Session: "s"}, engine.Value{Key: "k", Data: []byte("1")}, engine.ValueLimit{})
	require.NoError(t, err)

	backup := backedUp(t, e)
	left, err := filepath.Glob(filepath.Join(dir, snapshotPattern))
	require.NoError(t, err)
	require.Empty(t, left)

	r := restored(t, backup)
	require.Equal(t, "hello", tail(t, r, "bg_ended"))
	require.Equal(t, artifact(t, e, "bg_long", engine.OutputLog), artifact(t, r, "bg_long", engine.OutputLog))
	require.FileExists(t, filepath.Join(r.dir, runsFolder, "bg_long", engine.ResultJSON))
	require.Equal(t, "so far", tail(t, r, "bg_running"))
	checkLog(t, r, "bg_busy", 10*testCap)
	require.Equal(t, "output of bg_waits", tail(t, r, "bg_waits"))
	for _, id := range []string{"bg_queued", "bg_running", "bg_busy", "bg_waits"} {
		run := get(t, r, id)
		require.Equal(t, engine.StatusRunning, run.Status, "it may have been started, continued or ended since")
		require.Equal(t, 1, run.Attempt)
		require.Zero(t, run.StateSize)
	}
	require.True(t, get(t, r, "bg_held").Undecided())
	_, err = r.GetSchedule(t.Context(), "sc_a")
	require.NoError(t, err)
	_, err = r.Value(t.Context(), engine.Scope{Session: "s"}, "k")
	require.NoError(t, err)
	require.Zero(t, r.Stats().Problems)

	info, err := os.Stat(filepath.Join(r.dir, databaseName))
	require.NoError(t, err)
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("state.db has the mode %v", info.Mode())
	}
}

// A run may end, or be removed, between the snapshot of the database and the copy of its log.
// The log is then still that of a run that has not ended.
func TestBackupOfARunThatEndsMeanwhile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, e *tester, l engine.Lease){
		"ends": func(t *testing.T, e *tester, l engine.Lease) { completed(t, l) },
		"ends and is removed": func(t *testing.T, e *tester, l engine.Lease) {
			completed(t, l)
			require.NoError(t, e.Remove(t.Context(), "bg_a"))
		},
	} {
		for _, n := range []int64{0, 1, testCap / 2, testCap, 3 * testCap} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				e := opened(t, t.TempDir())
				l := started(t, e, "bg_a")
				require.NoError(t, l.Append(t.Context(), 0, stream(0, n)))

				var file bytes.Buffer
				w := &hook{&file, func() { change(t, e, l) }} // state.db is written first
				require.NoError(t, e.Backup(t.Context(), w))

				r := restored(t, file.Bytes())
				require.Equal(t, engine.StatusRunning, get(t, r, "bg_a").Status)
				if name == "ends" {
					checkLog(t, r, "bg_a", n)
				}
				_, err := r.Abandon(t.Context(), "bg_a", 1, engine.StatusFailed, engine.Beat{}, engine.End{FinishedAt: time.Now()})
				require.NoError(t, err)
				require.Zero(t, r.Stats().Problems)
			})
		}
	}
}

// A hook calls do before the first write.
type hook struct {
	to *bytes.Buffer
	do func()
}

func (h *hook) Write(p []byte) (int, error) {
	if h.do != nil {
		h.do()
		h.do = nil
	}
	return h.to.Write(p)
}

// TestBackupUnderLoad takes backups while runs are submitted, write and end: each backup
// contains everything that was acknowledged before it began.
func TestBackupUnderLoad(t *testing.T) {
	const rounds = 3
	e := opened(t, t.TempDir())
	l := &load{lives: make(map[string]life)}
	for round := range rounds {
		stop := l.begin(t, e, round, 200, 4*testCap)
		before := l.acknowledged()
		backup := backedUp(t, e)
		stop()

		r := restored(t, backup)
		for _, v := range before {
			checkRestored(t, r, v)
		}
		require.Zero(t, r.Stats().Problems)
		require.NoError(t, r.Close())
	}
}

// checkRestored is like checkLife, but for a copy, in which queued runs count as running.
func checkRestored(t *testing.T, e *tester, v life) {
	t.Helper()
	if v.stage == "submitted" {
		require.NotEqual(t, engine.StatusQueued, get(t, e, v.id).Status)
	}
	checkLife(t, e, v)
}

// A backup whose reader goes away, or whose process is killed, leaves nothing and disturbs
// nothing.
func TestBackupThatIsCutShort(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	ended(t, e, "bg_a", "hello")
	whole := backedUp(t, e)
	gone := errors.New("gone")
	for n := 0; n < len(whole); n += 1 + len(whole)/20 {
		var file bytes.Buffer
		err := e.Backup(t.Context(), &failing{&file, n, gone})
		require.ErrorIs(t, err, gone)
		require.ErrorIs(t, restore(t, file.Bytes(), filepath.Join(t.TempDir(), "data")), ErrBackup)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, e.Backup(ctx, new(bytes.Buffer)))

	submitted(t, e, "bg_b")
	left, err := filepath.Glob(filepath.Join(dir, snapshotPattern))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".snapshot-123.db.tmp"), []byte("half"), 0o600))
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Backup(t.Context(), new(bytes.Buffer)), engine.ErrClosed)
	require.FileExists(t, filepath.Join(dir, ".snapshot-123.db.tmp"))
	get(t, opened(t, dir), "bg_b")
	require.NoFileExists(t, filepath.Join(dir, ".snapshot-123.db.tmp"), "of a process that was killed")
}

// A failing writer takes n bytes.
type failing struct {
	to  *bytes.Buffer
	n   int
	err error
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.n {
		n, _ := f.to.Write(p[:f.n])
		f.n = 0
		return n, f.err
	}
	f.n -= len(p)
	return f.to.Write(p)
}

// A backup is restored only into a new or an empty folder.
func TestRestoreIntoAUsedFolder(t *testing.T) {
	e := opened(t, t.TempDir())
	ended(t, e, "bg_a", "hello")
	backup := backedUp(t, e)
	left := tree(t, e.dir)
	require.ErrorIs(t, restore(t, backup, e.dir), fs.ErrExist, "in use")
	require.Equal(t, left, tree(t, e.dir))
	require.NoError(t, e.Close())
	require.ErrorIs(t, restore(t, backup, e.dir), fs.ErrExist)

	parent := t.TempDir()
	empty := filepath.Join(parent, "data")
	require.NoError(t, os.Mkdir(empty, 0o700))
	require.NoError(t, restore(t, backup, empty))
	require.Equal(t, "hello", tail(t, opened(t, empty), "bg_a"))
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")

	link := filepath.Join(parent, "link")
	require.NoError(t, os.Symlink(filepath.Join(parent, "not mounted"), link))
	require.ErrorIs(t, restore(t, backup, link), fs.ErrNotExist)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
}

// A database that is refused leaves the copies that the operator has made next to it.
func TestRefusedDatabaseLeavesCopies(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	require.NoError(t, e.Close())
	copied := filepath.Join(dir, databaseName+".backup-2026-11-27")
	require.NoError(t, os.WriteFile(copied, []byte("a copy"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, databaseName), []byte("not a database at all"), 0o600))
	left := tree(t, dir)
	_, err := Open(t.Context(), dir, Config{})
	require.ErrorIs(t, err, ErrDamaged)
	require.Equal(t, left, tree(t, dir))
}

// An intact database is not restored if it lacks a part that the engine needs, or contains
// programs such as views.
func TestRestoreOfAnotherDatabase(t *testing.T) {
	for _, change := range []string{"DROP TABLE runs", "PRAGMA user_version = 1", "CREATE VIRTUAL TABLE v USING fts5(x)", "CREATE VIEW v AS SELECT 1"} {
		dir := t.TempDir()
		e := opened(t, dir)
		require.NoError(t, e.Close())
		c, err := connect(filepath.Join(dir, databaseName), "rw")
		require.NoError(t, err)
		require.NoError(t, c.script(change+"; PRAGMA journal_mode = DELETE"), change)
		require.NoError(t, c.close())
		database, err := os.ReadFile(filepath.Join(dir, databaseName))
		require.NoError(t, err)

		var backup bytes.Buffer
		w := zip.NewWriter(&backup)
		to, err := w.CreateHeader(&zip.FileHeader{Name: databaseName})
		require.NoError(t, err)
		_, err = to.Write(database)
		require.NoError(t, errors.Join(err, w.SetComment(backupComment), w.Close()))
		target := filepath.Join(t.TempDir(), "data")
		require.ErrorIs(t, restore(t, backup.Bytes(), target), ErrBackup, change)
		require.NoDirExists(t, target)
	}
}

// A backup may come from anybody: only files that belong in a backup are written, and only if
// all of it is intact.
func TestHostileBackups(t *testing.T) {
	e := opened(t, t.TempDir())
	ended(t, e, "bg_a", "hello")
	backup := backedUp(t, e)
	database := contentOf(t, backup, databaseName)
	file := func(name string) *zip.FileHeader { return &zip.FileHeader{Name: name} }
	link := file("runs/bg_a/output.log")
	link.SetMode(fs.ModeSymlink | 0o777)
	packed := file("runs/bg_a/output.log")
	packed.Method = zip.Deflate
	type files []struct {
		header  *zip.FileHeader
		content []byte
	}
	damaged := bytes.Clone(database)
	clear(damaged[4096:8192])
	for name, test := range map[string]struct {
		files   files
		comment string
	}{
		"no database":        {files{{file("runs/bg_a/output.log"), nil}}, backupComment},
		"another form":       {files{{file(databaseName), database}}, "toolhost backup, form 2"},
		"a path upwards":     {files{{file(databaseName), database}, {file("runs/../../x"), nil}}, backupComment},
		"an absolute path":   {files{{file(databaseName), database}, {file("/tmp/x"), nil}}, backupComment},
		"a path of Windows":  {files{{file(databaseName), database}, {file(`runs\bg_a\output.log`), nil}}, backupComment},
		"a lock":             {files{{file(databaseName), database}, {file("lock"), nil}}, backupComment},
		"a mark":             {files{{file(databaseName), database}, {file(markName), nil}}, backupComment},
		"a folder":           {files{{file(databaseName), database}, {file("runs/bg_a/"), nil}}, backupComment},
		"a folder of run ..": {files{{file(databaseName), database}, {file("runs/../output.log"), nil}}, backupComment},
		"a link":             {files{{file(databaseName), database}, {link, []byte("/etc/passwd")}}, backupComment},
		"a file twice":       {files{{file(databaseName), database}, {file(databaseName), database}}, backupComment},
		"packed":             {files{{file(databaseName), database}, {packed, make([]byte, 1<<20)}}, backupComment},
		"no SQLite":          {files{{file(databaseName), []byte(strings.Repeat("text ", 5000))}}, backupComment},
		"an empty database":  {files{{file(databaseName), nil}}, backupComment},
		"a damaged database": {files{{file(databaseName), damaged}}, backupComment},
		"half of a database": {files{{file(databaseName), database[:len(database)/2]}}, backupComment},
		"a database with a trigger": {files{{file(databaseName), changedDatabase(t, database,
			`CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END`)}}, backupComment},
		"a database of a newer version": {files{{file(databaseName), changedDatabase(t, database, `PRAGMA user_version = 99`)}}, backupComment},
		"a database of another program": {files{{file(databaseName), changedDatabase(t, database, `PRAGMA application_id = 7`)}}, backupComment},
	} {
		t.Run(name, func(t *testing.T) {
			var archive bytes.Buffer
			w := zip.NewWriter(&archive)
			for _, f := range test.files {
				to, err := w.CreateHeader(f.header)
				require.NoError(t, err)
				_, _ = to.Write(f.content) // a folder takes none
			}
			require.NoError(t, w.SetComment(test.comment))
			require.NoError(t, w.Close())

			parent := t.TempDir()
			err := restore(t, archive.Bytes(), filepath.Join(parent, "data"))
			require.True(t, errors.Is(err, ErrBackup) || errors.Is(err, ErrNewer), err)
			entries, err := os.ReadDir(parent)
			require.NoError(t, err)
			require.Empty(t, entries, "nothing is written")
		})
	}
}

// Each byte of a backup counts.
func TestRestoreOfADamagedBackup(t *testing.T) {
	e := opened(t, t.TempDir())
	ended(t, e, "bg_a", "hello")
	backup := backedUp(t, e)
	for at := bytes.Index(backup, []byte("SQLite format 3")); at < len(backup); at += 1 + len(backup)/100 {
		damaged := bytes.Clone(backup)
		damaged[at] ^= 1
		dir := filepath.Join(t.TempDir(), "data")
		if err := restore(t, damaged, dir); err == nil { // a time or similar data was damaged
			require.Equal(t, "hello", tail(t, opened(t, dir), "bg_a"), at)
		} else {
			require.ErrorIs(t, err, ErrBackup, at)
			require.NoDirExists(t, dir)
		}
	}
}

// FuzzUnpack unpacks data that is not a backup: no more bytes are written than it has, and only
// files with the names of a backup.
func FuzzUnpack(f *testing.F) {
	var small bytes.Buffer
	w := zip.NewWriter(&small)
	for _, name := range []string{databaseName, "runs/bg_a/output.log"} {
		to, err := w.CreateHeader(&zip.FileHeader{Name: name})
		require.NoError(f, err)
		_, err = to.Write([]byte("hello"))
		require.NoError(f, err)
	}
	require.NoError(f, w.SetComment(backupComment))
	require.NoError(f, w.Close())
	f.Add(small.Bytes())
	f.Fuzz(func(t *testing.T, backup []byte) {
		files, err := filesOf(bytes.NewReader(backup), int64(len(backup)))
		if err != nil {
			require.ErrorIs(t, err, ErrBackup)
			return
		}
		parent, size := t.TempDir(), 0
		folder := filepath.Join(parent, "a", "b")
		require.NoError(t, os.MkdirAll(folder, 0o700))
		_ = unpack(t.Context(), files, folder)
		for path, content := range tree(t, parent) {
			name, err := filepath.Rel(folder, path)
			require.NoError(t, err)
			require.Regexp(t, backupFile, filepath.ToSlash(name))
			size += len(content)
		}
		require.LessOrEqual(t, size, len(backup))
	})
}

func contentOf(t *testing.T, backup []byte, name string) []byte {
	archive, err := zip.NewReader(bytes.NewReader(backup), int64(len(backup)))
	require.NoError(t, err)
	data, err := fs.ReadFile(archive, name)
	require.NoError(t, err)
	return data
}

// changedDatabase returns a database after a statement has changed it.
func changedDatabase(t *testing.T, database []byte, statement string) []byte {
	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.WriteFile(path, database, 0o600))
	c, err := connect(path, "rw")
	require.NoError(t, err)
	require.NoError(t, c.script(statement))
	require.NoError(t, c.close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
