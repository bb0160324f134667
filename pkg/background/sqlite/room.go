package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/ledger"
)

// The size of a record is in the column size, which changes in the same
// transaction as the record. For a run it is [engine.Run.Size] plus its
// checkpoint and the length of its result.json; for a schedule its overhead
// plus its JSON form.

// A book is the ledger of records, with the changes of the current
// transaction. It belongs to the writing goroutine.
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

// selectSizes reads the tables in their order: with an index, each record would
// need a look-up.
const selectSizes = `SELECT session, size, iif(finished IS NOT NULL AND notice = 0, size, 0) FROM runs NOT INDEXED
	UNION ALL SELECT session, size, iif(enabled = 0, size, 0) FROM schedules NOT INDEXED
	UNION ALL SELECT session, (1 + count) * 256 + bytes, 0 FROM scopes NOT INDEXED`

const selectPending = `SELECT id FROM runs INDEXED BY runs_notice WHERE notice = 1 ORDER BY finished, seq`

// limit sets the quota of records, and recounts them. Once that is stored, it
// calls do with the ids of the runs whose notice is pending.
func (db *database) limit(ctx context.Context, q engine.Quota, do func(pending []string)) error {
	return db.write(ctx, func(w *conn) error {
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
			return err
		}

		var pending []string
		err = w.query(func(found []driver.Value) error {
			id, _ := found[0].(string)
			pending = append(pending, id)
			return nil
		}, selectPending)
		if err != nil {
			return err
		}
		w.book = book{ledger: counted} // with what this transaction has stored so far
		w.after = append(w.after, func() { do(pending) })
		return nil
	})
}

// A victim is a record to be removed.
type victim struct {
	table string
	seq   int64
	id    string // "": any id
	any   bool   // whether the record may also be an enabled schedule
}

const (
	deleteRun = `DELETE FROM runs WHERE seq = ?1 AND finished IS NOT NULL AND ?2 IN ('', id)
		RETURNING ` + runColumns + `, iif(notice = 0, size, 0)`
	deleteSchedule = `DELETE FROM schedules WHERE seq = ?1 AND enabled <= ?3 AND ?2 IN ('', id)
		RETURNING ` + scheduleColumns + `, iif(enabled = 0, size, 0)`
)

// drop removes a record if it may be removed: an ended run, or a disabled schedule; with
// any set, every schedule. It reports whether there was one. The folders of a run are
// removed first: a crash in between leaves a record without its output, but no folder
// without a record.
func (st *store) drop(w *conn, v victim) (bool, error) {
	if v.table == "schedules" {
		found, err := w.one(deleteSchedule, v.seq, v.id, flag(v.any))
		if err != nil || found == nil {
			return false, err
		}
		evictable, _ := found[5].(int64)
		s, _ := decodeSchedule(found[:5])
		w.changed++
		w.book.add(s.Session, -s.size, -evictable)
		w.after = append(w.after, func() {
			st.feed.Publish(engine.Event{Kind: engine.EventPurged, Session: s.Session, Schedule: &s.Schedule})
		})
		return true, w.run(`DELETE FROM schedule_args WHERE seq = ?`, v.seq)
	}

	found, err := w.one(deleteRun, v.seq, v.id)
	if err != nil || found == nil {
		return false, err
	}
	r, _ := decode(found)
	evictable, _ := found[6].(int64)
	w.changed++
	w.book.add(r.Session, -r.size, -evictable)
	w.after = append(w.after, func() {
		st.logs.used.Add(-r.logged)
		st.feed.Publish(engine.RunEvent(engine.EventPurged, r.Run))
	})
	st.logs.attempts(r.Run, func(folder string) {
		if err := os.RemoveAll(folder); err != nil {
			st.log.Warn("folder of a background run not removed", "task_id", r.ID, "error", err)
		}
	})

	if err := w.run("DELETE FROM facets WHERE run = ?", v.seq); err != nil {
		return true, err
	}
	for _, table := range []string{"args", "results", "contents", "calls", "checkpoints", "states"} {
		if err := w.run("DELETE FROM "+table+" WHERE seq = ?", v.seq); err != nil {
			return true, err
		}
	}
	return true, nil
}

