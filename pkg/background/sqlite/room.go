package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/ledger"
)

// What a record takes is in the column size, changed with the record in the
// same transaction: that of a run is [engine.Run.Size], its checkpoint and the
// length of its result.json; that of a schedule is its overhead and its JSON
// form.

// A book is the ledger of records, and what the transaction in progress has
// changed in it. The goroutine that writes has it.
type book struct {
	ledger *ledger.Ledger // nil before the first Join
	undo   []entry
}

type entry struct {
	session         string
	used, evictable int64
}

// add counts a change, see [ledger.Ledger.Add].
func (b *book) add(session string, used, evictable int64) {
	if b.ledger == nil || used == 0 && evictable == 0 {
		return
	}
	b.ledger.Add(session, used, evictable)
	b.undo = append(b.undo, entry{session, used, evictable})
}

// close ends a transaction.
func (b *book) close(committed bool) {
	if !committed {
		for _, c := range b.undo {
			b.ledger.Add(c.session, -c.used, -c.evictable)
		}
	}
	b.undo = b.undo[:0]
}

// uncount counts that a record is removed. The statement gives what Add takes.
func (c *conn) uncount(sql string, seq int64) error {
	found, err := c.one(sql, seq)
	if err != nil || found == nil {
		return err
	}
	session, _ := found[0].(string)
	used, _ := found[1].(int64)
	evictable, _ := found[2].(int64)
	c.book.add(session, -used, -evictable)
	return nil
}

// selectSizes reads the tables in their order: by an index each record would be
// looked up.
const selectSizes = `SELECT session, size, iif(finished IS NOT NULL AND notice = 0, size, 0) FROM runs NOT INDEXED
	UNION ALL SELECT session, size, iif(enabled = 0, size, 0) FROM schedules NOT INDEXED`

const selectPending = `SELECT id FROM runs INDEXED BY runs_notice WHERE notice = 1 ORDER BY finished, seq`

// limit has the quota of records be q from now on, and counts them anew. do gets
// the runs whose notice is pending, before anything else changes.
func (db *database) limit(ctx context.Context, q engine.Quota, do func(pending []string)) error {
	return db.write(ctx, func(w *conn) (func(), error) {
		counted := ledger.New(q)
		err := w.query(func(found []driver.Value) error {
			session, ok := found[0].(string)
			used, ok1 := found[1].(int64)
			evictable, ok2 := found[2].(int64)
			if !ok || !ok1 || !ok2 {
				return fmt.Errorf("%w: size of a record", errType)
			}
			counted.Add(session, used, evictable)
			return nil
		}, selectSizes)
		if err != nil {
			return nil, err
		}

		var pending []string
		err = w.query(func(found []driver.Value) error {
			id, _ := found[0].(string)
			pending = append(pending, id)
			return nil
		}, selectPending)
		if err != nil {
			return nil, err
		}
		w.book = book{ledger: counted} // with what this transaction has stored so far
		return func() { do(pending) }, nil
	})
}

// create stores a new record. do stores it, and before it writes anything it
// calls room, which removes records that may go until there is room for one of
// size bytes.
func (e *Engine) create(ctx context.Context, do func(w *conn, room room) (after func(), err error)) error {
	var gone removal
	err := e.db.write(ctx, func(w *conn) (func(), error) {
		gone = removal{}
		after, err := do(w, func(session string, size int64) error { return w.makeRoom(&gone, session, size) })
		return func() { e.removed(gone); after() }, err
	})
	if err == nil {
		e.keeper.removeFolders(gone.runs...)
	}
	return err
}

type room func(session string, size int64) error

func anyRoom(string, int64) error { return nil }

// A removal is what a transaction has removed.
type removal struct {
	runs      []engine.Run
	schedules []engine.Schedule
	logged    int64     // bytes of the logs of the runs
	damaged   []Problem // records that were set aside
}

// removed publishes what was removed.
func (e *Engine) removed(gone removal) {
	e.logs.used.Add(-gone.logged)
	for _, p := range gone.damaged {
		e.problems.report(p)
	}
	for _, run := range gone.runs {
		e.feed.Publish(engine.RunEvent(engine.EventPurged, run))
	}
	for i := range gone.schedules {
		s := &gone.schedules[i]
		e.feed.Publish(engine.Event{Kind: engine.EventPurged, Session: s.Session, Schedule: s})
	}
}

// A victim is a record to be removed.
type victim struct {
	table string
	seq   int64
	id    string // "": whatever it is
}

// drop removes a record if it may go: a run that has ended, or a schedule that is
// not enabled. A damaged one is set aside. It reports whether there was one.
func (c *conn) drop(gone *removal, v victim) (bool, error) {
	sql := `SELECT id, record, logged FROM runs WHERE seq = ? AND finished IS NOT NULL`
	if v.table == "schedules" {
		sql = `SELECT id, record, 0 FROM schedules WHERE seq = ? AND enabled = 0`
	}
	found, err := c.one(sql, v.seq)
	if err != nil || found == nil {
		return false, err
	}
	id, _ := found[0].(string)
	if v.id != "" && v.id != id {
		return false, nil
	}

	if v.table == "schedules" {
		s, err := decodeSchedule(v.seq, id, found[1])
		if err == nil {
			gone.schedules = append(gone.schedules, s.Schedule)
			return true, dropSchedule(c, v.seq)
		}
		return true, c.setAside(gone, err)
	}
	r, err := decode(v.seq, id, found[1])
	if err != nil {
		return true, c.setAside(gone, err)
	}
	logged, _ := found[2].(int64)
	gone.logged += logged
	gone.runs = append(gone.runs, r.Run)
	if err := remove(c, v.seq); err != nil {
		return true, err
	}

	return true, c.run(`INSERT OR REPLACE INTO removals VALUES (?, ?)`, r.ID, int64(r.Attempt)) // its folders go too
}

