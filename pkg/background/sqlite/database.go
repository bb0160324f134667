package sqlite

import (
	"context"
	"database/sql/driver"
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

const databaseName = "state.db"

// ErrDamaged means that the database is damaged, missing, or changed since the last use. The
// error describes the damage. The data directory was left unchanged.
var ErrDamaged = errors.New("database damaged or lost")

// A database is the database file, with one connection for writing and
// several for reading.
type database struct {
	dir      string
	log      *slog.Logger
	problems *problems
	ops      chan *op
	readers  chan *conn
	files    map[string]identity   // identities of the open files, by suffix
	failed   atomic.Pointer[error] // reason why nothing can be stored any more; nil: the engine works
	full     atomic.Bool           // whether the disk was full at the last change
	mark     *markFile             // written by the writer
	recorded atomic.Int64          // size of all records in bytes, after the last transaction

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
		r, err := connect(db.path(""), "rw")
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

// read calls f with a connection for reading. f must not keep it.
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

// suspect reports err as a problem if it means that the database file is damaged.
func (db *database) suspect(err error) {
	if damagedFile(err) {
		db.problems.report(kindDatabase, "", err)
	}
}

// openWriter returns the connection for writing, after checking that the database has everything
// that was acknowledged.
func (db *database) openWriter() (c *conn, err error) {
	path := filepath.Join(db.dir, markName)
	left, err := readMark(path)
	if err != nil {
		return nil, err
	}
	now, err := db.inspect(left)
	if err != nil {
		return nil, err
	}
	db.removeSnapshots()
	if c, err = openFile(db.path("")); err != nil {
		return nil, err
	}

	if left.store == 0 && now.store != 0 {
		err = db.doubt(c)
	}
	if err == nil {
		err = now.put(c)
	}
	if err == nil {
		db.mark, err = newMarkFile(path, now)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}

	// On Windows nobody can delete or rename an open file.
	for _, suffix := range []string{"", "-wal"} {
		if id, err := identify(db.path(suffix)); err == nil {
			db.files[suffix] = id
		}
	}

	return c, nil
}

// inspect returns the mark in the database, zero for a new one. The error matches
// ErrDamaged if it finds damage, or fewer transactions than the mark left by the last
// process.
func (db *database) inspect(left mark) (found mark, err error) {
	info, err := os.Stat(db.path(""))
	switch {
	case missingFile(err) || err == nil && info.Size() == 0:
		folders, _ := os.ReadDir(filepath.Join(db.dir, runsFolder))
		if left.store != 0 || len(folders) > 0 {
			return found, fmt.Errorf("%w: %s is missing or empty, but the folder has runs", ErrDamaged, db.path(""))
		}
		return found, nil
	case err == nil:
		found, err = inspectFile(db.path(""), quickCheck)
	}

	state := ""
	switch {
	case err != nil || left.store == 0:
		return found, err
	case found.store != left.store:
		state = "is not the database that was in use"
	case found.commits < left.commits:
		state = fmt.Sprintf("has %d of %d transactions: it is an older copy, or %s-wal is damaged or missing", found.commits, left.commits, databaseName)
	default:
		return found, nil
	}
	return found, fmt.Errorf("%w: %s %s; put the right files back, or remove %s to continue with what is there", ErrDamaged, db.path(""), state, markName)
}

// doubt handles a database without its mark, which is a copy such as a restored backup.
// Its queued runs and those with a state may have been started or continued since the copy
// was made. It treats them as running runs whose host went down, so that none is wrongly
// run twice. Held runs are left to the person who decides on them.
func (db *database) doubt(c *conn) error {
	var doubted []row
	err := c.query(func(found []driver.Value) error {
		r, err := decode(found)
		if err == nil && !r.Undecided() && (r.Status == engine.StatusQueued && r.Attempt == 0 || r.StateSize > 0 || r.Restartable) {
			doubted = append(doubted, r)
		}
		return nil
	}, selectActive)
	if err == nil {
		err = c.run("BEGIN IMMEDIATE")
	}
	for _, r := range doubted {
		if err == nil {
			err = r.interrupt(c)
		}
	}
	if err == nil {
		err = c.run("COMMIT")
	}

	if err == nil {
		db.log.Warn("the database is a copy, such as a restored backup: what came after it was made is unknown; "+
			"runs that may have been started since count as interrupted, and schedules may fire again for recent times", "dir", db.dir, "interrupted", len(doubted))
	}
	return err
}

// interrupt stores a run as one whose host went down, without a state to continue from.
func (r row) interrupt(c *conn) error {
	state := r.StateSize
	r.Status, r.Attempt = engine.StatusRunning, max(1, r.Attempt)
	r.Waiting = engine.Waiting{CallsSize: r.CallsSize}
	record, err := r.encode()
	if err != nil {
		return err
	}
	if err := c.run(`UPDATE runs SET record = ?, size = size - ? WHERE seq = ?`, record, state, r.seq); err != nil {
		return err
	}
	return c.run(`DELETE FROM states WHERE seq = ?`, r.seq)
}
