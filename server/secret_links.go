package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// Limits of links.
const (
	linkLife    = time.Hour
	maxLinks    = 1024
	maxOfUser   = 16 // links of one user; the oldest is evicted
	maxConnects = 4  // secrets that one call may ask its user for
)

// ErrLink means that a link is unknown, used or expired, or that its secret has been set
// in another way.
var ErrLink = reason.ErrLink

// SecretLink is a one-time address where a user sets one of their secrets. Anyone who
// knows it can set that secret, but not read it.
type SecretLink struct {
	User    string    // owner of the secret
	Session string    // session of the call; "" or USER/ if the client named none
	Tool    string    // tool that was called
	Name    string    // name of the secret
	Hosts   []string  // hosts that may receive the value
	Expires time.Time // an hour after the call

	token string
}

// SecretNeed is a missing secret that the user of a call can set on a page.
type SecretNeed struct {
	Name  string
	Hosts []string
	URL   string          // address of the page
	Set   <-chan struct{} // closed once the secret has a value
}

// ErrNotConnected means that the user did not set a secret that a call needs.
var ErrNotConnected = errors.New("the user did not set the secret")

// SecretLinks holds the links that calls created for missing secrets. They are in memory
// only: a restart voids them. It is safe for concurrent use.
type SecretLinks struct {
	service *Service

	mu      sync.Mutex
	page    string // prefix of links, before the token
	open    map[string]SecretLink
	waiting map[secretKey][]chan struct{}
}

// secretKey identifies a secret of a user.
type secretKey struct{ user, name string }

func newSecretLinks(s *Service) *SecretLinks {
	return &SecretLinks{service: s, open: map[string]SecretLink{}, waiting: map[secretKey][]chan struct{}{}}
}

// SecretLinks returns the links of the service.
func (s *Service) SecretLinks() *SecretLinks { return s.links }

// ServeAt sets the URL of the page for links, such as https://tools.example/secret/.
// Without it, calls create no links.
func (l *SecretLinks) ServeAt(page string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.page = page
}

// Link returns the link with a token. The error matches [ErrLink].
func (l *SecretLinks) Link(token string) (SecretLink, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(time.Now())
	link, ok := l.open[token]
	if !ok {
		return SecretLink{}, ErrLink
	}
	return link, nil
}

// Use sets the secret and voids the link. If [Secrets.Set] fails, the link stays valid.
// The error matches [ErrLink], or is that of Set.
func (l *SecretLinks) Use(ctx context.Context, token, value string) error {
	link, err := l.take(token)
	if err != nil {
		return err
	}
	if err := l.service.Secrets(link.User).Set(ctx, link.Name, value); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open[token] = link
		return err
	}
	return nil
}

// take removes a link, so that only one request uses it.
func (l *SecretLinks) take(token string) (SecretLink, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(time.Now())
	link, ok := l.open[token]
	if !ok {
		return SecretLink{}, ErrLink
	}
	delete(l.open, token)
	return link, nil
}

// expire removes expired links. The caller holds the mutex.
func (l *SecretLinks) expire(now time.Time) {
	for token, link := range l.open {
		if !now.Before(link.Expires) {
			delete(l.open, token)
		}
	}
}

// url returns the address of a link for a secret, or "" if no page serves links. A
// repeated call gets the same link, as long as that has half of its life left.
func (l *SecretLinks) url(need SecretLink) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.page == "" {
		return ""
	}

	now := time.Now()
	l.expire(now)
	for token, link := range l.open {
		if link.User == need.User && link.Session == need.Session && link.Tool == need.Tool && link.Name == need.Name && link.Expires.Sub(now) > linkLife/2 {
			return l.page + token
		}
	}
	l.evict(func(link SecretLink) bool { return link.User == need.User }, maxOfUser)
	l.evict(func(SecretLink) bool { return true }, maxLinks)

	need.token, need.Expires = rand.Text(), now.Add(linkLife)
	l.open[need.token] = need
	return l.page + need.token
}

// evict makes room for one more link of a kind. The caller holds the mutex.
func (l *SecretLinks) evict(kind func(SecretLink) bool, most int) {
	var found []SecretLink
	for _, link := range l.open {
		if kind(link) {
			found = append(found, link)
		}
	}
	slices.SortFunc(found, func(a, b SecretLink) int { return a.Expires.Compare(b.Expires) })
	for _, link := range found[:max(0, len(found)-most+1)] {
		delete(l.open, link.token)
	}
}

