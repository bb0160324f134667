package webui

import (
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

// overview shows what is wrong, what is in use, what runs, and what has ended.
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

	ended = slices.DeleteFunc(ended, func(r wire.Run) bool { return !r.Status.Terminal() })
	slices.SortStableFunc(ended, func(a, b wire.Run) int { return b.FinishedAt.Compare(a.FinishedAt) })
	return page{"Overview", "/", []section{
		{"problems", newProblems(s.service.Findings())}, {"usage", s.service.Stats()},
		{"active", active}, {"ended", ended[:min(len(ended), maxEnded)]},
	}}, nil
}

// problems are the first problems that need the operator's attention.
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
