package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	databaseName = "state.db"
	// suspectSuffix makes the name of a file that says: SQLite met damage while
	// the engine was running, look closely at the next start.
	suspectSuffix = ".suspect"
	// salvagingSuffix makes the name of a file that names the database that was
	// set aside and is not read yet: a start that is cut short is done again by
	// the next.
	salvagingSuffix = ".salvaging"
	imageSuffix     = ".salvage"  // the image of a damaged database, until it is read
	tornSuffix      = "-wal.torn" // the copy of a torn log, until it is known whether anything is lost
)

// databaseSuffixes are those of the files of a database.
var databaseSuffixes = []string{"", "-wal", "-shm"}

// A database is the database file, with one connection that writes and some
// that read.
type database struct {
	dir      string
	log      *slog.Logger
	problems *problems
	ops      chan *op
	readers  chan *conn
	files    []watched             // that must stay what they were
	failed   atomic.Pointer[error] // why nothing is stored any more; nil: it is
	mark     *markFile             // of the writer
	unmarked bool                  // the mark could not be written; logged once
	recorded atomic.Int64          // bytes of records, as the last transaction left them

	life   sync.Mutex
	closed bool
	calls  sync.WaitGroup
	wrote  chan struct{} // closed when the writer has ended
}

// A watched file is one that must stay what it was when it was opened.
type watched struct {
	suffix string
	identity
}