// set voids the links for a secret that was set, and wakes the calls that wait for it.
func (l *SecretLinks) set(user, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for token, link := range l.open {
		if link.User == user && link.Name == name {
			delete(l.open, token)
		}
	}
	for _, waiting := range l.waiting[secretKey{user, name}] {
		close(waiting)
	}
	delete(l.waiting, secretKey{user, name})
}

// watch returns a channel that is closed when a secret is set. Call stop when done.
func (l *SecretLinks) watch(user, name string) (set <-chan struct{}, stop func()) {
	waiting, key := make(chan struct{}), secretKey{user, name}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[key] = append(l.waiting[key], waiting)

	return waiting, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting[key] = slices.DeleteFunc(l.waiting[key], func(one chan struct{}) bool { return one == waiting })
		if len(l.waiting[key]) == 0 {
			delete(l.waiting, key)
		}
	}
}

// lacked returns the secret of its user that a call lacked. A plugin may also report that
// itself, for a secret of its grant. Set reports that the secret has a value now.
func (l *SecretLinks) lacked(ctx context.Context, tool *catalog.Tool, session string, r abi.Result) (need SecretLink, set, ok bool) {
	v := l.service.Secrets(wire.UserOf(session))
	if r.Kind != abi.ConnectionRequired || r.Connection == nil || v.vault() == nil {
		return SecretLink{}, false, false
	}
	name := r.Connection.Provider
	if !v.vault().PerUser(name) || !l.service.catalog.Sends(tool, name) {
		return SecretLink{}, false, false
	}

	_, err := v.Secret(ctx, name)
	if err != nil && !errors.Is(err, host.ErrNoSecret) {
		return SecretLink{}, false, false
	}
	if before, _, unnamed := strings.Cut(session, wire.UnnamedPrefix); unnamed {
		session = before // the client's next call is in another session
	}
	return SecretLink{User: v.user, Session: session, Tool: tool.Name, Name: name, Hosts: v.vault().Sources()[name].Hosts}, err == nil, true
}

// link is the stage that adds to a result how to set the secret that the call lacked.
// That is for users, not for plugins.
func (l *SecretLinks) link(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		r, err := next(ctx, c)
		return l.linked(ctx, c.tool, c.Session, r), err
	}
}

func (l *SecretLinks) linked(ctx context.Context, tool *catalog.Tool, session string, r abi.Result) abi.Result {
	need, _, ok := l.lacked(ctx, tool, session, r)
	if !ok {
		return r
	}

	connection := *r.Connection
	connection.SetupURL = l.url(need)
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

// connect is the stage that asks the user of a call for missing secrets. Once they are
// set, the call starts over.
func (l *SecretLinks) connect(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if c.Connect == nil || c.Key != "" || c.DryRun {
			return next(ctx, c)
		}
		return l.connected(ctx, c, next)
	}
}

func (l *SecretLinks) connected(ctx context.Context, c call, next callFunc) (abi.Result, error) {
	asked := map[string]bool{}
	for {
		r, err := next(ctx, c)
		if err != nil || c.note.Run != "" {
			return r, err
		}
		need, set, ok := l.lacked(ctx, c.tool, c.Session, r)
		if !ok || r.Connection.SetupURL == "" || asked[need.Name] || len(asked) == maxConnects {
			return r, nil
		}
		if asked[need.Name] = true; set {
			continue
		}

		err = l.ask(ctx, c, need, r.Connection.SetupURL)
		switch {
		case errors.Is(err, ErrAskAgain):
			return abi.Result{Kind: abi.CanceledKind, Error: err.Error(), Usage: r.Usage}, err
		case ctx.Err() != nil:
			return canceled(ctx, r)
		case err != nil:
			l.service.log.Info("a secret of a user was asked for, and not set", "secret", need.Name, "tool", c.tool.Name, "session", c.Session, "reason", err)
			return r, nil
		}
	}
}

// ask asks the user of a call for a secret, and waits until it is set.
func (l *SecretLinks) ask(ctx context.Context, c call, need SecretLink, url string) error {
	set, stop := l.watch(need.User, need.Name)
	defer stop()
	if _, err := l.service.Secrets(need.User).Secret(ctx, need.Name); err == nil { // it was set a moment ago
		return nil
	}
	return c.Connect(ctx, SecretNeed{Name: need.Name, Hosts: need.Hosts, URL: url, Set: set})
}
