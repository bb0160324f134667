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
	maxOfUser = 16 // links of one user; the oldest is evicted
)

// A Link is a one-time address where a user sets one of their secrets. Anyone who knows it
// can set that secret, but not read it.
type Link struct {
	User    string    // owner of the secret
	Session string    // session of the call; "" or USER/ if the client named none
	Tool    string    // tool that was called
	Name    string    // name of the secret
	Hosts   []string  // hosts that may receive the value
	Expires time.Time // an hour after the call
}

// Links are the links that calls created for missing secrets. They are in memory only: a
// restart voids them. It is safe for concurrent use.
type Links struct{ store *Store }

// ServeAt sets the URL of the page for links, such as https://tools.example/secret/.
// Without it, calls create no links.
func (l *Links) ServeAt(page string) { l.store.links.serveAt(page) }

// Link returns the link with a token. The error matches [reason.ErrLink].
func (l *Links) Link(token string) (Link, error) { return l.store.links.find(token, false) }

// Use sets the secret and voids the link. If [User.Set] fails, the link stays valid. The
// error matches [reason.ErrLink], or is that of Set.
func (l *Links) Use(ctx context.Context, token, value string) error {
	link, err := l.store.links.find(token, true) // so that only one request uses it
	if err != nil {
		return err
	}
	if err = l.store.User(link.User).Set(ctx, link.Name, value); err != nil {
		l.store.links.put(token, link)
	}
	return err
}

// links holds the valid links.
type links struct {
	mu      sync.Mutex
	page    string // prefix of links, before the token
	byToken map[string]Link
}

func (l *links) serveAt(page string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.page = page
}

// find returns the link with a token, and takes it if asked to.
func (l *links) find(token string, take bool) (Link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(time.Now())

	link, ok := l.byToken[token]
	if !ok {
		return Link{}, reason.ErrLink
	}
	if take {
		delete(l.byToken, token)
	}
	return link, nil
}

// put returns a link that was taken.
func (l *links) put(token string, link Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byToken[token] = link
}

// url returns the address of a link for a secret, or "" if no page serves links. A
// repeated call gets the same link, as long as that has half of its life left.
func (l *links) url(need Link) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.page == "" {
		return ""
	}

	now := time.Now()
	l.expire(now)
	for token, link := range l.byToken {
		if link.User == need.User && link.Session == need.Session && link.Tool == need.Tool && link.Name == need.Name && link.Expires.Sub(now) > linkLife/2 {
			return l.page + token
		}
	}
	l.evict(func(link Link) bool { return link.User == need.User }, maxOfUser)
	l.evict(func(Link) bool { return true }, maxLinks)

	token := rand.Text()
	need.Expires = now.Add(linkLife)
	if l.byToken == nil {
		l.byToken = map[string]Link{}
	}
	l.byToken[token] = need
	return l.page + token
}

// expire removes expired links. The caller holds the mutex.
func (l *links) expire(now time.Time) {
	maps.DeleteFunc(l.byToken, func(_ string, link Link) bool { return !now.Before(link.Expires) })
}

// evict makes room for one more link of a kind. The caller holds the mutex.
func (l *links) evict(kind func(Link) bool, most int) {
	var tokens []string
	for token, link := range l.byToken {
		if kind(link) {
			tokens = append(tokens, token)
		}
	}
	slices.SortFunc(tokens, func(a, b string) int { return l.byToken[a].Expires.Compare(l.byToken[b].Expires) })
	for _, token := range tokens[:max(0, len(tokens)-most+1)] {
		delete(l.byToken, token)
	}
}

// void removes the links for a secret.
func (l *links) void(user, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.byToken, func(_ string, link Link) bool { return link.User == user && link.Name == name })
}
