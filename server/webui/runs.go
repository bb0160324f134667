package webui

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	rowsOfPage = 50
	maxSession = 300 // bytes of a session's name
)

// A runFilter selects runs.
type runFilter struct {
	Session string // empty: all
	Active  bool   // only runs that have not ended
	Before  string // only runs older than this one
}

// runList is what the page of the runs shows.
type runList struct {
	filter runFilter
	Runs   []wire.Run
	Next   string // the address of older runs; empty if there are none
}

// runs shows the runs of all sessions or of one, the newest first.
func (s *site) runs(r *http.Request) (page, error) {
	session, err := sessionParam(r)
	if err != nil {
		return page{}, err
	}
	f := runFilter{Session: session, Before: r.URL.Query().Get("before"), Active: r.URL.Query().Get("active") == "true"}
	if f.Before != "" && !wire.IsRunID(f.Before) {
		return page{}, refuse(http.StatusBadRequest, "The parameter before is not a run id")
	}

	query := server.RunQuery{Session: f.Session, Active: f.Active, Before: f.Before, Limit: rowsOfPage + 1}
	found, err := s.service.AllSessions().Runs(r.Context(), query)
	if err != nil {
		return page{}, err
	}

	list := runList{filter: f, Runs: found[:min(len(found), rowsOfPage)]}
	if len(found) > rowsOfPage {
		list.Next = f.before(found[rowsOfPage-1].TaskID)
	}
	return page{"Runs", "/ui/runs", []section{{"filter", f}, {"runs", list}}}, nil
}

// before is the address of the runs of the same filter before another one; empty
// is the newest.
func (f runFilter) before(id string) string {
	f.Before = id
	return strings.TrimSuffix("/ui/runs?"+f.Query(), "?")
}

// Query is the filter as a query.
func (f runFilter) Query() string {
	q := url.Values{}
	if f.Session != "" {
		q.Set("session", f.Session)
	}
	if f.Active {
		q.Set("active", "true")
	}
	if f.Before != "" {
		q.Set("before", f.Before)
	}
	return q.Encode()
}

// Given reports whether the form has something to clear.
func (f runFilter) Given() bool { f.Before = ""; return f != runFilter{} }

// Filtered reports whether not all runs are meant.
func (l runList) Filtered() bool { return l.filter != runFilter{} }

// Newest is the address of the newest runs; empty on their page.
func (l runList) Newest() string {
	if l.filter.Before == "" {
		return ""
	}
	return l.filter.before("")
}

// Table is the table of the runs.
func (l runList) Table() runTable {
	t := newTable(l.Runs, tableAll)
	t.Back = &l.filter
	return t
}

// A tableKind says what the columns of a table of runs show.
type tableKind struct {
	When, Lasts string
	at          func(wire.Run) time.Time
}

var (
	tableActive = tableKind{"Started", "Running for", func(r wire.Run) time.Time { return r.StartedAt }}
	tableEnded  = tableKind{"Ended", "Duration", func(r wire.Run) time.Time { return r.FinishedAt }}
	tableAll    = tableKind{"Created", "Duration", func(r wire.Run) time.Time { return r.CreatedAt }}
)

// A runTable is a table of runs, those that can be stopped with a box to select them.
type runTable struct {
	tableKind
	Rows []runRow
	Back *runFilter // of the page that a stop returns to; nil is the overview
}

// A runRow is a run in a table.
type runRow struct {
	wire.Run
	At time.Time
}

func newTable(runs []wire.Run, kind tableKind) runTable {
	t := runTable{tableKind: kind}
	for _, r := range runs {
		t.Rows = append(t.Rows, runRow{r, kind.at(r)})
	}
	return t
}

// Stoppable reports whether the run can be stopped.
func (r runRow) Stoppable() bool { return !r.Status.Terminal() }

// Stops reports whether a run of the table can be stopped.
func (t runTable) Stops() bool { return slices.ContainsFunc(t.Rows, runRow.Stoppable) }