// selectSpare reads nothing but two indexes, and no more of them than is needed.
const selectSpare = `SELECT 'runs' AS kind, finished AS at, seq, session, size FROM runs INDEXED BY runs_spare WHERE finished IS NOT NULL AND notice = 0
	UNION ALL SELECT 'schedules', changed, seq, session, size FROM schedules INDEXED BY schedules_spare WHERE enabled = 0 ORDER BY at, seq`

var (
	errDone = errors.New("done") // ends a query
	// errMiscounted: the database has less that may go than was counted, or than
	// its indexes say.
	errMiscounted = errors.New("records are not as they were counted")
)

// makeRoom removes records that may go until there is room for one of size
// bytes. If there is an error that is not SQLite's, nothing was written.
func (c *conn) makeRoom(gone *removal, session string, size int64) error {
	eviction, err := c.book.ledger.Room(session, size)
	if eviction == nil {
		return err
	}

	var victims []victim
	err = c.query(func(found []driver.Value) error {
		if of, ok := found[3].(string); ok && eviction.Take(of, found[4].(int64)) {
			victims = append(victims, victim{table: found[0].(string), seq: found[2].(int64)})
		}
		if eviction.Done() {
			return errDone
		}
		return nil
	}, selectSpare)
	if err != nil && !errors.Is(err, errDone) {
		return err
	}
	if !eviction.Enough() {
		return errMiscounted
	}

	for i, v := range victims {
		there, err := c.drop(gone, v)
		if err != nil {
			return err
		}
		if !there && i == 0 {
			return errMiscounted
		}
	}

	return nil
}

// pruneAtOnce is how many records one change removes, so that others do not
// wait for long.
const pruneAtOnce = 64

// Of the terminal runs of each session, in the order they are kept in, those
// that are not kept. The inner query reads nothing but an index.
const selectPrunable = `SELECT 'runs', r.seq, r.id FROM (
	SELECT seq, finished, notice, row_number() OVER (PARTITION BY session ORDER BY finished DESC, seq DESC) AS place
	FROM runs WHERE finished IS NOT NULL AND ?1 = '') v JOIN runs r ON r.seq = v.seq
	WHERE (v.place > ?2 OR v.finished < ?3) AND (v.notice = 0 OR v.finished < ?4)`

// The same for one session.
const selectPrunableOf = `SELECT 'runs', r.seq, r.id FROM (
	SELECT seq, finished, notice, row_number() OVER (ORDER BY finished DESC, seq DESC) AS place
	FROM runs WHERE finished IS NOT NULL AND session = ?1) v JOIN runs r ON r.seq = v.seq
	WHERE (v.place > ?2 OR v.finished < ?3) AND (v.notice = 0 OR v.finished < ?4)`

const selectPrunableSchedules = `SELECT 'schedules', seq, id FROM (
	SELECT seq, id, changed, row_number() OVER (PARTITION BY session ORDER BY changed DESC, seq DESC) AS place
	FROM schedules WHERE enabled = 0 AND (?1 = '' OR session = ?1))
	WHERE place > ?2 OR changed < ?3`

// Prune implements [engine.Engine].
func (e *Engine) Prune(ctx context.Context, ret engine.Retention) (removed int, err error) {
	sql := selectPrunable
	if ret.Session != "" {
		sql = selectPrunableOf
	}

	var victims []victim
	err = e.db.read(ctx, func(c *conn) error {
		collect := func(found []driver.Value) error {
			id, _ := found[2].(string)
			victims = append(victims, victim{found[0].(string), found[1].(int64), id})
			return nil
		}
		keep := int64(max(0, ret.Keep))
		if err := c.query(collect, sql, ret.Session, keep, nanos(ret.Before), nanos(ret.Notices)); err != nil {
			return err
		}
		return c.query(collect, selectPrunableSchedules, ret.Session, keep, nanos(ret.Before))
	})
	if err != nil {
		return 0, err
	}

	for len(victims) > 0 {
		some := victims[:min(len(victims), pruneAtOnce)]
		victims = victims[len(some):]
		var gone removal
		err := e.db.write(ctx, func(w *conn) (func(), error) {
			gone = removal{}
			for _, v := range some {
				if _, err := w.drop(&gone, v); err != nil {
					return nil, err
				}
			}
			return func() { e.removed(gone) }, nil
		})
		if err != nil {
			return removed, err
		}
		e.keeper.removeFolders(gone.runs...)
		removed += len(gone.runs)
	}

	return removed, nil
}
