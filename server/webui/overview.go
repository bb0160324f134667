package webui

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxActive   = 200  // active runs on the overview; there are more only if the operator allows more
	maxEnded    = 10   // ended ones
	maxRecent   = 200  // runs among which the last to end are searched
	maxProblems = 50   // that are shown
	maxProblem  = 1000 // bytes of a problem, and of the file that has it
)

// overview shows what runs, what has ended, what is wrong, and what it takes.
type overview struct {
	site   *site
	known  bool // active and ended are up to date
	active []wire.Run
	ended  []wire.Run
}

func (s *site) overview(*http.Request) (page, error) { return &overview{site: s}, nil }

func (*overview) name() (title, menu string) { return "Overview", "/" }

func (o *overview) changed(e wire.Event) bool {
	if e.Schedule != nil {
		return false
	}
	o.known = o.known && anyProgresses(o.active, e)
	return true
}

// readRuns reads the runs if they are not up to date.
func (o *overview) readRuns(ctx context.Context) (err error) {
	if o.known {
		return nil
	}
	runs := o.site.service.AllSessions()
	if o.active, err = runs.Runs(ctx, server.RunQuery{Active: true, Limit: maxActive}); err != nil {
		return err
	}
	if o.ended, err = runs.Runs(ctx, server.RunQuery{Limit: maxRecent}); err != nil {
		return err
	}

	isActive := map[string]bool{} // a run that ended between the two queries is shown once
	for _, r := range o.active {
		isActive[r.TaskID] = true
	}
	o.ended = slices.DeleteFunc(o.ended, func(r wire.Run) bool { return !r.Status.Terminal() || isActive[r.TaskID] })
	slices.SortStableFunc(o.ended, func(a, b wire.Run) int { return b.FinishedAt.Compare(a.FinishedAt) })
	o.ended = o.ended[:min(len(o.ended), maxEnded)]
	o.known = true
	return nil
}

func (o *overview) read(ctx context.Context) ([]section, error) {
	if err := o.readRuns(ctx); err != nil {
		return nil, err
	}

	return []section{
		{"problems", newProblems(o.site.service.Findings())}, {"usage", newUsage(o.site.service.Stats())},
		{"active", o.active}, {"ended", o.ended},
	}, nil
}

// problems are the first problems the operator has to look at.
type problems struct {
	N     int
	Shown []wire.FileProblem
}

// More is how many are not shown.
func (p problems) More() int { return p.N - len(p.Shown) }

func newProblems(all []wire.FileProblem) problems {
	p := problems{N: len(all)}
	for _, one := range all[:min(len(all), maxProblems)] {
		p.Shown = append(p.Shown, wire.FileProblem{File: cut(one.File, maxProblem), Error: cut(one.Error, maxProblem)})
	}
	return p
}

// usage is what runs and calls take of what they may take.
type usage struct {
	server.Stats
	Calls []tally // how calls ended, the most frequent first
	Runs  []tally // how runs ended, likewise
}

// A tally is how often something happened.
type tally struct {
	What string
	N    int64
}

func newUsage(s server.Stats) usage {
	o := s.Host.Outcomes
	calls := map[string]int64{
		"success": o.Success, "tool error": o.ToolError, "connection required": o.ConnectionRequired, "canceled": o.Canceled,
		"out of fuel": o.Fuel, "time limit": o.Time, "memory limit": o.Memory, "memory of the host": o.HostMemory,
		"output limit": o.Output, "busy": o.Busy, "internal": o.Internal,
	}
	runs := map[string]int64{"succeeded": s.Runs.Succeeded, "canceled": s.Runs.Canceled}
	for kind, n := range s.Runs.Failed {
		runs[wordOf(wire.ErrorKind(kind))] = n
	}
	return usage{s, tallies(calls), tallies(runs)}
}

// tallies leaves out what never happened.
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
