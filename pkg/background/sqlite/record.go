package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// maxIDLength bounds the ids of runs: they are names of folders.
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

// A stored is what the column record of runs holds, as JSON: a run without its
// payload, and where its log is once the run is terminal.
type stored struct {
	engine.Run
	Log *extent `json:"log,omitempty"`
}

// encode makes the record of a run.
func (s stored) encode() ([]byte, error) {
	s.Run = s.Light()
	return json.Marshal(s)
}

// A row is a run in the database.
type row struct {
	seq  int64
	size int64 // bytes of its record, as [engine.Quota] counts them and with those of result.json
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

// Unwrap returns [engine.ErrNotFound]: what cannot be read is not there.
func (e *damagedRow) Unwrap() error { return engine.ErrNotFound }

var errMismatch = errors.New("it is not the record of its row")

// decode reads a record.
func decode(seq int64, id string, data driver.Value) (row, error) {
	r := row{seq: seq}
	text, ok := data.([]byte)
	err := errType
	if ok {
		err = json.Unmarshal(text, &r.stored)
	}
	if err == nil {
		err = r.check(id)
	}
	if err != nil {
		return r, &damagedRow{"runs", seq, id, err}
	}
	r.Run = r.Light()
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
	case s.Status != engine.StatusQueued && s.Status != engine.StatusRunning && !s.Status.Terminal():
		return fmt.Errorf("status %q", s.Status)
	case (s.Log != nil) != s.Status.Terminal():
		return fmt.Errorf("status %q does not go with the log", s.Status)
	case s.Log != nil && !s.Log.valid():
		return fmt.Errorf("log from %d and %d to %d", s.Log.Head, s.Log.Tail, s.Log.End)
	}

	return nil
}

// The tables of what may be large. Each has the columns seq and data.
var payloads = []struct {
	table string
	part  engine.Part
}{{"args", engine.PartArgs}, {"results", engine.PartResult}, {"contents", engine.PartContent}}

const selectRow = `SELECT seq, record, size FROM runs WHERE id = ?`

// load reads a run without its payload.
func load(c *conn, id string) (row, error) {
	found, err := c.one(selectRow, id)
	if err != nil {
		return row{}, err
	}
	if found == nil {
		return row{}, fmt.Errorf("%w: %s", engine.ErrNotFound, id)
	}
	r, err := decode(found[0].(int64), id, found[1])
	r.size, _ = found[2].(int64)
	return r, err
}

// load reads a run without its payload. A damaged one is set aside.
func (db *database) load(ctx context.Context, id string) (r row, err error) {
	err = db.read(ctx, func(c *conn) (err error) {
		r, err = load(c, id)
		return err
	})
	return r, db.setRowAside(ctx, err)
}

// blob reads what a table has for a run; nil for nothing.
func blob(c *conn, table string, seq int64) ([]byte, error) {
	found, err := c.one("SELECT data FROM "+table+" WHERE seq = ?", seq)
	if err != nil || found == nil {
		return nil, err
	}
	data, _ := found[0].([]byte)
	return data, nil
}

