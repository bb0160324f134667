package webui

import (
	"context"
	"net/http"
	"net/url"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	rowsOfPage = 50
	maxSession = 300 // bytes of a session's name
)

// runsPage shows the runs of all sessions or of one, the newest first, page by
// page.
type runsPage struct {
	site    *site
	filter  runFilter
	known   bool // runs are up to date
	runs    []wire.Run
	hasNext bool
}

// A runFilter selects runs.
type runFilter struct {
	Session string // empty: all
	Active  bool   // only runs that have not ended
	Before  string // only runs older than this one
}

// address is where the runs of a filter are shown.
func (f runFilter) address() string {
	q := url.Values{}
	for name, value := range map[string]string{"session": f.Session, "before": f.Before} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Active {
		q.Set("active", "true")
	}
	if len(q) == 0 {
		return "/ui/runs"
	}
	return "/ui/runs?" + q.Encode()
}

func (s *site) runs(r *http.Request) (page, error) {
	session, err := sessionParam(r)
	if err != nil {
		return nil, err
	}
	f := runFilter{Session: session, Before: r.URL.Query().Get("before"), Active: r.URL.Query().Get("active") == "true"}
	if f.Before != "" && !wire.IsRunID(f.Before) {
		return nil, &refusal{http.StatusBadRequest, "The parameter before is not a run id"}
	}
	return &runsPage{site: s, filter: f}, nil
}

func (*runsPage) name() (title, menu string) { return "Runs", "/ui/runs" }

func (p *runsPage) changed(e wire.Event) bool {
	about := e.Run != nil && (p.filter.Session == "" || e.Run.Session == p.filter.Session)
	if !about && e.Kind != wire.EventMissed {
		return false
	}
	p.known = p.known && anyProgresses(p.runs, e)
	return true
}

func (p *runsPage) read(ctx context.Context) ([]section, error) {
	if !p.known {
		found, err := p.site.service.AllSessions().Runs(ctx, server.RunQuery{
			Session: p.filter.Session, Active: p.filter.Active, Before: p.filter.Before, Limit: rowsOfPage + 1,
		})
		if err != nil {
			return nil, err
		}
		p.known, p.hasNext = true, len(found) > rowsOfPage
		p.runs = found[:min(len(found), rowsOfPage)]
	}

	return []section{
		{id: "filter", data: p.filter},
		{id: "runs", data: p.links(), row: "runs-row", items: runItems(p.runs)},
	}, nil
}

// runLinks lead from one page of runs to others.
type runLinks struct {
	N            int
	Filtered     bool
	Newest, Next string // empty: there is none
}

func (p *runsPage) links() runLinks {
	l := runLinks{N: len(p.runs), Filtered: p.filter != runFilter{}}
	to := p.filter
	if to.Before = ""; p.filter.Before != "" {
		l.Newest = to.address()
	}
	if p.hasNext {
		to.Before = p.runs[len(p.runs)-1].TaskID
		l.Next = to.address()
	}
	return l
}
