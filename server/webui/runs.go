package webui

import (
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

// Filtered reports whether not all runs are meant.
func (l runList) Filtered() bool { return l.filter != runFilter{} }

// Newest is the address of the newest runs; empty on their page.
func (l runList) Newest() string {
	if l.filter.Before == "" {
		return ""
	}
	return l.filter.before("")
}
