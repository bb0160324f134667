package webui

import (
	"context"
	"net/http"
	"slices"

	"github.com/toolhost/toolhost/server/wire"
)

// schedulePages serves the page of schedules and its forms.
type schedulePages struct{ *site }

func (s schedulePages) register() {
	s.show("GET /ui/schedules", s.schedules)
	s.handleSchedule("POST /ui/schedules/{schedule}/disable", "disabled", s.disable)
	s.handleSchedule("POST /ui/schedules/{schedule}/enable", "enabled", s.enable)
	s.handleSchedule("POST /ui/schedules/{schedule}/fire", "fired", s.fire)
	s.handleSchedule("POST /ui/schedules/{schedule}/remove", "removed", s.removeSchedule)
}

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
func (s schedulePages) schedules(r *http.Request) (page, error) {
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

// handleSchedule handles a posted form about a schedule. The function change does what
// the form asks, and returns the address of the next page.
func (s schedulePages) handleSchedule(pattern, did string, change func(ctx context.Context, id string) (to string, err error)) {
	s.handle(pattern, func(w http.ResponseWriter, r *http.Request) error {
		if err := readForm(w, r, maxForm); err != nil {
			return err
		}

		id := r.PathValue("schedule")
		to, err := change(r.Context(), id)
		switch {
		case notFound(err):
			return errNoSchedule
		case err != nil:
			return err
		}

		s.Logger.Info("schedule "+did+" by an operator", "schedule_id", id)
		http.Redirect(w, r, to, http.StatusSeeOther)
		return nil
	})
}

const pathSchedules = "/ui/schedules"

func (s schedulePages) disable(ctx context.Context, id string) (string, error) {
	_, err := s.service.AllSessions().Schedules().Disable(ctx, id)
	return pathSchedules, err
}

func (s schedulePages) enable(ctx context.Context, id string) (string, error) {
	_, err := s.service.AllSessions().Schedules().Enable(ctx, id)
	return pathSchedules, err
}

func (s schedulePages) removeSchedule(ctx context.Context, id string) (string, error) {
	_, err := s.service.AllSessions().Schedules().Remove(ctx, id)
	return pathSchedules, err
}

// fire fires a schedule, and returns the page of the new run.
func (s schedulePages) fire(ctx context.Context, id string) (string, error) {
	run, err := s.service.AllSessions().Schedules().Fire(ctx, id, operator)
	return "/ui/runs/" + run.TaskID, err
}
