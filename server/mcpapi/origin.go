package mcpapi

import (
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server/identity"
)

// origin is what a transport knows of a request. It reaches the handlers where the
// SDK has a place for it: in the information on an access token.
type origin struct {
	identity.Caller
	taskIDs []string                   // the tasks that a subscription is for
	task    bool                       // the call is to become a task at once (2025-11-25)
	send    func(message []byte) error // sends a message that the SDK does not know; nil: impossible
	answer  *stream                    // nil on a pipe
	receipt *receipt                   // of the answer
}

const originKey = "origin"

func (o origin) token() *auth.TokenInfo {
	// The SDK refuses a session to all but the user who began it. No user may be
	// empty, or this would not hold for the operator's sessions.
	return &auth.TokenInfo{UserID: "user " + o.User, Expiration: o.Until, Extra: map[string]any{originKey: o}}
}

// originOf returns the origin of a request, nobody's if it is unknown.
func originOf(extra *mcp.RequestExtra) origin {
	if extra != nil && extra.TokenInfo != nil {
		if o, ok := extra.TokenInfo.Extra[originKey].(origin); ok {
			return o
		}
	}
	return origin{Caller: identity.Nobody}
}

// caller is who makes a request, and what its client can do. It is judged from that
// request alone.
type caller struct {
	origin
	modern  bool
	tasks   bool // takes a task for an answer
	elicits bool // can ask its user
	opens   bool // can ask its user to open a page
}

// request is what requests of the SDK have in common.
type request interface {
	mcp.Request
	ClientCapabilities() *mcp.ClientCapabilities
	ProtocolVersion() string
}

func callerOf(req request) caller {
	c := caller{origin: originOf(req.GetExtra()), modern: req.ProtocolVersion() >= modernVersion}
	if can := req.ClientCapabilities(); can != nil {
		_, tasks := can.Extensions[tasksExtension]
		c.tasks = tasks && c.modern
		e := can.Elicitation
		c.opens = e != nil && e.URL != nil
		c.elicits = e != nil && (e.Form != nil || e.URL == nil) // an empty one means forms
	}
	return c
}
