package webui

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxActive   = 200  // active runs shown; there can be more only if the operator allows more
	maxEnded    = 10   // ended runs shown
	maxRecent   = 200  // newest runs, of which the last to end are shown
	maxClients  = 50   // latest clients shown
	maxProblems = 50   // problems shown
	maxProblem  = 1000 // bytes of a problem, and of its file
)

// overview shows problems, resources in use, active runs, and ended runs.
func (s *site) overview(r *http.Request) (page, error) {
	all := s.service.AllSessions()
	ended, err := all.Runs(r.Context(), server.RunQuery{Limit: maxRecent})
	if err != nil {
		return page{}, err
	}
	active, err := all.Runs(r.Context(), server.RunQuery{Active: true, Limit: maxActive})
	if err != nil {
		return page{}, err
	}

	// A run whose end is not stored yet stands among those that have ended.
	active = slices.DeleteFunc(active, func(r wire.Run) bool { return r.Status.Terminal() })
	waiting := 0
	for _, r := range active {
		if r.Held != "" {
			waiting++
		}
	}
	hosts, err := s.service.Hosts(r.Context())
	if err != nil {
		return page{}, err
	}
	stats, clients := s.service.Stats(), s.service.Connections().List()
	stats.Runs.Queued = max(0, stats.Runs.Queued-waiting) // a held run waits for a person, not for a slot
	ended = slices.DeleteFunc(ended, func(r wire.Run) bool { return !r.Status.Terminal() })
	slices.SortStableFunc(ended, func(a, b wire.Run) int { return b.FinishedAt.Compare(a.FinishedAt) })
	return page{title: "Overview", menu: "/", sections: []section{
		{"problems", newProblems(s.service.Findings())}, {"asked", waiting}, {"load", stats}, {"hosts", hosts},
		{"active", newTable(active, tableActive)}, {"ended", newTable(ended[:min(len(ended), maxEnded)], tableEnded)}, {"history", newHistory("", s.service.Figures().History())},
		{"clients", clients[:min(len(clients), maxClients)]}, {"totals", newTotals(stats)},
	}}, nil
}

// problems holds the first problems that need the operator's attention.
type problems struct {
	N     int
	Shown []wire.FileProblem
}

// More returns how many problems are not shown.
func (p problems) More() int { return p.N - len(p.Shown) }

func newProblems(all []wire.FileProblem) problems {
	p := problems{N: len(all)}
	for _, one := range all[:min(len(all), maxProblems)] {
		p.Shown = append(p.Shown, wire.FileProblem{File: cut(one.File, maxProblem), Error: cut(one.Error, maxProblem)})
	}
	return p
}

// totals counts the runs since startup.
type totals struct {
	Started, Succeeded, Canceled, Refused, Restarted int64
	Failed                                           int64
	Kinds                                            []kindCount // failures by kind, most frequent first
}

// A kindCount is the number of failures of one kind.
type kindCount struct {
	Word string
	N    int64
}

func newTotals(s server.Stats) totals {
	r := s.Runs
	t := totals{Started: r.Spawned, Succeeded: r.Succeeded, Canceled: r.Canceled, Refused: r.Refused, Restarted: r.Rerun}
	for kind, n := range r.Failed {
		t.Failed += n
		t.Kinds = append(t.Kinds, kindCount{wordOf(wire.ErrorKind(kind)), n})
	}
	slices.SortFunc(t.Kinds, func(a, b kindCount) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Word, b.Word)) })
	return t
}
