package host

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
	ops: map[string]operation{
		"session.get":    {readsSession, "session is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", valueOperation(&ofSession, getValue)},
		"session.list":   {readsSession, "session is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", valueOperation(&ofSession, listValues)},
		"session.set":    {writesSession, noSessionWrite, acting(valueOperation(&ofSession, setValue))},
		"session.delete": {writesSession, noSessionWrite, acting(valueOperation(&ofSession, deleteValue))},
	},
}

const noSessionWrite = "writing session values is not granted to this plugin, or the tool is readonly: it takes the need session: write, and no hint readonly"

func readsSession(c *call) bool  { return c.Policy.Session != "" }
func writesSession(c *call) bool { return c.Policy.Session == abi.StoreWrite }

// sessionText formats a need or a grant as an operator would write it.
func sessionText(mode abi.StoreMode) string { return fmt.Sprintf("session (%s)", mode) }

// ofSession is the value store of the session.
var ofSession = valueStore{
	of: func(c *call) Values { return c.Values }, missing: "this call has no session",
	most: abi.MaxSessionValue, what: "of the session",
}
