package webui

import (
	"context"
	"net/http"
	"net/url"
	"strings"

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
	site   *site
	filter runFilter
	known  bool // Runs are up to date
	Runs   []wire.Run
	Next   string // the address of older runs; empty: there are none
}

// A runFilter selects runs.
type runFilter struct {
	Session string // empty: all
	Active  bool   // only runs that have not ended
	Before  string // only runs older than this one
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

// before is the address of the runs of the same filter before another one; empty
// is the newest.
func (f runFilter) before(id string) string {
	q := url.Values{}
	if f.Session != "" {
		q.Set("session", f.Session)
	}
	if f.Active {
		q.Set("active", "true")
	}
	if id != "" {
		q.Set("before", id)
	}
	return strings.TrimSuffix("/ui/runs?"+q.Encode(), "?")
}

func (*runsPage) name() (title, menu string) { return "Runs", "/ui/runs" }

func (p *runsPage) changed(e wire.Event) bool {
	about := e.Run != nil && (p.filter.Session == "" || e.Run.Session == p.filter.Session)
	if !about && e.Kind != wire.EventMissed {
		return false
	}
	p.known = p.known && anyProgresses(p.Runs, e)
	return true
}

func (p *runsPage) read(ctx context.Context) ([]section, error) {
	if !p.known {
		f := p.filter
		found, err := p.site.service.AllSessions().Runs(ctx, server.RunQuery{Session: f.Session, Active: f.Active, Before: f.Before, Limit: rowsOfPage + 1})
		if err != nil {
			return nil, err
		}

		p.known, p.Runs, p.Next = true, found[:min(len(found), rowsOfPage)], ""
		if len(found) > rowsOfPage {
			p.Next = f.before(p.Runs[rowsOfPage-1].TaskID)
		}
	}

	return []section{{"filter", p.filter}, {"runs", p}}, nil
}

// Filtered reports whether not all runs are meant.
func (p *runsPage) Filtered() bool { return p.filter != runFilter{} }

// Newest is the address of the newest runs; empty on their page.
func (p *runsPage) Newest() string {
	if p.filter.Before == "" {
		return ""
	}
	return p.filter.before("")
}
