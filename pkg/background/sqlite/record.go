package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// maxIDLength is the maximum length of the id of a run, which is also the name of a folder.
const maxIDLength = 100

// checkID refuses an id that cannot be the name of a folder.
func checkID(id string) error {
	ok := id != "" && len(id) <= maxIDLength && strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
	if !ok {
		return fmt.Errorf("invalid run id %.120q: want 1 to %d letters, digits, _ and -", id, maxIDLength)
	}
	return nil
}

// A stored is the JSON in the column record of runs: a run without its
// payload, and the extent of its log once the run is terminal.
type stored struct {
	engine.Run
	Log *extent `json:"log,omitempty"`
}

func (s stored) encode() ([]byte, error) {
	s.Run = s.Light()
	return json.Marshal(s)
}

// A row is a run in the database.
type row struct {
	seq    int64
	size   int64 // size of its record in bytes, as [engine.Quota] counts it, and with result.json
	logged int64 // size of its logs on disk in bytes, once it is terminal
	saved  int64 // size of its checkpoint in bytes, if selected
	stored
}

// A damagedRow is the error of a row that cannot be decoded. It matches
// [engine.ErrNotFound].
type damagedRow struct {
	kind string // a run or a schedule
	id   string
	err  error
}

func (e *damagedRow) Error() string {
	return fmt.Sprintf("the record of %s %s is damaged: %v", e.kind, e.id, e.err)
}

func (e *damagedRow) Unwrap() error { return engine.ErrNotFound }

// runColumns are the columns that decode reads.
const runColumns = `seq, id, session, size, logged, record`

// decode decodes a run. If its record is damaged, it returns the values of the other columns.
func decode(found []driver.Value) (row, error) {
	r := row{seq: found[0].(int64)}
	id, _ := found[1].(string)
	err := unmarshal(found[5], &r.stored)
	if err == nil {
		err = r.check(id)
	}

	r.Run = r.Light()
	if err != nil {
		r.stored = stored{Run: engine.Run{ID: id}}
		r.Session, _ = found[2].(string)
		err = &damagedRow{kindRun, id, err}
	}
	r.size, _ = found[3].(int64)
	r.logged, _ = found[4].(int64)
	if len(found) > 6 {
		r.saved, _ = found[6].(int64)
	}
	return r, err
}

// unmarshal decodes a record like encoding/json, in a third of the time: a restart
// decodes all runs that have not ended.
func unmarshal(data driver.Value, into any) error {
	text, ok := data.([]byte)
	if !ok {
		return errType
	}
	return jsonv1.Unmarshal(text, into)
}

var errMismatch = errors.New("it is the record of another row")

// maxAttempt is far above the number of attempts of any run.
const maxAttempt = 1 << 16

// check rejects records that this package never stores and cannot handle.
func (s stored) check(id string) error {
	switch {
	case s.ID != id:
		return errMismatch
	case s.Attempt < 0 || s.Attempt > maxAttempt:
		return fmt.Errorf("attempt %d", s.Attempt)
	case !slices.Contains(engine.Statuses, s.Status):
		return fmt.Errorf("status %q", s.Status)
	case s.StateSize < 0 || s.StateSize > engine.MaxState || s.StateLog < 0 || s.StateLog > maxStream || s.CallsSize < 0 || s.CallsSize > engine.MaxCalls || len(s.Await) > engine.MaxAwait:
		return fmt.Errorf("state of %d bytes, with %d of the log", s.StateSize, s.StateLog)
	case (s.Log != nil) != s.Status.Terminal():
		return fmt.Errorf("status %q does not go with the log", s.Status)
	case s.Log != nil && !s.Log.valid():
		return fmt.Errorf("log from %d and %d to %d", s.Log.Head, s.Log.Tail, s.Log.End)
	}

	return nil
}

// report reports the damaged row in err, if there is one, and returns err.
func (db *database) report(err error) error {
	if d, ok := errors.AsType[*damagedRow](err); ok {
		db.problems.report(d.kind, d.id, d.err)
	}
	return err
}

// readAll scans the rows of a query. It reports damaged rows and leaves them
// out.
func readAll[T any](ctx context.Context, db *database, scan func([]driver.Value) (T, error), sql string, args ...driver.Value) (all []T, err error) {
	err = db.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			v, err := scan(found)
			if err == nil {
				all = append(all, v)
			} else if !errors.Is(db.report(err), engine.ErrNotFound) {
				return err
			}
			return nil
		}, sql, args...)
	})
	return all, err
}

// The tables of large values. Each has the columns seq and data.
var payloads = map[engine.Part]string{engine.PartArgs: "args", engine.PartResult: "results", engine.PartContent: "contents", engine.PartCalls: "calls"}

// A table describes a table of records, each read as a T.
type table[T any] struct {
	kind     string
	selectID string // statement that selects a record by its id, which need not be in the result
	decode   func(found []driver.Value) (T, error)
}

