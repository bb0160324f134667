package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Get implements [engine.Engine].
func (e *Engine) Get(ctx context.Context, id string) (engine.Run, error) {
	r, err := scan(e.pool.QueryRow(ctx, "SELECT "+columns+" FROM runs r WHERE r.id = $1", id))
	if errors.Is(err, pgx.ErrNoRows) {
		err = notFound(id)
	}
	if err != nil {
		return engine.Run{}, e.fail(err)
	}
	return r.Run, nil
}

// payloads are the columns of the parts of a run's payload.
var payloads = map[engine.Part]string{
	engine.PartArgs: "args", engine.PartResult: "result", engine.PartContent: "content", engine.PartCalls: "calls",
}

// Payload implements [engine.Engine].
func (e *Engine) Payload(ctx context.Context, id string, part engine.Part) (data json.RawMessage, err error) {
	column, known := payloads[part]
	if !known {
		column = "NULL::bytea"
	}
	err = e.pool.QueryRow(ctx, "SELECT "+column+" FROM runs WHERE id = $1", id).Scan((*[]byte)(&data))
	if errors.Is(err, pgx.ErrNoRows) {
		err = notFound(id)
	}
	return data, e.fail(err)
}

// List implements [engine.Engine].
func (e *Engine) List(ctx context.Context, q engine.Query) ([]engine.Run, error) {
	var where conditions
	where.add(q.Session != "", "r.session = ?", q.Session)
	where.add(q.IdempotencyKey != "", "r.key = ?", q.IdempotencyKey)
	where.add(q.Schedule != "", "r.schedule = ?", q.Schedule)
	where.add(q.Parent != "", "r.parent = ?", q.Parent)
	where.add(q.Active, "r.finished IS NULL")
	where.add(q.Before != "" && q.Session == "", "r.seq < (SELECT seq FROM runs WHERE id = ?)", q.Before)
	where.add(q.Before != "" && q.Session != "", "r.seq < (SELECT seq FROM runs WHERE id = ? AND session = r.session)", q.Before)

	where.add(len(q.Statuses) > 0, "r.status = ANY(?)", q.Statuses)
	where.add(len(q.Errors) > 0, "r.error = ANY(?)", q.Errors)
	where.add(q.Tool != "", "r.tool = ?", q.Tool)
	where.add(q.Kind != "", "r.kind = ?", q.Kind)
	where.add(q.Plugin != "", "r.plugin = ?", q.Plugin)
	where.add(!q.Since.IsZero(), "r.created >= ?", nanos(q.Since))
	where.add(!q.Until.IsZero(), "r.created < ?", nanos(q.Until))
	where.add(!q.StartedSince.IsZero(), "r.started >= ?", nanos(q.StartedSince))
	where.add(!q.StartedUntil.IsZero(), "r.started < ?", nanos(q.StartedUntil))
	where.add(q.Text != "", "strpos(r.search, ?) > 0", strings.ToLower(q.Text))

	sql := "SELECT " + columns + " FROM runs r" + where.String() + " ORDER BY r.seq DESC"
	if q.Limit > 0 {
		sql += fmt.Sprintf(" LIMIT %d", q.Limit)
	}
	rows, err := e.pool.Query(ctx, sql, where.args...)
	if err != nil {
		return nil, e.fail(err)
	}
	found, err := scanRuns(rows)
	return runsOf(found), e.fail(err)
}

// conditions are the conditions of a query. All of them have to hold.
type conditions struct {
	terms []string
	args  []any
}

// add adds a condition if given is set. Its parameter is written "?".
func (c *conditions) add(given bool, term string, args ...any) {
	if !given {
		return
	}
	for _, arg := range args {
		c.args = append(c.args, arg)
		term = strings.Replace(term, "?", fmt.Sprintf("$%d", len(c.args)), 1)
	}
	c.terms = append(c.terms, term)
}

func (c *conditions) String() string {
	if len(c.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.terms, " AND ")
}

// Pending implements [engine.Engine].
func (e *Engine) Pending(ctx context.Context, session string, since time.Time, max int) (runs []engine.Run, total int, err error) {
	const which = "r.session = $1 AND r.notice = 1 AND r.finished >= $2"
	var from int64
	if n := nanos(since); n != nil {
		from = *n
	}
	var limit *int
	if max > 0 {
		limit = &max
	}
	var found []row
	var batch pgx.Batch
	batch.Queue("SELECT count(*) FROM runs r WHERE "+which, session, from).QueryRow(func(counted pgx.Row) error { return counted.Scan(&total) })
	batch.Queue("SELECT "+columns+" FROM runs r WHERE "+which+" ORDER BY r.finished, r.seq LIMIT $3", session, from, limit).Query(func(rows pgx.Rows) (err error) {
		found, err = scanRuns(rows)
		return err
	})
	err = e.pool.SendBatch(ctx, &batch).Close()
	return runsOf(found), total, e.fail(err)
}

