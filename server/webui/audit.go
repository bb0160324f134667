package webui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxEvents    = 50      // events on a page
	maxAuditRead = 8 << 20 // bytes of the log read for a page
)

// An auditFilter selects events of the audit log, as the user typed it.
type auditFilter struct {
	Kind, Session, Tool, Plugin, ID string // empty: all
	Before                          int64  // only events with lower numbers; 0: all
}

// Kinds returns the kinds of events to choose from.
func (auditFilter) Kinds() []audit.Kind { return audit.Kinds }

// newAuditFilter reads a filter from a query.
func newAuditFilter(q url.Values) (f auditFilter, err error) {
	f.Kind = q.Get("kind")
	if f.Kind != "" && !slices.Contains(audit.Kinds, audit.Kind(f.Kind)) {
		return f, refuse(http.StatusBadRequest, "The parameter kind is not a kind of events")
	}
	for name, to := range map[string]*string{"session": &f.Session, "tool": &f.Tool, "plugin": &f.Plugin, "id": &f.ID} {
		*to = strings.TrimSpace(q.Get(name))
		if len(*to) > maxSession {
			return f, refuse(http.StatusBadRequest, "The parameter "+name+" is too long")
		}
	}
	if before := q.Get("before"); before != "" {
		if f.Before, err = strconv.ParseInt(before, 10, 64); err != nil || f.Before < 1 {
			return f, refuse(http.StatusBadRequest, "The parameter before is not the number of an event")
		}
	}
	return f, nil
}

// Given reports whether there is something to clear in the form.
func (f auditFilter) Given() bool { f.Before = 0; return f != auditFilter{} }

// at returns the address of the events before a number; 0 means the newest.
func (f auditFilter) at(before int64) string {
	values := map[string]string{"kind": f.Kind, "session": f.Session, "tool": f.Tool, "plugin": f.Plugin, "id": f.ID}
	if before > 0 {
		values["before"] = strconv.FormatInt(before, 10)
	}
	return address("/ui/audit", values)
}

// auditList is the content of the page of the audit log.
type auditList struct {
	Filter auditFilter
	Events []auditRow
	Next   string // address of older events; empty if there are none
	Newest string // address of the newest events; empty on their page
	None   bool   // the service keeps no audit log
}

// audit shows the audit log, newest events first.
func (s *site) audit(r *http.Request) (page, error) {
	f, err := newAuditFilter(r.URL.Query())
	if err != nil {
		return page{}, err
	}

	q := audit.Query{Session: f.Session, Tool: f.Tool, Plugin: f.Plugin, ID: f.ID, Before: f.Before, Limit: maxEvents}
	if f.Kind != "" {
		q.Kinds = []audit.Kind{audit.Kind(f.Kind)}
	}
	found, next, err := s.service.SearchAudit(q, maxAuditRead)
	v := auditList{Filter: f, None: errors.Is(err, server.ErrNoAudit)}
	if err != nil && !v.None {
		return page{}, err
	}

	for _, e := range found {
		v.Events = append(v.Events, auditRow{e})
	}
	if next > 1 {
		v.Next = f.at(next)
	}
	if f.Before > 0 {
		v.Newest = f.at(0)
	}
	return page{title: "Audit log", menu: "/ui/audit", sections: []section{{"audit-filter", v}, {"audit", v}}, still: f.Before > 0}, nil
}

// An auditRow is an event of the audit log.
type auditRow struct{ audit.Event }

// runID returns id if it is the id of a run, or "".
func runID(id string) string {
	if wire.IsRunID(id) {
		return id
	}
	return ""
}

// State returns how the event ended; empty for an event without an outcome.
func (r auditRow) State() state {
	word := strings.ReplaceAll(strings.TrimSpace(r.Outcome), "_", " ")
	if r.Code != "" {
		word = wordOf(wire.ErrorKind(r.Code))
	}
	switch {
	case r.Kind == audit.Refused, r.Kind == audit.Lost, r.Kind == audit.Missed, r.Kind == audit.Rotated:
		return state{"bad", "✗", strings.TrimSpace(string(r.Kind) + " " + word)}
	case r.Code != "":
		return state{"bad", "✗", word}
	case r.Kind == audit.Approved:
		return state{"good", "✓", "approved"}
	case r.Outcome == string(abi.Success) || r.Outcome == string(wire.StatusSucceeded):
		return state{"good", "✓", word}
	case r.Outcome == string(wire.StatusCanceled):
		return state{"off", "■", word}
	case r.Outcome == audit.Held:
		return state{"live", "▶", "waits for approval"}
	case r.Kind == audit.Call && r.Outcome != "":
		return state{"bad", "✗", word}
	}
	return state{Word: word}
}

// Details returns the other properties of the event.
func (r auditRow) Details() (all []string) {
	add := func(holds bool, format string, args ...any) {
		if holds {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(r.Method != "" || r.Host != "", "%s", strings.TrimSpace(r.Method+" "+r.Host))
	add(r.Status != 0, "status %d", r.Status)
	add(r.Sent > 0, "%s sent", sizeText(float64(r.Sent)))
	add(r.Received > 0, "%s received", sizeText(float64(r.Received)))
	add(len(r.Names) > 0, "%s", strings.Join(r.Names, ", "))
	add(r.Count != 0, "count %s", number(r.Count))
	add(r.Reason != "", "%s", r.Reason)
	add(r.DryRun, "dry run")
	add(r.Fuel != 0, "%s units of fuel", number(r.Fuel))
	add(r.Millis != 0, "%s", duration(time.Duration(r.Millis)*time.Millisecond))
	add(r.Digest != "", "digest %.12s", r.Digest)
	return all
}
