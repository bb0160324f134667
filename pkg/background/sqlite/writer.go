package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
)

// maxBatch is how many changes are stored in one transaction at most.
const maxBatch = 256

// An op is one change to the database. do makes it. It checks before it
// writes: an error that does not come from SQLite means that nothing was
// written. It may be called again after an attempt that was rolled back. What
// it returns is called once the change is stored.
type op struct {
	do    func(w *conn) (after func(), err error)
	after func()
	state atomic.Int32
	done  chan error
}

// States of an op: the writer takes it, or the caller gives up before that.
const (
	opWaiting = iota
	opTaken
	opWithdrawn
)

// write makes a change and returns when it is stored. If ctx ends before the
// writer has begun with it, nothing is changed; after that, the outcome is
// waited for, so that the caller knows.
func (e *Engine) write(ctx context.Context, do func(w *conn) (after func(), err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{do: do, done: make(chan error, 1)}
	select {
	case e.ops <- o:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		if o.state.CompareAndSwap(opWaiting, opWithdrawn) {
			return ctx.Err()
		}
		return <-o.done
	}
}

// writeAll is the goroutine that writes. It ends when e.ops is closed.
func (e *Engine) writeAll(w *conn) {
	defer close(e.wrote)
	defer func() {
		if err := w.close(); err != nil {
			e.log.Error("database not closed", "error", err)
		}
		if err := errors.Join(e.mark.sync(), e.mark.f.Close()); err != nil {
			e.log.Warn("mark of the database not closed", "error", err)
		}
	}()
	for first := range e.ops {
		if batch := e.gather(first); len(batch) > 0 {
			e.store(w, batch)
		}
	}
}

// gather takes the changes that wait.
func (e *Engine) gather(first *op) (batch []*op) {
	take := func(o *op) {
		if o.state.CompareAndSwap(opWaiting, opTaken) {
			batch = append(batch, o)
		}
	}
	take(first)
	// Those who were told of the last transaction are about to come again.
	runtime.Gosched()
	for len(batch) < maxBatch {
		select {
		case o, ok := <-e.ops:
			if !ok {
				return batch
			}
			take(o)
		default:
			return batch
		}
	}
	return batch
}

// store makes the changes of a batch in one transaction, and tells their
// callers. If SQLite refuses anything of it, each change gets a transaction of
// its own, so that one cannot hurt another.
//
// Nothing is acknowledged once the database is not the file that was opened:
// what goes into it would be gone at the next start.
func (e *Engine) store(w *conn, batch []*op) {
	if err := e.Err(); err != nil {
		refuse(batch, err)
		return
	}

	results := make([]error, len(batch))
	err := w.run("BEGIN IMMEDIATE")
	before := w.changed // of BEGIN SQLite gives the count of the statement before it
	for i := 0; err == nil && i < len(batch); i++ {
		batch[i].after, results[i] = batch[i].do(w)
		if isSQL(results[i]) {
			err = results[i]
		}
	}
	changed := w.changed != before
	if err == nil && changed {
		err = e.mark.stamp(w)
	}
	if err == nil {
		err = w.run("COMMIT")
	}
	w.book.close(err == nil)
	e.recorded.Store(w.book.ledger.Used())
	if err != nil {
		_ = w.run("ROLLBACK") // SQLite may have done so itself
		e.suspect(err)
		if len(batch) > 1 {
			for _, o := range batch {
				e.store(w, []*op{o})
			}
			return
		}
		results[0] = fmt.Errorf("writing the database: %w", err)
	}
	if err == nil && changed {
		if err := e.committed(); err != nil {
			refuse(batch, err)
			return
		}
	}

	for i, o := range batch {
		if results[i] == nil && o.after != nil {
			o.after()
		}
		o.done <- results[i]
	}
}

// refuse answers all changes of a batch with an error.
func refuse(batch []*op, err error) {
	for _, o := range batch {
		o.done <- err
	}
}
