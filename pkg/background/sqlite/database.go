package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	databaseName = "state.db"
	// suspectSuffix makes the name of a file that says: SQLite met damage while
	// the engine was running, check the whole file at the next start.
	suspectSuffix = ".suspect"
)

// databaseSuffixes are those of the files of a database. The database itself
// comes last: without it, its log belongs to nothing.
var databaseSuffixes = []string{"-wal", "-shm", ""}

// A database is the database file, with one connection that writes and some
// that read.
type database struct {
	dir      string
	log      *slog.Logger
	problems *problems
	ops      chan *op
	readers  chan *conn
	files    map[string]identity   // that must stay what they were, by suffix
	failed   atomic.Pointer[error] // why nothing is stored any more; nil: it is
	full     atomic.Bool           // the last change found no room on the disk
	mark     *markFile             // of the writer
	recorded atomic.Int64          // bytes of records, as the last transaction left them

	life   sync.RWMutex  // read-locked by calls in progress
	closed bool          // guarded by life
	wrote  chan struct{} // closed when the writer has ended
}

func openDatabase(dir string, problems *problems, log *slog.Logger) (*database, error) {
	db := &database{
		dir: dir, log: log, problems: problems, files: make(map[string]identity),
		ops: make(chan *op, maxBatch), wrote: make(chan struct{}),
	}
	w, err := db.openWriter()
	if err != nil {
		return nil, err
	}

	db.readers = make(chan *conn, max(2, runtime.GOMAXPROCS(0)))
	for range cap(db.readers) {
		r, err := connect(db.path(""))
		if err == nil {
			err = r.script("PRAGMA busy_timeout = 10000; PRAGMA query_only = ON; PRAGMA trusted_schema = OFF")
		}
		if err != nil {
			return nil, errors.Join(err, w.close(), db.closeReaders())
		}
		db.readers <- r
	}
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(err, w.close(), db.closeReaders())
	}

	go db.writeAll(w)
	return db, nil
}

func (db *database) path(suffix string) string { return filepath.Join(db.dir, databaseName+suffix) }

// close waits for calls in progress, and closes the database.
func (db *database) close() error {
	db.life.Lock()
	db.closed = true
	db.life.Unlock()

	err := db.closeReaders()
	close(db.ops)
	<-db.wrote
	return err
}

func (db *database) closeReaders() error {
	var errs []error
	for range len(db.readers) {
		errs = append(errs, (<-db.readers).close())
	}
	return errors.Join(errs...)
}

