package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/toolhost/toolhost/pkg/background"
)

// pruneAtOnce is how many records one change removes, so that others do not
// wait for long.
const pruneAtOnce = 64

// Of the terminal runs of each session, in the order they are kept in, those
// that are not kept. The inner query reads nothing but an index.
const selectPrunable = `SELECT r.seq, r.id FROM (
	SELECT seq, finished, notice, row_number() OVER (PARTITION BY session ORDER BY finished DESC, seq DESC) AS place
	FROM runs WHERE finished IS NOT NULL AND ?1 = '') v JOIN runs r ON r.seq = v.seq
	WHERE (v.place > ?2 OR v.finished < ?3) AND (v.notice = 0 OR v.finished < ?4)`

// The same for one session.
const selectPrunableOf = `SELECT r.seq, r.id FROM (
	SELECT seq, finished, notice, row_number() OVER (ORDER BY finished DESC, seq DESC) AS place
	FROM runs WHERE finished IS NOT NULL AND session = ?1) v JOIN runs r ON r.seq = v.seq
	WHERE (v.place > ?2 OR v.finished < ?3) AND (v.notice = 0 OR v.finished < ?4)`

const selectPrunableSchedules = `SELECT seq, id FROM (
	SELECT seq, id, changed, row_number() OVER (PARTITION BY session ORDER BY changed DESC, seq DESC) AS place
	FROM schedules WHERE enabled = 0 AND (?1 = '' OR session = ?1))
	WHERE place > ?2 OR changed < ?3`

// A victim is a record to be removed.
type victim struct {
	seq int64
	id  string
}

// Prune implements [background.Engine].
func (e *Engine) Prune(ctx context.Context, ret background.Retention) (int, error) {
	if err := e.enter(); err != nil {
		return 0, err
	}
	defer e.calls.Done()
	runs, schedules, err := e.prunable(ctx, ret)
	if err != nil {
		return 0, err
	}
	removed := 0
	for len(runs) > 0 {
		some := runs[:min(len(runs), pruneAtOnce)]
		runs = runs[len(some):]
		n, err := e.removeRuns(ctx, some)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	for _, s := range schedules {
		if err := e.removeSchedule(ctx, s); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (e *Engine) prunable(ctx context.Context, ret background.Retention) (runs, schedules []victim, err error) {
	sql := selectPrunable
	if ret.Session != "" {
		sql = selectPrunableOf
	}
	keep := int64(max(0, ret.Keep))
	err = e.read(ctx, func(c *conn) error {
		collect := func(to *[]victim) func([]driver.Value) error {
			return func(found []driver.Value) error {
				id, _ := found[1].(string)
				*to = append(*to, victim{found[0].(int64), id})
				return nil
			}
		}
		err := c.query(collect(&runs), sql, ret.Session, keep, nanos(ret.Before), nanos(ret.Notices))
		if err != nil {
			return err
		}
		return c.query(collect(&schedules), selectPrunableSchedules, ret.Session, keep, nanos(ret.Before))
	})
	return runs, schedules, err
}

// removeRuns removes records of terminal runs, and then their folders: those
// that a crash in between leaves are in the table removals.
func (e *Engine) removeRuns(ctx context.Context, some []victim) (int, error) {
	var gone []background.Run
	var logged int64
	err := e.write(ctx, func(w *conn) (func(), error) {
		gone, logged = nil, 0
		for _, v := range some {
			n, err := w.number(`SELECT logged FROM runs WHERE seq = ? AND id = ? AND finished IS NOT NULL`, v.seq, v.id)
			if err != nil {
				return nil, err
			}
			r, err := load(w, v.id)
			if isSQL(err) {
				return nil, err
			}
			if err != nil || r.seq != v.seq || !r.Status.Terminal() {
				continue // removed in the meantime, or damaged: then found by who reads it
			}
			if err := remove(w, v.seq); err != nil {
				return nil, err
			}
			if err := remember(w, r.Run); err != nil {
				return nil, err
			}
			logged += n
			gone = append(gone, r.Run)
		}
		return func() { e.purged(gone, logged) }, nil
	})
	if err != nil {
		return 0, err
	}
	e.removeFolders(gone...)
	return len(gone), nil
}

func (e *Engine) purged(runs []background.Run, logged int64) {
	e.used.Add(-logged)
	for _, run := range runs {
		e.feed.Publish(background.RunEvent(background.EventPurged, run))
	}
}
