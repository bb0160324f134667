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

	"github.com/toolhost/toolhost/pkg/background"
)

// A scheduleRow is a schedule in the database.
type scheduleRow struct {
	seq   int64
	size  int64 // what its record takes, as it is in the database
	apart bool  // its arguments are in the table for them
	background.Schedule
}

// decodeSchedule reads a record. It has arguments only if the schedule was
// stored before there was a table for them.
func decodeSchedule(found []driver.Value) (scheduleRow, error) {
	s := scheduleRow{seq: found[0].(int64)}
	id, _ := found[1].(string)
	text, ok := found[2].([]byte)
	if !ok {
		return s, &damagedRow{"schedules", s.seq, id, errType}
	}
	if err := json.Unmarshal(text, &s.Schedule); err != nil {
		return s, &damagedRow{"schedules", s.seq, id, err}
	}
	if s.ID != id {
		return s, &damagedRow{"schedules", s.seq, id, errMismatch}
	}
	if string(s.Args) == "null" {
		s.Args = nil
	}
	return s, nil
}

const selectSchedule = `SELECT s.seq, s.id, s.record, s.size, a.data FROM schedules s
	LEFT JOIN schedule_args a ON a.seq = s.seq WHERE s.id = ?`

func loadSchedule(c *conn, id string) (scheduleRow, error) {
	found, err := c.one(selectSchedule, id)
	if err != nil {
		return scheduleRow{}, err
	}
	if found == nil {
		return scheduleRow{}, fmt.Errorf("%w: schedule %s", background.ErrNotFound, id)
	}
	s, err := decodeSchedule(found)
	s.size, _ = found[3].(int64)
	if data, ok := found[4].([]byte); ok {
		s.Args, s.apart = data, true
	}
	return s, err
}

// PutSchedule implements [background.Engine].
func (e *Engine) PutSchedule(ctx context.Context, s background.Schedule, max int) (background.Schedule, error) {
	if err := e.enter(); err != nil {
		return background.Schedule{}, err
	}
	defer e.calls.Done()
	s.Args = slices.Clone(s.Args)
	put := s
	err := e.create(ctx, func(w *conn, room room) (func(), error) {
		old, err := loadSchedule(w, s.ID)
		if err = against(s, old, err); err != nil {
			return nil, err
		}
		if err := roomFor(w, old, s, max); err != nil {
			return nil, err
		}
		put.Revision = s.Revision + 1
		event := put
		return func() {
			e.feed.Publish(background.Event{Kind: background.EventScheduled, Session: put.Session, Schedule: &event})
		}, store(w, old, put, room)
	})
	if err != nil {
		return background.Schedule{}, err
	}
	put.Args = slices.Clone(put.Args)
	return put, nil
}

// against compares a schedule to be stored with the one that is, or with the
// error that says there is none.
func against(s background.Schedule, old scheduleRow, err error) error {
	var damaged *damagedRow
	missing := errors.Is(err, background.ErrNotFound) && !errors.As(err, &damaged)
	switch {
	case missing && s.Revision == 0:
		return nil
	case err != nil:
		return err
	case s.Revision == 0:
		return fmt.Errorf("%w: schedule %s", background.ErrExists, s.ID)
	case s.Revision != old.Revision:
		return fmt.Errorf("%w: schedule %s", background.ErrConflict, s.ID)
	}
	return nil
}

// roomFor returns an error if s, in place of old, would be one enabled schedule
// too many of its session.
func roomFor(w *conn, old scheduleRow, s background.Schedule, max int) error {
	if !s.Enabled || old.Enabled { // one that was enabled has its place: each time it fires it comes here
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
	return &background.LimitError{Err: background.ErrScheduleLimit, Max: max, Active: active}
}

// store writes a schedule: in place of old, or a new one if that has no seq.
func store(w *conn, old scheduleRow, s background.Schedule, room room) error {
	args := s.Args
	s.Args = nil
	record, err := json.Marshal(s)
	if err != nil {
		return err
	}
	now, size := time.Now().UnixNano(), background.RecordOverhead+int64(len(record)+len(args))
	if old.seq == 0 {
		if err := room(s.Session, size); err != nil {
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
	if err != nil || old.apart && bytes.Equal(old.Args, args) { // they are written once, not with each firing
		return err
	}
	return storeScheduleArgs(w, old.seq, args)
}

// storeScheduleArgs writes the arguments of a schedule; nil for none.
func storeScheduleArgs(w *conn, seq int64, args []byte) error {
	if args == nil {
		return w.run(`DELETE FROM schedule_args WHERE seq = ?`, seq)
	}
	return w.run(`INSERT OR REPLACE INTO schedule_args VALUES (?, ?)`, seq, args)
}

// dropSchedule deletes a schedule.
func dropSchedule(w *conn, seq int64) error {
	if err := w.uncount(`SELECT session, size, iif(enabled = 0, size, 0) FROM schedules WHERE seq = ?`, seq); err != nil {
		return err
	}
	if err := w.run(`DELETE FROM schedules WHERE seq = ?`, seq); err != nil {
		return err
	}
	return w.run(`DELETE FROM schedule_args WHERE seq = ?`, seq)
}

// GetSchedule implements [background.Engine].
func (e *Engine) GetSchedule(ctx context.Context, id string) (s background.Schedule, err error) {
	if err := e.enter(); err != nil {
		return s, err
	}
	defer e.calls.Done()
	err = e.read(ctx, func(c *conn) error {
		r, err := loadSchedule(c, id)
		s = r.Schedule
		return err
	})
	if err = e.quarantine(ctx, err); err != nil {
		return background.Schedule{}, err
	}
	return s, nil
}

// Schedules implements [background.Engine].
func (e *Engine) Schedules(ctx context.Context, session string, enabled bool) ([]background.Schedule, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.calls.Done()
	sql, args := `SELECT seq, id, record FROM schedules WHERE 1`, []driver.Value(nil)
	if session != "" {
		sql, args = sql+` AND session = ?`, append(args, session)
	}
	if enabled {
		sql += ` AND enabled = 1`
	}
	var found []background.Schedule
	var damaged []error
	err := e.read(ctx, func(c *conn) error {
		return c.query(func(row []driver.Value) error {
			s, err := decodeSchedule(row)
			if err != nil {
				damaged = append(damaged, err)
				return nil
			}
			s.Args = nil
			found = append(found, s.Schedule)
			return nil
		}, sql+` ORDER BY seq DESC`, args...)
	})
	for _, d := range damaged {
		if d := e.quarantine(ctx, d); !errors.Is(d, background.ErrNotFound) {
			err = errors.Join(err, d)
		}
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// removeSchedule removes a schedule that is not enabled.
func (e *Engine) removeSchedule(ctx context.Context, v victim) error {
	return e.write(ctx, func(w *conn) (func(), error) {
		s, err := loadSchedule(w, v.id)
		if isSQL(err) {
			return nil, err
		}
		if err != nil || s.seq != v.seq || s.Enabled {
			return nil, nil
		}
		return func() {
			e.feed.Publish(background.Event{Kind: background.EventPurged, Session: s.Session, Schedule: &s.Schedule})
		}, dropSchedule(w, v.seq)
	})
}
