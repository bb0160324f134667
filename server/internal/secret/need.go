package secret

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/wire"
)

// A Need is a missing secret that the user of a call can set on a page.
type Need struct {
	Name  string
	Hosts []string
	URL   string          // address of the page
	Set   <-chan struct{} // closed once the secret has a value
}

// A Call is a call of a tool that may lack a secret of its user.
type Call struct {
	Session string
	Tool    string                   // name for agents
	Sends   func(secret string) bool // whether requests of the tool may carry a secret
}

// lacked returns the link for the secret of its user that a call lacked. A plugin may also
// report that itself, for a secret of its grant.
func (s *Store) lacked(ctx context.Context, c Call, r abi.Result) (need Link, ok bool) {
	u := s.User(wire.UserOf(c.Session))
	if r.Kind != abi.ConnectionRequired || r.Connection == nil || u.vault == nil {
		return Link{}, false
	}
	name := r.Connection.Provider
	if !u.vault.PerUser(name) || !c.Sends(name) {
		return Link{}, false
	}

	if _, err := u.Secret(ctx, name); err != nil && !errors.Is(err, host.ErrNoSecret) {
		return Link{}, false
	}
	session := c.Session
	if before, _, unnamed := strings.Cut(session, wire.UnnamedPrefix); unnamed {
		session = before // the client's next call is in another session
	}
	return Link{User: u.name, Session: session, Tool: c.Tool, Name: name, Hosts: u.vault.Sources()[name].Hosts}, true
}

// Explain adds to the result of a call how to set the secret that it lacked. That is for
// users, not for plugins.
func (s *Store) Explain(ctx context.Context, c Call, r abi.Result) abi.Result {
	need, ok := s.lacked(ctx, c, r)
	if !ok {
		return r
	}

	connection := *r.Connection
	connection.SetupURL = s.pending.url(need)
	r.Connection = &connection
	how := fmt.Sprintf("set it with PUT /v1/secrets/%s, or have the operator set it", need.Name)
	if need.User == "" {
		how = "set it with toolhost secret set " + need.Name
	}
	if connection.SetupURL != "" {
		how = "its user sets it at " + connection.SetupURL
	}
	r.Error = fmt.Sprintf("connect %s first: the secret %q has no value: %s", need.Name, need.Name, how)
	return r
}
