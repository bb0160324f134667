package webui

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

// maxSchedules bounds how many schedules a page shows.
const maxSchedules = 200

// schedulesPage shows the schedules of all sessions, or of one.
type schedulesPage struct {
	site    *site
	session string // "": all
	known   bool   // found is as it is
	found   []background.Schedule
	more    int // schedules that are not shown
}

func (s *site) schedules(r *http.Request) (page, error) {
	session, err := param(r, "session", maxSession)
	return &schedulesPage{site: s, session: session}, err
}

func (*schedulesPage) name() (title, menu string) { return "Schedules", "/ui/schedules" }

func (p *schedulesPage) heard(e background.Event) bool {
	if e.Schedule == nil && e.Kind != background.EventMissed {
		return false
	}
	p.known = false
	return true
}

// read reads the schedules: those that will fire first, the soonest at the top.
func (p *schedulesPage) read(ctx context.Context) error {
	if p.known {
		return nil
	}
	found, err := p.site.service.Runs().AllSchedules(ctx)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(s background.Schedule) bool { return p.session != "" && s.Session != p.session })
	slices.SortStableFunc(found, func(a, b background.Schedule) int {
		switch {
		case a.Enabled && b.Enabled:
			return a.NextAt.Compare(b.NextAt)
		case a.Enabled:
			return -1
		case b.Enabled:
			return 1
		}
		return 0
	})
	p.found = found[:min(len(found), maxSchedules)]
	p.more, p.known = len(found)-len(p.found), true
	return nil
}

// A scheduleView is a schedule as the page shows it.
type scheduleView struct {
	background.Schedule
	Once, Next, Last *moment
}

func (p *schedulesPage) look(ctx context.Context, now time.Time) ([]part, error) {
	if err := p.read(ctx); err != nil {
		return nil, err
	}
	rows, err := newRows("schedules-row", p.found, func(s background.Schedule) (string, any) {
		return "schedule-" + s.ID, scheduleView{s, at(s.At, now), at(s.NextAt, now), at(s.LastAt, now)}
	})
	if err != nil {
		return nil, err
	}
	schedules, err := list("schedules", struct {
		N, More int
		Session string
	}{len(rows), p.more, p.session}, rows)
	return []part{schedules}, err
}
