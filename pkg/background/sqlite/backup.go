package sqlite

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A backup is an uncompressed zip archive, so that a small one cannot fill the disk:
//
//	state.db                      the database
//	runs/{folder}/{file}          the logs and results of runs, as in the data directory
//
// The comment of the archive marks it as a backup, and names the version of the format.
const backupComment = "toolhost backup, form 1"

// backupFile matches the names of the files in a backup.
var backupFile = regexp.MustCompile(`^(state\.db|runs/[A-Za-z0-9_-]{1,100}(\.[0-9]{1,5})?/(output\.log|result\.json|tail\.[0-9]{1,19}\.[0-9]{1,19}))$`)

// snapshotPattern matches the names of the copies that Backup makes of the database. Users would
// hardly give such a name to a copy of their own. [Open] removes the copies that a killed
// process left.
const snapshotPattern = ".snapshot-*.db.tmp"

// ErrBackup means that a file is not a backup, or is incomplete. The error says why.
var ErrBackup = errors.New("not a whole backup")

// Backup writes a backup to w while the engine is in use. The backup contains everything
// that was acknowledged before the call; each later change is included entirely or not at
// all. [Restore] restores it. Backup needs space for a second database in the data directory.
// After an error, w does not contain a backup.
func (e *Engine) Backup(ctx context.Context, w io.Writer) error {
	err := e.backup(ctx, w)
	if err != nil {
		return fmt.Errorf("backing up %s: %w", e.dir, err)
	}
	return nil
}

func (e *Engine) backup(ctx context.Context, w io.Writer) error {
	file, err := e.db.snapshot(ctx)
	if file != nil {
		defer func() { _ = errors.Join(file.Close(), os.Remove(file.Name())) }()
	}
	if err != nil {
		return err
	}

	b := &backup{Engine: e, ctx: ctx, zip: zip.NewWriter(w)}
	if err := b.add(databaseName, file); err != nil {
		return err
	}
	c, err := connect(file.Name(), "ro")
	if err != nil {
		return err
	}
	err = c.query(b.addRun, `SELECT `+runColumns+` FROM runs`)
	if err = errors.Join(err, c.close(), b.zip.SetComment(backupComment)); err != nil {
		return err
	}
	return b.zip.Close()
}

// snapshot copies the current database into a new file, which the caller removes.
// Neither reads nor writes wait for it.
func (db *database) snapshot(ctx context.Context) (file *os.File, err error) {
	db.life.RLock()
	defer db.life.RUnlock()
	if db.closed {
		return nil, engine.ErrClosed
	}
	if file, err = os.CreateTemp(db.dir, snapshotPattern); err != nil {
		return nil, err
	}

	c, err := connect(db.path(""), "ro")
	if err != nil {
		return file, err
	}
	_, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, "VACUUM INTO ?", named([]driver.Value{file.Name()}))
	if code(err) == codeFull {
		err = fmt.Errorf("%w: %w", engine.ErrFull, err)
	}
	return file, errors.Join(err, c.close())
}

// removeSnapshots removes the snapshots that a process left when it was killed during a backup.
func (db *database) removeSnapshots() {
	entries, _ := os.ReadDir(db.dir)
	for _, entry := range entries {
		if ours, _ := filepath.Match(snapshotPattern, entry.Name()); ours {
			_ = os.Remove(filepath.Join(db.dir, entry.Name()))
		}
	}
}

// A backup is a backup in progress.
type backup struct {
	*Engine
	ctx context.Context
	zip *zip.Writer
}

func (b *backup) add(name string, from io.Reader) error {
	to, err := b.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: time.Now()})
	if err == nil {
		_, err = io.Copy(to, from)
	}
	return err
}

// addRun adds the files of a run in the snapshot. They may be newer than its record.
func (b *backup) addRun(found []driver.Value) error {
	r, damaged := decode(found)
	if checkID(r.ID) != nil {
		return nil
	}
	live := damaged == nil && r.Log == nil
	err := b.ctx.Err()
	b.logs.attempts(r.Run, func(folder string) {
		if err == nil && !(live && folder == b.logs.folder(r.Run)) {
			err = b.addFolder(folder)
		}
	})
	if err == nil && live && r.Attempt > 0 && !r.unlogged() {
		err = b.addLive(r.Run)
	}
	return err
}

// addFolder adds the files of an attempt that has ended. Files that are removed at the same time
// are left out, as if they had been evicted earlier.
func (b *backup) addFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		name := path.Join(runsFolder, filepath.Base(folder), entry.Name())
		if err != nil || !entry.Type().IsRegular() || !backupFile.MatchString(name) {
			continue
		}
		file, opening := os.Open(filepath.Join(folder, entry.Name()))
		if opening == nil {
			err = errors.Join(b.add(name, file), file.Close())
		} else if !missingFile(opening) {
			err = opening
		}
	}
	if missingFile(err) {
		return nil
	}
	return err
}

