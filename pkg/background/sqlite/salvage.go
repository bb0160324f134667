package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	salvagingSuffix = ".salvaging" // a new database that is being filled
	salvagedSuffix  = ".salvaged"  // one that is to take the place of the damaged one
	imageSuffix     = ".image"     // of the damaged database, while it is read

	// salvageTries bounds how often a damaged table is asked again behind a row
	// that cannot be read.
	salvageTries = 5_000
)

// salvage replaces a damaged database by a new one with what can be read of it,
// and returns where the damaged one is. Until the new one is complete nothing is
// changed: a start that is cut short is done again by the next.
func (db *database) salvage(left mark) (moved, result string, err error) {
	image, fresh := db.path(imageSuffix), db.path(salvagingSuffix)
	if err := removeAll(image, fresh, fresh+"-wal", fresh+"-shm"); err != nil {
		return "", "", err
	}
	defer func() { _ = os.Remove(image) }()
	if err := writeImage(image, db.path(""), db.path("-wal")); err != nil {
		return "", "", err
	}

	to, err := openFile(fresh, false)
	if err != nil {
		return "", "", err
	}
	result, err = db.fill(to, image)
	if err == nil {
		err = left.put(to)
	}
	if err == nil {
		err = to.script("PRAGMA journal_mode = DELETE") // all of it is in one file
	}
	if err = errors.Join(err, to.close()); err != nil {
		return "", "", err
	}

	if err := os.Rename(fresh, db.path(salvagedSuffix)); err != nil {
		return "", "", err
	}
	moved, err = db.finishSalvage()
	return moved, result, err
}

// finishSalvage puts a new database that is complete in the place of the damaged
// one, which it sets aside. It does nothing without one.
func (db *database) finishSalvage() (moved string, err error) {
	if _, err := os.Stat(db.path(salvagedSuffix)); missingFile(err) {
		return "", nil
	}
	if err := syncDir(db.dir); err != nil {
		return "", err
	}
	if moved, err = db.setAside("corrupt"); err != nil {
		return "", err
	}
	if err := os.Rename(db.path(salvagedSuffix), db.path("")); err != nil {
		return "", err
	}
	return moved, errors.Join(syncDir(db.dir), removeAll(db.path(suspectSuffix)))
}

// doubt marks the runs that are queued or have a state in a database that has lost
// transactions: they may have been started since. They count as running ones whose host went
// down, so that those whose tool may not be run twice are not.
func doubt(c *conn) (result string, err error) {
	var queued []row
	err = c.query(func(found []driver.Value) error {
		r, err := decode(found)
		if err == nil && (r.Status == engine.StatusQueued && r.Attempt == 0 || r.StateSize > 0 || r.Anew) {
			queued = append(queued, r)
		}
		return nil
	}, selectActive)
	for _, r := range queued {
		if err == nil {
			r.Status, r.Attempt = engine.StatusRunning, max(1, r.Attempt)
			r.Waiting = engine.Waiting{CallsSize: r.CallsSize} // it may have continued
			err = r.update(c)
		}
	}
	if err != nil || len(queued) == 0 {
		return "", err
	}

	return fmt.Sprintf("; %d queued or waiting runs may have been started since: they count as interrupted ones", len(queued)), nil
}

// A salvage reads the records of a damaged database into a new one.
type salvage struct {
	runs string // the folder of runs
	from *conn  // an image of the damaged one
	to   *conn

	saved  int64 // records read
	broken int   // records found that cannot be used
	partly bool  // some of a table could not be read
	tries  int
}

// fill reads what can be read of an image into a new database, and returns what
// to say of it. The error is that of writing.
func (db *database) fill(to *conn, image string) (result string, err error) {
	from, err := connect(image)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.close() }()
	if err := from.script("PRAGMA writable_schema = ON"); err != nil { // a table that is not whole hides no other
		return "nothing was read from it: " + err.Error(), nil
	}

	s := &salvage{runs: filepath.Join(db.dir, runsFolder), from: from, to: to}
	err = errors.Join(
		s.each(`SELECT seq, id, session, 0, logged, record FROM runs NOT INDEXED`, s.run),
		s.each(`SELECT seq, id, session, 0, record FROM schedules NOT INDEXED`, s.schedule),
		s.each(`SELECT seq, session, name, version, changed FROM scopes NOT INDEXED`, s.scope),
		s.each(`SELECT seq, scope, key, version, at, data, expires FROM pairs NOT INDEXED`, s.pair))
	if err != nil {
		return "", err
	}
	db.problems.salvaged.Add(s.saved)
	result = fmt.Sprintf("%d records were read from it, %d of those found are damaged", s.saved, s.broken)
	if s.partly {
		result += ", and others cannot be read"
	}

	doubted, err := doubt(to)
	return result + doubted, err
}

// each calls do, in one transaction, for the rows of a table that can be read.
// The error is that of writing.
func (s *salvage) each(sql string, do func(found []driver.Value) error) error {
	sql += ` WHERE seq BETWEEN ? AND ? ORDER BY seq`
	if _, err := s.from.prepare(sql); err != nil { // the table is not there, as far as can be seen
		s.partly = true
		return nil
	}
	if err := s.to.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	s.tries = salvageTries
	if err := s.walk(sql, do, 0, math.MaxInt64); err != nil {
		return err
	}
	return s.to.run("COMMIT")
}

