// Package share divides what a server has a limited number of among its
// clients, so that none of them can take all of it.
package share

import (
	"strings"
	"sync"
)

// Pool is a number of places, of which one client can hold a part. What a place
// is, and who a client is, is the business of its owner. It is safe for
// concurrent use.
type Pool struct {
	max, each int

	mu   sync.Mutex
	used int            // what is overdrawn left out
	of   map[string]int // by client; none of them 0
}

// New returns a pool of max places, of which one client can hold each.
func New(max, each int) *Pool { return &Pool{max: max, each: each, of: map[string]int{}} }

// Max is how many places there are.
func (p *Pool) Max() int { return p.max }

// Each is how many places one client can hold.
func (p *Pool) Each() int { return p.each }

// Used is how many places are held, those left out that clients have beyond Each.
func (p *Pool) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Take takes n places for a client. If there are not as many for it, it takes
// none and returns the limit that is reached: Each, or Max.
func (p *Pool) Take(who string, n int) (limit int, ok bool) { return p.TakeBelow(p.max, who, n) }

// TakeBelow is Take for clients that leave some places to others: no more than
// most may be taken then, by all clients together.
func (p *Pool) TakeBelow(most int, who string, n int) (limit int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.of[who]+n > p.each:
		return p.each, false
	case p.used+n > most:
		return most, false
	}
	p.change(who, n)
	return 0, true
}

// Room reports whether a client may have more, where no more than most may be
// taken by all together. One that has nothing may, whatever the others have. If
// not, limit is the one that is reached.
func (p *Pool) Room(most int, who string) (limit int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch has := p.of[who]; {
	case has >= p.each:
		return p.each, false
	case has > 0 && p.used >= most:
		return most, false
	}
	return 0, true
}

// Overdraw takes n places for a client, whether there are as many or not. Those
// beyond Each are no places of others: they count for this client only.
func (p *Pool) Overdraw(who string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(who, n)
}

// Give gives back n places that the client has taken.
func (p *Pool) Give(who string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(who, -n)
}

// change has a client have n places more. p.mu is held.
func (p *Pool) change(who string, n int) {
	had := p.of[who]
	has := had + n
	p.used += min(has, p.each) - min(had, p.each)
	if p.of[who] = has; has <= 0 {
		delete(p.of, who)
	}
}

// Most is how many of n places one client can have where the others wait for
// one: three quarters, and at least one.
func Most(n int) int { return max(1, n*3/4) }

// ClientOf is the client that a session counts for. The sessions of a user are
// USER/NAME and count as one client, or a user would have more by naming more.
// Any other session is a client by itself.
func ClientOf(session string) string {
	if user, _, ok := strings.Cut(session, "/"); ok {
		return user + "/"
	}
	return session
}