// insert stores a new run with its payload. record is the encoded one: made by
// the caller, as the goroutine that writes has enough to do. A nil seq is the
// next one.
func insert(w *conn, seq driver.Value, r row, record []byte, logged int64) (int64, error) {
	var finished driver.Value
	if r.Status.Terminal() {
		finished = nanos(r.FinishedAt)
	}
	_, at, err := w.exec(`INSERT INTO runs (seq, id, session, idempotency_key, schedule, finished, notice, logged, size, record)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, seq, r.ID, r.Session, optional(r.IdempotencyKey), optional(r.Schedule),
		finished, flag(r.Notice == engine.NoticePending), logged, r.size, record)
	if err != nil {
		return 0, err
	}
	w.book.add(r.Session, r.size, r.evictable())
	return at, storePayload(w, at, r.Run)
}

// storePayload stores what the run has of its payload.
func storePayload(w *conn, seq int64, run engine.Run) error {
	for _, p := range payloads {
		if data := run.Part(p.part); data != nil {
			if err := w.run("INSERT OR REPLACE INTO "+p.table+" VALUES (?, ?)", seq, []byte(data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// evictable returns how many bytes of the record may go.
func (r row) evictable() int64 {
	if r.Evictable() {
		return r.size
	}
	return 0
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

// finish stores the end of a run whose size was before. logged is what its logs
// take on disk.
func (r row) finish(w *conn, record []byte, before, logged int64) error {
	changed, _, err := w.exec(`UPDATE runs SET record = ?, finished = ?, notice = ?, logged = ?, size = ? WHERE seq = ? AND finished IS NULL`,
		record, nanos(r.FinishedAt), flag(r.Notice == engine.NoticePending), logged, r.size, r.seq)
	if err != nil {
		return err
	}
	if changed == 0 {
		return fenced(r.ID, r.Attempt)
	}
	w.book.add(r.Session, r.size-before, r.evictable())
	if err := storePayload(w, r.seq, r.Run); err != nil {
		return err
	}

	return w.run(`DELETE FROM checkpoints WHERE seq = ?`, r.seq)
}

// save stores a checkpoint of a run in place of an earlier one. more is how much
// longer it is.
func save(w *conn, session string, seq, more int64, data []byte) error {
	w.book.add(session, more, 0)
	if err := w.run(`UPDATE runs SET size = size + ? WHERE seq = ?`, more, seq); err != nil {
		return err
	}
	return w.run(`INSERT INTO checkpoints VALUES (?, ?) ON CONFLICT (seq) DO UPDATE SET data = excluded.data`, seq, data)
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

// By its number alone it may be another one's by now: that of the last record is
// given again once it is gone.
var setAsideSQL = map[string]string{
	"runs": `INSERT INTO quarantine (kind, id, session, reason, at, record, args, result, checkpoint, content)
		SELECT 'run', r.id, r.session, ?, ?, r.record, a.data, s.data, k.data, c.data FROM runs r
		LEFT JOIN args a ON a.seq = r.seq LEFT JOIN results s ON s.seq = r.seq LEFT JOIN checkpoints k ON k.seq = r.seq
		LEFT JOIN contents c ON c.seq = r.seq WHERE r.seq = ? AND iif(typeof(r.id) = 'text', r.id, '') = ?`,
	"schedules": `INSERT INTO quarantine (kind, id, session, reason, at, record, args)
		SELECT 'schedule', s.id, s.session, ?, ?, s.record, a.data FROM schedules s LEFT JOIN schedule_args a ON a.seq = s.seq
		WHERE s.seq = ? AND iif(typeof(s.id) = 'text', s.id, '') = ?`,
}

// setAside moves a row that cannot be read to the table quarantine; its folders
// follow at the next start.
func (c *conn) setAside(gone *removal, damage error) error {
	var d *damagedRow
	if !errors.As(damage, &d) {
		return damage
	}

	drop, p := remove, Problem{Kind: ProblemRun, ID: d.id, Reason: d.err.Error(), Moved: databaseName + ", table quarantine"}
	if d.table == "schedules" {
		drop, p.Kind = dropSchedule, ProblemSchedule
	}
	moved, _, err := c.exec(setAsideSQL[d.table], p.Reason, time.Now().UnixNano(), d.seq, d.id)
	if err != nil || moved == 0 {
		return err
	}
	gone.damaged = append(gone.damaged, p)
	return drop(c, d.seq)
}

// setRowAside looks at an error. If it is that of a damaged row, the row is set
// aside. It returns the error, or the one of setting aside.
func (db *database) setRowAside(ctx context.Context, err error) error {
	var d *damagedRow
	if !errors.As(err, &d) {
		return err
	}
	write := db.write(ctx, func(w *conn) (func(), error) {
		var gone removal
		err := w.setAside(&gone, d)
		return func() {
			for _, p := range gone.damaged {
				db.problems.report(p)
			}
		}, err
	})
	if write != nil {
		return fmt.Errorf("%w; setting it aside: %w", d.err, write)
	}

	return err
}

// setRowsAside does so for all damaged rows of a list, and returns the errors
// that are others.
func (db *database) setRowsAside(ctx context.Context, damaged []error) error {
	var errs []error
	for _, d := range damaged {
		if err := db.setRowAside(ctx, d); !errors.Is(err, engine.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
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