// walk reads the rows with numbers from lo to hi: upwards to the first that
// cannot be read, downwards to the last, and what is between in halves.
func (s *salvage) walk(sql string, do func([]driver.Value) error, lo, hi int64) error {
	var failed error // by do
	read := func(sql string, step func(seq int64)) bool {
		err := s.from.query(func(found []driver.Value) error {
			step(found[0].(int64))
			failed = do(found)
			return failed
		}, sql, lo, hi)
		return err == nil || failed != nil
	}
	if read(sql, func(seq int64) { lo = seq + 1 }) || read(sql+" DESC", func(seq int64) { hi = seq - 1 }) {
		return failed
	}

	s.partly = true
	if s.tries -= 2; s.tries <= 0 || lo >= hi {
		return nil
	}
	middle := lo + (hi-lo)/2
	if err := s.walk(sql, do, lo, middle); err != nil {
		return err
	}
	return s.walk(sql, do, middle+1, hi)
}

// json returns what a table of JSON has of a record; ok is false if it cannot be
// read.
func (s *salvage) json(table string, seq int64) (data []byte, ok bool) {
	data, err := blob(s.from, table, seq)
	if err != nil || data != nil && !(json.Valid(data) && utf8.Valid(data)) {
		return nil, false
	}
	return data, true
}

// inOnePage is how long a part of a record can be that surely is in one page:
// what is longer continues in others, and may have come apart.
const inOnePage = 4000

// run saves a run. One that may start needs its arguments. The end of one that
// ended comes from its result.json if that is there.
func (s *salvage) run(found []driver.Value) error {
	r, err := decode(found)
	ok := err == nil && checkID(r.ID) == nil && utf8.Valid(found[5].([]byte))
	if ok {
		r.Args, _ = s.json("args", r.seq)
		ok = r.Args != nil || r.Status.Terminal()
	}
	if ok && r.Status.Terminal() && !s.result(&r) {
		r.Result, ok = s.json("results", r.seq)
		if ok {
			r.Content, ok = s.json("contents", r.seq)
		}
	}
	if !ok {
		s.broken++
		return nil
	}
	r.Calls, _ = s.json("calls", r.seq)

	checkpoint, err := blob(s.from, "checkpoints", r.seq)
	if err != nil || len(checkpoint) > inOnePage { // the next attempt begins anew
		checkpoint = nil
	}
	r.logged = max(0, r.logged)
	r.size = engine.RecordOverhead + int64(len(r.Args)+2*len(r.Result)+2*len(r.Content)+len(r.Calls)+len(checkpoint))
	record, err := r.encode()
	if err != nil {
		return err
	}
	at, err := insert(s.to, r.seq, r, record)
	if code(err) == codeConstraint { // a damaged tree may lead to a record twice
		s.broken++
		return nil
	}
	if err == nil && checkpoint != nil {
		err = s.to.run(`INSERT INTO checkpoints VALUES (?, ?)`, at, checkpoint)
	}
	s.saved++
	return err
}

// result reads the end of a run from its result.json, and reports whether that
// is there.
func (s *salvage) result(r *row) bool {
	text, err := os.ReadFile(filepath.Join(s.runs, r.Folder(), engine.ResultJSON))
	var file engine.Envelope
	if err != nil || json.Unmarshal(text, &file) != nil || file.TaskID != r.ID || file.Attempt != r.Attempt {
		return false
	}
	r.Result, r.Content = file.Result, file.Content
	return true
}

// schedule saves a schedule. One whose arguments cannot be read must not fire.
func (s *salvage) schedule(found []driver.Value) error {
	r, err := decodeSchedule(found)
	if args, ok := s.json("schedule_args", r.seq); ok && args != nil {
		r.Args = args
	}
	if err != nil || r.Args == nil || !utf8.Valid(found[4].([]byte)) {
		s.broken++
		return nil
	}

	err = storeSchedule(s.to, scheduleRow{}, r.Schedule, func(int64) error { return nil })
	if code(err) == codeConstraint {
		s.broken++
		return nil
	}
	s.saved++
	return err
}

// scope saves a scope of values, without any so far.
func (s *salvage) scope(found []driver.Value) error {
	session, ok := found[1].(string)
	name, ok1 := found[2].(string)
	if !ok || !ok1 || !utf8.ValidString(session) || !utf8.ValidString(name) {
		s.broken++
		return nil
	}
	return s.insert(`INSERT INTO scopes (seq, session, name, version, count, bytes, changed) VALUES (?, ?, ?, ?, 0, 0, ?)`,
		found[0], session, name, whole(found[3]), whole(found[4]))
}

// pair saves a value, if its scope is there.
func (s *salvage) pair(found []driver.Value) error {
	key, ok := found[2].(string)
	data, ok1 := found[5].([]byte)
	if !ok || !ok1 || !utf8.ValidString(key) || !utf8.Valid(data) || !json.Valid(data) {
		s.broken++
		return nil
	}
	scope, version := whole(found[1]), whole(found[3])
	changed, _, err := s.to.exec(`UPDATE scopes SET count = count + 1, bytes = bytes + ?, version = max(version, ?) WHERE seq = ?
		AND NOT EXISTS (SELECT 1 FROM pairs WHERE scope = ?3 AND key = ?4)`, int64(len(key)+len(data)), version, scope, key)
	if err != nil || changed == 0 {
		s.broken++
		return err
	}
	return s.insert(`INSERT INTO pairs (seq, scope, key, version, at, data, expires) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		found[0], scope, key, version, whole(found[4]), data, whole(found[6]))
}

func whole(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

// insert stores a row, unless a damaged tree has led to it twice.
func (s *salvage) insert(sql string, args ...driver.Value) error {
	err := s.to.run(sql, args...)
	if code(err) == codeConstraint {
		s.broken++
		return nil
	}
	s.saved++
	return err
}
