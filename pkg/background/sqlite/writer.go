package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// maxBatch is the maximum number of changes stored in one transaction.
const maxBatch = 256

// A change changes the database. It checks before it writes: an error that does
// not come from SQLite means that nothing was written. It may be called again
// after a rollback. Functions that it adds to w.after are called once the
// change is stored.
type change func(w *conn) error

// An op is a change that waits for the writer.
type op struct {
	do   change
	err  error
	done chan error
}

// write makes a change and returns when it is stored. If ctx ends before the
// change is in the writer's queue, nothing is changed. After that, write
// waits for the outcome, so that the caller knows it.
func (db *database) write(ctx context.Context, do change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	db.life.RLock()
	defer db.life.RUnlock()
	if db.closed {
		return engine.ErrClosed
	}

	o := &op{do: do, done: make(chan error, 1)}
	select {
	case db.ops <- o:
		return <-o.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeAll is the writing goroutine. It ends when db.ops is closed.
func (db *database) writeAll(w *conn) {
	defer close(db.wrote)
	for first := range db.ops {
		db.store(w, db.gather(first))
	}

	if err := w.close(); err != nil {
		db.log.Error("database not closed", "error", err)
	}
	if err := errors.Join(db.mark.f.Sync(), db.mark.f.Close()); err != nil {
		db.log.Warn("mark of the database not closed", "error", err)
	}
}

// gather collects the waiting changes.
func (db *database) gather(first *op) []*op {
	batch := []*op{first}
	runtime.Gosched() // callers that just got an answer are about to return
	for len(batch) < maxBatch {
		select {
		case o, ok := <-db.ops:
			if !ok {
				return batch
			}
			batch = append(batch, o)
		default:
			return batch
		}
	}

	return batch
}

// store makes the changes of a batch in one transaction, and answers their
// callers. If SQLite refuses any of them, each change gets a transaction of
// its own, so that none can affect another.
//
// It acknowledges nothing once the database is not the file that was opened:
// everything written to it would be gone at the next start.
func (db *database) store(w *conn, batch []*op) {
	err := db.lost()
	if err == nil {
		err = db.commit(w, batch)
	}
	if isSQL(err) && len(batch) > 1 {
		for _, o := range batch {
			db.store(w, []*op{o})
		}
		return
	}

	for _, o := range batch {
		if err != nil {
			o.err = err
		}
		o.done <- o.err
	}
}

// commit makes the changes of a batch in one transaction, and publishes them.
func (db *database) commit(w *conn, batch []*op) error {
	changed, err := db.transact(w, batch)
	w.book.close(err == nil)
	db.recorded.Store(w.book.ledger.Used())
	if err != nil {
		_ = w.run("ROLLBACK") // SQLite may have rolled back already
		db.suspect(err)
		if code(err) == codeFull {
			err = fmt.Errorf("%w: %w", engine.ErrFull, err)
			db.filled(true)
		}
		return fmt.Errorf("writing the database: %w", err)
	}

	if changed {
		db.filled(false)
		if err := db.look(); err != nil {
			return err
		}
		db.mark.commits++
		if err := db.mark.write(); err != nil {
			db.log.Warn("mark of the database not written: a loss of what was stored may go unnoticed", "error", err)
		}
	}
	for _, after := range w.after {
		after()
	}
	return nil
}

// filled records whether the last change found the disk full, and logs when that
// changes.
func (db *database) filled(full bool) {
	switch {
	case db.full.Swap(full) == full:
	case full:
		db.log.Error("the disk is full: nothing can be stored until there is room", "dir", db.dir)
	default:
		db.log.Info("there is room on the disk again", "dir", db.dir)
	}
}

// probe is the number of bytes for which there must be room on a disk that was full.
const probe = 64 << 10

// room returns an error that matches [engine.ErrFull] if the disk is full. It makes a test
// write only if there is a sign of that.
func (db *database) room(ctx context.Context) error {
	if !db.full.Load() && !scarce(db.dir) {
		return nil
	}
	err := db.write(ctx, func(w *conn) error {
		return w.run(`INSERT OR REPLACE INTO meta VALUES ('room', zeroblob(?))`, int64(probe))
	})
	if err != nil {
		return err
	}
	return db.write(ctx, func(w *conn) error { return w.run(`DELETE FROM meta WHERE name = 'room'`) })
}

// transact runs one transaction. It reports whether there was anything to commit.
func (db *database) transact(w *conn, batch []*op) (changed bool, err error) {
	w.after = nil
	if err := w.run("BEGIN IMMEDIATE"); err != nil {
		return false, err
	}

	before := w.changed // for BEGIN, SQLite returns the count of the statement before it
	for _, o := range batch {
		if o.err = o.do(w); isSQL(o.err) {
			return false, o.err
		}
	}
	if changed = w.changed != before; changed {
		next := mark{db.mark.store, db.mark.commits + 1}
		if err := next.put(w); err != nil {
			return false, err
		}
	}

	return changed, w.run("COMMIT")
}

// lost returns an error that says why nothing can be stored any more, or nil while the engine
// works.
func (db *database) lost() error {
	if err := db.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// look checks that the database files are those that were opened. Otherwise
// it reports that once, and the engine stops storing.
func (db *database) look() error {
	if err := db.lost(); err != nil {
		return err
	}

	for suffix, was := range db.files {
		id, err := identify(db.path(suffix))
		if !missingFile(err) && (err != nil || was.same(id)) {
			continue
		}
		name := databaseName + suffix
		err = fmt.Errorf("%w: %s; nothing is stored any more: put it back, and start again", engine.ErrStorageLost, name)
		if db.failed.CompareAndSwap(nil, &err) {
			db.problems.report(kindDatabase, name, err)
		}
		return db.lost()
	}

	return nil
}
