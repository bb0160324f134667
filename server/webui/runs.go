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
	maxSession = 300 // bytes of the name of a session
)

// A runFilter selects runs, as the user typed it.
type runFilter struct {
	Session             string // empty: all
	Status              string // stateActive or a wire.Status; empty: all
	Tool, Plugin        string // empty: all
	Text                string // contained in the tool's name, the title or the error
	CreatedFrom, Before string // Before: only runs older than this one
	CreatedTo           string // a time in UTC to the minute, like CreatedFrom
}

// stateActive selects runs that have not ended.
const stateActive = "active"

// States returns the states of runs to choose from.
func (runFilter) States() []string {
	states := []string{stateActive}
	for _, s := range wire.Statuses {
		states = append(states, string(s))
	}
	return states
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

// query returns the filter as a query of the service.
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

// runList is the content of the page of runs.
type runList struct {
	filter runFilter
	Runs   []wire.Run
	Next   string // address of older runs; empty if there are none
}

// runs shows the runs of all sessions or of one, newest first.
func (s *site) runs(r *http.Request) (page, error) {
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

// before returns the address of the filter's runs before another run; empty means the newest.
func (f runFilter) before(id string) string {
	f.Before = id
	return f.at("/ui/runs")
}

// Query returns the filter as a URL query.
func (f runFilter) Query() string { return strings.TrimPrefix(f.at(""), "?") }

// at returns the address of a page with the filter.
func (f runFilter) at(path string) string {
	return address(path, map[string]string{
		"session": f.Session, "status": f.Status, "tool": f.Tool, "plugin": f.Plugin, "text": f.Text, "from": f.CreatedFrom, "to": f.CreatedTo, "before": f.Before,
	})
}

// Given reports whether there is something to clear in the form.
func (f runFilter) Given() bool { f.Before = ""; return f != runFilter{} }

// Filtered reports whether a filter selects the runs of the list.
func (l runList) Filtered() bool { return l.filter != runFilter{} }

// Newest returns the address of the newest runs; empty on their page.
func (l runList) Newest() string {
	if l.filter.Before == "" {
		return ""
	}
	return l.filter.before("")
}

// Table returns the table of the runs.
func (l runList) Table() runTable {
	t := newTable(l.Runs, tableAll)
	t.Back = &l.filter
	for i := range t.Rows {
		t.Rows[i].Removable = t.Rows[i].Done
	}
	return t
}

// A tableKind says which columns a table of runs has.
type tableKind struct {
	When, Lasts string
	at          func(wire.Run) time.Time
}

var (
	tableActive = tableKind{"Started", "Running for", func(r wire.Run) time.Time { return r.StartedAt }}
	tableEnded  = tableKind{"Ended", "Duration", func(r wire.Run) time.Time { return r.FinishedAt }}
	tableAll    = tableKind{"Created", "Duration", func(r wire.Run) time.Time { return r.CreatedAt }}
)

// A runTable is a table of runs. Runs that can be stopped or removed have a checkbox to
// select them.
type runTable struct {
	tableKind
	Rows []runRow
	Back *runFilter // filter of the page that a stop returns to; nil means the overview
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

// Stops reports whether the table has runs that can be stopped.
func (t runTable) Stops() bool { return slices.ContainsFunc(t.Rows, runRow.Stoppable) }

// Removes reports whether the table has runs that can be removed.
func (t runTable) Removes() bool {
	return slices.ContainsFunc(t.Rows, func(r runRow) bool { return r.Removable })
}
