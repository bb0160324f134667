package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/pkg/background"
)

// DefaultRecordQuota is what to give [background.Config.RecordQuota] where
// records are on disk.
const DefaultRecordQuota = 1 << 30

// What a record takes is in the column size, changed with the record in the
// same transaction: that of a run is [background.Run.Size], its checkpoint and
// the length of its result.json; that of a schedule is its overhead and its
// JSON form.

// A book is the ledger of records, and what the transaction that goes on has
// changed in it. The goroutine that writes has it.
type book struct {
	ledger *background.Ledger // nil before Limit
	undo   []entry
}

type entry struct {
	session     string
	used, spare int64
}

// add counts a change, see [background.Ledger.Add].
func (b *book) add(session string, used, spare int64) {
	if b.ledger == nil || used == 0 && spare == 0 {
		return
	}
	b.ledger.Add(session, used, spare)
	b.undo = append(b.undo, entry{session, used, spare})
}

// close ends a transaction.
func (b *book) close(committed bool) {
	if !committed {
		for _, c := range b.undo {
			b.ledger.Add(c.session, -c.used, -c.spare)
		}
	}
	b.undo = b.undo[:0]
}

// uncount counts that a record goes. The statement gives what Add takes.
func (c *conn) uncount(sql string, seq int64) error {
	found, err := c.one(sql, seq)
	if err != nil || found == nil {
		return err
	}
	session, _ := found[0].(string)
	used, _ := found[1].(int64)
	spare, _ := found[2].(int64)
	c.book.add(session, -used, -spare)
	return nil
}

// selectSizes reads the tables in their order: by an index each record would be
// looked up.
const selectSizes = `SELECT session, size, iif(finished IS NOT NULL AND notice = 0, size, 0) FROM runs NOT INDEXED
	UNION ALL SELECT session, size, iif(enabled = 0, size, 0) FROM schedules NOT INDEXED`

// Limit implements [background.Engine].
func (e *Engine) Limit(ctx context.Context, q background.Quota) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.calls.Done()
	return e.write(ctx, func(w *conn) (func(), error) {
		ledger := background.NewLedger(q)
		err := w.query(func(found []driver.Value) error {
			session, ok := found[0].(string)
			used, ok1 := found[1].(int64)
			spare, ok2 := found[2].(int64)
			if !ok || !ok1 || !ok2 {
				return fmt.Errorf("%w: size of a record", errType)
			}
			ledger.Add(session, used, spare)
			return nil
		}, selectSizes)
		if err != nil {
			return nil, err
		}
		w.book = book{ledger: ledger} // with what this transaction has stored by now
		return nil, nil
	})
}

// Recorded implements [background.Engine]. What is in result.json counts once
// more.
func (e *Engine) Recorded() int64 { return e.recorded.Load() }

// create stores a new record. do stores it, and before it writes anything it
// calls room, which removes records that may go until there is room for one of
// size bytes. Folders of runs go afterwards, as in removeRuns.
func (e *Engine) create(ctx context.Context, do func(w *conn, room room) (after func(), err error)) error {
	for {
		var gone evicted
		err := e.write(ctx, func(w *conn) (func(), error) {
			gone = evicted{}
			after, err := do(w, func(session string, size int64) (err error) {
				gone, err = w.makeRoom(session, size)
				return err
			})
			return func() { e.evicted(gone); after() }, err
		})
		if err == nil {
			e.removeFolders(gone.runs...)
			return nil
		}
		// One that was to go may be damaged: it goes another way, and the next one is looked at.
		var damaged *damagedRow
		if err = e.quarantine(ctx, err); !errors.As(err, &damaged) {
			return err
		}
	}
}

type room func(session string, size int64) error

// An evicted is what had to go to make room for a record.
type evicted struct {
	runs      []background.Run
	schedules []background.Schedule
	logged    int64 // bytes of the logs of the runs
}

// evicted tells what had to go.
func (e *Engine) evicted(gone evicted) {
	e.purged(gone.runs, gone.logged)
	for i := range gone.schedules {
		s := &gone.schedules[i]
		e.feed.Publish(background.Event{Kind: background.EventPurged, Session: s.Session, Schedule: s})
	}
}

// makeRoom removes records that may go until there is room for one of size
// bytes. If there is an error that is not SQLite's, nothing was written.
func (c *conn) makeRoom(session string, size int64) (gone evicted, err error) {
	eviction, err := c.book.ledger.Room(session, size)
	if eviction == nil {
		return gone, err
	}
	runs, schedules, err := c.victims(eviction)
	if err != nil {
		return gone, err
	}
	for _, seq := range runs {
		run, logged, err := c.victim(seq)
		if err != nil {
			return gone, err
		}
		gone.runs = append(gone.runs, run)
		gone.logged += logged
	}
	for _, seq := range schedules {
		found, err := c.one(`SELECT seq, id, record FROM schedules WHERE seq = ?`, seq)
		if err != nil {
			return gone, err
		}
		if found == nil {
			return gone, errMiscounted
		}
		s, err := decodeSchedule(found)
		if err != nil {
			return gone, err
		}
		gone.schedules = append(gone.schedules, s.Schedule)
	}
	for i, seq := range runs {
		if err := remove(c, seq); err != nil {
			return gone, err
		}
		if err := remember(c, gone.runs[i]); err != nil {
			return gone, err
		}
	}
	for _, seq := range schedules {
		if err := dropSchedule(c, seq); err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// victim returns a run that has to go, and what its logs take.
func (c *conn) victim(seq int64) (run background.Run, logged int64, err error) {
	found, err := c.one(`SELECT id, record, logged FROM runs WHERE seq = ?`, seq)
	if err != nil {
		return run, 0, err
	}
	if found == nil {
		return run, 0, errMiscounted
	}
	id, _ := found[0].(string)
	r, err := decode(seq, id, found[1])
	logged, _ = found[2].(int64)
	return r.Run, logged, err
}

// selectSpare reads nothing but two indexes, and no more of them than is needed.
const selectSpare = `SELECT 0 AS kind, finished AS at, seq, session, size FROM runs INDEXED BY runs_spare WHERE finished IS NOT NULL AND notice = 0
	UNION ALL SELECT 1, changed, seq, session, size FROM schedules INDEXED BY schedules_spare WHERE enabled = 0 ORDER BY at, seq`

// errDone ends a query.
var errDone = errors.New("done")

// victims returns the records that have to go.
func (c *conn) victims(eviction *background.Eviction) (runs, schedules []int64, err error) {
	err = c.query(func(found []driver.Value) error {
		seq, session, size := found[2].(int64), found[3], found[4]
		if of, ok := session.(string); ok && eviction.Take(of, size.(int64)) {
			if found[0] == int64(0) {
				runs = append(runs, seq)
			} else {
				schedules = append(schedules, seq)
			}
		}
		if eviction.Done() {
			return errDone
		}
		return nil
	}, selectSpare)
	if err != nil && !errors.Is(err, errDone) {
		return nil, nil, err
	}
	if !eviction.Enough() {
		return nil, nil, errMiscounted
	}
	return runs, schedules, nil
}

// errMiscounted: the database has less that may go than was counted, or than its
// indexes say.
var errMiscounted = errors.New("records are not as they were counted")
