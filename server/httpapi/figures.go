package httpapi

import (
	"strings"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// listCalls returns the latest calls: of all sessions for the operator, and of their own
// sessions for users.
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
				c.Session = "" // only its client may know its name
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