// addLive adds the current log of an attempt that had not ended in the snapshot. The run may
// have ended since, and its files may be in their final form. So they are written as a killed
// process would leave them, see findLog.
func (b *backup) addLive(run engine.Run) error {
	l := newLog(path.Join(runsFolder, run.Folder()), run.OutputCap)
	var head, end int64
	for offset, limit := int64(0), max(1, l.headCap); ; limit = l.tailCap {
		chunk, err := b.Tail(b.ctx, run.ID, offset, int(limit))
		switch {
		case errors.Is(err, engine.ErrNotFound): // it was removed
			return nil
		case err != nil:
			return err
		case chunk.Attempt != run.Attempt: // that attempt is over
			return b.addFolder(b.logs.folder(run))
		case offset == 0:
			end = chunk.End
		}
		if len(chunk.Data) == 0 || offset >= end && offset > 0 {
			return nil
		}

		name := segment{head: head, off: chunk.Offset}.name()
		if chunk.Offset == 0 {
			name, head = engine.OutputLog, int64(len(chunk.Data))
		}
		if err := b.add(path.Join(l.dir, name), bytes.NewReader(chunk.Data)); err != nil {
			return err
		}
		offset = chunk.Offset + int64(len(chunk.Data))
	}
}

// Restore creates the data directory dir from a backup of size bytes. If dir exists and is
// not empty, the error matches [fs.ErrExist]. If the backup cannot be used, the error matches
// [ErrBackup] or [ErrNewer]. After Restore, dir is either complete or untouched.
//
// Runs that are queued, suspended or running in the backup may have been started, continued or
// ended since it was made. [Open] treats them as interrupted.
func Restore(ctx context.Context, backup io.ReaderAt, size int64, dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir = real
	} else if _, there := os.Lstat(dir); there == nil { // a dangling link, for example to a disk that is not mounted
		return err
	}
	if there, err := os.ReadDir(dir); err != nil && !missingFile(err) || len(there) > 0 {
		return cmp.Or(err, fmt.Errorf("%s is not empty: %w", dir, fs.ErrExist))
	}
	files, err := filesOf(backup, size)
	if err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(parent, filepath.Base(dir)+".restore-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }()

	at := slices.IndexFunc(files, func(f *zip.File) bool { return f.Name == databaseName })
	if err := unpack(ctx, files[at:at+1], stage); err != nil {
		return err
	}
	if err := checkBackup(filepath.Join(stage, databaseName)); err != nil {
		return err
	}
	if err := unpack(ctx, slices.Delete(files, at, at+1), stage); err != nil {
		return err
	}

	_ = os.Remove(dir) // if it is empty
	if err := os.Rename(stage, dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// filesOf returns the files of a backup. It refuses unknown files, and files that
// together are larger than the backup.
func filesOf(backup io.ReaderAt, size int64) ([]*zip.File, error) {
	archive, err := zip.NewReader(backup, size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	if archive.Comment != backupComment {
		return nil, fmt.Errorf("%w: it was not made by this program, or by another version: %.100q", ErrBackup, archive.Comment)
	}

	names, left := make(map[string]bool), uint64(size)
	for _, f := range archive.File {
		if f.Method != zip.Store || !f.Mode().IsRegular() || !backupFile.MatchString(f.Name) || names[f.Name] || f.UncompressedSize64 > left {
			return nil, fmt.Errorf("%w: unexpected file %.100q", ErrBackup, f.Name)
		}
		names[f.Name], left = true, left-f.UncompressedSize64
	}
	if !names[databaseName] {
		return nil, fmt.Errorf("%w: it has no %s", ErrBackup, databaseName)
	}
	return archive.File, nil
}

// unpack writes the files of a backup to a new folder.
func unpack(ctx context.Context, files []*zip.File, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()

	for _, f := range files {
		err := cmp.Or(ctx.Err(), root.MkdirAll(path.Dir(f.Name), 0o700))
		if err == nil {
			err = unpackFile(root, f)
		}
		if errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %s: %w", ErrBackup, f.Name, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkBackup checks the database of a backup, including its indexes, and that it lacks no table
// or column: even an intact database may lack one.
func checkBackup(database string) error {
	found, err := inspectFile(database, integrityCheck)
	if err == nil && found.store == 0 {
		err = fmt.Errorf("its %s is empty", databaseName)
	}
	if err == nil {
		err = checkLayout(database)
	}
	if err != nil && !errors.Is(err, ErrNewer) {
		err = fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return err
}

// checkLayout returns an error if a database lacks a column that the migrations up to its
// version create.
func checkLayout(path string) (err error) {
	c, err := connect(path, "ro")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	made, err := connect("layout", "memory")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.close()) }()

	taken, err := versionOf(c, path, len(migrations))
	if err == nil {
		err = made.script(strings.Join(migrations[:taken], ""))
	}
	if err != nil {
		return err
	}
	return made.query(func(column []driver.Value) error {
		n, err := c.number(`SELECT count(*) FROM pragma_table_info(?) WHERE name = ?`, column...)
		if err == nil && n == 0 {
			err = fmt.Errorf("it has no column %v.%v", column[0], column[1])
		}
		return err
	}, `SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'`)
}

// unpackFile writes a file of a backup. It makes only the database durable: logs can be restored
// from the backup again.
func unpackFile(root *os.Root, f *zip.File) error {
	from, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err == nil && f.Name == databaseName {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}
