package webui

import (
	"net/http"
	"slices"

	"github.com/toolhost/toolhost/server/wire"
)

// maxSchedules bounds how many schedules a page shows.
const maxSchedules = 200

// scheduleList is what the page of the schedules shows.
type scheduleList struct {
	Session string // empty: all
	Found   []wire.Schedule
	More    int // schedules that are not shown
}

// schedules shows the schedules of all sessions, or of one: the next to fire
// first, disabled ones last.
func (s *site) schedules(r *http.Request) (page, error) {
	session, err := sessionParam(r)
	if err != nil {
		return page{}, err
	}
	found, err := s.service.AllSessions().Schedules().List(r.Context())
	if err != nil {
		return page{}, err
	}

	found = slices.DeleteFunc(found, func(s wire.Schedule) bool { return session != "" && s.Session != session })
	slices.SortStableFunc(found, func(a, b wire.Schedule) int {
		switch {
		case a.Enabled && b.Enabled:
			return a.NextTriggerAt.Compare(b.NextTriggerAt)
		case a.Enabled:
			return -1
		case b.Enabled:
			return 1
		}
		return 0
	})
	shown := found[:min(len(found), maxSchedules)]
	return page{"Schedules", "/ui/schedules", []section{{"schedules", scheduleList{session, shown, len(found) - len(shown)}}}}, nil
}
