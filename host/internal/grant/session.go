package grant

import (
	"fmt"

	"github.com/toolhost/toolhost/abi"
)

// sessionCapability grants the values of the session.
var sessionCapability = store("session", "values that the tools of a session share: `read` or `write`", checkSession,
	func(n abi.Needs) abi.StoreMode { return n.Session }, func(g *Grant) *abi.StoreMode { return &g.Session })

func checkSession(g Grant) []GrantProblem {
	switch g.Session {
	case "", abi.StoreRead, abi.StoreWrite:
		return nil
	}
	return []GrantProblem{{"session", fmt.Sprintf("expected read or write, found %q", g.Session)}}
}
