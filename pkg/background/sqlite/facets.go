package sqlite

import (
	"context"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// statusOf returns the status column of facets. It is empty for a run that has not
// ended, whose status changes.
func statusOf(s engine.Status) string {
	if s.Terminal() {
		return string(s)
	}
	return ""
}

// addFacets stores the columns by which runs are searched.
func addFacets(w *conn, seq int64, r engine.Run) error {
	return w.run(`INSERT INTO facets (run, of_session, tool, kind, plugin, status, error, created, started, text)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, seq, r.Session, r.Tool, r.Kind, r.Plugin,
		statusOf(r.Status), errorOf(r), nanos(r.CreatedAt), startOf(r), r.SearchText())
}

// endFacets is addFacets for a run that has ended.
func endFacets(w *conn, seq int64, r engine.Run) error {
	return w.run(`UPDATE facets SET status = ?, error = ?, started = ?, text = ? WHERE run = ?`,
		statusOf(r.Status), errorOf(r), startOf(r), r.SearchText(), seq)
}

func errorOf(r engine.Run) driver.Value {
	if r.Error == nil {
		return nil
	}
	return string(r.Error.Kind)
}

func startOf(r engine.Run) driver.Value {
	if r.StartedAt.IsZero() || !r.Status.Terminal() { // it may be started again
		return nil
	}
	return nanos(r.StartedAt)
}

// facetConditions returns conditions that hold for all runs that f selects. They may
// also hold for others that have not ended.
func facetConditions(f engine.Filter, session string) (where string, args []driver.Value) {
	add := func(condition string, values ...driver.Value) {
		where += " AND " + condition
		args = append(args, values...)
	}
	for _, c := range []struct{ condition, value string }{
		{"of_session = ?", session}, {"tool = ?", f.Tool}, {"kind = ?", f.Kind}, {"plugin = ?", f.Plugin},
	} {
		if c.value != "" {
			add(c.condition, c.value)
		}
	}
	if len(f.Statuses) > 0 {
		var any []driver.Value
		for _, s := range f.Statuses {
			any = append(any, statusOf(s))
		}
		add("status IN (?"+strings.Repeat(", ?", len(any)-1)+")", any...)
	}
	if len(f.Errors) > 0 {
		var any []driver.Value
		for _, kind := range f.Errors {
			any = append(any, string(kind))
		}
		add("error IN (?"+strings.Repeat(", ?", len(any)-1)+")", any...)
	}

	for _, c := range []struct {
		condition string
		at        time.Time
	}{
		{"created >= ?", f.Since}, {"created < ?", f.Until},
		{"(status = '' OR started >= ?)", f.StartedSince}, {"(status = '' OR started < ?)", f.StartedUntil},
	} {
		if !c.at.IsZero() {
			add(c.condition, nanos(c.at))
		}
	}
	if f.Text != "" {
		add("instr(text, ?) > 0", strings.ToLower(f.Text))
	}
	return where, args
}

// search returns the runs that q selects, newest first.
func (e *Engine) search(ctx context.Context, q engine.Query) (runs []engine.Run, err error) {
	for below := int64(0); ; {
		sql, args := selectRuns(q, below)
		read := 0
		found, err := readAll(ctx, e.db, func(found []driver.Value) (engine.Run, error) {
			read++
			below = found[0].(int64)
			return e.asIs(found)
		}, sql, args...)
		if err != nil {
			return nil, err
		}

		for _, run := range found {
			if q.Matches(run) && (q.Limit == 0 || len(runs) < q.Limit) {
				runs = append(runs, run)
			}
		}
		if q.Limit == 0 || read < q.Limit || len(runs) == q.Limit {
			return runs, nil
		}
	}
}
