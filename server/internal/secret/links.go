package secret

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/server/internal/reason"
)

// Limits of links.
const (
	linkLife  = time.Hour
	maxLinks  = 1024
	maxOfUser = 16 // maximum number of links of one user; the oldest is evicted
)

// A Link is a one-time address where a user sets one of their secrets. Anyone who knows it
// can set that secret, but not read it.
type Link struct {
	User    string    // owner of the secret
	Session string    // session of the call; "" or USER/ if the client named none
	Tool    string    // tool that was called
	Name    string    // name of the secret
	Hosts   []string  // hosts that may receive the value
	Expires time.Time // when the link expires: an hour after the call
}

// answers reports whether a link is for the same secret, and for the same tool and session.
func (l Link) answers(need Link) bool {
	return l.User == need.User && l.Name == need.Name && l.Tool == need.Tool && l.Session == need.Session
}

// Links holds the links that calls created for missing secrets. They are in memory only: a
// restart voids them. It is safe for concurrent use.
type Links struct{ store *Store }

// ServeAt sets the URL of the page for links, such as https://tools.example/secret/.
// Without it, calls create no links.
func (l *Links) ServeAt(page string) { l.store.pending.serveAt(page) }

// Link returns the link that has the given token. The error matches [reason.ErrLink].
func (l *Links) Link(token string) (Link, error) { return l.store.pending.find(token, false) }

// Use sets the secret of the link that has the given token, and voids the link. If [User.Set]
// fails, the link stays valid. The error matches [reason.ErrLink], or comes from Set.
func (l *Links) Use(ctx context.Context, token, value string) error {
	link, err := l.store.pending.find(token, true) // so that only one request uses it
	if err != nil {
		return err
	}
	if err = l.store.User(link.User).Set(ctx, link.Name, value); err != nil {
		l.store.pending.put(token, link)
	}
	return err
}

// userSecret identifies a secret of a user.
type userSecret struct{ user, name string }

// pending holds what ends when a secret is set: its links, and the waits of calls.
type pending struct {
	mu    sync.Mutex
	page  string                       // prefix of links, before the token
	links map[string]Link              // links by their tokens
	waits map[chan struct{}]userSecret // closed once the secret is set
}

func (p *pending) serveAt(page string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page = page
}

// find returns the link with a token, and takes it if asked to.
func (p *pending) find(token string, take bool) (Link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(time.Now())

	link, ok := p.links[token]
	if !ok {
		return Link{}, reason.ErrLink
	}
	if take {
		delete(p.links, token)
	}
	return link, nil
}

// put returns a link that was taken.
func (p *pending) put(token string, link Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[token] = link
}

// url returns the address of a link for a secret, or "" if no page serves links. A
// repeated call gets the same link, as long as that has half of its life left.
func (p *pending) url(need Link) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.page == "" {
		return ""
	}

	now := time.Now()
	p.expire(now)
	for token, link := range p.links {
		if link.answers(need) && link.Expires.Sub(now) > linkLife/2 {
			return p.page + token
		}
	}
	p.evict(func(link Link) bool { return link.User == need.User }, maxOfUser)
	p.evict(func(Link) bool { return true }, maxLinks)

	token := rand.Text()
	need.Expires = now.Add(linkLife)
	p.links[token] = need
	return p.page + token
}

// expire removes expired links. The caller holds the mutex.
func (p *pending) expire(now time.Time) {
	maps.DeleteFunc(p.links, func(_ string, link Link) bool { return !now.Before(link.Expires) })
}

// evict makes room for one more link of a kind. The caller holds the mutex.
func (p *pending) evict(kind func(Link) bool, most int) {
	var tokens []string
	for token, link := range p.links {
		if kind(link) {
			tokens = append(tokens, token)
		}
	}
	slices.SortFunc(tokens, func(a, b string) int { return p.links[a].Expires.Compare(p.links[b].Expires) })
	for _, token := range tokens[:max(0, len(tokens)-most+1)] {
		delete(p.links, token)
	}
}

// watch returns a channel that is closed when a secret is set. Call stop when done.
func (p *pending) watch(user, name string) (set <-chan struct{}, stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := make(chan struct{})
	p.waits[wait] = userSecret{user, name}

	return wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waits, wait)
	}
}

// set voids the links for a secret that was set, and ends the waits for it.
func (p *pending) set(user, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.links, func(_ string, link Link) bool { return link.User == user && link.Name == name })
	for wait, of := range p.waits {
		if of == (userSecret{user, name}) {
			close(wait)
			delete(p.waits, wait)
		}
	}
}
