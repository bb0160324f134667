package webui

import (
	"context"
	"net/http"
	"slices"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// maxSchedules is how many schedules a page shows.
const maxSchedules = 200

// scheduleList is the content of the page of schedules.
type scheduleList struct {
	Session string // empty: all
	Found   []wire.Schedule
	More    int // schedules that are not shown
}

// schedules shows the schedules of all sessions or of one: the next to fire first,
// disabled ones last.
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
	return page{title: "Schedules", menu: "/ui/schedules", sections: []section{{"schedules", scheduleList{session, shown, len(found) - len(shown)}}}}, nil
}

// postSchedule is like post, but for a form about a schedule. The function change does
// what the form asks, and returns the address of the next page.
func (s *site) postSchedule(pattern, did string, change func(ctx context.Context, id string) (to string, err error)) {
	s.post(pattern, maxForm, func(r *http.Request) (string, error) {
		id := r.PathValue("schedule")
		to, err := change(r.Context(), id)
		switch {
		case notFound(err):
			return "", errNoSchedule
		case err != nil:
			return "", err
		}

		s.Logger.Info("schedule "+did+" by an operator", "schedule_id", id)
		return to, nil
	})
}

// changing returns a change after which the page shows the schedules again.
func (s *site) changing(change func(server.Schedules, context.Context, string) (wire.Schedule, error)) func(context.Context, string) (string, error) {
	return func(ctx context.Context, id string) (string, error) {
		_, err := change(s.service.AllSessions().Schedules(), ctx, id)
		return "/ui/schedules", err
	}
}

// fire fires a schedule, and returns the page of the new run.
func (s *site) fire(ctx context.Context, id string) (string, error) {
	run, err := s.service.AllSessions().Schedules().Fire(ctx, id, operator)
	return pathOf(run), err
}
