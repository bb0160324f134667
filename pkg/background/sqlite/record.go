package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

// A stored is what the column record of runs holds, as JSON: a run without
// Args and Result, and where its log is once the run is terminal.
type stored struct {
	background.Run
	Log *extent `json:"log,omitempty"`
}

// A row is a run in the database.
type row struct {
	seq  int64
	size int64 // what its record takes, as it is in the database
	stored
}

// A damagedRow is the error of a row that cannot be read.
type damagedRow struct {
	table string // runs or schedules
	seq   int64
	id    string
	err   error
}

func (e *damagedRow) Error() string { return fmt.Sprintf("record of %s is damaged: %v", e.id, e.err) }

// Unwrap returns [background.ErrNotFound]: what cannot be read is not there.
func (e *damagedRow) Unwrap() error { return background.ErrNotFound }

var errMismatch = errors.New("it is not the record of its row")

// decode reads a record.
func decode(seq int64, id string, data driver.Value) (row, error) {
	r := row{seq: seq}
	text, ok := data.([]byte)
	if !ok {
		return r, &damagedRow{"runs", seq, id, errType}
	}
	if err := json.Unmarshal(text, &r.stored); err != nil {
		return r, &damagedRow{"runs", seq, id, err}
	}
	if err := r.check(id); err != nil {
		return r, &damagedRow{"runs", seq, id, err}
	}
	r.Args, r.Result, r.Content = nil, nil, nil
	return r, nil
}

// maxAttempt is far above the number of attempts a run can get.
const maxAttempt = 1 << 16

// check refuses what this package never stored, and would stumble over.
func (s stored) check(id string) error {
	switch {
	case s.ID != id:
		return errMismatch
	case s.Attempt < 0 || s.Attempt > maxAttempt:
		return fmt.Errorf("attempt %d", s.Attempt)
	case s.Status != background.StatusQueued && s.Status != background.StatusRunning && !s.Status.Terminal():
		return fmt.Errorf("status %q", s.Status)
	case (s.Log != nil) != s.Status.Terminal():
		return fmt.Errorf("status %q does not go with the log", s.Status)
	case s.Log != nil && !s.Log.valid():
		return fmt.Errorf("log from %d and %d to %d", s.Log.Head, s.Log.Tail, s.Log.End)
	}
	return nil
}

// encode makes the record of a run.
func (s stored) encode() ([]byte, error) {
	s.Args, s.Result, s.Content = nil, nil, nil
	return json.Marshal(s)
}

const selectRow = `SELECT seq, record, size FROM runs WHERE id = ?`

// load reads a run without its Args, Result and Content.
func load(c *conn, id string) (row, error) {
	found, err := c.one(selectRow, id)
	if err != nil {
		return row{}, err
	}
	if found == nil {
		return row{}, fmt.Errorf("%w: %s", background.ErrNotFound, id)
	}
	r, err := decode(found[0].(int64), id, found[1])
	r.size, _ = found[2].(int64)
	return r, err
}

const selectFull = `SELECT r.seq, r.record, a.data, s.data, c.data FROM runs r
	LEFT JOIN args a ON a.seq = r.seq LEFT JOIN results s ON s.seq = r.seq LEFT JOIN contents c ON c.seq = r.seq WHERE r.id = ?`

// loadFull reads a run whole.
func loadFull(c *conn, id string) (row, error) {
	found, err := c.one(selectFull, id)
	if err != nil {
		return row{}, err
	}
	if found == nil {
		return row{}, fmt.Errorf("%w: %s", background.ErrNotFound, id)
	}
	r, err := decode(found[0].(int64), id, found[1])
	if err != nil {
		return row{}, err
	}
	if data, ok := found[2].([]byte); ok {
		r.Args = data
	}
	if data, ok := found[3].([]byte); ok {
		r.Result = data
	}
	if data, ok := found[4].([]byte); ok {
		r.Content = data
	}
	return r, nil
}