// read calls f with a connection to read from. f must not keep it.
func (db *database) read(ctx context.Context, f func(c *conn) error) error {
	db.life.RLock()
	defer db.life.RUnlock()
	if db.closed {
		return engine.ErrClosed
	}

	select {
	case c := <-db.readers:
		defer func() { db.readers <- c }()
		err := f(c)
		db.suspect(err)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// suspect handles an error of the database. If it says that the file is damaged,
// that is reported once, and the next start checks all of it.
func (db *database) suspect(err error) {
	if !damagedFile(err) {
		return
	}
	f, create := os.OpenFile(db.path(suspectSuffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if create != nil {
		return // known, or nothing can be done
	}
	_ = f.Close()
	db.problems.report(Problem{Kind: ProblemDatabase, Reason: err.Error()})
}

// openWriter returns the connection that writes, to a database that is whole.
// It compares what is there with the mark the last process left, and reports what
// is lost.
func (db *database) openWriter() (c *conn, err error) {
	path := filepath.Join(db.dir, markName)
	left, err := readMark(path)
	if err != nil {
		return nil, err
	}
	if _, err := db.finishSalvage(); err != nil {
		return nil, err
	}
	if why := db.missing(left); why != "" {
		moved, err := db.setAside("lost")
		if err != nil {
			return nil, err
		}
		db.problems.report(Problem{Kind: ProblemDatabase, Moved: moved, Reason: why})
		left.store = 0
	}
	if c, err = db.openWhole(left); err != nil {
		return nil, err
	}

	now, err := markOf(c)
	if err == nil && left.store != 0 {
		err = db.compare(c, left, now)
	}
	if err == nil {
		now.commits = max(now.commits, left.commits) // of one that went back: the next loss counts from here
		err = now.put(c)
	}
	if err == nil {
		db.mark, err = newMarkFile(path, now)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}

	// Windows lets nobody delete or rename a file that is open.
	for _, suffix := range []string{"", "-wal"} {
		if id, err := identify(db.path(suffix)); err == nil {
			db.files[suffix] = id
		}
	}

	return c, nil
}

// openWhole opens the database. One that is damaged is replaced by what can be
// read of it.
func (db *database) openWhole(left mark) (c *conn, err error) {
	if err = db.lostInLog(left); err == nil {
		_, suspected := os.Stat(db.path(suspectSuffix))
		c, err = openFile(db.path(""), suspected == nil)
	}
	if !damagedFile(err) {
		return c, err
	}

	moved, result, failed := db.salvage(left)
	if failed != nil {
		return nil, fmt.Errorf("saving what is left of a database (%w): %w", err, failed)
	}
	db.problems.report(Problem{Kind: ProblemDatabase, Moved: moved, Reason: err.Error() + "; " + result})
	return openFile(db.path(""), false)
}

// lostInLog returns an error that matches errDamaged if the write-ahead log is
// torn, and what SQLite would throw away behind the damage was acknowledged, as
// the mark says. Otherwise it is no loss: the machine stopped there.
func (db *database) lostInLog(left mark) error {
	if left.store == 0 {
		return nil
	}
	if torn, err := torn(db.path("-wal")); err != nil || !torn {
		return err
	}

	trial := db.path(".trial")
	defer func() { _ = removeAll(trial, trial+"-wal", trial+"-shm") }()
	err := errors.Join(copyFile(db.path(""), trial), copyFile(db.path("-wal"), trial+"-wal"))
	if err != nil {
		return fmt.Errorf("copying a database with a torn write-ahead log: %w", err)
	}
	c, err := connect(trial)
	if err != nil {
		return err
	}
	now, err := markOf(c)
	_ = c.close()
	if err == nil && (now.store != left.store || now.commits >= left.commits) {
		return nil
	}

	return fmt.Errorf("%w: the write-ahead log is torn after %d of %d transactions", errDamaged, now.commits, left.commits)
}

// setAside renames the files of the database that exist, and returns its new name: ""
// if there was nothing.
func (db *database) setAside(why string) (moved string, err error) {
	to := databaseName + "." + why + "-" + timestamp()
	for _, suffix := range databaseSuffixes {
		err := os.Rename(db.path(suffix), filepath.Join(db.dir, to+suffix))
		if err != nil && !missingFile(err) {
			return "", err
		}
		if err == nil {
			moved = to
		}
	}
	return moved, nil
}

// missing says why there is no database where there has to be one; "" if there
// is one, or none was ever made.
func (db *database) missing(left mark) string {
	info, err := os.Stat(db.path(""))
	state := "is empty"
	switch {
	case missingFile(err):
		state = "is missing"
	case err != nil || info.Size() > 0:
		return ""
	}

	folders, _ := os.ReadDir(filepath.Join(db.dir, runsFolder))
	switch {
	case left.store != 0:
		return fmt.Sprintf("%s %s: all of its %d transactions are lost", databaseName, state, left.commits)
	case len(folders) > 0:
		return fmt.Sprintf("%s %s, and there are %d folders of runs", databaseName, state, len(folders))
	}
	return ""
}

// compare reports that the database is not the one, or not as far, as the mark
// says.
func (db *database) compare(c *conn, left, now mark) error {
	p := Problem{Kind: ProblemDatabase}
	switch {
	case now.store != left.store:
		p.Reason = databaseName + " is another database than the one that was in use: what that had is lost"
	case now.commits < left.commits:
		p.Reason = fmt.Sprintf("%s went back in time: it has %d of %d transactions", databaseName, now.commits, left.commits)
	default:
		return nil
	}

	doubted, err := doubt(c)
	p.Reason += doubted
	db.problems.report(p)
	return err
}
