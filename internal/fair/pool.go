package fair

import "sync"

// Pool is a number of units, with a limit on how many each client can hold. Its
// methods do not wait. It is safe for concurrent use.
type Pool struct {
	max, each int

	mu   sync.Mutex
	used int            // units held, without overdrawn ones
	held map[string]int // units held by each client; never 0
}

// NewPool returns a pool of max units, where each is the maximum number that one client can
// hold.
func NewPool(max, each int) *Pool { return &Pool{max: max, each: each, held: map[string]int{}} }

// Max returns the number of units.
func (p *Pool) Max() int { return p.max }

// Each returns how many units one client can hold.
func (p *Pool) Each() int { return p.each }

// Used returns how many units are held, not counting those that a client holds beyond
// Each.
func (p *Pool) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Take takes n units for a client, or none at all. If it takes none, limit is the
// limit that was reached: the value of Each or of Max.
func (p *Pool) Take(key string, n int) (limit int, ok bool) { return p.TakeBelow(p.max, key, n) }

// TakeBelow is like Take, but with a lower limit on the units that all clients
// together can hold.
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

// Room reports whether a client may take more units if all clients together can hold
// max units. A client that holds nothing always may. If it may not, limit is the
// limit that was reached.
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

// Overdraw takes n units for a client, even beyond the limits. Units beyond Each
// count only against this client.
func (p *Pool) Overdraw(key string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(key, n)
}

// Give gives back n of a client's units.
func (p *Pool) Give(key string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(key, -n)
}

// add changes a client's units by n. p.mu must be held.
func (p *Pool) add(key string, n int) {
	held := p.held[key] + n
	p.used += min(held, p.each) - min(p.held[key], p.each)
	if p.held[key] = held; held <= 0 {
		delete(p.held, key)
	}
}
