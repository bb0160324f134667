package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A scheduleStore implements [engine.Schedules].
type scheduleStore struct{ *database }

// PutSchedule implements [engine.Schedules].
func (ss scheduleStore) PutSchedule(ctx context.Context, s engine.Schedule, max int) (engine.Schedule, error) {
	var stored *engine.Schedule
	var size int64
	var owner string
	var active []string
	var room room
	revision := s.Revision
	err := ss.write(ctx, func(b *pgx.Batch) {
		stored, owner = nil, ss.quotaNow().OwnerOf(s.Session)
		b.Queue("SELECT pg_advisory_xact_lock($1, hashtext($2))", lockCount, s.Session)
		b.Queue("SELECT record, size, owner FROM schedules WHERE id = $1 FOR UPDATE", s.ID).Query(func(rows pgx.Rows) (err error) {
			defer rows.Close()
			for rows.Next() {
				stored, err = scanSchedule(rows, &size, &owner)
			}
			return errors.Join(err, rows.Err())
		})
		b.Queue("SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM schedules WHERE session = $1 AND enabled", s.Session).QueryRow(func(found pgx.Row) error { return found.Scan(&active) })
		ss.readRoom(b, s.Session, &room)
	}, func(t *tx) error {
		s.Revision = revision
		switch {
		case stored == nil && s.Revision != 0:
			return scheduleError(engine.ErrNotFound, s.ID)
		case stored != nil && s.Revision == 0:
			return scheduleError(engine.ErrExists, s.ID)
		case stored != nil && s.Revision != stored.Revision:
			return scheduleError(engine.ErrConflict, s.ID)
		case s.Enabled && (stored == nil || !stored.Enabled) && len(active) >= max:
			return &engine.LimitError{Err: engine.ErrScheduleLimit, Max: max, Active: active}
		}

		s.Revision++
		light := s
		light.Args = nil
		record, err := json.Marshal(light)
		if err != nil {
			return err
		}
		t.events = append(t.events, engine.Event{Kind: engine.EventScheduled, Session: s.Session, Schedule: &s})
		if stored != nil {
			t.queue(`UPDATE schedules SET enabled = $2, next = $3, changed = `+serverNow(8)+`, revision = $4, size = $5, record = $6, args = $7 WHERE id = $1`,
				s.ID, s.Enabled, nanos(s.NextAt), s.Revision, s.Size(), record, []byte(s.Args), ss.now())
			t.charge(owner, s.Size(), !s.Enabled, size, !stored.Enabled)
			return nil
		}
		if err := t.makeRoom(room, s.Session, s.Size()); err != nil {
			return err
		}
		t.queue(`INSERT INTO schedules (id, session, owner, enabled, next, changed, revision, size, record, args) VALUES ($1, $2, $3, $4, $5, `+serverNow(10)+`, $6, $7, $8, $9)`,
			s.ID, s.Session, owner, s.Enabled, nanos(s.NextAt), s.Revision, s.Size(), record, []byte(s.Args), ss.now())
		t.charge(owner, s.Size(), !s.Enabled, 0, false)
		return nil
	})
	if err != nil {
		return engine.Schedule{}, err
	}
	return s, nil
}

func scheduleError(reason error, id string) error { return fmt.Errorf("%w: schedule %s", reason, id) }

// scanSchedule reads a record, and further columns into more.
func scanSchedule(from pgx.Row, more ...any) (*engine.Schedule, error) {
	var record []byte
	if err := from.Scan(append([]any{&record}, more...)...); err != nil {
		return nil, err
	}
	var s engine.Schedule
	if err := json.Unmarshal(record, &s); err != nil {
		return nil, fmt.Errorf("the record of a schedule: %w", err)
	}
	s.Args = nil
	return &s, nil
}

// GetSchedule implements [engine.Schedules].
func (ss scheduleStore) GetSchedule(ctx context.Context, id string) (engine.Schedule, error) {
	var args []byte
	s, err := scanSchedule(ss.pool.QueryRow(ctx, "SELECT record, args FROM schedules WHERE id = $1", id), &args)
	if errors.Is(err, pgx.ErrNoRows) {
		err = scheduleError(engine.ErrNotFound, id)
	}
	if err != nil {
		return engine.Schedule{}, ss.fail(err)
	}
	s.Args = args
	return *s, nil
}

// RemoveSchedule implements [engine.Schedules].
func (ss scheduleStore) RemoveSchedule(ctx context.Context, id string) error {
	return ss.write(ctx, nil, func(t *tx) error {
		if err := t.dropSchedules("id = $1", id); err != nil {
			return err
		}
		if len(t.events) == 0 {
			return scheduleError(engine.ErrNotFound, id)
		}
		return nil
	})
}

// dropSchedules removes schedules.
func (t *tx) dropSchedules(where string, args ...any) error {
	rows, err := t.conn.Query(t.ctx, "DELETE FROM schedules WHERE "+where+" RETURNING record, size, owner", args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var size int64
		var owner string
		s, err := scanSchedule(rows, &size, &owner)
		if err != nil {
			return err
		}
		t.charge(owner, 0, false, size, !s.Enabled)
		t.events = append(t.events, engine.Event{Kind: engine.EventPurged, Session: s.Session, Schedule: s})
	}
	return rows.Err()
}

// Schedules implements [engine.Schedules].
func (ss scheduleStore) Schedules(ctx context.Context, session string, enabled bool) ([]engine.Schedule, error) {
	var where conditions
	where.add(session != "", "session = ?", session)
	where.add(enabled, "enabled")
	return ss.list(ctx, "SELECT record FROM schedules"+where.String()+" ORDER BY seq DESC", where.args...)
}

func (ss scheduleStore) list(ctx context.Context, sql string, args ...any) (found []engine.Schedule, err error) {
	rows, err := ss.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, ss.fail(err)
	}
	defer rows.Close()
	for rows.Next() {
		s, err := scanSchedule(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, *s)
	}
	return found, ss.fail(rows.Err())
}

// Due implements [engine.Schedules].
func (ss scheduleStore) Due(ctx context.Context, now time.Time, max int) (due []engine.Schedule, next time.Time, err error) {
	due, err = ss.list(ctx, "SELECT record FROM schedules WHERE enabled AND next IS NOT NULL ORDER BY next, seq LIMIT $1", max+1)
	for i, s := range due {
		if i == max || s.NextAt.After(now) {
			return due[:i:i], s.NextAt, err
		}
	}
	return due, time.Time{}, err
}
