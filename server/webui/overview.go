package webui

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

const (
	maxActive   = 200  // active runs on the overview: there are more only if the operator allows more
	maxEnded    = 10   // ended ones
	maxRecent   = 200  // runs among which those that ended last are looked for
	maxProblems = 50   // that are shown
	maxProblem  = 1000 // bytes of a problem, and of what has it
)

// overview shows what runs, what has ended, what is wrong, and what it takes.
type overview struct {
	site   *site
	known  bool // active and ended are as they are
	active []background.Run
	ended  []background.Run
}

func (s *site) overview(*http.Request) (page, error) { return &overview{site: s}, nil }

func (*overview) name() (title, menu string) { return "Overview", "/" }

func (o *overview) heard(e background.Event) bool {
	if e.Schedule != nil {
		return false
	}
	o.known = o.known && beat(o.active, e)
	return true
}

// read reads the runs.
func (o *overview) read(ctx context.Context) (err error) {
	if o.known {
		return nil
	}
	runs := o.site.service.Runs()
	if o.active, err = runs.AllRuns(ctx, background.Query{Active: true, Limit: maxActive}); err != nil {
		return err
	}
	if o.ended, err = runs.AllRuns(ctx, background.Query{Limit: maxRecent}); err != nil {
		return err
	}
	isActive := map[string]bool{} // one that has ended between the two is shown once
	for _, r := range o.active {
		isActive[r.ID] = true
	}
	o.ended = slices.DeleteFunc(o.ended, func(r background.Run) bool { return !r.Status.Terminal() || isActive[r.ID] })
	slices.SortStableFunc(o.ended, func(a, b background.Run) int { return b.FinishedAt.Compare(a.FinishedAt) })
	o.ended = o.ended[:min(len(o.ended), maxEnded)]
	o.known = true
	return nil
}

func (o *overview) look(ctx context.Context, now time.Time) ([]part, error) {
	if err := o.read(ctx); err != nil {
		return nil, err
	}
	var c collect
	c.add(whole("problems", newProblems(o.site.service.Unusable())))
	c.add(whole("usage", newUsage(o.site.service.Stats())))
	for _, l := range []struct {
		id   string
		runs []background.Run
	}{{"active", o.active}, {"ended", o.ended}} {
		rows, err := runRows(l.id+"-row", l.runs, now)
		if err != nil {
			return nil, err
		}
		c.add(list(l.id, len(rows), rows))
	}
	return c.parts, c.err
}

// problems are what the operator has to look at: the first of them.
type problems struct {
	N     int
	Shown []problem
}

// More is how many are not shown.
func (p problems) More() int { return p.N - len(p.Shown) }

// A problem is what keeps something from working.
type problem struct{ What, Why string }

func newProblems(all []plugins.Problem) problems {
	p := problems{N: len(all)}
	for _, one := range all[:min(len(all), maxProblems)] {
		p.Shown = append(p.Shown, problem{cut(one.File, maxProblem), cut(one.Err.Error(), maxProblem)})
	}
	return p
}

// usage is what runs and calls take, beside what they may.
type usage struct {
	server.Stats
	Calls []tally // how calls ended, the most frequent first
	Runs  []tally // how runs ended, likewise
}

// A tally is how often something was.
type tally struct {
	What string
	N    int64
}

func newUsage(s server.Stats) usage {
	u := usage{Stats: s}
	u.Calls = tallies(outcomes(s.Host.Outcomes))
	ends := map[string]int64{"succeeded": s.Runs.Succeeded, "canceled": s.Runs.Canceled}
	for kind, n := range s.Runs.Failed {
		ends[wordOf(kind)] = n
	}
	u.Runs = tallies(ends)
	return u
}

func outcomes(o host.Outcomes) map[string]int64 {
	return map[string]int64{
		"success": o.Success, "tool error": o.ToolError, "connection required": o.ConnectionRequired, "canceled": o.Canceled,
		"out of fuel": o.Fuel, "time limit": o.Time, "memory limit": o.Memory, "memory of the host": o.HostMemory,
		"output limit": o.Output, "busy": o.Busy, "internal": o.Internal,
	}
}

// tallies leaves out what never was.
func tallies(counts map[string]int64) []tally {
	var out []tally
	for what, n := range counts {
		if n > 0 {
			out = append(out, tally{what, n})
		}
	}
	slices.SortFunc(out, func(a, b tally) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.What, b.What)) })
	return out
}