var runTable = table[row]{kindRun, `SELECT seq, NULL, NULL, size, 0, record FROM runs WHERE id = ?`, decode}

// load reads a record without its payload.
func (t table[T]) load(c *conn, id string) (record T, err error) {
	found, err := c.one(t.selectID, id)
	if err == nil && found == nil {
		err = fmt.Errorf("%w: %s %s", engine.ErrNotFound, t.kind, id)
	}
	if err != nil {
		return record, err
	}
	found[1] = id
	return t.decode(found)
}

// get reads a record without its payload. It reports damage.
func (t table[T]) get(ctx context.Context, db *database, id string) (record T, err error) {
	err = db.read(ctx, func(c *conn) (err error) {
		record, err = t.load(c, id)
		return db.report(err)
	})
	return record, err
}

// blob reads the value of a run in a table, or nil.
func blob(c *conn, table string, seq int64) ([]byte, error) {
	found, err := c.one("SELECT data FROM "+table+" WHERE seq = ?", seq)
	if err != nil || found == nil {
		return nil, err
	}
	data, _ := found[0].([]byte)
	return data, nil
}

// insert stores a new run with its payload. record is its encoded form, made
// by the caller because the writing goroutine is the bottleneck. A nil seq
// means the next one.
func insert(w *conn, seq driver.Value, r row, record []byte) (int64, error) {
	var finished driver.Value
	if r.Status.Terminal() {
		finished = nanos(r.FinishedAt)
	}
	_, at, err := w.exec(`INSERT INTO runs (seq, id, session, idempotency_key, schedule, parent, finished, notice, logged, size, record)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, seq, r.ID, r.Session, optional(r.IdempotencyKey), optional(r.Schedule), optional(r.Parent),
		finished, flag(r.Notice == engine.NoticePending), r.logged, r.size, record)
	if err != nil {
		return 0, err
	}

	w.book.add(r.Session, r.size, r.size*flag(r.Evictable()))
	if r.Status.Terminal() {
		if err := addFacets(w, at, r.Run); err != nil {
			return 0, err
		}
	}
	return at, storePayload(w, at, r.Run)
}

// storePayload stores the payload of a run.
func storePayload(w *conn, seq int64, run engine.Run) error {
	for part, table := range payloads {
		if data := run.Part(part); data != nil {
			if err := w.run("INSERT OR REPLACE INTO "+table+" VALUES (?, ?)", seq, []byte(data)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r row) update(w *conn) error {
	record, err := r.encode()
	if err != nil {
		return err
	}
	return w.run(`UPDATE runs SET record = ? WHERE seq = ?`, record, r.seq)
}

// acknowledge stores that the notice of a run was delivered.
func (r *row) acknowledge(w *conn) error {
	r.Notice = engine.NoticeSeen
	record, err := r.encode()
	if err != nil {
		return err
	}
	w.book.add(r.Session, 0, r.size)
	return w.run(`UPDATE runs SET record = ?, notice = 0 WHERE seq = ?`, record, r.seq)
}

// finish stores the end of a run. before is the size that the run had until now.
func (r row) finish(w *conn, record []byte, before int64) error {
	changed, _, err := w.exec(`UPDATE runs SET record = ?, finished = ?, notice = ?, logged = ?, size = ? WHERE seq = ? AND finished IS NULL`,
		record, nanos(r.FinishedAt), flag(r.Notice == engine.NoticePending), r.logged, r.size, r.seq)
	if err != nil {
		return err
	}
	if changed == 0 {
		return fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, r.ID, r.Attempt)
	}

	w.book.add(r.Session, r.size-before, r.size*flag(r.Evictable()))
	if err := storePayload(w, r.seq, r.Run); err != nil {
		return err
	}
	if err := addFacets(w, r.seq, r.Run); err != nil {
		return err
	}
	mailbox, err := loadScope(w, engine.Scope{Session: r.Session, Run: r.ID})
	if err == nil && mailbox.seq != 0 {
		err = mailbox.remove(w)
	}
	if err != nil {
		return err
	}
	if err := w.run(`DELETE FROM states WHERE seq = ?`, r.seq); err != nil {
		return err
	}
	return w.run(`DELETE FROM checkpoints WHERE seq = ?`, r.seq)
}

// save stores a checkpoint of a run in place of an earlier one. more is the
// difference in length.
func save(w *conn, session string, seq, more int64, data []byte) error {
	w.book.add(session, more, 0)
	if err := w.run(`UPDATE runs SET size = size + ? WHERE seq = ?`, more, seq); err != nil {
		return err
	}
	return w.run(`INSERT OR REPLACE INTO checkpoints VALUES (?, ?)`, seq, data)
}

func optional(s string) driver.Value {
	if s == "" {
		return nil
	}
	return s
}

func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// nanos returns t as nanoseconds of the Unix epoch, clamped to an int64.
func nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}
