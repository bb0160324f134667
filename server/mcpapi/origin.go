package mcpapi

import (
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server/identity"
)

// origin holds what a transport knows about a request. It reaches the handlers in the
// only place that the SDK offers: the information on an access token.
type origin struct {
	identity.Caller
	taskIDs []string                   // tasks of a subscription
	task    bool                       // the call becomes a task at once (2025-11-25)
	send    func(message []byte) error // sends a message that the SDK does not know; nil if that is impossible
	answer  *stream                    // response over HTTP; nil on a pipe
	receipt *receipt                   // tracks whether the answer was written
}

const originKey = "origin"

func (o origin) token() *auth.TokenInfo {
	// The SDK refuses a session to everyone but the user who began it. No user id may be
	// empty, or this would not hold for the operator's sessions.
	return &auth.TokenInfo{UserID: "user " + o.User, Expiration: o.Until, Extra: map[string]any{originKey: o}}
}

// originOf returns the origin of a request; if it is unknown, one whose caller is
// [identity.Nobody].
func originOf(extra *mcp.RequestExtra) origin {
	if extra != nil && extra.TokenInfo != nil {
		if o, ok := extra.TokenInfo.Extra[originKey].(origin); ok {
			return o
		}
	}
	return origin{Caller: identity.Nobody}
}

// caller is the sender of a request, with the client's abilities, as the request shows
// them.
type caller struct {
	origin
	modern  bool
	tasks   bool // accepts a task as an answer
	elicits bool // can ask its user
	opens   bool // can ask its user to open a page
}

// request is the common interface of the SDK's requests.
type request interface {
	mcp.Request
	ClientCapabilities() *mcp.ClientCapabilities
	ClientInfo() *mcp.Implementation
	ProtocolVersion() string
}

func callerOf(req request) caller {
	c := caller{origin: originOf(req.GetExtra()), modern: req.ProtocolVersion() >= modernVersion}
	if can := req.ClientCapabilities(); can != nil {
		_, tasks := can.Extensions[tasksExtension]
		c.tasks = tasks && c.modern
		e := can.Elicitation
		c.opens = e != nil && e.URL != nil
		c.elicits = e != nil && (e.Form != nil || e.URL == nil) // an empty capability means forms
	}
	return c
}
