package httpapi

import (
	"github.com/toolhost/toolhost/pkg/background"
)

// The pages of lists.
const (
	defaultPage = 50
	maxPage     = 200
)

func (a *API) notices(r *request, _ none) (Notices, error) {
	pending, err := a.service.Runs().Pending(r.Context(), r.session, 0)
	if err != nil {
		return Notices{}, err
	}
	shown := pending[:min(r.number("limit"), len(pending))]
	if shown == nil {
		shown = []background.Notice{} // in JSON a list, and not null
	}
	out := Notices{Notices: shown, More: len(pending) - len(shown)}
	out.Text = background.RenderNotices(shown, out.More)
	return out, nil
}

// maxSeen bounds the notices taken at once.
const maxSeen = 1000

func (a *API) acknowledge(r *request, in Seen) (none, error) {
	if len(in.TaskIDs) == 0 || len(in.TaskIDs) > maxSeen {
		return none{}, invalid("task_ids", "expected 1 to %d ids", maxSeen)
	}
	for _, id := range in.TaskIDs {
		if !background.IsRunID(id) {
			return none{}, invalid("task_ids", "%q is no id of a run", shorten(id))
		}
	}
	return none{}, a.service.Runs().Acknowledge(r.Context(), r.session, in.TaskIDs)
}
