package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// salvageTries bounds how often a damaged table is asked again behind a row that
// cannot be read.
const salvageTries = 5_000

// A salvage reads the records of a damaged database into one that is whole.
type salvage struct {
	db   *database
	from *conn // an image of the damaged one
	to   *conn

	saved  int  // records read
	broken int  // records found that are damaged: they are in the table quarantine
	partly bool // some of a table could not be read
}

// replace makes a new database of what can be read of one that was set aside.
func (db *database) replace(aside, reason string) (*conn, error) {
	c, err := openFile(db.path(""), false)
	if err != nil {
		return nil, err
	}
	result, err := db.salvageAside(c, aside)
	if err == nil {
		err = os.Remove(db.path(salvagingSuffix))
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	db.problems.report(Problem{Kind: ProblemDatabase, Moved: aside, Reason: reason + "; " + result})
	return c, nil
}

// salvageAside reads what can be read of a database that was set aside. How far
// that was cannot be known.
func (db *database) salvageAside(c *conn, aside string) (result string, err error) {
	_ = os.Remove(db.path(tornSuffix)) // it is among what was set aside
	path := filepath.Join(db.dir, aside)
	if err := writeImage(db.path(imageSuffix), path, path+"-wal"); errors.Is(err, syscall.ENOSPC) {
		return "", fmt.Errorf("reading a damaged database needs as much room again: %w", err)
	} else if err != nil {
		return "nothing was read from it: " + err.Error(), nil
	}
	result = db.salvage(c)
	doubted, err := doubt(c)
	return result + doubted, err
}

// doubt marks the runs that are queued in a database that is not as far as it
// was: they may have been started since. They count as running ones whose host
// went down, so that those whose tool may not be run twice are not.
func doubt(c *conn) (result string, err error) {
	var queued []row
	err = c.query(func(found []driver.Value) error {
		id, _ := found[1].(string)
		r, err := decode(found[0].(int64), id, found[2])
		if err == nil && r.Status == engine.StatusQueued && r.Attempt == 0 {
			queued = append(queued, r)
		}
		return nil
	}, selectActive)
	for _, r := range queued {
		if err == nil {
			r.Status, r.Attempt = engine.StatusRunning, 1
			err = r.update(c)
		}
	}
	if err != nil || len(queued) == 0 {
		return "", err
	}

	return fmt.Sprintf("; %d queued runs may have been started since: they count as interrupted ones", len(queued)), nil
}

// salvage reads what can be read of the image, which it removes, and returns
// what to say of it. Where a record is there already, the one that is further
// stays.
func (db *database) salvage(to *conn) (result string) {
	image := db.path(imageSuffix)
	defer func() { _ = os.Remove(image) }()
	from, err := connect(image)
	if err == nil {
		err = from.script("PRAGMA writable_schema = ON") // a table that is not whole hides no other
	}
	if err != nil {
		return "nothing was read from it: " + err.Error()
	}
	s := &salvage{db: db, from: from, to: to}
	defer func() { _ = s.from.close() }()

	err = errors.Join(s.each(selectSalvagedRuns, s.run), s.each(selectSalvagedSchedules, s.schedule))
	db.problems.salvaged.Add(int64(s.saved))
	result = fmt.Sprintf("%d records were read from it, %d of those found are damaged", s.saved, s.broken)
	switch {
	case err != nil:
		result += ", the rest could not be written: " + err.Error()
	case s.partly:
		result += ", and others cannot be read"
	}

	return result
}

const (
	selectSalvagedRuns      = `SELECT seq, id, record, logged FROM runs NOT INDEXED WHERE seq BETWEEN ? AND ? ORDER BY seq`
	selectSalvagedSchedules = `SELECT seq, id, record FROM schedules NOT INDEXED WHERE seq BETWEEN ? AND ? ORDER BY seq`
)

// each calls do, in transactions, for the rows of a table that can be read. The
// error is that of writing.
func (s *salvage) each(sql string, do func(found []driver.Value) error) (err error) {
	if _, err := s.from.prepare(sql); err != nil { // the table is not there, as far as can be seen
		s.partly = true
		return nil
	}
	if err := s.to.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	tries, saved, broken := salvageTries, s.saved, s.broken
	err = s.walk(sql, do, 0, math.MaxInt64, &tries)
	if err != nil {
		s.saved, s.broken = saved, broken
		return errors.Join(err, s.to.run("ROLLBACK"))
	}

	return s.to.run("COMMIT")
}

// walk reads the rows with numbers from lo to hi: upwards to the first that
// cannot be read, downwards to the last, and what is between in halves.
func (s *salvage) walk(sql string, do func([]driver.Value) error, lo, hi int64, tries *int) error {
	var failed error // by do
	step := func(found []driver.Value) error {
		failed = do(found)
		return failed
	}

	err := s.from.query(func(found []driver.Value) error {
		lo = found[0].(int64) + 1
		return step(found)
	}, sql, lo, hi)
	if err == nil || failed != nil {
		return failed
	}
	err = s.from.query(func(found []driver.Value) error {
		hi = found[0].(int64) - 1
		return step(found)
	}, sql+" DESC", lo, hi)
	if err == nil || failed != nil {
		return failed
	}

	s.partly = true
	if *tries -= 2; *tries <= 0 || lo >= hi {
		return nil
	}
	middle := lo + (hi-lo)/2
	if err := s.walk(sql, do, lo, middle, tries); err != nil {
		return err
	}

	return s.walk(sql, do, middle+1, hi, tries)
}

// inOnePage is how long a part of a record can be that surely is in one page:
// what is longer goes on in others, and may have come apart.
const inOnePage = 4000

// json returns what a table of JSON has of a record; ok is false if it cannot be
// read.
func (s *salvage) json(table string, seq int64) (data []byte, ok bool) {
	data, err := blob(s.from, table, seq)
	return data, err == nil && (data == nil || isText(data))
}

// isText reports whether data is JSON in UTF-8.
func isText(data []byte) bool { return json.Valid(data) && utf8.Valid(data) }

// run saves a run.
func (s *salvage) run(found []driver.Value) error {
	seq, raw := found[0].(int64), found[2]
	id, _ := found[1].(string)
	logged, _ := found[3].(int64)
	r, err := decode(seq, id, raw)
	if err != nil || checkID(id) != nil || !isText(raw.([]byte)) {
		return s.quarantine("run", id, raw, "the record is damaged")
	}
	now, err := load(s.to, id)
	if isSQL(err) {
		return err
	}
	if err == nil && !further(r.Run, now.Run) {
		return nil
	}

	whole := s.parts(&r)
	if !whole {
		return s.quarantine("run", id, raw, "its arguments or its result cannot be read")
	}
	if err == nil {
		if err := remove(s.to, now.seq); err != nil {
			return err
		}
	}
	saved, err := blob(s.from, "checkpoints", seq)
	if err != nil || len(saved) > inOnePage { // the next attempt begins anew
		saved = nil
	}
	s.saved++
	return s.store(r, saved, max(0, logged))
}

// parts reads what of a run is not in its record, and reports whether it has
// all it needs: a run that may start needs its arguments.
func (s *salvage) parts(r *row) (whole bool) {
	var args, result, content bool
	r.Args, args = s.json("args", r.seq)
	r.Result, result = s.json("results", r.seq)
	r.Content, content = s.json("contents", r.seq)
	if !args {
		r.Args = nil
	}
	if !r.Status.Terminal() {
		return r.Args != nil
	}
	short := len(r.Result) <= inOnePage && len(r.Content) <= inOnePage
	if result && content && short && (r.Result != nil || r.Status != engine.StatusSucceeded) {
		return true
	}

	text, err := os.ReadFile(filepath.Join(s.db.dir, runsFolder, r.Folder(), engine.ResultJSON))
	var file engine.Envelope
	if err != nil || json.Unmarshal(text, &file) != nil || file.TaskID != r.ID || file.Attempt != r.Attempt {
		return result && content // a run may have no result
	}
	r.Result, r.Content = file.Result, file.Content
	return true
}

// further reports whether a run is later in its life than another record of it.
func further(a, b engine.Run) bool {
	if a.Attempt != b.Attempt {
		return a.Attempt > b.Attempt
	}
	return a.Status.Terminal() && !b.Status.Terminal() || a.Status == engine.StatusRunning && b.Status == engine.StatusQueued
}

// store stores a run as it is, with its number if that is free.
func (s *salvage) store(r row, checkpoint []byte, logged int64) error {
	r.size = engine.RecordOverhead + int64(len(r.Args)+2*len(r.Result)+2*len(r.Content)+len(checkpoint))
	record, err := r.encode()
	if err != nil {
		return err
	}

	var seq driver.Value = r.seq
	taken, err := s.to.number(`SELECT 1 FROM runs WHERE seq = ?`, r.seq)
	if err != nil {
		return err
	}
	if taken != 0 {
		seq = nil
	}
	if !r.Status.Terminal() {
		logged = 0
	}

	at, err := insert(s.to, seq, r, record, logged)
	if err != nil || checkpoint == nil {
		return err
	}

	return s.to.run(`INSERT OR REPLACE INTO checkpoints VALUES (?, ?)`, at, checkpoint)
}

// schedule saves a schedule. One whose arguments cannot be read must not fire.
func (s *salvage) schedule(found []driver.Value) error {
	id, _ := found[1].(string)
	r, err := decodeSchedule(found[0].(int64), id, found[2])
	if err != nil || !isText(found[2].([]byte)) {
		return s.quarantine("schedule", id, found[2], "the record is damaged")
	}
	now, err := loadSchedule(s.to, id)
	if isSQL(err) {
		return err
	}
	if err == nil && now.Revision >= r.Revision {
		return nil
	}

	if args, ok := s.json("schedule_args", r.seq); ok && args != nil {
		r.Args = args
	}
	if r.Args == nil {
		return s.quarantine("schedule", id, found[2], "its arguments cannot be read")
	}
	s.saved++
	return store(s.to, now, r.Schedule, anyRoom)
}

// quarantine keeps what there is of a record that is damaged.
func (s *salvage) quarantine(kind, id string, record driver.Value, reason string) error {
	s.broken++
	return s.to.run(`INSERT INTO quarantine (kind, id, reason, at, record) VALUES (?, ?, ?, ?, ?)`,
		kind, filepath.Base(id), reason, time.Now().UnixNano(), record)
}
