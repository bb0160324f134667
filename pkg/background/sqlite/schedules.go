package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A scheduleRow is a schedule in the database.
type scheduleRow struct {
	seq   int64
	size  int64 // size of its record in bytes, as stored
	apart bool  // whether its arguments are in a table of their own
	engine.Schedule
}

const scheduleColumns = `seq, id, session, size, record`

var scheduleTable = table[scheduleRow]{
	kindSchedule, `SELECT ` + scheduleColumns + `, (SELECT data FROM schedule_args a WHERE a.seq = s.seq) FROM schedules s WHERE id = ?`, decodeSchedule,
}

// decodeSchedule decodes a schedule. It has arguments if they were selected too,
// or if it was stored before they had a table of their own. If its record is
// damaged, it returns the values of the other columns.
func decodeSchedule(found []driver.Value) (scheduleRow, error) {
	s := scheduleRow{seq: found[0].(int64)}
	id, _ := found[1].(string)
	err := unmarshal(found[4], &s.Schedule)
	if err == nil && s.ID != id {
		err = errMismatch
	}
	if err != nil {
		s.Schedule = engine.Schedule{ID: id}
		s.Session, _ = found[2].(string)
		err = &damagedRow{kindSchedule, id, err}
	}
	s.size, _ = found[3].(int64)

	if string(s.Args) == "null" {
		s.Args = nil
	}
	if len(found) > 5 && found[5] != nil {
		s.Args, s.apart = found[5].([]byte)
	}
	return s, err
}

// A scheduleStore implements [engine.Schedules].
type scheduleStore struct{ *store }

var _ engine.Schedules = scheduleStore{}

// PutSchedule implements [engine.Schedules].
func (ss scheduleStore) PutSchedule(ctx context.Context, s engine.Schedule, max int) (engine.Schedule, error) {
	put := s
	put.Revision++
	err := ss.db.write(ctx, func(w *conn) error {
		old, err := scheduleTable.load(w, s.ID)
		if err = against(s, old, ss.db.report(err)); err != nil {
			return err
		}
		if err := placeFor(w, old, s, max); err != nil {
			return err
		}
		if err := storeSchedule(w, old, put, func(size int64) error { return ss.makeRoom(w, s.Session, size) }); err != nil {
			return err
		}
		w.after = append(w.after, func() {
			ss.feed.Publish(engine.Event{Kind: engine.EventScheduled, Session: put.Session, Schedule: &put})
		})
		return nil
	})
	if err != nil {
		return engine.Schedule{}, err
	}

	return put, nil
}

// against checks the revision of s against that of the stored schedule, old. err
// is the error of reading old.
func against(s engine.Schedule, old scheduleRow, err error) error {
	switch {
	case errors.Is(err, engine.ErrNotFound) && old.seq == 0 && s.Revision == 0:
		return nil
	case err != nil:
		return err
	case s.Revision == 0:
		return fmt.Errorf("%w: schedule %s", engine.ErrExists, s.ID)
	case s.Revision != old.Revision:
		return fmt.Errorf("%w: schedule %s", engine.ErrConflict, s.ID)
	}

	return nil
}

// placeFor returns an error if s, in place of old, would exceed the session's
// limit of enabled schedules.
func placeFor(w *conn, old scheduleRow, s engine.Schedule, max int) error {
	if !s.Enabled || old.Enabled { // an enabled one is already counted, and comes here each time it fires
		return nil
	}

	var active []string
	err := w.query(func(found []driver.Value) error {
		if id, _ := found[0].(string); id != s.ID {
			active = append(active, id)
		}
		return nil
	}, `SELECT id FROM schedules WHERE session = ? AND enabled = 1 ORDER BY id`, s.Session)
	if err != nil || len(active) < max {
		return err
	}

	return &engine.LimitError{Err: engine.ErrScheduleLimit, Max: max, Active: active}
}

// storeSchedule stores a schedule in place of old, or as a new one if old has no seq.
// It calls room before it stores a new one.
func storeSchedule(w *conn, old scheduleRow, s engine.Schedule, room func(size int64) error) error {
	args := s.Args
	s.Args = nil
	record, err := json.Marshal(s)
	if err != nil {
		return err
	}

	now, size := time.Now().UnixNano(), engine.RecordOverhead+int64(len(record)+len(args))
	if old.seq == 0 {
		if err := room(size); err != nil {
			return err
		}
		_, old.seq, err = w.exec(`INSERT INTO schedules (id, session, enabled, changed, size, record) VALUES (?, ?, ?, ?, ?, ?)`,
			s.ID, s.Session, flag(s.Enabled), now, size, record)
	} else {
		w.book.add(old.Session, -old.size, -old.size*flag(!old.Enabled))
		err = w.run(`UPDATE schedules SET session = ?, enabled = ?, changed = ?, size = ?, record = ? WHERE seq = ?`,
			s.Session, flag(s.Enabled), now, size, record, old.seq)
	}
	w.book.add(s.Session, size, size*flag(!s.Enabled))

	switch {
	case err != nil || old.apart && bytes.Equal(old.Args, args): // they are written once, not with each firing
		return err
	case args == nil:
		return w.run(`DELETE FROM schedule_args WHERE seq = ?`, old.seq)
	}

	return w.run(`INSERT OR REPLACE INTO schedule_args VALUES (?, ?)`, old.seq, []byte(args))
}

// GetSchedule implements [engine.Schedules].
func (ss scheduleStore) GetSchedule(ctx context.Context, id string) (engine.Schedule, error) {
	s, err := scheduleTable.get(ctx, ss.db, id)
	return s.Schedule, err
}

// RemoveSchedule implements [engine.Schedules].
func (ss scheduleStore) RemoveSchedule(ctx context.Context, id string) error {
	return ss.db.write(ctx, func(w *conn) error {
		seq, err := w.number(`SELECT seq FROM schedules WHERE id = ?`, id)
		if err != nil {
			return err
		}
		if seq == 0 {
			return fmt.Errorf("%w: schedule %s", engine.ErrNotFound, id)
		}
		_, err = ss.drop(w, victim{table: "schedules", seq: seq, id: id, any: true})
		return err
	})
}

// Schedules implements [engine.Schedules].
func (ss scheduleStore) Schedules(ctx context.Context, session string, enabled bool) ([]engine.Schedule, error) {
	sql, args := `SELECT `+scheduleColumns+` FROM schedules WHERE 1`, []driver.Value(nil)
	if session != "" {
		sql, args = sql+` AND session = ?`, append(args, session)
	}
	if enabled {
		sql += ` AND enabled = 1`
	}
	return readAll(ctx, ss.db, func(found []driver.Value) (engine.Schedule, error) {
		s, err := decodeSchedule(found)
		s.Args = nil
		return s.Schedule, err
	}, sql+` ORDER BY seq DESC`, args...)
}

// Due implements [engine.Schedules]. It reads all enabled schedules.
func (ss scheduleStore) Due(ctx context.Context, now time.Time, max int) (due []engine.Schedule, next time.Time, err error) {
	enabled, err := ss.Schedules(ctx, "", true)
	if err != nil {
		return nil, next, err
	}

	enabled = slices.DeleteFunc(enabled, func(s engine.Schedule) bool { return s.NextAt.IsZero() })
	slices.SortFunc(enabled, func(a, b engine.Schedule) int { return a.NextAt.Compare(b.NextAt) })
	for _, s := range enabled {
		if len(due) == max || s.NextAt.After(now) {
			return due, s.NextAt, nil
		}
		due = append(due, s)
	}
	return due, next, nil
}
