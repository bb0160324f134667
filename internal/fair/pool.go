package fair

import "sync"

// Pool is a number of units, of which one client can hold a part. Nobody waits
// for them. It is safe for concurrent use.
type Pool struct {
	max, each int

	mu   sync.Mutex
	used int            // without what is overdrawn
	held map[string]int // by client; none of them 0
}

// NewPool returns a pool of max units, of which one client can hold each.
func NewPool(max, each int) *Pool { return &Pool{max: max, each: each, held: map[string]int{}} }

// Max is how many units there are.
func (p *Pool) Max() int { return p.max }

// Each is how many units one client can hold.
func (p *Pool) Each() int { return p.each }

// Used is how many units are held, without those that clients have beyond Each.
func (p *Pool) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Take takes n units for a client, or none. Then limit is the one that is
// reached: Each, or Max.
func (p *Pool) Take(key string, n int) (limit int, ok bool) { return p.TakeBelow(p.max, key, n) }

// TakeBelow is Take for clients that leave some units to others: all clients
// together hold at most max after it.
func (p *Pool) TakeBelow(max int, key string, n int) (limit int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	switch {
	case p.held[key]+n > p.each:
		return p.each, false
	case p.used+n > max:
		return max, false
	}
	p.add(key, n)
	return 0, true
}

// Room reports whether a client may have more while all together hold at most
// max. A client that holds nothing may. If not, limit is the one that is reached.
func (p *Pool) Room(max int, key string) (limit int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	switch held := p.held[key]; {
	case held >= p.each:
		return p.each, false
	case held > 0 && p.used >= max:
		return max, false
	}
	return 0, true
}

// Overdraw takes n units for a client, also beyond the limits. Those beyond Each
// count for this client only.
func (p *Pool) Overdraw(key string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(key, n)
}

// Give gives back n units of a client.
func (p *Pool) Give(key string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(key, -n)
}

// add gives a client n units more. p.mu must be held.
func (p *Pool) add(key string, n int) {
	held := p.held[key] + n
	p.used += min(held, p.each) - min(p.held[key], p.each)
	if p.held[key] = held; held <= 0 {
		delete(p.held, key)
	}
}
