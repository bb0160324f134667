package webui

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
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
	known   bool // runs is as it is
	runs    []background.Run
	hasNext bool
}

// A runFilter says which runs are shown.
type runFilter struct {
	Session string // "": of all
	Active  bool   // not those that have ended
	Before  string // only runs older than this one; "": from the newest on
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
	session, err := param(r, "session", maxSession)
	if err != nil {
		return nil, err
	}
	f := runFilter{Session: session, Before: r.URL.Query().Get("before"), Active: r.URL.Query().Get("active") == "true"}
	if f.Before != "" && !background.IsRunID(f.Before) {
		return nil, &refusal{http.StatusBadRequest, "The parameter before is no id of a run"}
	}
	return &runsPage{site: s, filter: f}, nil
}

func (*runsPage) name() (title, menu string) { return "Runs", "/ui/runs" }

func (p *runsPage) heard(e background.Event) bool {
	about := e.Run != nil && (p.filter.Session == "" || e.Session == p.filter.Session)
	if !about && e.Kind != background.EventMissed {
		return false
	}
	p.known = p.known && beat(p.runs, e)
	return true
}

func (p *runsPage) look(ctx context.Context, now time.Time) ([]part, error) {
	if !p.known {
		found, err := p.site.service.Runs().AllRuns(ctx, background.Query{
			Session: p.filter.Session, Active: p.filter.Active, Before: p.filter.Before, Limit: rowsOfPage + 1,
		})
		if err != nil {
			return nil, err
		}
		p.known, p.hasNext = true, len(found) > rowsOfPage
		p.runs = found[:min(len(found), rowsOfPage)]
	}
	rows, err := runRows("runs-row", p.runs, now)
	if err != nil {
		return nil, err
	}
	var c collect
	c.add(whole("filter", p.filter))
	c.add(list("runs", p.links(), rows))
	return c.parts, c.err
}

// runLinks are the ways on from a page of runs.
type runLinks struct {
	N            int
	Filtered     bool
	Newest, Next string // "": there is none
}

func (p *runsPage) links() runLinks {
	l := runLinks{N: len(p.runs), Filtered: p.filter != runFilter{}}
	to := p.filter
	if to.Before = ""; p.filter.Before != "" {
		l.Newest = to.address()
	}
	if p.hasNext {
		to.Before = p.runs[len(p.runs)-1].ID
		l.Next = to.address()
	}
	return l
}
