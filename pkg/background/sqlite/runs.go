package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

// maxIDLength bounds the ids of runs: they are names of folders.
const maxIDLength = 100

// checkID refuses an id that cannot be the name of a folder.
func checkID(id string) error {
	ok := id != "" && len(id) <= maxIDLength && strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
	if !ok {
		return &background.FieldError{Field: "task_id", Problem: fmt.Sprintf("must be 1 to %d letters, digits, _ and -, is %.120q", maxIDLength, id)}
	}
	return nil
}

// Submit implements [background.Engine].
func (e *Engine) Submit(ctx context.Context, run background.Run) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.calls.Done()
	if err := checkID(run.ID); err != nil {
		return err
	}
	run.Status = background.StatusQueued
	record, err := stored{Run: run}.encode()
	if err != nil {
		return err
	}
	event := background.RunEvent(background.EventQueued, run)
	return e.create(ctx, func(w *conn, room room) (func(), error) {
		_, err := insert(w, run, record, room)
		return func() { e.feed.Publish(event) }, err
	})
}

// Adopt implements [background.Engine].
func (e *Engine) Adopt(ctx context.Context, run background.Run) (background.Lease, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.calls.Done()
	if err := checkID(run.ID); err != nil {
		return nil, err
	}
	unlock, err := e.runs.lock(ctx, run.ID) // who claims it must find its worker
	if err != nil {
		return nil, err
	}
	defer unlock()
	run.Status, run.Attempt, run.HeartbeatAt = background.StatusRunning, 1, time.Now()
	record, err := stored{Run: run}.encode()
	if err != nil {
		return nil, err
	}
	l := &lease{engine: e, run: run.Clone()}
	err = e.create(ctx, func(w *conn, room room) (func(), error) {
		seq, err := insert(w, run, record, room)
		return func() { e.begin(l, seq) }, err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Get implements [background.Engine].
func (e *Engine) Get(ctx context.Context, id string) (background.Run, error) {
	if err := e.enter(); err != nil {
		return background.Run{}, err
	}
	defer e.calls.Done()
	r, err := e.load(ctx, id, loadFull)
	return r.Run, err
}

// load reads a run, with what its worker last said of itself.
func (e *Engine) load(ctx context.Context, id string, load func(*conn, string) (row, error)) (r row, err error) {
	err = e.read(ctx, func(c *conn) (err error) {
		r, err = load(c, id)
		return err
	})
	if err = e.quarantine(ctx, err); err != nil {
		return row{}, err
	}
	e.refresh(&r.Run)
	return r, nil
}

// List implements [background.Engine].
func (e *Engine) List(ctx context.Context, q background.Query) ([]background.Run, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.calls.Done()
	sql, args := selectRuns(q)
	var runs []background.Run
	var damaged []error
	err := e.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			id, _ := found[1].(string)
			r, err := decode(found[0].(int64), id, found[2])
			if err != nil {
				damaged = append(damaged, err)
				return nil
			}
			runs = append(runs, r.Run)
			return nil
		}, sql, args...)
	})
	for _, d := range damaged {
		if d := e.quarantine(ctx, d); !errors.Is(d, background.ErrNotFound) {
			err = errors.Join(err, d)
		}
	}
	if err != nil {
		return nil, err
	}
	for i := range runs {
		e.refresh(&runs[i])
	}
	return runs, nil
}

// selectRuns returns the statement for q. It names the index to begin with,
// the one that leaves the fewest runs: SQLite, which knows nothing of the
// numbers, would rather look at all runs than sort a few.
func selectRuns(q background.Query) (sql string, args []driver.Value) {
	var where []string
	index := ""
	add := func(by, condition string, values ...driver.Value) {
		if index == "" && by != "" {
			index = " INDEXED BY " + by
		}
		where = append(where, condition)
		args = append(args, values...)
	}
	if q.IdempotencyKey != "" {
		add("runs_key", "idempotency_key = ?", q.IdempotencyKey)
	}
	if q.Schedule != "" {
		add("runs_schedule", "schedule = ?", q.Schedule)
	}
	if q.Active {
		add("runs_active", "finished IS NULL")
	}
	if q.Notice {
		add("runs_notice", "notice = 1")
	}
	if q.Session != "" {
		add("runs_session", "session = ?", q.Session)
	}
	if q.Before != "" {
		add("", "seq < (SELECT b.seq FROM runs b WHERE b.id = ? AND (? = '' OR b.session = ?))", q.Before, q.Session, q.Session)
	}
	sql = "SELECT seq, id, record FROM runs" + index
	if len(where) > 0 {
		sql += " WHERE " + strings.Join(where, " AND ")
	}
	sql += " ORDER BY seq DESC"
	if q.Limit > 0 {
		sql += " LIMIT ?"
		args = append(args, int64(q.Limit))
	}
	return sql, args
}

// Acknowledge implements [background.Engine].
func (e *Engine) Acknowledge(ctx context.Context, session string, ids []string) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.calls.Done()
	var seen []background.Run
	return e.write(ctx, func(w *conn) (func(), error) {
		seen = nil
		for _, id := range ids {
			r, err := load(w, id)
			if errors.Is(err, background.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if r.Session != session || r.Notice != background.NoticePending {
				continue
			}
			if err := r.acknowledge(w); err != nil {
				return nil, err
			}
			seen = append(seen, r.Run)
		}
		return func() {
			for _, run := range seen {
				e.feed.Publish(background.RunEvent(background.EventSeen, run))
			}
		}, nil
	})
}