// insert stores a new run. record is the encoded one: made by the caller, as
// the goroutine that writes has enough to do.
func insert(w *conn, run background.Run, record []byte, room room) (seq int64, err error) {
	there, err := w.number(`SELECT 1 FROM runs WHERE id = ?`, run.ID)
	if err != nil {
		return 0, err
	}
	if there != 0 {
		return 0, fmt.Errorf("%w: %s", background.ErrExists, run.ID)
	}
	size := background.RecordOverhead + int64(len(run.Args))
	if err := room(run.Session, size); err != nil {
		return 0, err
	}
	_, seq, err = w.exec(`INSERT INTO runs (id, session, idempotency_key, schedule, size, record) VALUES (?, ?, ?, ?, ?, ?)`,
		run.ID, run.Session, optional(run.IdempotencyKey), optional(run.Schedule), size, record)
	if err != nil {
		return 0, err
	}
	w.book.add(run.Session, size, 0)
	if run.Args == nil {
		return seq, nil
	}
	return seq, w.run(`INSERT INTO args VALUES (?, ?)`, seq, []byte(run.Args))
}

func optional(s string) driver.Value {
	if s == "" {
		return nil
	}
	return s
}

// update stores a run that has not ended.
func (r row) update(w *conn) error {
	record, err := r.encode()
	if err != nil {
		return err
	}
	return w.run(`UPDATE runs SET record = ? WHERE seq = ?`, record, r.seq)
}

// acknowledge stores that the notice of a run was taken.
func (r *row) acknowledge(w *conn) error {
	r.Notice = background.NoticeSeen
	record, err := r.encode()
	if err != nil {
		return err
	}
	if err := w.run(`UPDATE runs SET record = ?, notice = 0 WHERE seq = ?`, record, r.seq); err != nil {
		return err
	}
	w.book.add(r.Session, 0, r.size)
	return nil
}

// finish stores the end of a run. logged is what its logs take on disk, file
// its result.json.
func (r row) finish(w *conn, logged, file int64) error {
	record, err := r.encode()
	if err != nil {
		return err
	}
	saved, err := w.number(selectSaved, r.seq)
	if err != nil {
		return err
	}
	more := int64(len(r.Result)+len(r.Content)) + file - saved
	err = w.run(`UPDATE runs SET record = ?, finished = ?, notice = ?, logged = ?, size = size + ? WHERE seq = ?`,
		record, nanos(r.FinishedAt), flag(r.Notice == background.NoticePending), logged, more, r.seq)
	if err != nil {
		return err
	}
	w.book.add(r.Session, more, 0)
	if r.Spare() {
		w.book.add(r.Session, 0, r.size+more)
	}
	if r.Result != nil {
		if err := w.run(`INSERT INTO results VALUES (?, ?)`, r.seq, []byte(r.Result)); err != nil {
			return err
		}
	}
	if r.Content != nil {
		if err := w.run(`INSERT INTO contents VALUES (?, ?)`, r.seq, []byte(r.Content)); err != nil {
			return err
		}
	}
	return w.run(`DELETE FROM checkpoints WHERE seq = ?`, r.seq)
}

const selectSaved = `SELECT length(data) FROM checkpoints WHERE seq = ?`

// save stores a checkpoint of a run in place of an earlier one.
func save(w *conn, session string, seq int64, data []byte) error {
	before, err := w.number(selectSaved, seq)
	if err != nil {
		return err
	}
	more := int64(len(data)) - before
	if err := w.run(`UPDATE runs SET size = size + ? WHERE seq = ?`, more, seq); err != nil {
		return err
	}
	w.book.add(session, more, 0)
	return w.run(`INSERT INTO checkpoints VALUES (?, ?) ON CONFLICT (seq) DO UPDATE SET data = excluded.data`, seq, data)
}

func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// nanos returns t as nanoseconds of the Unix epoch. Times it has no number for
// become the first or the last one.
func nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// remove deletes a run.
func remove(w *conn, seq int64) error {
	if err := w.uncount(`SELECT session, size, iif(finished IS NOT NULL AND notice = 0, size, 0) FROM runs WHERE seq = ?`, seq); err != nil {
		return err
	}
	for _, sql := range []string{`DELETE FROM runs WHERE seq = ?`, `DELETE FROM args WHERE seq = ?`,
		`DELETE FROM results WHERE seq = ?`, `DELETE FROM contents WHERE seq = ?`, `DELETE FROM checkpoints WHERE seq = ?`} {
		if err := w.run(sql, seq); err != nil {
			return err
		}
	}
	return nil
}