func openDatabase(dir string, problems *problems, log *slog.Logger) (*database, error) {
	db := &database{dir: dir, log: log, problems: problems, ops: make(chan *op, maxBatch), wrote: make(chan struct{})}
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

// path returns the path of the database with a suffix.
func (db *database) path(suffix string) string { return filepath.Join(db.dir, databaseName+suffix) }

// enter begins a call. The caller calls db.calls.Done when it is over.
func (db *database) enter() error {
	db.life.Lock()
	defer db.life.Unlock()

	if db.closed {
		return ErrClosed
	}
	db.calls.Add(1)
	return nil
}

// close waits for calls in progress, and closes the database.
func (db *database) close() error {
	db.life.Lock()
	db.closed = true
	db.life.Unlock()

	db.calls.Wait()
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

// read calls f with a connection to read from. f must not hold on to it.
func (db *database) read(ctx context.Context, f func(c *conn) error) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.calls.Done()

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

// suspect looks at an error of the database. If it says that the file is
// damaged, that is reported once, and the next start looks closely.
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
// It compares what is there with the mark the last process left, reports what
// is lost, and saves what can still be read.
func (db *database) openWriter() (*conn, error) {
	path := filepath.Join(db.dir, markName)
	left, known, err := readMark(path)
	if err != nil {
		return nil, err
	}
	c, reported, err := db.openWhole(left, known)
	if err != nil {
		return nil, err
	}

	now, err := markOf(c)
	if err == nil && known && !reported {
		err = db.compare(c, left, now)
	}
	if err == nil {
		now.commits = max(now.commits, left.commits) // of one that was salvaged, or went back: the next loss counts from here
		err = c.run(`UPDATE meta SET value = ? WHERE name = 'commits'`, now.commits)
	}
	if err == nil {
		db.mark, err = newMarkFile(path, now)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}

	// Windows lets nobody delete or rename a file that is open, so that there
	// the look at them costs and finds nothing.
	for _, suffix := range []string{"", "-wal"} {
		if id, err := identify(db.path(suffix)); err == nil {
			db.files = append(db.files, watched{suffix, id})
		}
	}

	return c, nil
}

// openWhole opens the database. One that is missing or damaged is replaced by a
// new one; reported says that this was reported.
func (db *database) openWhole(left mark, known bool) (c *conn, reported bool, err error) {
	if aside, err := db.unfinishedSalvage(); err != nil || aside != "" {
		if err == nil {
			c, err = db.replace(aside, "an earlier start was cut short while it read what is left of a damaged database")
		}
		return c, true, err
	}
	if why := db.missing(left, known); why != "" {
		aside, err := db.setAside(asideName("lost"))
		if err != nil {
			return nil, false, err
		}
		db.problems.report(Problem{Kind: ProblemDatabase, Moved: aside, Reason: why})
		c, err = openFile(db.path(""), false)
		return c, true, err
	}

	if known {
		if err := db.keepTorn(); err != nil {
			return nil, false, fmt.Errorf("keeping a torn write-ahead log: %w", err)
		}
	}
	_, suspected := os.Stat(db.path(suspectSuffix))
	c, err = openFile(db.path(""), suspected == nil)
	if !damagedFile(err) {
		return c, false, err
	}

	damage, aside := err, asideName("corrupt")
	if err = errors.Join(writeFile(db.path(salvagingSuffix), strings.NewReader(aside)), syncDir(db.dir)); err == nil {
		_, err = db.setAside(aside)
	}
	if err != nil {
		return nil, false, fmt.Errorf("setting the damaged database aside: %w", err)
	}
	if c, err = db.replace(aside, damage.Error()); err != nil {
		return nil, false, err
	}

	return c, true, removeAll(db.path(suspectSuffix))
}

// unfinishedSalvage returns the name of a database that an earlier start set
// aside and did not finish reading, after it has removed what that start made;
// "" if there is none.
func (db *database) unfinishedSalvage() (aside string, err error) {
	name, err := os.ReadFile(db.path(salvagingSuffix))
	if missingFile(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	aside = filepath.Base(string(name))
	if _, err := os.Stat(filepath.Join(db.dir, aside)); err != nil {
		return "", os.Remove(db.path(salvagingSuffix)) // it was not set aside yet
	}

	// Without a new database its log is still that of the damaged one.
	if _, err := os.Stat(db.path("")); missingFile(err) {
		_, err = db.setAside(aside)
		return aside, err
	}

	return aside, removeAll(db.path(""), db.path("-wal"), db.path("-shm"))
}

func asideName(why string) string { return databaseName + "." + why + "-" + timestamp() }

// setAside renames what there is of the database, and returns the first of its
// new names.
func (db *database) setAside(to string) (aside string, err error) {
	for _, suffix := range databaseSuffixes {
		err := os.Rename(db.path(suffix), filepath.Join(db.dir, to+suffix))
		if err != nil && !missingFile(err) {
			return "", err
		}
		if err == nil && aside == "" {
			aside = to
		}
	}
	return aside, nil
}

// missing says why there is no database where there has to be one; "" if there
// is one, or none was ever made.
func (db *database) missing(left mark, known bool) string {
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
	case known:
		return fmt.Sprintf("%s %s: all of its %d transactions are lost", databaseName, state, left.commits)
	case len(folders) > 0:
		return fmt.Sprintf("%s %s, and there are %d folders of runs", databaseName, state, len(folders))
	}

	return ""
}

// keepTorn makes a copy of a write-ahead log that is torn, and an image of the
// database with it, before SQLite throws away what is behind the damage.
func (db *database) keepTorn() error {
	log := db.path("-wal")
	if torn, err := torn(log); err != nil || !torn {
		return err
	}
	if err := copyFile(log, db.path(tornSuffix)); err != nil {
		return err
	}
	return writeImage(db.path(imageSuffix), db.path(""), log)
}

// compare reports that the database is not the one, or not as far, as the mark
// says, and reads what it can of what a torn write-ahead log had. A log that was
// torn in what nobody was told of is no loss: the machine stopped there.
func (db *database) compare(c *conn, left, now mark) error {
	p := Problem{Kind: ProblemDatabase}
	switch {
	case now.store != left.store:
		p.Reason = databaseName + " is another database than the one that was in use: what that had is lost"
	case now.commits < left.commits:
		p.Reason = fmt.Sprintf("%s went back in time: it has %d of %d transactions", databaseName, now.commits, left.commits)
	default:
		return removeAll(db.path(tornSuffix), db.path(imageSuffix))
	}

	if moved := tornSuffix + "-" + timestamp(); os.Rename(db.path(tornSuffix), db.path(moved)) == nil {
		p.Moved = databaseName + moved
		p.Reason += "; " + db.salvage(c)
	}
	doubted, err := doubt(c)
	p.Reason += doubted
	db.problems.report(p)
	return err
}
