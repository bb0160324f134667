package sqlite

import (
	"database/sql/driver"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// addFacets stores the columns by which an ended run is searched.
func addFacets(w *conn, seq int64, r engine.Run) error {
	var kind, started driver.Value
	if r.Error != nil {
		kind = string(r.Error.Kind)
	}
	if !r.StartedAt.IsZero() {
		started = nanos(r.StartedAt)
	}
	return w.run(`INSERT INTO facets (run, of_session, tool, kind, plugin, status, error, created, started, text)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, seq, r.Session, r.Tool, r.Kind, r.Plugin,
		string(r.Status), kind, nanos(r.CreatedAt), started, r.SearchText())
}

// facetConditions returns the conditions for the ended runs that f selects.
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
			any = append(any, string(s))
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
		{"started >= ?", f.StartedSince}, {"started < ?", f.StartedUntil},
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
