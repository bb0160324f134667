package webui

import (
	"context"
	"net/http"
	"slices"

	"github.com/toolhost/toolhost/server/wire"
)

// maxSchedules bounds how many schedules a page shows.
const maxSchedules = 200

// schedulesPage shows the schedules of all sessions, or of one.
type schedulesPage struct {
	site    *site
	known   bool   // Found is up to date
	Session string // empty: all
	Found   []wire.Schedule
	More    int // schedules that are not shown
}

func (s *site) schedules(r *http.Request) (page, error) {
	session, err := sessionParam(r)
	return &schedulesPage{site: s, Session: session}, err
}

func (*schedulesPage) name() (title, menu string) { return "Schedules", "/ui/schedules" }

func (p *schedulesPage) changed(e wire.Event) bool {
	if e.Schedule == nil && e.Kind != wire.EventMissed {
		return false
	}
	p.known = false
	return true
}

// readSchedules reads the schedules if they are not up to date: the next to fire
// first, disabled ones last.
func (p *schedulesPage) readSchedules(ctx context.Context) error {
	if p.known {
		return nil
	}
	found, err := p.site.service.AllSessions().Schedules(ctx)
	if err != nil {
		return err
	}

	found = slices.DeleteFunc(found, func(s wire.Schedule) bool { return p.Session != "" && s.Session != p.Session })
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
	p.Found = found[:min(len(found), maxSchedules)]
	p.More, p.known = len(found)-len(p.Found), true
	return nil
}

func (p *schedulesPage) read(ctx context.Context) ([]section, error) {
	if err := p.readSchedules(ctx); err != nil {
		return nil, err
	}
	return []section{{"schedules", p}}, nil
}