// selectSpare reads only two indexes, and no more of them than necessary.
const selectSpare = `SELECT 'runs' AS kind, finished AS at, seq, session, size FROM runs INDEXED BY runs_spare WHERE finished IS NOT NULL AND notice = 0
	UNION ALL SELECT 'schedules', changed, seq, session, size FROM schedules INDEXED BY schedules_spare WHERE enabled = 0 ORDER BY at, seq`

var (
	errDone = errors.New("done") // stops a query
	// errMiscounted: the database has fewer evictable records than were counted,
	// or than its indexes say.
	errMiscounted = errors.New("records are not as they were counted")
)

// makeRoom evicts records until there is space for a new one of size bytes. After an error that
// is not SQLite's, nothing was written.
func (st *store) makeRoom(w *conn, session string, size int64) error {
	eviction, err := w.book.ledger.Room(session, size)
	if eviction == nil {
		return err
	}

	var victims []victim
	err = w.query(func(found []driver.Value) error {
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
		there, err := st.drop(w, v)
		if err != nil {
			return err
		}
		if !there && i == 0 {
			return errMiscounted
		}
	}
	return nil
}

// pruneAtOnce is the number of records that one change removes, so that
// others do not wait long.
const pruneAtOnce = 32

// Queries for the terminal runs and the disabled schedules of each session that are not kept.
// The inner query of runs reads only an index.
const (
	selectPrunable = `SELECT 'runs', r.seq, r.id FROM (
	SELECT seq, finished, notice, row_number() OVER (PARTITION BY session ORDER BY finished DESC, seq DESC) AS place
	FROM runs WHERE finished IS NOT NULL) v JOIN runs r ON r.seq = v.seq
	WHERE (v.place > ?1 OR v.finished < ?2) AND (v.notice = 0 OR v.finished < ?3)`

	selectPrunableSchedules = `SELECT 'schedules', seq, id FROM (
	SELECT seq, id, changed, row_number() OVER (PARTITION BY session ORDER BY changed DESC, seq DESC) AS place
	FROM schedules WHERE enabled = 0)
	WHERE place > ?1 OR changed < ?2`
)

// Remove implements [engine.Engine].
func (e *Engine) Remove(ctx context.Context, id string) error {
	return e.db.write(ctx, func(w *conn) error {
		seq, err := w.number(`SELECT seq FROM runs WHERE id = ?`, id)
		if err != nil {
			return err
		}
		if seq == 0 {
			return fmt.Errorf("%w: %s", engine.ErrNotFound, id)
		}
		gone, err := e.drop(w, victim{table: "runs", seq: seq, id: id})
		if err == nil && !gone {
			err = fmt.Errorf("%w: %s", engine.ErrActive, id)
		}
		return err
	})
}

// Prune implements [engine.Engine].
func (e *Engine) Prune(ctx context.Context, ret engine.Retention) (removed int, err error) {
	scan := func(found []driver.Value) (victim, error) {
		id, _ := found[2].(string)
		return victim{table: found[0].(string), seq: found[1].(int64), id: id}, nil
	}
	keep := int64(max(0, ret.Keep))
	runs, err := readAll(ctx, e.db, scan, selectPrunable, keep, nanos(ret.Before), nanos(ret.Notices))
	if err != nil {
		return 0, err
	}
	schedules, err := readAll(ctx, e.db, scan, selectPrunableSchedules, keep, nanos(ret.Before))
	if err != nil {
		return 0, err
	}

	for some := range slices.Chunk(append(runs, schedules...), pruneAtOnce) {
		n := 0
		err := e.db.write(ctx, func(w *conn) error {
			n = 0
			for _, v := range some {
				there, err := e.drop(w, v)
				if err != nil {
					return err
				}
				n += int(flag(there && v.table == "runs"))
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
		removed += n
	}

	return removed, e.pruneValues(ctx, ret)
}
