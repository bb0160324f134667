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

// A runFilter selects runs, as it was typed.
type runFilter struct {
	Session             string // empty: all
	Status              string // stateActive or a wire.Status; empty: all
	Tool, Plugin        string // empty: all
	Text                string // in the tool's name, the title or the error
	CreatedFrom, Before string // Before: only runs older than this one
	CreatedTo           string // like CreatedFrom a time of UTC, to the minute
}

// stateActive selects runs that have not ended.
const stateActive = "active"

// States are what can be chosen as the state of runs.
func (runFilter) States() []string {
	return []string{stateActive, string(wire.StatusQueued), string(wire.StatusRunning), string(wire.StatusWaiting), string(wire.StatusSucceeded), string(wire.StatusFailed), string(wire.StatusCanceled)}
}

// newRunFilter reads a filter from a query.
func newRunFilter(q url.Values) (runFilter, error) {
	f := runFilter{
		Session: q.Get("session"), Status: q.Get("status"), Tool: strings.TrimSpace(q.Get("tool")), Plugin: strings.TrimSpace(q.Get("plugin")),
		Text: strings.TrimSpace(q.Get("text")), CreatedFrom: q.Get("from"), CreatedTo: q.Get("to"), Before: q.Get("before"),
	}
	if q.Get("active") == "true" {
		f.Status = stateActive
	}
	if f.Before != "" && !wire.IsRunID(f.Before) {
		return f, refuse(http.StatusBadRequest, "The parameter before is not a run id")
	}
	if f.Status != "" && !slices.Contains(f.States(), f.Status) {
		return f, refuse(http.StatusBadRequest, "The parameter status is not a state of runs")
	}
	for name, value := range map[string]string{"session": f.Session, "tool": f.Tool, "plugin": f.Plugin, "text": f.Text} {
		if len(value) > maxSession {
			return f, refuse(http.StatusBadRequest, "The parameter "+name+" is too long")
		}
	}
	return f, nil
}

// query is the filter as the service has it.
func (f runFilter) query() (server.RunQuery, error) {
	q := server.RunQuery{Session: f.Session, Active: f.Status == stateActive, Before: f.Before}
	q.Tool, q.Plugin, q.Text = f.Tool, f.Plugin, f.Text
	if f.Status != "" && !q.Active {
		q.Statuses = []server.RunStatus{server.RunStatus(f.Status)}
	}
	for typed, at := range map[string]*time.Time{f.CreatedFrom: &q.Since, f.CreatedTo: &q.Until} {
		if typed == "" {
			continue
		}
		var err error
		if *at, err = time.Parse(localTime, typed); err != nil {
			return q, refuse(http.StatusBadRequest, "Expected a time such as 2030-01-31T09:30")
		}
	}
	return q, nil
}

// runList is what the page of the runs shows.
type runList struct {
	filter runFilter
	Runs   []wire.Run
	Next   string // the address of older runs; empty if there are none
}

// runs shows the runs of all sessions or of one, the newest first.
func (s runPages) runs(r *http.Request) (page, error) {
	f, err := newRunFilter(r.URL.Query())
	if err != nil {
		return page{}, err
	}
	query, err := f.query()
	if err != nil {
		return page{}, err
	}

	query.Limit = rowsOfPage + 1
	found, err := s.service.AllSessions().Runs(r.Context(), query)
	if err != nil {
		return page{}, err
	}

	list := runList{filter: f, Runs: found[:min(len(found), rowsOfPage)]}
	if len(found) > rowsOfPage {
		list.Next = f.before(found[rowsOfPage-1].TaskID)
	}
	return page{title: "Runs", menu: "/ui/runs", sections: []section{{"filter", f}, {"runs", list}}}, nil
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
	for name, value := range map[string]string{
		"session": f.Session, "status": f.Status, "tool": f.Tool, "plugin": f.Plugin, "text": f.Text, "from": f.CreatedFrom, "to": f.CreatedTo, "before": f.Before,
	} {
		if value != "" {
			q.Set(name, value)
		}
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
	for i := range t.Rows {
		t.Rows[i].Removable = t.Rows[i].Done
	}
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

// A runTable is a table of runs, those that can be stopped or removed with a box to select
// them.
type runTable struct {
	tableKind
	Rows []runRow
	Back *runFilter // of the page that a stop returns to; nil is the overview
}

// A runRow is a run in a table.
type runRow struct {
	wire.Run
	At        time.Time
	Removable bool
}

func newTable(runs []wire.Run, kind tableKind) runTable {
	t := runTable{tableKind: kind}
	for _, r := range runs {
		t.Rows = append(t.Rows, runRow{Run: r, At: kind.at(r)})
	}
	return t
}

// Stoppable reports whether the run can be stopped.
func (r runRow) Stoppable() bool { return !r.Status.Terminal() }

// Stops reports whether a run of the table can be stopped.
func (t runTable) Stops() bool { return slices.ContainsFunc(t.Rows, runRow.Stoppable) }

// Removes reports whether a run of the table can be removed.
func (t runTable) Removes() bool {
	return slices.ContainsFunc(t.Rows, func(r runRow) bool { return r.Removable })
}
