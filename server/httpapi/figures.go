package httpapi

import (
	"strings"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// listCalls lists the latest direct calls: for the operator those of all sessions, for a
// user those of its own.
func listCalls(r *request, _ none) (wire.Calls, error) {
	q := server.CallQuery{Tool: r.get("tool"), Failed: r.get("failed") == "true", Limit: r.number("limit", defaultPage)}
	operator := r.caller.Operator()
	if !operator {
		q.Owner = r.caller.Client()
	}

	calls := r.api.service.Figures().Calls(q)
	for i := range calls {
		c := &calls[i]
		c.Session = r.caller.SessionName(c.Session)
		if !operator {
			c.Diagnosis = nil
			if strings.HasPrefix(c.Session, wire.UnnamedPrefix) {
				c.Session = "" // its name is the secret of its client
			}
		}
	}
	return wire.Calls{Calls: calls}, nil
}

func getToolStats(r *request, _ none) (wire.ToolsFigures, error) {
	return wire.ToolsFigures{Tools: r.api.service.Figures().Tools()}, nil
}

func getHistory(r *request, _ none) (wire.History, error) {
	return wire.History{Minutes: r.api.service.Figures().History()}, nil
}