// Cancel implements [engine.Engine].
func (e *Engine) Cancel(ctx context.Context, id string, c engine.Cancellation, end engine.End) (run engine.Run, err error) {
	var kept keptParts
	err = e.onRun(ctx, id, kept.more(), func(t *tx, r row) error {
		run = r.Run
		if c.Held && !r.Run.Undecided() {
			return fmt.Errorf("%w: run %s", engine.ErrConflict, id)
		}
		if r.Run.Status.Terminal() {
			return nil
		}
		before := r
		r.Run = r.Run.Canceled(c)
		if r.Run.Status == engine.StatusQueued || r.Run.Status == engine.StatusWaiting {
			run, err = t.end(before, r, kept, engine.StatusCanceled, r.Beat, end)
			return err
		}
		run = r.Run
		t.publish(engine.EventStopping, r.Run)
		return t.update(before, r)
	})
	return run, err
}

// Release implements [engine.Engine].
func (e *Engine) Release(ctx context.Context, id string) (run engine.Run, err error) {
	err = e.onRun(ctx, id, more{}, func(t *tx, r row) error {
		if !r.Run.Undecided() {
			return fmt.Errorf("%w: run %s", engine.ErrConflict, id)
		}
		before := r
		r.Held = ""
		run = r.Run
		t.publish(engine.EventQueued, r.Run)
		return t.update(before, r)
	})
	return run, err
}

// Acknowledge implements [engine.Engine].
func (e *Engine) Acknowledge(ctx context.Context, session string, ids []string) error {
	return e.write(ctx, nil, func(t *tx) error {
		seen, err := t.runs(`UPDATE runs r SET notice = 2 WHERE r.seq IN
			(SELECT seq FROM runs WHERE session = $1 AND id = ANY($2) AND notice = 1 ORDER BY seq FOR UPDATE) RETURNING `+columns, session, ids)
		slices.SortStableFunc(seen, func(a, b row) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
		for _, r := range seen {
			t.charge(r.owner, r.size, true, r.size, false)
			t.publish(engine.EventSeen, r.Run)
		}
		return err
	})
}

// Remove implements [engine.Engine].
func (e *Engine) Remove(ctx context.Context, id string) error {
	return e.onRun(ctx, id, more{}, func(t *tx, r row) error {
		if !r.Run.Status.Terminal() {
			return fmt.Errorf("%w: %s", engine.ErrActive, id)
		}
		_, err := t.dropRuns("r.seq = $1", r.seq)
		return err
	})
}

// prunedAtOnce is the number of records that one transaction removes.
const prunedAtOnce = 500

// Prune implements [engine.Engine]. It removes nothing while another process prunes.
func (e *Engine) Prune(ctx context.Context, ret engine.Retention) (removed int, err error) {
	before, notices := at(ret.Before), at(ret.Notices)
	for more := true; more && err == nil; {
		n := 0
		err = e.write(ctx, nil, func(t *tx) error {
			var mine bool
			if err := t.row("SELECT pg_try_advisory_xact_lock($1, 0)", lockPrune).Scan(&mine); err != nil || !mine {
				return err
			}
			n, err = t.dropRuns(`r.seq IN (SELECT seq FROM (
				SELECT seq, finished, notice, row_number() OVER (PARTITION BY session ORDER BY finished DESC, seq DESC) AS nth FROM runs WHERE finished IS NOT NULL
				) old WHERE (nth > $1 OR finished < $2) AND (notice <> 1 OR finished < $3) LIMIT $4)`, ret.Keep, before, notices, prunedAtOnce)
			return err
		})
		removed += n
		more = n == prunedAtOnce
	}
	if err != nil {
		return removed, err
	}

	err = e.write(ctx, nil, func(t *tx) error {
		var mine bool
		if err := t.row("SELECT pg_try_advisory_xact_lock($1, 0)", lockPrune).Scan(&mine); err != nil || !mine {
			return err
		}
		err := t.dropSchedules(`seq IN (SELECT seq FROM (
			SELECT seq, changed, row_number() OVER (PARTITION BY session ORDER BY changed DESC, seq DESC) AS nth FROM schedules WHERE NOT enabled
			) old WHERE nth > $1 OR changed < $2) AND NOT enabled`, ret.Keep, before)
		if err == nil {
			err = t.pruneValues(ret)
		}
		if err == nil {
			err = t.fold()
		}
		return err
	})
	return removed, err
}

// fold merges the rows of owners without records, and removes workers whose lease has
// ended if nothing names them and no run waits for them.
func (t *tx) fold() error {
	_, err := t.conn.Exec(t.ctx, `WITH gone AS (
			DELETE FROM accounts WHERE owner IN (SELECT owner FROM accounts GROUP BY owner HAVING sum(used) = 0) RETURNING owner, used, evictable
		) INSERT INTO accounts SELECT owner, 64, sum(used), sum(evictable) FROM gone GROUP BY owner HAVING sum(used) <> 0 OR sum(evictable) <> 0`)
	if err == nil {
		_, err = t.conn.Exec(t.ctx, "DELETE FROM workers w WHERE w.renewed + w.ttl + w.patience <= "+serverNow(1)+` AND NOT EXISTS (SELECT FROM runs WHERE epoch = w.epoch AND finished IS NULL)`, t.db.now())
	}
	return err
}

// at returns a time as a bound; the zero time is before all others.
func at(t time.Time) int64 {
	if t.IsZero() {
		return -1 << 63
	}
	return t.UnixNano()
}
