package grant

import (
	"fmt"

	"github.com/toolhost/toolhost/abi"
)

// sessionCapability is the values of the session.
var sessionCapability = Capability{
	Name: "session", Doc: "values that the tools of a session share: `read` or `write`",
	Missing: func(n abi.Needs, g Grant) []string {
		if allowsStore(g.Session, n.Session) {
			return nil
		}
		return []string{sessionText(n.Session)}
	},
	Lacking: func(n abi.Needs, g Grant, add *Grant) {
		if !allowsStore(g.Session, n.Session) {
			add.Session = n.Session
		}
	},
	Granted: func(g Grant) []string {
		if g.Session == "" {
			return nil
		}
		return []string{sessionText(g.Session)}
	},
	Check: func(g Grant) []GrantProblem {
		switch g.Session {
		case "", abi.StoreRead, abi.StoreWrite:
			return nil
		}
		return []GrantProblem{{"session", fmt.Sprintf("expected read or write, found %q", g.Session)}}
	},
	Writes: func(g Grant) bool { return g.Session == abi.StoreWrite },
}

// sessionText formats a need or a grant as an operator would write it.
func sessionText(mode abi.StoreMode) string { return fmt.Sprintf("session (%s)", mode) }
