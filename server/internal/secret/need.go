package secret

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// A Call is a call to a tool that may lack a secret of its user.
type Call struct {
	Session string
	Tool    string                   // name for agents
	Sends   func(secret string) bool // whether requests of the tool may carry a secret
}

// need returns the link for a secret of its user that a call may send. Set reports whether the
// secret has a value.
func (s *Store) need(ctx context.Context, c Call, name string) (need Link, set, ok bool) {
	u := s.User(wire.UserOf(c.Session))
	if u.vault == nil || !u.vault.PerUser(name) || !c.Sends(name) {
		return Link{}, false, false
	}
	_, err := u.Secret(ctx, name)
	if err != nil && !errors.Is(err, host.ErrNoSecret) {
		return Link{}, false, false
	}

	session := c.Session
	if before, _, unnamed := strings.Cut(session, wire.UnnamedPrefix); unnamed {
		session = before // the client's next call is in another session
	}
	return Link{User: u.name, Session: session, Tool: c.Tool, Name: name, Hosts: u.vault.Sources()[name].Hosts}, err == nil, true
}

// lacked returns the link for the secret of its user that a call lacked. A plugin may also
// report that itself, for a secret of its grant.
func (s *Store) lacked(ctx context.Context, c Call, r abi.Result) (need Link, ok bool) {
	if r.Kind != abi.ConnectionRequired || r.Connection == nil {
		return Link{}, false
	}
	need, _, ok = s.need(ctx, c, r.Connection.Provider)
	return need, ok
}

// Missing says how to set the secrets of the call's user that the call may send and that have
// no value: one text for each, for at most four secrets.
func (s *Store) Missing(ctx context.Context, c Call) (texts []string) {
	v := s.User("").vault
	if v == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(v.Sources())) {
		if need, set, ok := s.need(ctx, c, name); ok && !set && len(texts) < maxAsked {
			texts = append(texts, need.howToSet(s.pending.url(need)))
		}
	}
	return texts
}

// howToSet says how the user sets the secret, on the page with that address.
func (l Link) howToSet(url string) string {
	how := fmt.Sprintf("set it with PUT /v1/secrets/%s, or have the operator set it", l.Name)
	if l.User == "" {
		how = "set it with toolhost secret set " + l.Name
	}
	if url != "" {
		how = "its user sets it at " + url
	}
	return fmt.Sprintf("the secret %q has no value: %s", l.Name, how)
}

// Explain adds to the result of a call how to set the secret that the call lacked. The result
// is then for users, not for plugins.
func (s *Store) Explain(ctx context.Context, c Call, r abi.Result) abi.Result {
	need, ok := s.lacked(ctx, c, r)
	if !ok {
		return r
	}

	connection := *r.Connection
	connection.SetupURL = s.pending.url(need)
	r.Connection = &connection
	r.Error = fmt.Sprintf("connect %s first: %s", need.Name, need.howToSet(connection.SetupURL))
	return r
}
